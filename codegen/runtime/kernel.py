"""Kernels: compiled functions that check their arguments, run and time themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tir import dtypes
from tir.arith.bounds import extent_range
from tir.arith.intervals import Ranges
from tir.arrays import host_array, refuse_other, refuse_written
from tir.assumptions import assumptions
from tir.constants import constants
from tir.empty import written_names
from tir.ir import Buffer, For, Kind, PrimFunc, Stmt, Store, buffer_nbytes, const_shape
from tir.script.outline import signature_text
from tir.traverse import substatements

from .arguments import argument_words
from .faults import failure
from .memory import DECLINED, address, aligned_memory, maker, new_array
from .signature import LibraryOfOne
from .timing import Timing, sampled, seconds_of, without_collector

if TYPE_CHECKING:
    from ..report import Report

# Most elements stored by a call that holds Python's global lock. To release it takes some 50 ns, and where another thread
# computes, up to 5 ms (`sys.getswitchinterval`) until it is back. So many stores take at most a millisecond or two.
MAX_LOCKED_STORES = 1 << 18

LOADED = ("_entry", "_run", "_signature", "_given", "_makers")  # attributes that belong to this process


class Kernel(LibraryOfOne):
    """A compiled function. Call it with arrays (and ints for sizes) in the order of `func.params`; it writes in place.

    Arrays are numpy's, torch's, or in the host's memory with DLPack or `__array_interface__`; none is copied. Arguments may be
    given by name. Outputs may be given as `out`, or omitted: then they are made, by the library of the inputs, and returned.
    Sizes may be omitted where they follow from the shapes of arrays.
    """

    def __init__(self, func: PrimFunc, lowered: PrimFunc, target, llvm_ir: str, code: bytes):
        self.func, self.lowered, self.target, self._llvm_ir, self.code = func, lowered, target, llvm_ir, code
        self._written = written_names(lowered)

    def __getstate__(self) -> dict[str, Any]:
        """The pickled state, without attributes of this process."""
        return {name: value for name, value in vars(self).items() if name not in LOADED}

    def __str__(self) -> str:
        """The parameters of the kernel, its target, and the length of its code."""
        lines = [f"kernel {self.func.name} for {self.target}"]
        for p in self.func.params:
            use = "a size" if not isinstance(p, Buffer) else "written" if p.name in self._written else "read"
            shape = f"[{', '.join(map(str, p.shape))}]" if isinstance(p, Buffer) else ""
            lines.append(f"  {p.name}: {p.dtype}{shape}, {use}")
        return "\n".join([*lines, f"  {sum(len(k.code) for k in self.parts):,} bytes of machine code"]) + "\n"

    def __repr__(self) -> str:
        return f"<Kernel {signature_text(self.func)} for {self.target}>"

    @property
    def main(self) -> Kernel:
        """The kernel that runs at each call, once constants are prepared."""
        return self

    @property
    def parts(self) -> tuple[Kernel, ...]:
        """The kernels that it consists of: `main`, and the one that prepares constants, if any."""
        return (self,)

    @property
    def prepared(self) -> tuple[Buffer, ...]:
        """The parameters of `main` that hold values computed from constants."""
        return ()

    def prepare(self, *constants) -> list[np.ndarray]:
        """An array for each of `prepared`, computed from those of constants of `func`, in call order. Raises ArgumentError."""
        return []

    @cached_property
    def _entry(self):
        """The machine code as a function of addresses and sizes, which returns its status."""
        from ..llvm.compile import Library
        from ..llvm.emit import symbol

        name = symbol(self.func)
        return Library([self.code], [name], self.target).function(name, len(self.func.params))

    @cached_property
    def _run(self) -> Callable[..., int]:
        """The machine code as a function of arrays and sizes, which returns DECLINED where they may not fit the parameters."""
        from ..llvm.native_call import native_call

        run = native_call(self._entry, self.func.params, self._written, _locked_size(self.lowered))
        return (lambda *arguments: DECLINED) if assumptions(self.func) else run  # which `arguments.argument_words` tests

    def load(self) -> None:
        """Load the machine code and the check of its arguments into this process, as else the first call does. Raises
        UnsupportedProcessor if this processor lacks instructions of the target."""
        for part in self.parts:
            part._run  # noqa: B018

    def __call__(self, *arrays, **named) -> Any:
        """Run once. Returns None where all arguments are given; else the outputs, one or a tuple of them.

        Raises ArgumentError if a shape, dtype, layout, alignment or overlap of the arrays is wrong. Raises MemoryError if
        temporaries do not fit in memory, ZeroDivisionError where an integer is divided by zero, and UnsupportedProcessor as
        `load` does.
        """
        if not named:
            status = self._run(*arrays)
            if not status:
                return None
            if status != DECLINED:
                raise failure(self.lowered, status, arrays, self.func.name)
        if not named and len(arrays) == self._given and all(type(a) is np.ndarray for a in arrays):
            made = [make() for make in self._makers]
            self._called([*arrays, *made])
            return made[0] if len(made) == 1 else tuple(made)
        arguments, results = self._arranged(arrays, named)
        self._called(arguments)
        return results()

    def _arranged(self, arrays: tuple, named: Mapping[str, Any]) -> tuple[list[Any], Callable[[], Any]]:
        """The arguments in the order of the parameters, and the function that gives a call's result."""
        return self._signature.bound(arrays, named, self._viewed, new_array)

    @cached_property
    def _given(self) -> int:
        """The number of arrays of a call without outputs, if these come last, without bfloat16 or open shapes; else -1."""
        signature = self._signature
        plain = signature.constant and signature.last and all(b.dtype != "bfloat16" for b in signature.outputs)
        return len(signature.inputs) if plain and signature.outputs else -1

    @cached_property
    def _makers(self) -> list[Callable[[], np.ndarray]]:
        """The functions that make the outputs, for constant shapes."""
        whole = self._signature.whole
        return [maker(const_shape(b), b.dtype, b.name not in whole) for b in self._signature.outputs]

    def _called(self, arguments: Sequence[Any]) -> None:
        """Run once, with an argument for each parameter."""
        status = self._run(*arguments)
        if status == DECLINED:
            status = self._entry(*self.pointers(*arguments))
        if status:
            raise failure(self.lowered, status, arguments, self.func.name)

    def bind(self, *arrays, **named) -> Callable[[], Any]:
        """The call with these arguments, as a function without any. It keeps the arrays alive; they must not be resized. Omitted
        outputs are made once. Raises ArgumentError as a call does."""
        arguments, results = self._arranged(arrays, named)
        run, entry, pointers = self._run, self._entry, self.pointers(*arguments)

        def call() -> Any:
            status = run(*arguments)
            if status == DECLINED:
                status = entry(*pointers)
            if status:
                raise failure(self.lowered, status, arguments, self.func.name)
            return results()

        return call

    def llvm_ir(self) -> str:
        """The LLVM IR that was emitted, before LLVM's own passes."""
        return self._llvm_ir

    def asm(self) -> str:
        """The assembly of the kernel."""
        from ..llvm.compile import assembly

        return assembly(self._llvm_ir, self.target)

    def report(self) -> Report:
        """The work of the assembly's innermost loops: multiply-adds, loads, spills, and the share of the peak they allow."""
        from ..report import report

        return report(self)

    def export(self, path: str | Path, name: str | None = None, *, compiler: str | None = None) -> Path:
        """Write the kernel as a shared library (.so) or object file (.o) and a C header `<name>.h`; returns the header's path.

        `name` is the C function's, by default as the file without "lib" and suffix; `compiler` links the library (default: cc,
        gcc or clang). Neither Python nor LLVM is needed to use them. Raises ExportError.
        """
        from ..export import export

        return export(self, path, name, compiler=compiler)

    def time(self, *arrays, seconds: float = 0.2, runs: int = 5, max_runs: int = 100, **named) -> Timing:
        """Time calls on these arrays: after one warm-up, at least `runs` samples and at least `seconds` in all.

        Short kernels are called several times a sample, so that a sample takes at least 1 ms.
        """
        call = self.bind(*arrays, **named)
        calls = min(10_000, max(1, int(1e-3 / max(seconds_of(call), 1e-8))))
        with without_collector():
            return sampled(lambda: seconds_of(call, calls), calls, seconds, runs, max_runs)

    def pointers(self, *arrays) -> list[int]:
        """The checked arguments as machine words."""
        return list(argument_words(self.func, self._written, arrays, self._address).values())

    def _viewed(self, a: Any, p: Buffer) -> Any:
        """An argument as a numpy array for the parameter; itself where it is not an array. Raises TypeError."""
        if type(a) is np.ndarray and a.dtype.isbuiltin == 1:
            return a
        found = host_array(a)
        if found is None:
            return a
        if found.dtype == "bfloat16":
            refuse_other(found, p.dtype, found.array.shape)  # as bits it would be taken for uint16
        if p.name in self._written:
            refuse_written(found, a)
        return found.array

    def _address(self, p: Buffer, a: Any, shape: tuple[int, ...]) -> int:
        found = host_array(a)
        if found is None:
            hint = "; np.asarray makes one" if isinstance(a, (int, float, list, tuple, np.generic, memoryview)) else ""
            raise TypeError(f"must be an array, got {type(a).__name__}{hint}")
        refuse_other(found, p.dtype, shape)
        array = found.array
        if not array.flags.c_contiguous:
            raise TypeError(f"must be C-contiguous, got strides {array.strides}; use np.ascontiguousarray")
        if p.name in self._written:
            refuse_written(found, a)
        begin = address(array)
        if begin % dtypes.nbytes(p.dtype):
            raise TypeError(f"must be aligned to its {dtypes.nbytes(p.dtype)}-byte elements, address {begin:#x}")
        return begin


class SplitKernel(Kernel):
    """A kernel of two parts: `preparation` computes values from constants alone, `main` all else.

    A call does both; `bind` and `time` prepare once, whatever the arrays hold later. `llvm_ir`, `asm` and `report` are of `main`.
    """

    def __init__(self, func: PrimFunc, preparation: Kernel, main: Kernel):
        super().__init__(func, main.lowered, main.target, main.llvm_ir(), main.code)
        self.preparation, self._main = preparation, main
        self._constants = constants(func)

    @property
    def main(self) -> Kernel:
        return self._main

    @property
    def parts(self) -> tuple[Kernel, ...]:
        return self.main, self.preparation

    @property
    def prepared(self) -> tuple[Buffer, ...]:
        known = {b.name for b in self._constants}
        return tuple(b for b in self.preparation.func.buffers if b.name not in known)

    def prepare(self, *constants) -> list[np.ndarray]:
        given = dict(zip((b.name for b in self._constants), constants, strict=True))
        made = [aligned_memory(buffer_nbytes(b)).view(dtypes.storage(b.dtype)).reshape(const_shape(b)) for b in self.prepared]
        self.preparation(*(given[b.name] for b in self.preparation.func.buffers if b.name in given), *made)
        return made

    def _prepared(self, arrays: Sequence[Any]) -> list[Any]:
        """The arguments of `main`, made of the call's arguments, which are checked."""
        self.pointers(*arrays)
        given = {p.name: a for p, a in zip(self.func.params, arrays, strict=True)}
        made = self.prepare(*(given[b.name] for b in self._constants))
        given |= {b.name: a for b, a in zip(self.prepared, made, strict=True)}
        return [given[p.name] for p in self.main.func.params]

    def __call__(self, *arrays, **named) -> Any:
        arguments, results = self._arranged(arrays, named)
        self.main._called(self._prepared(arguments))
        return results()

    def bind(self, *arrays, **named) -> Callable[[], Any]:
        arguments, results = self._arranged(arrays, named)
        call = self.main.bind(*self._prepared(arguments))

        def bound() -> Any:
            call()
            return results()

        return bound


def _stores(s: Stmt, ranges: Ranges) -> float:
    """The largest number of elements that a statement stores, for these ranges of variables; infinite if unknown or parallel."""
    if not isinstance(s, For):
        return isinstance(s, Store) + sum(_stores(x, ranges) for x in substatements(s))
    _, last = found = extent_range(s.extent, ranges)
    return inf if last is None or s.kind is Kind.PARALLEL else (last + 1) * _stores(s.body, {**ranges, s.name: found})


def _locked_size(func: PrimFunc) -> int:
    """The largest power of two up to which a call of sizes holds Python's lock; 0 where none does, 1 without sizes."""
    names = [p.name for p in func.sizes]
    found = 0
    for size in (2**n for n in range(MAX_LOCKED_STORES.bit_length() if names else 1)):
        if _stores(func.body, dict.fromkeys(names, (size, size))) > MAX_LOCKED_STORES:
            break
        found = size
    return found
