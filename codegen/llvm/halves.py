"""float16 and bfloat16 as LLVM IR functions: between their bit patterns and the float32 in which they are computed.

The types half and bfloat of LLVM appear only where the processor has instructions that convert them: elsewhere LLVM would call a
runtime library, which a process need not have. Rounding is to nearest, ties to even; a NaN stays one.
"""

from __future__ import annotations

from collections.abc import Callable

from .body import Body, function
from .values import Value

TYPES = {"float16": "half", "bfloat16": "bfloat"}
# By type, the features of which one has its conversions; that from bfloat16 is a shift.
NATIVE = {"float16": frozenset({"f16c", "neon"}), "bfloat16": frozenset({"avx512bf16", "bf16"})}


def function_name(source: str, result: str, lanes: int) -> str:
    """The name, without @, of a conversion for `lanes` elements."""
    return f"tir.{source}.to.{result}.v{lanes}"


def definition(source: str, result: str, lanes: int, native: bool) -> tuple[str, frozenset[str]]:
    """The LLVM IR of a conversion, and the `declare` lines of the intrinsics that it calls.

    It is between bit patterns of float16 or bfloat16, as i16, and float; or from double to float, rounded to odd. Rounding to odd
    and then to a much shorter type is one correct rounding. `native`: the processor has the conversion.
    """

    parameter = {"float16": "i16", "bfloat16": "i16", "float64": "double", "float32": "float"}[source]
    return function(function_name(source, result, lanes), [parameter], lanes, _conversion(source, result, native))


def _conversion(source: str, result: str, native: bool) -> Callable[[Body, Value], Value]:
    match source, result:
        case "bfloat16", _:
            return lambda b, x: b.bitcast(b.convert("zext", x, "i32") << 16, "float")
        case "float16", _:
            return (lambda b, x: b.convert("fpext", b.bitcast(x, "half"), "float")) if native else _from_half
        case "float64", _:
            return _to_odd
        case _ if native:
            return lambda b, x: b.bitcast(b.convert("fptrunc", _unfoldable(b, x), TYPES[result]), "i16")
        case _:
            return _to_half if result == "float16" else _to_bfloat


def _unfoldable(b: Body, x: Value) -> Value:
    """The value, hidden from constant folding; no instruction. LLVM may find it constant as late as instruction selection, since
    a mask has no lane left. Then it makes a constant of a type without registers, and ends the process."""
    return b.intrinsic("arithmetic.fence", x)


def _from_half(b: Body, x: Value) -> Value:
    # The bits in place, times 2^112 for the difference of the exponents' biases: exact, subnormals too.
    bits = b.convert("zext", x, "i32")
    size = bits & 0x7FFF
    placed = size << 13
    number = b.bitcast(b.bitcast(placed, "float") * 2.0**112, "i32")
    special = placed | 0x7F800000
    chosen = b.select(b.compare("uge", size, 0x7C00), special, number)
    sign = (bits & 0x8000) << 16
    return b.bitcast(chosen | sign, "float")


def _to_half(b: Body, x: Value) -> Value:
    bits = b.bitcast(x, "i32")
    size = bits & 0x7FFFFFFF
    sign = (bits >> 16) & 0x8000
    # Normal numbers: half a unit less one, plus the last bit kept, carries into it; the exponent loses 112.
    last = (size >> 13) & 1
    normal = (size + (0xFFF - 0x38000000) + last) >> 13
    # Subnormal ones: one half has 2^-24, the smallest half, as its last place.
    subnormal = b.bitcast(b.bitcast(size, "float") + 0.5, "i32") - 0x3F000000
    finite = b.select(b.compare("ult", size, 0x38800000), subnormal, normal)
    bounded = b.select(b.compare("uge", size, 0x477FF000), 0x7C00, finite)
    value = b.select(b.compare("ugt", size, 0x7F800000), 0x7E00, bounded)
    return b.convert("trunc", value | sign, "i16")


def _to_bfloat(b: Body, x: Value) -> Value:
    bits = b.bitcast(x, "i32")
    last = (bits >> 16) & 1
    carried = bits + 0x7FFF + last
    chosen = b.select(b.compare("uno", x, x), 0x7FC00000, carried)
    return b.convert("trunc", chosen >> 16, "i16")


def _to_odd(b: Body, x: Value) -> Value:
    near = b.convert("fptrunc", x, "float")
    back = b.convert("fpext", near, "double")
    bits = b.bitcast(near, "i32")
    # Cut towards zero (the nearest may be one further out), then set the last bit, where anything was cut off.
    size, size_near = (b.bitcast(v, "i64") & 0x7FFFFFFFFFFFFFFF for v in (x, back))
    further = b.convert("zext", b.compare("ugt", size_near, size), "i32")
    odd = (bits - further) | 1
    return b.bitcast(b.select(b.compare("one", back, x), odd, bits), "float")
