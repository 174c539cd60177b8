"""Saved models: files that are mapped into memory and run without a compiler.

A file is a shared library followed by the weights, whole pages, by a description as JSON, by the length of that and by MAGIC. A
library that was exported has the same description, and its weights in a file beside it. Where no C compiler was found, the file
begins with object files instead, which llvmlite loads. The pages of code and weights are shared by all processes that load it.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import tempfile
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from codegen.processor import UnsupportedProcessor, lacking_features
from codegen.runtime import openmp
from codegen.runtime.memory import DECLINED, address, aligned_memory
from tir.dtypes import storage

from .ir import GraphError, Value
from .network import Entry, Network

MAGIC = b"tirmodel"
FORMAT = 2  # of the description; a file of another format is refused
LENGTH_BYTES = 8  # of the number that says how long the description is
PAGE_BYTES = 4096  # bytes: weights begin at a page, so that they can be mapped


def load(path: str | Path) -> Saved:
    """The network in a file that `Model.save` wrote, or in a shared library that `Model.export` wrote, with its file of weights.

    Weights are mapped, not read, and no compiler is needed. A file holds machine code, so load only those that you trust. Raises
    GraphError for another file, UnsupportedProcessor where this processor lacks instructions, FileNotFoundError without the file.
    """
    if not isinstance(path, (str, Path)):
        raise TypeError(f"load takes the path of a file, got {path!r}")
    path = Path(path)
    with path.open("rb") as file:
        description = _description(file, path)
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if missing := lacking_features(description["features"]):
        raise UnsupportedProcessor(f"{path} is for `{description['target']}`, which cannot run here: {missing}")
    return Saved(path, description, _weights(path, description, memory), memory)


class Saved(Network):
    """A network that was loaded from the file `path`. It pickles as that path."""

    def __init__(self, path: Path, description: Mapping[str, Any], weights: np.ndarray, memory: mmap.mmap):
        self.path, self._description, self._memory = path, description, memory
        inputs, outputs = (
            tuple(Value(name, tuple(shape), dtype) for name, shape, dtype in description[kind]) for kind in ("inputs", "outputs")
        )
        super().__init__(
            description["name"], inputs, outputs, {"weights": weights}, description["arena"], description["labels"],
            description["steps"], description["threads"], description["donated"],
        )  # fmt: skip
        self._functions  # noqa: B018 (loaded here, and not in the first call, or in several at once)

    def __reduce__(self) -> tuple[Any, ...]:
        return load, (self.path,)

    @cached_property
    def _functions(self) -> tuple[Entry, Entry | None, Entry | None]:
        found = self._description
        count = 2 + len(self.inputs) + len(self.made)
        arguments = {"run": count, "timed": count + 1, "limit": 1}
        names = {part: name for part, name in found["symbols"].items() if name}
        if found["parallel"]:
            openmp.library()
        if found["objects"]:
            entries = self._objects(names, arguments)
        else:
            library = _opened(self.path)
            entries = {part: _typed(getattr(library, name), arguments[part]) for part, name in names.items()}
        return entries["run"], entries.get("timed"), entries.get("limit")

    def _native(self, written: bool) -> Entry:
        if written or self.donated:
            return super()._native(written)
        entry, first = self._functions[0], len(self.weights) + 1  # after the weights and the arena
        types = [(v.shape, np.dtype(storage(v.dtype))) for v in (*self.inputs, *self.made)]

        def run(*arrays: Any) -> int:
            if len(arrays) != first + len(types):
                return DECLINED
            for a, (shape, dtype) in zip(arrays[first:], types, strict=True):
                fits = type(a) is np.ndarray and a.shape == shape and a.dtype == dtype
                if not (fits and a.flags.c_contiguous and a.flags.aligned):
                    return DECLINED
            return entry(*map(address, arrays))

        return run

    def _objects(self, names: Mapping[str, str], arguments: Mapping[str, int]) -> dict[str, Entry]:
        """The functions of a file that was saved without a C compiler."""
        try:
            from codegen.llvm.compile import Library
            from codegen.target import Target
        except ImportError as error:
            raise ImportError(f"{self.path} was saved without a C compiler, so loading it needs llvmlite: {error}") from None
        target = Target(self._description["target"])
        objects = [self._memory[begin : begin + size] for begin, size in self._description["objects"]]
        runtime = {}
        if limit := names.get("limit"):
            threads = Library([objects.pop(0)], [limit, self._description["limited"]], target)
            runtime = {self._description["wrapped"]: threads.address(self._description["limited"])}
        library = Library(objects, [name for part, name in names.items() if part != "limit"], target, runtime)
        return {part: (threads if part == "limit" else library).function(name, arguments[part]) for part, name in names.items()}


def _typed(function: Any, arguments: int) -> Entry:
    function.argtypes, function.restype = [ctypes.c_void_p] * arguments, ctypes.c_int
    return function


def _opened(path: Path) -> ctypes.CDLL:
    """The library in a file. The dynamic loader would give an older one that it has loaded under the same name, so the name is a
    new one."""
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
            memory, begin = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), 0
    if len(memory) < begin + nbytes:
        raise GraphError(f"{path}: weights are cut off, expected {nbytes:,} bytes")
    return np.frombuffer(memory, np.uint8, nbytes, begin)


def complete(path: Path, description: Mapping[str, Any], weights: Iterable[bytes | memoryview] = ()) -> None:
    """Append a description, and before it the weights if there are any, to a library or to object files."""
    with path.open("ab") as file:
        begin = None
        for piece in weights:
            if begin is None:
                file.write(bytes(-file.tell() % PAGE_BYTES))
                begin = file.tell()
            file.write(piece)
        text = json.dumps({**description, "format": FORMAT, "begin": begin}).encode()
        file.write(text + len(text).to_bytes(LENGTH_BYTES, "little") + MAGIC)
