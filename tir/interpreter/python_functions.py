"""The functions that generated code calls when it runs in plain Python.

`numba_functions` compiles most of them with numba, unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..intrinsics import INTRINSICS
from .errors import Trap


def at(index, extent, site):
    if index < 0 or index >= extent:
        raise Trap(site, index)
    return index


def floordiv(a, b, site):
    if b == 0:
        raise Trap(site, a)
    return a // b


def floormod(a, b, site):
    if b == 0:
        raise Trap(site, a)
    return a % b


def float_division(one):
    """The floor division of floats and its remainder, as in numpy; `one` is 1 of their dtype."""

    def quotient(a, b):
        if b == 0:
            return a / b
        rest = np.fmod(a, b)
        exact = (a - rest) / b
        if rest != 0 and (b < 0) != (rest < 0):
            exact = exact - one
        if exact == 0:
            return np.copysign(exact, a / b)
        whole = np.floor(exact)
        return whole + one if exact - whole > 0.5 else whole

    def rest(a, b):
        found = np.fmod(a, b)
        if found == 0:
            return np.copysign(found, b)
        return found + b if (b < 0) != (found < 0) else found

    return quotient, rest


def saturation(dtype: str, number: Callable) -> Callable:
    """The saturating conversion of floats to an integer dtype; `number` makes its results."""
    lowest, highest, none = (number(n) for n in (*dtypes.limits(dtype), 0))
    low, high = map(float, dtypes.limits(dtype))

    def saturated(x):
        x = float(x)
        if x != x:
            return none
        if x <= low:
            return lowest
        return highest if x >= high else number(x)

    return saturated


def select(condition, true_value, false_value):
    return true_value if condition else false_value


def both(a, b):
    return a and b


def either(a, b):
    return a or b


def round_to(x, bits, smallest, largest):
    """`x` to the nearest multiple of 2**smallest with `bits` significant bits, ties to even; infinite beyond `largest`."""
    if x == 0.0 or not math.isfinite(x):
        return x
    if abs(x) > 2.0 * largest:  # rounding it may overflow
        return math.copysign(math.inf, x)
    _, exponent = math.frexp(x)
    quantum = max(exponent - bits, smallest)
    scaled = math.ldexp(x, -quantum)
    rounded = math.copysign(math.ldexp(float(round(scaled)), quantum), x)
    if abs(rounded) > largest:
        return math.copysign(math.inf, x)
    return rounded


def bfloat16_bits(x):
    return np.uint16(np.float32(x).view(np.uint32) >> np.uint32(16)) if x == x else np.uint16(0x7FC0)


# Used without numba and compiled by numba, unchanged.
SHARED: dict[str, Callable] = {
    "at": at, "within": at, "floordiv": floordiv, "floormod": floormod, "select": select, "both": both, "either": either,
    "bfloat16_bits": bfloat16_bits, **{name: i.evaluate for name, i in INTRINSICS.items()},
}  # fmt: skip


def precision(dtype: str) -> tuple[int, int, float]:
    """The significant bits of a float, the exponent of its smallest subnormal, and its largest finite value."""
    d = dtypes.TABLE[dtype]
    return 1 - int(math.log2(d.eps)), int(math.log2(d.tiny * d.eps)), d.largest


# The value of each pattern of 16 bits, as a float32.
with np.errstate(invalid="ignore"):  # AArch64 reports that signalling NaNs become quiet ones
    FLOAT16_VALUES = np.arange(1 << 16).astype(np.uint16).view(np.float16).astype(np.float32)
BFLOAT16_VALUES = (np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)).view(np.float32)


def plain_names() -> dict[str, Any]:
    """The names that generated code may use, when Python runs it."""

    def shuffled(n, rng):
        return shuffle(n, rng).tolist()

    def wrapper(dtype):
        low, high = dtypes.limits(dtype)
        span = high - low + 1
        return lambda x: x if type(x) is int and low <= x <= high else (int(x) - low) % span + low

    def float16_bits(x):
        return np.float16(x).view(np.uint16)

    narrow = precision("bfloat16")
    names: dict[str, Any] = {
        **SHARED, "float32": np.float32, "float64": np.float64, "shuffled": shuffled,
        "float16_value": FLOAT16_VALUES.__getitem__, "float16_bits": float16_bits, "bfloat16_value": BFLOAT16_VALUES.__getitem__,
        "float16": lambda x: np.float32(np.float16(x)), "inf": math.inf, "nan": math.nan, "Trap": Trap,
        "bfloat16": lambda x: np.float32(round_to(float(x), *narrow)),
    }  # fmt: skip
    names |= {d: wrapper(d) for d in dtypes.TABLE if dtypes.is_int(d)}
    names |= {f"saturated_{d}": saturation(d, int) for d in dtypes.TABLE if dtypes.is_int(d)}
    names |= {f"allocate_{d}": allocator(d) for d in dtypes.TABLE}
    return names | float_divisions()


def float_divisions() -> dict[str, Callable]:
    """The functions of `float_division` for each dtype in which floats are computed."""
    made = {one.dtype.name: float_division(one) for one in (np.float32(1), np.float64(1))}
    return {f"{f.__name__}_{dtype}": f for dtype, both in made.items() for f in both}


def allocator(dtype: str) -> Callable:
    """A function that makes an uninitialised array of a shape."""
    narrow = np.uint16 if dtypes.is_half(dtype) else dtypes.storage(dtype).type
    fill = garbage(dtype)
    return lambda shape: np.full(shape, narrow(fill), narrow)


def garbage(dtype: str) -> int | float | bool:
    """The value of an element of an uninitialised buffer."""
    if dtype == "float16":
        return 0x7E00
    if dtype == "bfloat16":
        return 0x7FC0
    if dtypes.is_float(dtype):
        return math.nan
    return dtype == "bool" or int("7b" * dtypes.nbytes(dtype), 16)


def shuffle(n, rng):
    """The integers below `n` in a random order, never the ascending one if n > 1."""
    order = rng.permutation(n)
    for i in range(n):
        if order[i] != i:
            return order
    return order[::-1].copy()
