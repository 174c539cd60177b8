"""Saved models: files that are mapped into memory and run without a compiler.

A file has one network, or several that share weights: those of the named sizes of an open network, and the plans for others. It
is a shared library, followed by the weights as whole pages, a description as JSON, the length of that, and MAGIC. An exported
library has the same description, and its weights in a file beside it. Where no C compiler was found, the file begins with
object files instead, which llvmlite loads. The pages of code and weights are shared by all processes that load it.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from codegen.processor import UnsupportedProcessor, lacking_features
from codegen.runtime import openmp
from codegen.runtime.memory import DECLINED, address, aligned_memory
from tir.dtypes import storage

from .arguments import overlap
from .growth import GrowingGraph, Growth
from .ir import Graph, GraphError, Value
from .network import Entry, Network
from .sizes import OpenGraph, OpenInput
from .tables import Formulas, TableProgram, Tables

if TYPE_CHECKING:
    from .variants import OpenModel

MAGIC = b"tirmodel"
FORMAT = 3  # version of the description; a file of another one is refused
LENGTH_BYTES = 8  # bytes of the length of the description
WRITTEN_BYTES = 1 << 25  # bytes that are written at a time: Linux keeps parts of a file in large pages if it gets them at once
PAGE_BYTES = 4096  # bytes of a page of memory: weights begin at one, so that they can be mapped


def load(path: str | Path) -> Saved | OpenModel:
    """The network in a file that `save` of a model wrote, or in a shared library that `Model.export` wrote, with its file of
    weights. A network of open sizes is an `OpenModel`, for the sizes in the file alone.

    Weights are mapped, not read, and no compiler is needed. A file holds machine code, so load only those that you trust. Raises
    GraphError for another file, UnsupportedProcessor where this processor lacks instructions, FileNotFoundError without the file.
    """
    if not isinstance(path, (str, Path)):
        raise TypeError(f"load takes the path of a file, got {path!r}")
    file = _File(Path(path))
    if "networks" in file.description:
        return _open_model(file)
    return Saved(file, file.description, {"weights": file.weights})


def restored(source: Path | bytes) -> Saved | OpenModel:
    """The network that was pickled as the path of its file, or as the bytes of one."""
    if isinstance(source, Path):
        return load(source)
    with tempfile.TemporaryDirectory(prefix="tir-") as folder:
        path = Path(folder) / "model"
        path.write_bytes(source)
        file = _File(path)
        file.code  # noqa: B018 (loaded while the file is there)
    file.source = source
    return _open_model(file)


class _File:
    """A file: its description, its mapped memory, and its code."""

    def __init__(self, path: Path):
        self.path = path
        self.source: Path | bytes = path
        with path.open("rb") as opened:
            self.description = _description(opened, path)
            self.memory = _mapped(opened)
        if missing := lacking_features(self.description["features"]):
            raise UnsupportedProcessor(f"{path} is for `{self.description['target']}`, which cannot run here: {missing}")
        self.weights = _weights(path, self.description, self.memory)

    @cached_property
    def code(self) -> Callable[[str, int], Entry]:
        """The functions by name, with their numbers of arguments."""
        if self.description["parallel"]:
            openmp.library()
        if self.description["objects"]:
            return self._objects()
        library = _opened(self.path)
        return lambda name, arguments: _typed(getattr(library, name), arguments)

    def _objects(self) -> Callable[[str, int], Entry]:
        """The functions of a file that was saved without a C compiler."""
        try:
            from codegen.llvm.compile import Library
            from codegen.target import Target
        except ImportError as error:
            raise ImportError(f"{self.path} was saved without a C compiler, so loading it needs llvmlite: {error}") from None
        found = self.description
        target = Target(found["target"])
        objects = [self.memory[begin : begin + size] for begin, size in found["objects"]]
        described = found.get("networks", [found])
        limit, runtime, libraries = described[0]["symbols"]["limit"], {}, {}
        if limit:
            threads = Library([objects.pop(0)], [limit, found["limited"]], target)
            runtime, libraries = {found["wrapped"]: threads.address(found["limited"])}, {limit: threads}
        library = Library(objects, [d["symbols"][part] for d in described for part in ("run", "timed")], target, runtime)
        return lambda name, arguments: libraries.get(name, library).function(name, arguments)

    def functions(self, symbols: Mapping[str, str | None], count: int) -> tuple[Entry, Entry | None, Entry | None]:
        """The functions of a network of `count` arrays, weights and arena included (see `Network._functions`)."""
        run, *others = (
            self.code(name, arguments) if (name := symbols[part]) else None
            for part, arguments in (("run", count), ("timed", count + 1), ("limit", 1))
        )
        assert run is not None
        return run, others[0], others[1]

    @cached_property
    def _blocks(self) -> dict[str, np.ndarray]:
        return {base: self.weights[begin : begin + nbytes] for base, (begin, nbytes) in self.description["blocks"].items()}

    def blocks(self, described: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The blocks of constants of one of several networks."""
        return {base: self._blocks[base] for base in described["blocks"]}


class Saved(Network):
    """A network that was loaded from a file. It pickles as the path of that."""

    def __init__(self, file: _File, description: Mapping[str, Any], weights: Mapping[str, np.ndarray]):
        self._file, self._description = file, description
        inputs, outputs = (
            tuple(Value(name, tuple(shape), dtype) for name, shape, dtype in description[kind]) for kind in ("inputs", "outputs")
        )
        super().__init__(
            description["name"], inputs, outputs, weights, description["arena"], description["labels"],
            description["steps"], description["threads"], description["donated"],
        )  # fmt: skip
        self._functions  # noqa: B018 (loaded here, and not in the first call, or in several at once)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._description is not self._file.description:
            raise TypeError(f"{self.name} is one size of a loaded model of open sizes; pickle that model")
        return restored, (self._file.source,)

    @cached_property
    def _functions(self) -> tuple[Entry, Entry | None, Entry | None]:
        return self._file.functions(self._description["symbols"], len(self.weights) + 1 + len(self.inputs) + len(self.made))

    def _native(self, written: bool) -> Entry:
        return plain_entry(self, written)


def plain_entry(network: Network, written: bool) -> Entry:
    """The entry of a network as a function of arrays, which are checked here."""
    entry, first = network._functions[0], len(network._blocks) + 1  # after the weights and the arena
    weights = [*map(address, network._blocks)]
    values = [*((v, v.name in network.donated.values()) for v in network.inputs), *((v, written) for v in network.made)]
    types = [(v.shape, np.dtype(storage(v.dtype)), changed) for v, changed in values]
    several = any(changed for _, changed in values)

    def run(*arrays: Any) -> int:
        if len(arrays) != first + len(types):
            return DECLINED
        for a, (shape, dtype, changed) in zip(arrays[first:], types, strict=True):
            if not (type(a) is np.ndarray and a.shape == shape and a.dtype == dtype):
                return DECLINED
            flags = a.flags
            if not (flags.c_contiguous and flags.aligned and (flags.writeable or not changed)):
                return DECLINED
        addresses = [*map(address, arrays[first - 1 :])]
        if several:
            spans = zip(addresses[1:], arrays[first:], values, strict=True)
            if overlap(sorted((begin, begin + a.nbytes, changed) for begin, a, (_, changed) in spans)):
                return DECLINED
        return entry(*weights, *addresses)

    return run


class _SavedProgram(TableProgram):
    """The program of a plan in a file."""

    native = staticmethod(plain_entry)

    def __init__(self, file: _File, found: Mapping[str, Any]):
        weights = file.blocks(found)
        sized: dict[int, tuple[np.ndarray, Formulas | None]] = {}
        for n, base, offset, shape, dtype, elements in found["sized"]:
            value = Value("", tuple(shape), dtype)
            memory = weights[base][offset : offset + value.nbytes]
            sized[n] = memory.view(storage(dtype)).reshape(shape), Formulas.read(elements)
        tables = Tables.read(found["tables"], sized)
        super().__init__(found["name"], tables, weights, found["labels"], found["steps"], found["threads"], found["donated"])
        arrays = 2 + len(weights) + len(tables.inputs) + len(tables.outputs) - len(self.donated)
        self.functions = file.functions(found["symbols"], arrays)


class _SavedVariants:
    """The networks and plans of a file, as `Variants`."""

    def __init__(self, file: _File):
        self._file, described = file, file.description["networks"]
        self.named = {tuple(d["row"].items()): Saved(file, d, file.blocks(d)) for d in described if "row" in d}
        self.programs = [_SavedProgram(file, d) for d in described if "tables" in d]

    def model(self, graph: OpenGraph, row: Mapping[str, int], named: bool) -> Network:
        found = self.named.get(tuple((name, row[name]) for name in graph.sizes)) if row.keys() == set(graph.sizes) else None
        if found is None:
            raise self._missing(graph, row)
        return found

    def read(self, graph: OpenGraph, row: Mapping[str, int]) -> Network:
        raise self._missing(graph, row)

    def save(self, model: OpenModel, path: Path, compiler: str | None) -> Path:
        raise GraphError(f"save to {str(path)!r}: {model.name} was loaded from a file, which can be copied")

    def reduced(self, model: OpenModel) -> tuple[Any, ...]:
        return restored, (self._file.source,)

    def _missing(self, graph: OpenGraph, row: Mapping[str, int]) -> GraphError:
        rows = [", ".join(f"{name} = {n}" for name, n in named) for named in self.named]
        known = "; ".join([*rows, *(str(p.tables.coverage) for p in self.programs if p.tables.coverage.least)])
        asked = ", ".join(f"{name} = {n}" for name, n in row.items())
        return GraphError(f"{graph.name}: the file has no code for {asked}, and compiles none; it has {known or 'none'}")


def _open_model(file: _File) -> OpenModel:
    from .variants import OpenModel

    found, variants = file.description, _SavedVariants(file)

    def read(shapes: Mapping[str, Sequence[int]]) -> Graph:
        raise GraphError(f"{found['name']}: the file has machine code alone, no graph")

    inputs = tuple(OpenInput(name, tuple(shape), dtype) for name, shape, dtype in found["inputs"])
    network = found["name"], inputs, tuple(found["outputs"]), read
    growths = tuple(Growth(*g) for g in found["growths"])
    graph = GrowingGraph(*network, growths) if growths else OpenGraph(*network)
    return OpenModel(graph, variants, [dict(named) for named in variants.named])


def _typed(function: Any, arguments: int) -> Entry:
    function.argtypes, function.restype = [ctypes.c_void_p] * arguments, ctypes.c_int
    return function


def _opened(path: Path) -> ctypes.CDLL:
    """The library in a file, opened by a new name, as for a known name the dynamic loader gives the older library."""
    with tempfile.TemporaryDirectory(prefix="tir-") as folder:
        name = Path(folder) / path.name
        name.symlink_to(path.resolve())
        try:
            return ctypes.CDLL(str(name))
        except OSError as error:
            raise GraphError(f"{path} cannot be loaded as a library: {error}") from None


def _description(file: BinaryIO, path: Path) -> dict[str, Any]:
    """The description at the end of a file."""
    size = file.seek(0, os.SEEK_END)
    tail = LENGTH_BYTES + len(MAGIC)
    file.seek(max(0, size - tail))
    end = file.read()
    length = int.from_bytes(end[:LENGTH_BYTES], "little")
    if not end.endswith(MAGIC) or length > size - tail:
        raise GraphError(f"{path} is no model that Model.save or Model.export wrote, or is cut off")
    file.seek(size - tail - length)
    try:
        found = json.loads(file.read(length))
    except ValueError:
        raise GraphError(f"{path} is damaged: its description is no JSON") from None
    given = found.get("format") if isinstance(found, dict) else None
    if given != FORMAT:
        raise GraphError(f"{path} has format {given}, expected {FORMAT}: it was saved by another version")
    return found


def _weights(path: Path, description: Mapping[str, Any], memory: mmap.mmap) -> np.ndarray:
    """The mapped weights, in the file itself or in the one beside it."""
    nbytes, begin = description["weights"], description["begin"]
    if nbytes == 0:
        return aligned_memory(0)
    if begin is None:
        beside = path.with_name(description["weights_file"])
        if not beside.exists():
            raise GraphError(f"{path} needs its weights, the file {beside.name} beside it")
        with beside.open("rb") as file:
            memory, begin = _mapped(file), 0
    if len(memory) < begin + nbytes:
        raise GraphError(f"{path}: weights are cut off, expected {nbytes:,} bytes")
    return np.frombuffer(memory, np.uint8, nbytes, begin)


def _mapped(file: BinaryIO) -> mmap.mmap:
    """The memory of a whole file, in large pages where the system has them."""
    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without large pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def complete(path: Path, description: Mapping[str, Any], weights: Iterable[bytes | memoryview] = ()) -> None:
    """Append a description, and before it the weights if there are any, to a library or to object files."""
    with path.open("ab", WRITTEN_BYTES) as file:
        begin = None
        for piece in weights:
            if begin is None:
                file.write(bytes(-file.tell() % PAGE_BYTES))
                begin = file.tell()
            file.write(piece)
        text = json.dumps({**description, "format": FORMAT, "begin": begin}).encode()
        file.write(text + len(text).to_bytes(LENGTH_BYTES, "little") + MAGIC)
