"""Networks as files: for C a shared library or an object file, a header and a file of weights; for `tir.load` one file."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codegen import Target, backend
from codegen.export import (
    KEYWORDS,
    ExportError,
    Parameter,
    calls_openmp,
    declarations,
    file_and_name,
    found_compiler,
    framed,
    keeping,
    link,
    parameters,
    write,
)
from codegen.llvm.compile import object_code, optimize
from codegen.llvm.cores import without_moving
from codegen.llvm.program import LIMITED, PARALLEL, THREADS, TIMED, entry, limited_threads
from codegen.llvm.scratch import RELEASE
from codegen.processor import INSTRUCTION_SETS, reported_features
from codegen.runtime.alignment import ALIGNMENT, aligned

from .growth import GrowingGraph
from .memory import WEIGHTS, buffer
from .saved import PAGE_BYTES, complete
from .tables import TableProgram

if TYPE_CHECKING:
    from .model import Model
    from .planned import Program
    from .variants import OpenModel

SAVED = "tir_net"  # the C function of a saved model
WRAPPED = {"parallel": f"__real_{PARALLEL}", "limited": f"__wrap_{PARALLEL}"}  # the names that the linker's option --wrap gives


def export(model: Model, path: str | Path, name: str | None = None, *, compiler: str | None = None) -> Path:
    """Write a network as the shared library (.so) or object file (.o) `path`, with `<name>.h` and `<name>.weights` beside it (see
    `codegen.export.export`).

    Returns the header's path. Raises ExportError.
    """
    path, name = file_and_name(path, name)
    kernels = {k.main.symbol: k for k in model.kernels}
    text = entry(name, model.bases, model.steps, model.keeping)
    texts = [without_moving(k.llvm_ir()).replace(f"@{PARALLEL}(", f"@{LIMITED}(") for k in kernels.values()]
    if parallel := any(map(calls_openmp, model.codes.values())):
        texts.append(limited_threads(name, model.target.num_cores))
    module, machine = optimize(text, model.target, texts)
    if model.keeping:
        module.get_function(f"{name}{RELEASE}").name = f"{name}_release"
    if parallel:
        limit = module.get_function(f"{name}{THREADS}")
        limit.name, limit.linkage = f"{name}_threads", "external"
    symbols = {"run": name, "timed": None, "limit": f"{name}_threads" if parallel else None}
    described = description(model, symbols) | {"weights_file": f"{name}.weights"}
    return write(
        path, name, machine.emit_object(module), header_text(model, name, path, parallel), compiler,
        lambda library: complete(library, described), weights=_contents(model),
    )  # fmt: skip


def save(model: Model, path: str | Path, *, compiler: str | None = None) -> Path:
    """Write a network as one file for `tir.load`; returns its path. Raises ExportError."""
    symbols = _symbols(SAVED, model.codes)
    return _saved(Path(path), {SAVED: model}, description(model, symbols), _contents(model), model.target, compiler)


def save_open(model: OpenModel, programs: Sequence[Program], target: Target, path: Path, compiler: str | None = None) -> Path:
    """Write the named sizes of a model, and its plans, as one file for `tir.load`; returns its path. Raises ExportError."""
    if not model.named and not programs:
        raise ExportError(f"save to {str(path)!r}: no sizes of {model.name} were named when it was compiled, so it has no code")
    rows = [dict(zip(model.graph.sizes, key, strict=True)) for key in model.named]
    compiled: list[Any] = [*model.named.values(), *programs]
    found: dict[str, Model | Program] = {f"{SAVED}{n}": network for n, network in enumerate(compiled)}
    codes = {symbol: code for network in found.values() for symbol, code in network.codes.items()}
    blocks = {base: block for network in found.values() for base, block in network.weights.items()}
    ends = list(accumulate(_pages(block.nbytes) for block in blocks.values()))
    networks = []
    for n, (name, network) in enumerate(found.items()):
        own = _program(network) if isinstance(network, TableProgram) else {**_network(network), "row": rows[n]}
        networks.append({**own, "symbols": _symbols(name, codes), "blocks": list(network.weights)})
    described = {
        **_machine(target, bool(networks[0]["symbols"]["limit"])),
        "name": model.name,
        "inputs": [(v.name, v.shape, v.dtype) for v in model.graph.inputs],
        "outputs": model.graph.outputs,
        "growths": [astuple(g) for g in model.graph.growths] if isinstance(model.graph, GrowingGraph) else [],
        "networks": networks,
        "weights": ends[-1],
        "blocks": {base: (end - _pages(b.nbytes), b.nbytes) for (base, b), end in zip(blocks.items(), ends, strict=True)},
    }
    pieces = (piece for b in blocks.values() for piece in (b.data, bytes(_pages(b.nbytes) - b.nbytes)))
    return _saved(path, found, described, pieces, target, compiler)


def _saved(
    path: Path, networks: Mapping[str, Model | Program], described: dict[str, Any], weights: Iterable[bytes | memoryview],
    target: Target, compiler: str | None,
) -> Path:  # fmt: skip
    """Write the code of networks by the names of their functions, their description and weights."""
    if target.mtriple:
        raise ExportError(f"save to {path.name!r}: the model is for {target.mtriple}; export writes an object file for it")
    if not path.parent.is_dir():
        raise ExportError(f"save to {str(path)!r}: folder {str(path.parent)!r} does not exist")
    kernels = {symbol: code for network in networks.values() for symbol, code in network.codes.items()}
    parallel = described["parallel"]
    linked = sys.platform.startswith("linux") and (compiler is not None or found_compiler() is not None)
    texts = [entry(name, n.bases, n.steps, keeping(n.codes), timed=True) for name, n in networks.items()]
    codes = [*(object_code(text, target) for text in texts), *kernels.values()]
    if parallel:
        names = WRAPPED if linked else {}
        codes.insert(0, object_code(limited_threads(SAVED, target.num_cores, **names), target))
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        made = Path(folder) / path.name
        if linked:
            seen = dict.fromkeys(symbol for name in networks for symbol in _symbols(name, kernels).values() if symbol)
            _linked(codes, made, Path(folder), list(seen), compiler, parallel)
        else:
            made.write_bytes(b"".join(codes))
            ends = [sum(map(len, codes[: n + 1])) for n in range(len(codes))]
            described |= {"objects": [(end - len(c), len(c)) for end, c in zip(ends, codes, strict=True)]}
            described |= {"limited": LIMITED, "wrapped": PARALLEL}
        complete(made, described, weights)
        made.replace(path)
    return path


def _symbols(name: str, codes: Mapping[str, bytes]) -> dict[str, str | None]:
    """The functions of a saved network of these kernels, whose entry is `name`."""
    limit = f"{SAVED}{THREADS}" if any(map(calls_openmp, codes.values())) else None
    return {"run": name, "timed": f"{name}{TIMED}", "limit": limit}


def _linked(codes: list[bytes], made: Path, folder: Path, symbols: Sequence[str], compiler: str | None, parallel: bool) -> None:
    """Link object files to a shared library of which only the functions `symbols` are seen outside."""
    sources = [folder / f"{n}.o" for n in range(len(codes))]
    for source, code in zip(sources, codes, strict=True):
        source.write_bytes(code)
    seen = "".join(f' "{name}";' for name in symbols)
    (folder / "symbols").write_text(f"{{ global:{seen} local: *; }};\n")
    words = ["-Xlinker", f"--version-script={folder / 'symbols'}", *([f"-Wl,--wrap={PARALLEL}"] if parallel else [])]
    link(sources, made, parallel, compiler, words)


def description(model: Model, symbols: Mapping[str, str | None]) -> dict[str, Any]:
    """The description of a library with these functions that `tir.load` needs."""
    common = _machine(model.target, symbols["limit"] is not None)
    return {**common, **_network(model), "symbols": dict(symbols), "weights": model.plan.weights_nbytes}


def _machine(target: Target, parallel: bool) -> dict[str, Any]:
    """The part of a description that says where the code runs."""
    needed, known = target.features & INSTRUCTION_SETS, reported_features()
    features = sorted(needed & known if known and not backend(target).missing(target) else needed)
    return {"target": str(target), "features": features, "objects": [], "parallel": parallel}


def _network(model: Model) -> dict[str, Any]:
    """The part of a description that says how a network is called."""
    return {
        "name": model.name,
        "inputs": [(v.name, v.shape, v.dtype) for v in model.inputs],
        "outputs": [(v.name, v.shape, v.dtype) for v in model.outputs],
        "donated": model.donated,
        "arena": model.plan.nbytes,
        "labels": model.labels,
        "steps": model.num_steps,
        "threads": model.target.num_cores,
    }


def _program(program: Program) -> dict[str, Any]:
    """The part of a description that says how the program of a plan is called."""
    sized = []
    for n, (array, elements) in program.tables.sized.items():
        at = program.layout.addresses[program.sized[n]]
        sized.append((n, at.base, at.offset, array.shape, program.sized[n].dtype, elements and elements.written()))
    plain = {"name": program.name, "donated": program.donated, "labels": program.labels, "threads": program.threads}
    return {**plain, "steps": program.num_steps, "tables": program.tables.written(), "sized": sized}


def _contents(model: Model) -> Iterator[bytes | memoryview]:
    """The bytes of the file of weights, with zeros between constants and up to the end of the last page."""
    end = 0
    for value, found in model.plan.addresses.items():
        if found.base == WEIGHTS:
            yield bytes(found.offset - end)
            end = found.offset + value.nbytes
            yield model.weights[WEIGHTS][found.offset : end].data
    yield bytes(_pages(end) - end)


def header_text(model: Model, name: str, path: Path, parallel: bool) -> str:
    """The C header of an exported network."""
    prefix = name.upper()
    weights, arena, alignment = (f"{prefix}_{what}" for what in ("WEIGHTS_BYTES", "ARENA_BYTES", "ALIGNMENT"))
    sizes = {weights: _pages(model.plan.weights_nbytes), arena: max(aligned(model.plan.nbytes), ALIGNMENT), alignment: ALIGNMENT}
    about = [
        f"weights are the {weights} bytes of the file {name}.weights, read-only, as",
        f'mmap(NULL, {weights}, PROT_READ, MAP_PRIVATE, open("{name}.weights", O_RDONLY), 0) gives them;',
        f"arena is memory for this call alone, as aligned_alloc({alignment}, {arena}) gives it.",
        f"Both begin at a multiple of {alignment}.",
    ]
    taken = {*KEYWORDS, "weights", "arena"}
    inputs, outputs = map(buffer, model.graph.inputs), [buffer(v) for v in model.made]
    given = [
        Parameter("const void *weights", f"weights[{weights}]", "read"),
        Parameter("void *arena", f"arena[{arena}]", "written"),
        *parameters(list(inputs), frozenset(model.donated.values()), taken),
        *parameters(outputs, {b.name for b in outputs}, taken),
    ]
    includes = {p.include for p in given if p.include}
    lines = [*(f"#define {k} {size}" for k, size in sizes.items()), "", *declarations(name, given, bool(model.keeping))]
    if parallel:
        note = f"sets the number of threads, 1 to {model.target.num_cores}, for later calls, and returns it; 0 only returns it"
        lines[-1:] = [f"int {name}_threads(int number); /* {note} */", ""]
    return framed(name, f"the network `{model.graph.name}`", model.target, path, parallel, about, includes, lines)


def _pages(nbytes: int) -> int:
    return -(-max(nbytes, 1) // PAGE_BYTES) * PAGE_BYTES
