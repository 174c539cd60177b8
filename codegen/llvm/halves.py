"""float16 and bfloat16 as LLVM IR functions: between their bit patterns and the float32 in which they are computed.

The types half and bfloat of LLVM appear only where the processor has instructions that convert them: elsewhere LLVM would call a
runtime library, which a process need not have. Rounding is to nearest, ties to even; a NaN stays one.
"""

from __future__ import annotations

TYPES = {"float16": "half", "bfloat16": "bfloat"}


def function_name(source: str, result: str, lanes: int) -> str:
    """The name, without @, of a conversion for `lanes` elements."""
    return f"tir.{source}.to.{result}.v{lanes}"


def definition(source: str, result: str, lanes: int, native: bool) -> str:
    """The LLVM IR of a conversion: between bit patterns of float16 or bfloat16, as i16, and float; or of double to float, to odd.

    Rounding to odd keeps what a second rounding, to a much shorter type, must know: the two are one correct rounding. `native`
    says that the processor converts.
    """

    def t(scalar: str) -> str:
        return scalar if lanes == 1 else f"<{lanes} x {scalar}>"

    def c(scalar: str, value: int | str) -> str:
        return str(value) if lanes == 1 else f"splat ({scalar} {value})"

    match source, result:
        case "bfloat16", _:
            body = _from_bfloat(t, c)
        case "float16", _ if native:
            body = [f"%half = bitcast {t('i16')} %x to {t('half')}", f"%r = fpext {t('half')} %half to {t('float')}"]
        case "float16", _:
            body = _from_half(t, c)
        case "float64", _:
            body = _to_odd(t, c)
        case _, _ if native:
            short = t(TYPES[result])
            body = [f"%short = fptrunc {t('float')} %x to {short}", f"%r = bitcast {short} %short to {t('i16')}"]
        case _, "float16":
            body = _to_half(t, c)
        case _:
            body = _to_bfloat(t, c)
    parameter = t({"float16": "i16", "bfloat16": "i16", "float64": "double", "float32": "float"}[source])
    value = t({"float16": "i16", "bfloat16": "i16", "float32": "float"}[result])
    name = function_name(source, result, lanes)
    head = f"define internal {value} @{name}({parameter} %x) alwaysinline nounwind willreturn memory(none) {{"
    return "\n".join([head, *(f"  {line}" for line in body), f"  ret {value} %r", "}"])


def _from_bfloat(t, c) -> list[str]:
    i32 = t("i32")
    return [
        f"%wide = zext {t('i16')} %x to {i32}",
        f"%bits = shl {i32} %wide, {c('i32', 16)}",
        f"%r = bitcast {i32} %bits to {t('float')}",
    ]


def _from_half(t, c) -> list[str]:
    # The bits in place, times 2^112 for the difference of the exponents' biases: exact, subnormals too.
    i32, f32 = t("i32"), t("float")
    return [
        f"%bits = zext {t('i16')} %x to {i32}",
        f"%size = and {i32} %bits, {c('i32', 0x7FFF)}",
        f"%placed = shl {i32} %size, {c('i32', 13)}",
        f"%small = bitcast {i32} %placed to {f32}",
        f"%scaled = fmul {f32} %small, {c('float', '0x46F0000000000000')}",
        f"%number = bitcast {f32} %scaled to {i32}",
        f"%special = or {i32} %placed, {c('i32', 0x7F800000)}",
        f"%isspecial = icmp uge {i32} %size, {c('i32', 0x7C00)}",
        f"%chosen = select {t('i1')} %isspecial, {i32} %special, {i32} %number",
        f"%signbit = and {i32} %bits, {c('i32', 0x8000)}",
        f"%sign = shl {i32} %signbit, {c('i32', 16)}",
        f"%whole = or {i32} %chosen, %sign",
        f"%r = bitcast {i32} %whole to {f32}",
    ]


def _to_half(t, c) -> list[str]:
    i32, f32, i1 = t("i32"), t("float"), t("i1")
    return [
        f"%bits = bitcast {f32} %x to {i32}",
        f"%size = and {i32} %bits, {c('i32', 0x7FFFFFFF)}",
        f"%top = lshr {i32} %bits, {c('i32', 16)}",
        f"%sign = and {i32} %top, {c('i32', 0x8000)}",
        # Normal numbers: half a unit less one, plus the last bit kept, carries into it; the exponent loses 112.
        f"%shifted = lshr {i32} %size, {c('i32', 13)}",
        f"%last = and {i32} %shifted, {c('i32', 1)}",
        f"%biased = add {i32} %size, {c('i32', 0xFFF - 0x38000000)}",
        f"%carried = add {i32} %biased, %last",
        f"%normal = lshr {i32} %carried, {c('i32', 13)}",
        # Subnormal ones: one half has 2^-24, the smallest half, as its last place.
        f"%abs = bitcast {i32} %size to {f32}",
        f"%sum = fadd {f32} %abs, {c('float', '0x3FE0000000000000')}",
        f"%sumbits = bitcast {f32} %sum to {i32}",
        f"%subnormal = sub {i32} %sumbits, {c('i32', 0x3F000000)}",
        f"%issmall = icmp ult {i32} %size, {c('i32', 0x38800000)}",
        f"%finite = select {i1} %issmall, {i32} %subnormal, {i32} %normal",
        f"%islarge = icmp uge {i32} %size, {c('i32', 0x477FF000)}",
        f"%bounded = select {i1} %islarge, {i32} {c('i32', 0x7C00)}, {i32} %finite",
        f"%isnan = icmp ugt {i32} %size, {c('i32', 0x7F800000)}",
        f"%value = select {i1} %isnan, {i32} {c('i32', 0x7E00)}, {i32} %bounded",
        f"%whole = or {i32} %value, %sign",
        f"%r = trunc {i32} %whole to {t('i16')}",
    ]


def _to_bfloat(t, c) -> list[str]:
    i32, f32 = t("i32"), t("float")
    return [
        f"%bits = bitcast {f32} %x to {i32}",
        f"%shifted = lshr {i32} %bits, {c('i32', 16)}",
        f"%last = and {i32} %shifted, {c('i32', 1)}",
        f"%biased = add {i32} %bits, {c('i32', 0x7FFF)}",
        f"%carried = add {i32} %biased, %last",
        f"%isnan = fcmp uno {f32} %x, %x",
        f"%chosen = select {t('i1')} %isnan, {i32} {c('i32', 0x7FC00000)}, {i32} %carried",
        f"%top = lshr {i32} %chosen, {c('i32', 16)}",
        f"%r = trunc {i32} %top to {t('i16')}",
    ]


def _to_odd(t, c) -> list[str]:
    i32, f32, f64, i1 = t("i32"), t("float"), t("double"), t("i1")
    return [
        f"%near = fptrunc {f64} %x to {f32}",
        f"%back = fpext {f32} %near to {f64}",
        f"%bits = bitcast {f32} %near to {i32}",
        # Cut towards zero (the nearest may be one further out), then set the last bit, where anything was cut off.
        f"%wide = bitcast {f64} %x to {t('i64')}",
        f"%size = and {t('i64')} %wide, {c('i64', 0x7FFFFFFFFFFFFFFF)}",
        f"%widenear = bitcast {f64} %back to {t('i64')}",
        f"%sizenear = and {t('i64')} %widenear, {c('i64', 0x7FFFFFFFFFFFFFFF)}",
        f"%further = icmp ugt {t('i64')} %sizenear, %size",
        f"%one = zext {i1} %further to {i32}",
        f"%towards = sub {i32} %bits, %one",
        f"%odd = or {i32} %towards, {c('i32', 1)}",
        f"%inexact = fcmp one {f64} %back, %x",
        f"%chosen = select {i1} %inexact, {i32} %odd, {i32} %bits",
        f"%r = bitcast {i32} %chosen to {f32}",
    ]
