"""What instructions compute, lane by lane: functions of their parts and of arrays, by the names of PTX ISA, chapter "Instruction Set".

Approximations (`rcp.approx`, `ex2.approx` ...) are the true value moved at random by as much as the manual leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

TYPES = {
    "pred": np.dtype(bool), "f16": np.dtype(np.float16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    **{f"{kind}{bits}": np.dtype(f"{'i' if kind == 's' else 'u'}{bits // 8}") for kind in "bus" for bits in (8, 16, 32, 64)},
}  # fmt: skip
WIDE = {2: np.dtype("i4"), 4: np.dtype("i8")}
RANDOM = np.random.default_rng(0)
Parts = Sequence[str]


def wide(dtype: np.dtype) -> np.dtype:
    """The integer type of twice the bits."""
    return np.dtype(f"{dtype.kind}{dtype.itemsize * 2}")


# --- rounding ------------------------------------------------------------------------------------------------------------


def odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b of doubles rounded to odd: what is then rounded to at most 51 bits is rounded once (Boldo and Melquiond 2008)."""
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    inexact = np.isfinite(total) & (error != 0) & (total.view(np.uint64) & np.uint64(1) == 0)
    return np.where(inexact, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


def narrowed(exact: np.ndarray, parts: Parts) -> np.ndarray:
    """A double, exact or rounded to odd, as float32 in the direction that the instruction names."""
    result = exact.astype(np.float32)
    if "rm" in parts:
        return np.where(result > exact, np.nextafter(result, np.float32(-np.inf)), result)
    if "rp" in parts:
        return np.where(result < exact, np.nextafter(result, np.float32(np.inf)), result)
    if "rz" in parts:
        return np.where(abs(result.astype(np.float64)) > abs(exact), np.nextafter(result, np.float32(0)), result)
    return result


def fused(parts: Parts, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c, rounded once."""
    if a.dtype == np.float64:
        return _fused_doubles(*np.broadcast_arrays(a, b, c))
    product, addend = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + addend
    if not {"rm", "rp", "rz"} & set(parts):
        near = total.view(np.uint64) & np.uint64(0x1FFFFFFF) == np.uint64(0x10000000)  # between two floats, as rounded
        if not (near | (abs(total) < 2.0**-125)).any():
            return total.astype(np.float32)
    return narrowed(odd_sum(product, np.broadcast_to(addend, product.shape)), parts)


def _fused_doubles(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """By exact products (Dekker 1971) and sums; as fractions where a part may leave the normal numbers."""
    high, low = _product(a, b)
    first, second = _sum(c, low)
    first, third = _sum(high, first)
    result = first + odd_sum(third, second)
    sizes = np.stack([abs(a), abs(b), abs(high), abs(c)])
    hard = ((sizes != 0) & ~((sizes > 1e-200) & (sizes < 1e200))).any(0)
    for i in np.argwhere(hard):
        x, y, z = (v[tuple(i)] for v in (a, b, c))
        finite = np.isfinite([x, y, z]).all() and (exact := Fraction(x) * Fraction(y) + Fraction(z)) != 0
        result[tuple(i)] = _nearest(exact) if finite else x * y + z
    return np.asarray(result)


def _nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


def _sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    def halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scaled = x * 134217729.0
        top = scaled - (scaled - x)
        return top, x - top

    high, (a1, a2), (b1, b2) = a * b, halves(a), halves(b)
    return high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2


def flushed(x: np.ndarray) -> np.ndarray:
    """Subnormal numbers of float32 as zeros of their sign."""
    return np.where(abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


def approximate(function: Callable, relative: float) -> Callable:
    """An approximation of a function within a relative error. Values of 24 bits, such as powers of two, are exact: NVRTC's steps for
    functions of doubles scale by `ex2.approx` of whole numbers."""

    def apply(parts: Parts, *args: np.ndarray) -> np.ndarray:
        args = tuple(flushed(x) for x in args) if "ftz" in parts else args
        true = function(*(x.astype(np.float64) for x in args))
        moved = true * (1 + RANDOM.uniform(-relative, relative, true.shape))
        result = np.where(true.astype(np.float32) == true, true, moved).astype(args[0].dtype)
        return flushed(result) if "ftz" in parts else result

    return apply


# --- instructions, where numpy has no function of one line ---------------------------------------------------------------


def _floats(function: Callable) -> Callable:
    """A function of integers, or of floats to the nearest; a fused product in any direction."""

    def apply(parts: Parts, *args: np.ndarray) -> np.ndarray:
        if args[0].dtype.kind != "f":
            return function(*args)
        if function is fused and "ftz" not in parts and "sat" not in parts:
            return fused(parts, *args)
        if {"rm", "rp", "rz", "ftz", "sat", "approx", "full"} & set(parts):
            raise NotImplementedError(".".join(parts))
        return function(*args)

    return apply


def _multiply(parts: Parts, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Low or high half of a product of integers, or all of it (`.wide`)."""
    if a.dtype.kind == "f":
        return _floats(np.multiply)(parts, a, b)
    if "wide" in parts:
        return a.astype(wide(a.dtype)) * b.astype(wide(a.dtype))
    if "hi" not in parts:
        return a * b
    if a.dtype.itemsize == 8:
        return _high_half(a, b)
    bits = a.dtype.itemsize * 8
    return ((a.astype(wide(a.dtype)) * b.astype(wide(a.dtype))) >> bits).astype(a.dtype)


def _high_half(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Bits 64 to 127 of a product, by halves; of signed numbers less what their signs add."""
    x, y, low = a.view(np.uint64), b.view(np.uint64), np.uint64(0xFFFFFFFF)
    n = np.uint64(32)
    middle = (x >> n) * (y & low) + (((x & low) * (y & low)) >> n)
    other = (x & low) * (y >> n) + (middle & low)
    high = (x >> n) * (y >> n) + (middle >> n) + (other >> n)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, 0).astype(np.uint64) - np.where(b < 0, x, 0).astype(np.uint64)
    return high.view(a.dtype)


def _divide(parts: Parts, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A quotient; of integers toward zero, and all ones for a divisor of zero."""
    if a.dtype.kind == "f":  # the approximation is within two units of the last place
        return (approximate(np.divide, 2.0**-24) if "approx" in parts else _floats(np.divide))(parts, a, b)
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    quotient = a // safe
    quotient = quotient + ((quotient * safe != a) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, np.array(-1).astype(a.dtype), quotient)


def _remainder(parts: Parts, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, a, a - _divide(parts, a, b) * b)


def _shift(left: bool) -> Callable:
    def apply(parts: Parts, a: np.ndarray, count: np.ndarray) -> np.ndarray:
        """Counts beyond the width are the width."""
        bits = a.dtype.itemsize * 8
        held = np.minimum(count, bits - 1).astype(a.dtype)
        shifted = a << held if left else a >> held
        return np.where(count < bits, shifted, 0 if left or a.dtype.kind == "u" else a >> (bits - 1)).astype(a.dtype)

    return apply


def _funnel(parts: Parts, low: np.ndarray, high: np.ndarray, count: np.ndarray) -> np.ndarray:
    """`shf`: the upper half of two registers shifted left, or the lower half of them shifted right; counts `wrap` or are clamped."""
    count = (count & np.uint32(31) if "wrap" in parts else np.minimum(count, np.uint32(32))).astype(np.uint64)
    both = high.astype(np.uint64) << np.uint64(32) | low
    return ((both << count) >> np.uint64(32) if "l" in parts else both >> count).astype(np.uint32)


def _permute(parts: Parts, a: np.ndarray, b: np.ndarray, selector: np.ndarray) -> np.ndarray:
    """`prmt` in its default mode: a byte of both registers for each of the low four nibbles; bit 3 repeats the sign."""
    if parts[1] != "b32":
        raise NotImplementedError(".".join(parts))
    both = b.astype(np.uint64) << np.uint64(32) | a
    result = np.zeros(np.broadcast(a, b, selector).shape, np.uint32)
    for n in range(4):
        nibble = selector >> np.uint32(4 * n) & np.uint32(15)
        byte = (both >> (nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8)).astype(np.uint32) & np.uint32(255)
        byte = np.where(nibble > 7, (byte >> np.uint32(7)) * np.uint32(255), byte)
        result |= byte.astype(np.uint32) << np.uint32(8 * n)
    return result


def _insert(parts: Parts, a: np.ndarray, b: np.ndarray, start: np.ndarray, count: np.ndarray) -> np.ndarray:
    """`bfi`: the low bits of a in place of a field of b."""
    ones, left = np.array(-1).astype(b.dtype), _shift(True)
    mask = left(parts, ~left(parts, np.broadcast_to(ones, b.shape), count & np.uint32(255)), start & np.uint32(255))
    return b & ~mask | left(parts, a, start & np.uint32(255)) & mask


def _count_ones(parts: Parts, a: np.ndarray) -> np.ndarray:
    return np.unpackbits(np.atleast_1d(a).view(np.uint8).reshape(-1, a.dtype.itemsize), axis=1).sum(1).astype(np.uint32)


def _dot(parts: Parts, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """`dp4a` and `dp2a`: c and products of four bytes, or of two halves with two bytes; NVRTC makes indices of them, too."""
    a, b, c = (np.ascontiguousarray(x) for x in np.broadcast_arrays(a, b, c))
    count, kinds = (4, ("8", "8")) if parts[0] == "dp4a" else (2, ("16", "8"))
    x, y = (
        v.view(TYPES[p[0] + k]).reshape(len(c), -1).astype(np.int64) for v, p, k in zip((a, b), parts[-2:], kinds, strict=True)
    )
    y = y[:, 2:] if "hi" in parts else y[:, :count]
    return (c.astype(np.int64) + (x * y).sum(1)).astype(np.uint32)


COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}  # fmt: skip
BOOLEAN = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _compare(parts: Parts, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """`setp`: false for NaN but for `.ne`... of unordered comparisons (`.equ`, `.ltu` ...), which are true."""
    name = parts[1]
    if "ftz" in parts:
        raise NotImplementedError(".".join(parts))
    if name in COMPARISONS:
        result = COMPARISONS[name](a, b)
        if name == "ne" and a.dtype.kind == "f":
            result = result & ~(np.isnan(a) | np.isnan(b))
    else:
        result = COMPARISONS[name.removesuffix("u")](a, b) | np.isnan(a) | np.isnan(b)
    return result if c is None else BOOLEAN[parts[2]](result, c)


def _extreme(larger: bool) -> Callable:
    def apply(parts: Parts, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """NaN loses, unless `.NaN` is said; +0 is more than -0."""
        if a.dtype.kind != "f":
            return np.maximum(a, b) if larger else np.minimum(a, b)
        first = np.where(a == b, np.signbit(a) != larger, a > b if larger else a < b)
        result = np.where(np.isnan(a), b, np.where(np.isnan(b) | first, a, b))
        return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), result) if "NaN" in parts else result

    return apply


WHOLE = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _convert(parts: Parts, x: np.ndarray) -> np.ndarray:
    """`cvt`: integers are cut or extended, floats to integers saturated, floats rounded."""
    if parts[-2] == "tf32":  # to the nearest, ties away from zero
        return (x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    to, rounds = TYPES[parts[-2]], next((f for name, f in WHOLE.items() if name in parts), None)
    if {"rm", "rp", "rz", "ftz"} & set(parts) or ("sat" in parts and to.kind != "f"):
        raise NotImplementedError(".".join(parts))
    if to.kind == "f":
        result = (x if rounds is None else rounds(x)).astype(to)
        return np.where(np.isnan(result), 0, np.clip(result, 0, 1)).astype(to) if "sat" in parts else result
    return x.astype(to) if rounds is None else _saturated(rounds(x), x, to)


def _saturated(whole: np.ndarray, x: np.ndarray, to: np.dtype) -> np.ndarray:
    """NaN is 0, or of 64 bits the highest bit."""
    limits = np.iinfo(to)
    low, high = whole <= float(limits.min), whole >= float(limits.max)
    result = np.where(low | high | np.isnan(x), 0, whole).astype(to)
    result = np.where(low, limits.min, np.where(high, limits.max, result)).astype(to)
    wide_ = to.itemsize == 8 or x.dtype.itemsize == 8
    return np.where(np.isnan(x), (1 << (8 * to.itemsize - 1) if to.kind == "u" else limits.min) if wide_ else 0, result).astype(
        to
    )


def _reciprocal_of_double(parts: Parts, x: np.ndarray) -> np.ndarray:
    """`rcp.approx.ftz.f64`: of the high 32 bits, with 20 bits of mantissa; the low 32 bits are zeros."""
    high = np.uint64(0xFFFFFFFF00000000)
    cut = (x.view(np.uint64) & high).view(np.float64)
    cut = np.where(abs(cut) < np.finfo(np.float64).tiny, np.copysign(0.0, cut), cut)
    return (approximate(lambda v: 1 / v, 2.0**-20)((), cut).view(np.uint64) & high).view(np.float64)


def _reciprocal(parts: Parts, x: np.ndarray) -> np.ndarray:
    if "approx" not in parts:
        return _floats(lambda v: v.dtype.type(1) / v)(parts, x)
    return _reciprocal_of_double(parts, x) if x.dtype == np.float64 else approximate(lambda v: 1 / v, 2.0**-25)(parts, x)


# Names, with the functions that compute them: arguments are the parts of the name, and arrays. In the order of the manual.
ELEMENTWISE: dict[str, Callable] = {
    # Integer Arithmetic, Floating Point
    "add": _floats(np.add), "sub": _floats(np.subtract), "mul": _multiply, "fma": _floats(fused),
    "mad": lambda p, a, b, c: _multiply(p, a, b) + c,
    "div": _divide, "rem": _remainder, "abs": _floats(np.abs), "neg": _floats(np.negative), "min": _extreme(False), "max": _extreme(True),
    "popc": _count_ones, "dp4a": _dot, "dp2a": _dot, "bfi": _insert, "copysign": lambda p, a, b: np.copysign(b, a),
    "rcp": _reciprocal, "sqrt": _floats(np.sqrt),
    "rsqrt": approximate(lambda x: 1 / np.sqrt(x), 2.0**-24), "ex2": approximate(np.exp2, 2.0**-22),
    # Comparison and Selection, Logic and Shift
    "setp": _compare, "selp": lambda p, a, b, c: np.where(c, a, b),
    "and": lambda p, a, b: a & b, "or": lambda p, a, b: a | b, "xor": lambda p, a, b: a ^ b, "not": lambda p, a: ~a,
    "shl": _shift(True), "shr": _shift(False), "shf": _funnel, "prmt": _permute,
    # Data Movement and Conversion
    "mov": lambda p, a: a, "cvt": _convert,
}  # fmt: skip


def operand_types(parts: Parts, count: int) -> list[np.dtype]:
    """The types of the sources of an elementwise instruction."""
    last, u32, pred = TYPES[parts[-1]], TYPES["u32"], TYPES["pred"]
    match parts[0]:
        case "shl" | "shr":
            return [last, u32]
        case "selp" | "setp":
            return [last, last, pred][:count]
        case "mad" if "wide" in parts:
            return [last, last, wide(last)]
        case "bfi":
            return [last, last, u32, u32]
        case _:
            return [last] * count


def spoils(parts: Parts, values: Sequence[np.ndarray], undefined: Sequence) -> np.ndarray:
    """The lanes for which a result is undefined, by those of the operands: not where a choice or a defined operand leaves them out."""
    match parts[0]:
        case "selp":
            return np.where(values[2], undefined[0], undefined[1]) | undefined[2]
        case "and" | "or":
            (a, b), (x, y) = values, undefined
            decides = 0 if parts[0] == "and" else np.array(-1).astype(a.dtype)
            return (x | y) & ~(~np.asarray(x) & (a == decides)) & ~(~np.asarray(y) & (b == decides))
        case _:
            return np.logical_or.reduce(np.broadcast_arrays(*undefined))
