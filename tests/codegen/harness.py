"""The assertion of code generation: what LLVM computes is what the interpreter computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import codegen
from tir import dtypes
from tir.interpreter import run
from tir.ir import Buffer, Const, PrimFunc
from tir.simplify import simplify
from tir.traverse import substitute

ONE = "llvm -num-cores 1"
TWO = "llvm -num-cores 2"


def widened(array: np.ndarray, dtype: str) -> np.ndarray:
    """The values of an array of any dtype, as float64, int64 or uint64."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtypes.is_float(dtype):
        return array.astype(np.float64)
    return array.astype(np.uint64 if dtype == "uint64" else np.int64)


def narrowed(values: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers as an array that a kernel takes for `dtype`; they are taken to be exact in it."""
    if dtype == "bfloat16":
        return np.asarray(np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtypes.storage(dtype))


def integers(func: PrimFunc, seed: int, sizes: dict[str, int] | None = None, low: int = -3, high: int = 4) -> list:
    """An argument for each parameter: integers of low .. high - 1 (from 0 for unsigned ones), so that no sum of them rounds."""
    rng = np.random.default_rng(seed)
    values = {name: Const(n) for name, n in (sizes or {}).items()}
    result: list = []
    for p in func.params:
        if isinstance(p, Buffer):
            shape = tuple(simplify(substitute(d, values)).value for d in p.shape)  # type: ignore[attr-defined]
            first = 0 if p.dtype[0] in "ub" and p.dtype != "bfloat16" else low
            result.append(narrowed(np.asarray(rng.integers(first, 2 if p.dtype == "bool" else high, shape)), p.dtype))
        else:
            result.append(values[p.name].value)
    return result


def copies(args: Sequence) -> list:
    """The arguments again, arrays copied."""
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def same(
    func: PrimFunc,
    args: Sequence | None = None,
    *,
    targets: Sequence[str] = (ONE, TWO),
    tolerance: Callable[[Buffer, np.ndarray], np.ndarray] | None = None,
    reference: PrimFunc | None = None,
) -> list:
    """Assert that the kernels of `func` compute what the interpreter does with `reference` (default: `func` itself).

    Equal bitwise (a NaN equals a NaN); with `tolerance`, which maps a parameter and its expected values to the error allowed
    each element, within that. Returns the arguments as the interpreter left them.
    """
    args = integers(func, 0) if args is None else args
    expected = copies(args)
    run(reference or func, *expected)
    for target in targets:
        found = copies(args)
        codegen.build(func, target)(*found)
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
