"""Arguments for programs of any dtype: small integers, so that the result of a sum does not depend on its order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tir import dtypes
from tir.arith.simplify import simplify
from tir.ir import Buffer, Const, PrimFunc
from tir.traverse import substitute


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


def specials(func: PrimFunc, seed: int, sizes: dict[str, int] | None = None) -> list:
    """Integers as above, of which some are the ends of their type, and some floats no number or infinite."""
    rng, args = np.random.default_rng(seed), integers(func, seed, sizes)
    for p, a in zip(func.params, args, strict=True):
        if isinstance(p, Buffer) and p.dtype != "bool":
            ends = (np.nan, np.inf, -np.inf) if dtypes.is_float(p.dtype) else dtypes.limits(p.dtype)
            a[rng.random(a.shape) < 0.1] = narrowed(np.asarray(ends[int(rng.integers(len(ends)))]), p.dtype)
    return args


def copies(args: Sequence) -> list:
    """The arguments again, arrays copied."""
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]
