"""Element types of 2, 4 and 8 bits that no processor computes with: their numbers are held by a wider type."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tir import te
from tir.ir import Expr


@dataclass(frozen=True)
class Narrow:
    """Numbers from `low` to `high`, held as `wide`. Floats have so many bits of `fraction`, and `exponent` as the smallest of
    normal numbers. Larger numbers become `beyond`, or `high` if it is None or they are saturated."""

    wide: str
    low: float
    high: float
    fraction: int = 0
    exponent: int = 0
    beyond: float | None = None
    negative_zero: bool = True


def _float(high: float, fraction: int, exponent: int, beyond: float | None, negative_zero: bool = True) -> Narrow:
    return Narrow("float32", -high, high, fraction, exponent, beyond, negative_zero)


NARROW = {
    "int2": Narrow("int8", -2, 1), "uint2": Narrow("uint8", 0, 3), "int4": Narrow("int8", -8, 7), "uint4": Narrow("uint8", 0, 15),
    "float8e4m3fn": _float(448, 3, -6, math.nan), "float8e4m3fnuz": _float(240, 3, -7, math.nan, False),
    "float8e5m2": _float(57344, 2, -14, math.inf), "float8e5m2fnuz": _float(57344, 2, -15, math.nan, False),
    "float4e2m1": _float(6, 1, 0, None),
}  # fmt: skip


def narrow_name(dtype: np.dtype) -> str:
    """Our name for a narrow type of the package ml_dtypes; empty for other types."""
    name = dtype.name.replace("_", "").replace("e2m1fn", "e2m1")
    return name if name in NARROW else ""


def held_as(kind: str) -> str:
    """The element type that holds the numbers of a type: the wide one of a narrow type, else the type itself."""
    return NARROW[kind].wide if kind in NARROW else kind


def narrowed(x: Expr, kind: str, saturate: bool) -> Expr:
    """A number converted to a narrow type: floats are rounded to even, integers wrap around."""
    narrow = NARROW[kind]
    if narrow.wide != "float32":
        count = int(narrow.high - narrow.low) + 1
        return ((x.astype("int32") - int(narrow.low)) % count + int(narrow.low)).astype(narrow.wide)
    real = x if x.dtype == "float64" else x.astype("float32")

    def number(value: float) -> Expr:
        return te.const(value, real.dtype)

    unit = number(2.0 ** (narrow.exponent - narrow.fraction))
    for power in range(narrow.exponent + 1, math.frexp(narrow.high)[1]):
        unit = te.select(te.abs(real) >= number(2.0**power), number(2.0 ** (power - narrow.fraction)), unit)
    rounded = te.nearbyint(real / unit) * unit
    beyond = narrow.high if saturate or narrow.beyond is None else narrow.beyond
    found = te.select(te.abs(rounded) > number(narrow.high), te.copysign(number(beyond), real), rounded)
    return found if narrow.negative_zero else te.select(te.equal(found, number(0)), number(0), found)
