"""The functions that generated code calls when numba compiles it: those of `python_functions`, on machine numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .. import dtypes
from .errors import Trap
from .python_functions import SHARED, allocator, float_divisions, precision, round_to, saturation


def njit(fn: Callable) -> Callable:
    """`fn` compiled by numba when it is first called; division follows numpy."""
    import numba  # takes long, and few need it

    return numba.njit(fn, error_model="numpy")


def bfloat16_value(bits):
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


def float16_value(bits):
    exponent, mantissa = (int(bits) >> 10) & 31, int(bits) & 1023
    if exponent == 31:
        value = np.inf if mantissa == 0 else np.nan
    elif exponent == 0:
        value = math.ldexp(float(mantissa), -24)
    else:
        value = math.ldexp(float(mantissa + 1024), exponent - 25)
    return np.float32(-value if int(bits) & 0x8000 else value)


def float16_bits(x):
    sign = 0x8000 if math.copysign(1.0, x) < 0.0 else 0
    size = abs(float(x))
    if size != size:
        return np.uint16(0x7E00)
    if size == np.inf:
        return np.uint16(sign | 0x7C00)
    if size < 2.0**-14:
        return np.uint16(sign | int(size * 2.0**24))
    mantissa, exponent = math.frexp(size)
    return np.uint16(sign | ((exponent + 14) << 10) + int(mantissa * 2048.0) - 1024)


def shuffled(n, state):
    """As `shuffle`, for numba, whose generators compile slowly: `state` is an array of one uint64, advanced by SplitMix64."""
    order = np.arange(n)
    for i in range(n - 1, 0, -1):
        state[0] += np.uint64(0x9E3779B97F4A7C15)
        z = state[0]
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        j = np.int64((z ^ (z >> np.uint64(31))) % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    for i in range(n):
        if order[i] != i:
            return order
    return order[::-1].copy()


@cache
def fast_names() -> dict[str, Any]:
    """The names that generated code may use when numba compiles it; see `plain_names`."""
    round_any = njit(round_to)

    def wrapper(dtype):
        narrow = np.dtype(dtype).type
        if dtype == "uint64":
            return njit(lambda x: np.uint64(x))
        return njit(lambda x: np.int64(narrow(x)))

    def rounder(dtype):
        bits, smallest, largest = precision(dtype)
        return njit(lambda x: np.float32(round_any(np.float64(x), bits, smallest, largest)))

    functions = (shuffled, float16_value, float16_bits, bfloat16_value)
    names: dict[str, Any] = {
        "float32": np.float32, "float64": np.float64, "int": njit(lambda x: np.int64(x)), "inf": math.inf, "nan": math.nan,
        "Trap": Trap,
    }  # fmt: skip
    names |= {name: njit(fn) for name, fn in (SHARED | float_divisions()).items()}
    names |= {f.__name__: njit(f) for f in functions}
    names |= {d: wrapper(d) for d in dtypes.TABLE if dtypes.is_int(d)}
    names |= {d: rounder(d) for d in dtypes.TABLE if dtypes.is_half(d)}
    numbers = {d: np.uint64 if d == "uint64" else np.int64 for d in dtypes.TABLE if dtypes.is_int(d)}
    names |= {f"saturated_{d}": njit(saturation(d, number)) for d, number in numbers.items()}
    names |= {f"allocate_{d}": njit(allocator(d)) for d in dtypes.TABLE}
    return names
