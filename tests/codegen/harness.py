"""The assertion of code generation: what LLVM computes is what the interpreter computes."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import dedent

import numpy as np

import codegen
from tests.arrays import copies, integers, widened
from tir import dtypes
from tir.interpreter import run
from tir.ir import Buffer, PrimFunc

ONE = "llvm -num-cores 1"
TWO = "llvm -num-cores 2"


def at_once(*jobs: Callable[[], None]) -> None:
    """Run each job in a thread of its own, all started together; their errors are raised here."""
    barrier = threading.Barrier(len(jobs))
    errors: list[BaseException] = []

    def work(job: Callable[[], None]) -> None:
        try:
            barrier.wait(10)
            job()
        except BaseException as error:  # the outermost frame of the thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(job,), daemon=True) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive(), "a kernel hangs"
    if errors:
        raise errors[0]


def fenced(array: np.ndarray, at_end: bool) -> np.ndarray:
    """A copy that ends where memory does, or begins where it begins: one element further is a fault."""
    page = mmap.PAGESIZE
    size = -(-max(array.nbytes, 1) // page) * page
    memory = mmap.mmap(-1, size + 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for fence in (start, start + page + size):
        if libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = page + (size - array.nbytes if at_end else 0)
    result = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    result[...] = array
    return result


def runs_here(target: str) -> bool:
    """Whether this processor has the instructions of a target."""
    return not codegen.backend(target).missing(codegen.Target(target))


def same(
    func: PrimFunc,
    args: Sequence | None = None,
    *,
    targets: Sequence[str] = (ONE, TWO),
    tolerance: Callable[[Buffer, np.ndarray], np.ndarray] | None = None,
    reference: PrimFunc | None = None,
    fences: bool = False,
) -> list:
    """Assert that the kernels of `func` compute what the interpreter does with `reference` (default: `func` itself).

    Equal bitwise (a NaN equals a NaN); with `tolerance`, which maps a parameter and its expected values to the error allowed
    each element, within that. With `fences`, nothing beside the arrays may be touched, or the process ends. For a target whose
    instructions this processor has not, it is only compiled. Returns the arguments as the interpreter left them.
    """
    args = integers(func, 0) if args is None else args
    expected = copies(args)
    run(reference or func, *expected)
    kernels = {target: codegen.build(func, target) for target in dict.fromkeys(targets)}
    for n, target in enumerate(t for t in targets if runs_here(t)):
        found = [fenced(a, n % 2 == 0) if fences and isinstance(a, np.ndarray) else a for a in copies(args)]
        kernels[target](*found)
        for p, x, y in zip(func.params, expected, found, strict=True):
            if isinstance(p, Buffer):
                _compare(func, target, p, x, y, tolerance)
    return expected


def _compare(func: PrimFunc, target: str, p: Buffer, x: np.ndarray, y: np.ndarray, tolerance) -> None:
    if x.tobytes() == y.tobytes():
        return
    a, b = widened(x, p.dtype), widened(y, p.dtype)
    if dtypes.is_float(p.dtype):
        wrong = ~((a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b)))
        if tolerance is not None:
            with np.errstate(invalid="ignore"):
                wrong &= ~(np.abs(a - b) <= tolerance(p, a))
    else:
        wrong = a != b
    if wrong.any():
        at = tuple(map(int, np.argwhere(wrong)[0]))
        raise AssertionError(
            f"{func.name} on {target}: {p.name} differs in {wrong.sum()} of {wrong.size} elements, first at {at}: "
            f"{a[at]} expected, {b[at]} found\n{func.script()}"
        )


def body(func: PrimFunc) -> str:
    """The statements of a function as its script shows them."""
    lines = func.script().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("def ")) + 1
    kept = [line[4:] for line in lines[start:] if "T.func_attr" not in line]
    return "\n".join(kept).strip("\n")


@dataclass(frozen=True)
class Lowered:
    """A function and what it is after each lowering pass."""

    func: PrimFunc
    stages: dict[str, PrimFunc]
    stage: str  # the pass that is asked about
    numbers: bool

    def becomes(self, expected: str) -> PrimFunc:
        """Assert what the function is after the pass, and that no pass changes its numbers; returns it as it is then."""
        found = body(self.stages[self.stage])
        assert found == dedent(expected).strip("\n"), f"after {self.stage}:\n{found}"
        if self.numbers:
            before = integers(self.func, 0)
            run(self.func, *before)
            for stage, lowered in self.stages.items():
                arguments = integers(self.func, 0)
                run(lowered, *arguments)
                for p, x, y in zip(self.func.params, before, arguments, strict=True):
                    assert not isinstance(p, Buffer) or x.tobytes() == y.tobytes(), (
                        f"{p.name} differs after {stage}:\n{lowered.script()}"
                    )
            same(self.func, targets=[ONE])
        return self.stages[self.stage]


def after(func: PrimFunc, stage: str, *, lanes: int = 8, numbers: bool = True, mcpu: str | None = None) -> Lowered:
    """`func`, lowered for vectors of `lanes` 32-bit elements; without `numbers` they are not compared."""
    target = codegen.Target("llvm", num_cores=1, vector_bits=32 * lanes, mcpu=mcpu)
    stages: dict[str, PrimFunc] = {}
    codegen.lower(func, target, observe=stages.__setitem__)
    return Lowered(func, stages, stage, numbers)
