"""Kernels: compiled functions that check their arguments, run and time themselves."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from math import inf, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tir import dtypes
from tir.constants import constants
from tir.ir import Buffer, Const, For, Kind, PrimFunc, Stmt, Store, const_shape
from tir.traverse import stores, substatements

from .arguments import DECLINED, ArgumentError, address, block, checked
from .timing import Timing, sampled, without_collector

if TYPE_CHECKING:
    from .report import Report

# The most elements that a kernel stores in a call during which no other thread of Python runs. To let them run takes some 50 ns,
# and where one computes, up to 5 ms (`sys.getswitchinterval`) until it gives way again. So many stores take at most a
# millisecond or two.
MAX_LOCKED_STORES = 1 << 18


class Kernel:
    """A compiled function. Call it with numpy arrays (and ints for sizes) in the order of `func.params`; it writes in place."""

    def __init__(self, func: PrimFunc, lowered: PrimFunc, target, llvm_ir: str, code: bytes):
        self.func, self.lowered, self.target, self._llvm_ir, self.code = func, lowered, target, llvm_ir, code
        self._written = {s.buffer.name for s in stores(lowered)}

    @property
    def main(self) -> Kernel:
        """What runs at each call, once constants are prepared."""
        return self

    @property
    def parts(self) -> tuple[Kernel, ...]:
        """The kernels that it consists of: `main`, and the one that prepares, if there is one."""
        return (self,)

    @property
    def prepared(self) -> tuple[Buffer, ...]:
        """The parameters of `main` that hold what was computed from constants: those before the first that it writes."""
        return ()

    def prepare(self, *constants) -> list[np.ndarray]:
        """An array for each of `prepared`, computed from an array for each constant of `func`, in call order. Raises
        ArgumentError where one is not as in a call."""
        return []

    @cached_property
    def _entry(self):
        """The machine code as a function of addresses and sizes, which returns its status."""
        from .llvm.compile import Library
        from .llvm.emit import symbol

        name = symbol(self.func)
        return Library([self.code], [name], self.target).function(name, len(self.func.params))

    @cached_property
    def _run(self) -> Callable[..., int]:
        """The same as a function of arrays and sizes, which returns DECLINED where they may not fit the parameters."""
        from .llvm.native_call import native_call

        short = _stores(self.lowered.body) <= MAX_LOCKED_STORES
        return native_call(self._entry, self.func.params, self._written, short)

    def load(self) -> None:
        """Bring the machine code into this process, and what checks its arguments, which else the first call does. Raises
        UnsupportedProcessor if the target has instructions that this processor has not."""
        for part in self.parts:
            part._run  # noqa: B018

    def __call__(self, *arrays) -> None:
        """Run once. Raises ArgumentError if a shape, dtype, layout, alignment or overlap of the arrays is wrong, MemoryError if
        there is no memory for the temporaries, and UnsupportedProcessor if the target has instructions that this processor has
        not."""
        status = self._run(*arrays)
        if status and (status != DECLINED or self._entry(*self.pointers(*arrays))):
            raise self._no_memory()

    def bind(self, *arrays) -> Callable[[], None]:
        """The call with these arrays as a function without arguments. It keeps the arrays alive; they must not be resized. Raises
        ArgumentError as a call does."""
        run, entry, pointers = self._run, self._entry, self.pointers(*arrays)

        def call() -> None:
            status = run(*arrays)
            if status and (status != DECLINED or entry(*pointers)):
                raise self._no_memory()

        return call

    def _no_memory(self) -> MemoryError:
        return MemoryError(f"{self.func.name}: no memory for its temporaries; the results are undefined")

    def llvm_ir(self) -> str:
        """The LLVM IR that was emitted, before LLVM's own passes."""
        return self._llvm_ir

    def asm(self) -> str:
        """The assembly of the kernel."""
        from .llvm.compile import assembly

        return assembly(self._llvm_ir, self.target)

    def report(self) -> Report:
        """What the innermost loops of the assembly do: multiply-adds, loads, spills, and the share of the peak they allow."""
        from .report import report

        return report(self)

    def export(self, path: str | Path, name: str | None = None, *, compiler: str | None = None) -> Path:
        """Write the kernel as a shared library (.so) or object file (.o) and a C header `<name>.h`; returns the header's path.

        `name` is the C function's, by default as the file without "lib" and suffix; `compiler` links the library (default: cc,
        gcc or clang). Neither Python nor LLVM is needed to use them. Raises ExportError.
        """
        from .export import export

        return export(self, path, name, compiler=compiler)

    def time(self, *arrays, seconds: float = 0.2, runs: int = 5, max_runs: int = 100) -> Timing:
        """Time calls on these arrays: after one warm-up, at least `runs` samples and at least `seconds` in all.

        Short kernels are called several times a sample, so that a sample takes at least 1 ms.
        """
        call = self.bind(*arrays)
        start = time.perf_counter()
        call()
        once = time.perf_counter() - start
        calls = 1 if once >= 1e-3 else min(10_000, max(1, int(1e-3 / max(once, 1e-8))))

        def sample() -> float:
            start = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - start) / calls

        with without_collector():
            return sampled(sample, calls, seconds, runs, max_runs)

    def pointers(self, *arrays) -> list[int]:
        """The checked arguments as machine words."""
        return list(checked(self.func, self._written, arrays, self._address).values())

    def _address(self, p: Buffer, a, shape: tuple[int, ...]) -> int:
        name = self.func.name
        if not isinstance(a, np.ndarray):
            near = "; its .numpy() is one" if hasattr(a, "numpy") else ", such as np.asarray makes"
            raise ArgumentError(f"{name}: {p.name} must be a numpy array, got {type(a).__name__}{near}")
        if a.shape != shape:
            raise ArgumentError(f"{name}: {p.name} must have shape {shape}, got {a.shape}")
        wanted = dtypes.storage(p.dtype)
        if a.dtype != wanted and a.dtype.name != p.dtype:
            hint = " (bfloat16 is passed as uint16 bit patterns or ml_dtypes.bfloat16)" if p.dtype == "bfloat16" else ""
            raise ArgumentError(f"{name}: {p.name} must have dtype {wanted}, got {a.dtype}{hint}")
        if not a.dtype.isnative:
            raise ArgumentError(f"{name}: {p.name} must be in this machine's byte order, got {a.dtype.str}")
        if not a.flags.c_contiguous:
            raise ArgumentError(f"{name}: {p.name} must be C-contiguous, got strides {a.strides}; use np.ascontiguousarray")
        if p.name in self._written and not a.flags.writeable:
            raise ArgumentError(f"{name}: {p.name} is written but the array is read-only")
        begin = address(a)
        if begin % dtypes.nbytes(p.dtype):
            raise ArgumentError(
                f"{name}: {p.name} must be aligned to its {dtypes.nbytes(p.dtype)}-byte elements, address {begin:#x}"
            )
        return begin


class SplitKernel(Kernel):
    """A kernel that computes something from constants alone: `preparation` does that, `main` all else.

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
        made = [_empty(b) for b in self.prepared]
        self.preparation(*(given[b.name] for b in self.preparation.func.buffers if b.name in given), *made)
        return made

    def _prepared(self, arrays: tuple) -> list[Any]:
        """The arguments of `main`, of checked ones."""
        self.pointers(*arrays)
        given = {p.name: a for p, a in zip(self.func.params, arrays, strict=True)}
        made = self.prepare(*(given[b.name] for b in self._constants))
        given |= {b.name: a for b, a in zip(self.prepared, made, strict=True)}
        return [given[p.name] for p in self.main.func.params]

    def __call__(self, *arrays) -> None:
        self.main(*self._prepared(arrays))

    def bind(self, *arrays) -> Callable[[], None]:
        return self.main.bind(*self._prepared(arrays))

    def time(self, *arrays, seconds: float = 0.2, runs: int = 5, max_runs: int = 100) -> Timing:
        return self.main.time(*self._prepared(arrays), seconds=seconds, runs=runs, max_runs=max_runs)


def _stores(s: Stmt) -> float:
    """How many elements a statement stores at most; infinite where that is not known, and for parallel loops."""
    inside = isinstance(s, Store) + sum(map(_stores, substatements(s)))
    if not isinstance(s, For):
        return inside
    return inside * s.extent.value if isinstance(s.extent, Const) and s.kind is not Kind.PARALLEL else inf


def _empty(buffer: Buffer) -> np.ndarray:
    """An array for a buffer of constant shape, not initialised."""
    dtype = np.dtype(dtypes.storage(buffer.dtype))
    return block(prod(const_shape(buffer)) * dtype.itemsize).view(dtype).reshape(const_shape(buffer))
