"""Element types: their names, widths, ranges and numpy storage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from .nearest import did_you_mean


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: `bits` in memory, `eps` from 1.0 to the next float, `tiny` the smallest normal (both 0 for integers)."""

    name: str
    bits: int
    kind: str  # "float", "int", "uint" or "bool"
    eps: float = 0.0
    tiny: float = 0.0

    @property
    def largest(self) -> float:
        """The largest finite float, a mantissa of ones with the exponent opposite to that of `tiny`; 0 for integers."""
        return (2.0 - self.eps) * (2.0 / self.tiny) if self.tiny else 0.0


TABLE = {
    d.name: d
    for d in (
        DType("float64", 64, "float", 2.0**-52, 2.0**-1022),
        DType("float32", 32, "float", 2.0**-23, 2.0**-126),
        DType("float16", 16, "float", 2.0**-10, 2.0**-14),
        DType("bfloat16", 16, "float", 2.0**-7, 2.0**-126),
        DType("int64", 64, "int"),
        DType("int32", 32, "int"),
        DType("int16", 16, "int"),
        DType("int8", 8, "int"),
        DType("uint64", 64, "uint"),
        DType("uint32", 32, "uint"),
        DType("uint16", 16, "uint"),
        DType("uint8", 8, "uint"),
        DType("bool", 8, "bool"),
    )
}

# bfloat16 has no numpy type; its arrays are uint16 bit patterns (or ml_dtypes.bfloat16, which has the same bits).
_STORAGE = {"bfloat16": np.dtype("uint16")}


NO_FLOAT8 = "LLVM has no floats of 8 bits; there are float16, bfloat16, and int8 with a scale"


DTypeLike = str | np.dtype | type[np.generic]


def check(dtype: DTypeLike) -> str:
    """The name of an element type, given by its name or as numpy's; TypeError for any other, with the known ones."""
    if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        given = np.dtype(dtype)
        name = given.name if given.isnative else str(given)
    elif isinstance(dtype, str):
        name = dtype
    else:
        raise TypeError(f"a dtype is a string such as 'float32', or numpy's, got {dtype!r}")
    if name not in TABLE:
        if any(x in name for x in ("float8", "e4m3", "e5m2")):
            raise TypeError(f"{name!r} is not supported: {NO_FLOAT8}")
        near = did_you_mean(name, TABLE)
        raise TypeError(f"unknown dtype {name!r}; {f'{near} ' if near else ''}known are {', '.join(TABLE)}")
    return name


def is_float(name: str) -> bool:
    return TABLE[name].kind == "float"


def is_int(name: str) -> bool:
    """True for signed and unsigned integers, not for bool."""
    return TABLE[name].kind in ("int", "uint")


def is_half(name: str) -> bool:
    """True for a float of 16 bits. Its values are computed in float32, and rounded after each operation."""
    return TABLE[name].kind == "float" and TABLE[name].bits == 16


def computed(name: str) -> str:
    """The dtype in which values are computed."""
    return "float32" if is_half(name) else name


def bits(name: str) -> int:
    return TABLE[name].bits


def nbytes(name: str) -> int:
    return TABLE[name].bits // 8


def storage(name: str) -> np.dtype:
    """The numpy dtype of an array that holds elements of dtype `name`."""
    return _STORAGE.get(name) or np.dtype(name)


@cache
def limits(name: str) -> tuple[int | float, int | float]:
    """Smallest and largest value: -inf and inf for floats."""
    match TABLE[name]:
        case DType(kind="float"):
            return float("-inf"), float("inf")
        case DType(kind="int", bits=b):
            return -(2 ** (b - 1)), 2 ** (b - 1) - 1
        case DType(kind="uint", bits=b):
            return 0, 2**b - 1
        case _:
            return 0, 1


def exact_integers(name: str) -> int:
    """The largest n such that a floating dtype holds all integers of -n .. n; 0 for other dtypes."""
    return int(2 / TABLE[name].eps) if is_float(name) else 0


def holds(wide: str, narrow: str) -> bool:
    """True where a dtype can hold every value of another exactly."""
    a, b = TABLE[wide], TABLE[narrow]
    if a == b or b.kind == "bool":
        return True
    if b.kind == "float":
        return a.kind == "float" and a.eps <= b.eps and a.tiny <= b.tiny and a.largest >= b.largest
    low, high = limits(narrow)
    if a.kind == "float":
        return max(-low, high) <= exact_integers(wide)
    return a.kind != "bool" and limits(wide)[0] <= low and high <= limits(wide)[1]


def promote(a: str, b: str) -> str:
    """The dtype of an operation on `a` and `b`: the wider of one kind; floats win over integers, integers over bool. Signed and
    unsigned give the signed dtype that holds both, at most int64; float16 and bfloat16 give float32."""
    if a == b:
        return a
    rank = {"bool": 0, "uint": 1, "int": 2, "float": 3}
    da, db = TABLE[a], TABLE[b]
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if {da.kind, db.kind} == {"int", "uint"}:
        unsigned, signed = (da, db) if da.kind == "uint" else (db, da)
        return f"int{min(64, max(signed.bits, 2 * unsigned.bits))}"
    return max(da, db, key=lambda d: (rank[d.kind], d.bits)).name


def unit(dtype: str) -> float:
    """The unit roundoff of a float: the largest relative error of rounding to nearest."""
    return TABLE[dtype].eps / 2
