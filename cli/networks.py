"""Networks on the command lines: reading and compiling them, reading their inputs, and writing their outputs."""

from __future__ import annotations

import argparse
import io
import sys
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from tir.files import write_atomically
from tir.nearest import near_file

from .options import Usage, refusing, writable

if TYPE_CHECKING:
    from codegen import Target
    from graph import Graph, Model, OpenGraph

Shape = tuple[int, ...]
PRECISION = "bfloat16|float16|tf32"
PRECISION_HELP = (
    "compute with activations and weights of 16 bits in place of float32; sums, norms and softmax in float32; on a GPU "
    "tf32: factors of products are rounded"
)
WEIGHTS = ("int8", "int4")  # of --quantise without data
QUANTISE = "FILE.npz|int8|int4"
QUANTISE_HELP = (
    "compute in integers of 8 bits, calibrated by the samples of FILE.npz, arrays by the names of inputs; int8 and int4: "
    "weights alone"
)


def load(path: str, shapes: Sequence[tuple[str, Shape]] = (), inputs: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The network of an ONNX file, or of an exported program of torch (.pt2), with shapes of `shapes`, else of `inputs`."""
    from graph import GraphError, OpenGraph, load_onnx

    given = {name: a.shape for name, a in (inputs or {}).items()} | dict(shapes)
    try:
        graph = _of_torch(path, given) if path.endswith(".pt2") else load_onnx(path, given)
    except (GraphError, ImportError) as error:
        raise Usage(str(error)) from None
    except OSError as error:
        raise Usage(f"cannot read {path}: {error.strerror}") from None
    if isinstance(graph, OpenGraph):
        v = next(v for v in graph.inputs if any(isinstance(d, str) for d in v.shape))
        shape = f"[{', '.join(map(str, v.shape))}]"
        size = next(d for d in v.shape if isinstance(d, str))
        how = f"give it: --shape {v.name}=..., or its sizes: --shape {size}=..."
        raise Usage(f"{path}: the shape of the input `{v.name}` is open, {shape}; {how}")
    return graph.with_(name=Path(path).stem)


def _of_torch(path: str, shapes: Mapping[str, Shape]) -> Graph | OpenGraph:
    from graph.torch import from_torch

    if not Path(path).is_file():
        raise Usage(f"cannot read {path}: No such file or directory")
    try:
        from torch.export import load as exported
    except ImportError:
        raise Usage(f"reading {path} needs the package torch: pip install torch") from None
    return from_torch(exported(path), shapes)


def for_processors(args: argparse.Namespace, options: Sequence[str], target: Target) -> None:
    """Raise Usage if one of some options is given with a target that is no processor."""
    from codegen import backend

    if backend(target).device is not None and (option := next((o for o in options if getattr(args, o)), None)):
        raise Usage(f"--{option} is for processors, target llvm, got {target.kind}")


def compiled(graph: Graph, target: Target, records: str | None = None) -> Model:
    """The network with the schedules that a file holds, and a warning where these were recorded for another target."""
    from graph import compile
    from search.records import NearHit, RecordsError

    if records is not None and not Path(records).is_file():
        raise Usage(f"--records: there is no file {records}{near_file(records)}")
    with warnings.catch_warnings(record=True) as caught, refusing("--records", RecordsError):
        warnings.simplefilter("always", NearHit)
        model = compile(graph, target, records=records)
    if near := [w for w in caught if issubclass(w.category, NearHit)]:
        print(f"warning: {len(near)} of {len(set(model.kernels))} kernels: {near[0].message}", file=sys.stderr)
    return model


def check_exportable(path: str) -> None:
    """Raise Usage if a network cannot be written there, as far as that is known before."""
    from codegen.export import ExportError, file_and_name

    with refusing("--export", ExportError):
        file_and_name(Path(path), None)
    writable("--export", path)


def export(model: Model, path: str, stream: IO[str]) -> None:
    """Write a network as a library or an object file, and print the names of the files on `stream`."""
    from codegen import ExportError

    with refusing("--export", (ExportError, OSError)):
        header = model.export(path)
    print(f"exported: {path}, {header} and {header.with_suffix('.weights')}", file=stream)


def quantised(graph: Graph, given: str, target: Target, stream: IO[str]) -> Graph:
    """The network quantised by the samples of a file, or with weights alone of one of WEIGHTS. Prints the report."""
    from graph import GraphError, quantise

    with refusing("--quantise", (GraphError, ValueError)):
        if given in WEIGHTS:
            found = quantise(graph, weights=given, target=target)  # type: ignore[arg-type]
        elif not Path(given).is_file():
            raise Usage(f"--quantise: there is no file {given}; expected samples in FILE.npz, {' or '.join(WEIGHTS)}")
        else:
            found = quantise(graph, read_arrays(given, "--quantise"), target=target)
    print(found.report, file=stream)
    return found


def in_precision(graph: Graph, dtype: str, target: Target) -> Graph:
    """The network with activations, weights or factors of fewer bits, as `--precision` says."""
    from codegen import backend
    from graph.compilation import passes_for
    from graph.passes import PASSES
    from graph.passes.precision import in_precision

    device = backend(target).device is not None
    with refusing("--precision", ValueError):
        return in_precision(graph, dtype, PASSES if device else passes_for(target), device)


def read_arrays(path: str, option: str = "--inputs") -> dict[str, np.ndarray]:
    """The arrays of an option, a file that `numpy.savez` wrote, by name."""
    what = f"{option}: {path} is no file of numpy.savez, or is damaged"
    if not Path(path).is_file():
        raise Usage(f"{option}: there is no file {path}")
    with refusing(what, (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error)):
        found = np.load(path)
        arrays = {name: found[name] for name in found.files} if isinstance(found, np.lib.npyio.NpzFile) else None
    if arrays is None:
        raise Usage(f"{option}: {path} holds one array; numpy.savez writes several, by name")
    return arrays


def write_arrays(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays for `read_arrays`: as `numpy.savez` does, but under any names."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    write_atomically(Path(path), content.getvalue())
