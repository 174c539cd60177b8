"""The vector math library of the CPU backend: exp, log, tanh, erf, sigmoid, pow and the rounding operations as LLVM IR text.

llvmlite carries no vector math library, so the transcendental functions that networks spend time in are polynomials of ours:
branch-free, straight-line, for any number of lanes, correct on the whole range (NaN, infinities, signed zeros, subnormal
arguments and results) and within the bounds of `tir.intrinsics`. They take no fast-math flags and are made of fused multiply-adds
(for processors without them see `Body.fma`). The others are calls of the C library, lane by lane.

The polynomial tables are weighted minimax fits made by tests/codegen/minimax.py.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass

from tir.intrinsics import INTRINSICS

from .body import Body, function
from .values import Operand, Value, suffix

# --- Coefficients ---------------------------------------------------------------------------------------------------------

INF, NAN = float("inf"), float("nan")

LOG2E = 1.4426950408889634
LN2_SHORT, LN2_REST = 0.693359375, -2.1219444005469057e-4  # log(2) in two parts, of which the first has nine bits

# 2 / log(2) and 2 / (3 log(2)), high and low part.
C1 = (2.8853900817779268, 4.0710547481862066e-17)
C3 = (0.9617966939259756, 5.0577616648125907e-17)

# Lowest degree first, the trivial leading terms left out; tests/codegen/minimax.py says what each approximates, and fits them.
# Beside each the largest error of the polynomial alone, relative to the function's result.
COEFFICIENTS: dict[tuple[str, str], tuple[float, ...]] = {
    ("exp", "float32"): (  # 2^-28.2
        0.4999999403953552, 0.1666652113199234, 0.04166827350854874, 0.00836868304759264, 0.0013820049352943897,
    ),
    ("exp", "float64"): (  # 2^-57.9
        0.5000000000000011, 0.16666666666666452, 0.04166666666652806, 0.008333333333476712, 0.001388888894399755,
        0.00019841269535599267, 2.480149279469245e-05, 2.755756570664341e-06, 2.7630346787052385e-07, 2.5005510089828263e-08,
    ),
    ("expm1", "float32"): (  # 2^-26.1
        0.4999999701976776, 0.1666654646396637, 0.04166743531823158, 0.008366272784769535, 0.0013870697002857924,
    ),
    ("expm1", "float64"): (  # 2^-61.6
        0.5, 0.16666666666666677, 0.041666666666666685, 0.00833333333332179, 0.0013888888888893777,
        0.00019841269885373315, 2.480158727873945e-05, 2.7557245103410315e-06, 2.7557329718913014e-07, 2.5108709830896513e-08,
        2.089388030309802e-09,
    ),
    ("exp2", "float32"): (  # 2^-23.3
        0.6931470036506653, 0.24022245407104492, 0.0555071160197258, 0.009671397507190704, 0.00132694561034441,
    ),
    ("exp2", "float64"): (  # 2^-57.8
        0.6931471805599453, 0.2402265069591011, 0.055504108664821784, 0.009618129107600765, 0.0013333558146532078,
        0.00015403530449947472, 1.5252733646049785e-05, 1.3215438417370826e-06, 1.0178155519181207e-07, 7.073301868666716e-09,
        4.4394960036852626e-10,
    ),
    ("log", "float32"): (  # 2^-27.4
        0.3333333134651184, -0.2500081956386566, 0.2000124305486679, -0.16623413562774658, 0.14201553165912628,
        -0.13159537315368652, 0.12762326002120972, -0.07636718451976776,
    ),
    ("log", "float64"): (  # 2^-58.5
        0.6666666666666734, 0.3999999999941654, 0.28571428742056504, 0.22222198601998402, 0.181835630094747,
        0.15314080888992107, 0.14795671678182465,
    ),
    ("erf_near", "float32"): (  # 2^-26.1
        0.12837915122509003, -0.3761250674724579, 0.112819604575634, -0.02677205204963684, 0.005001413635909557,
        -0.0006034024409018457,
    ),
    ("erf_near", "float64"): (  # 2^-56.5
        0.1283791670955126, -0.3761263890318407, 0.11283791670969612, -0.02686617064775212, 0.005223977650071815,
        -0.0008548328392640864, 0.00012055381277694842, -1.4926771012578093e-05, 1.6479411379450924e-06, -1.6540970856899785e-07,
        1.591316826767403e-08, -1.6110465090665018e-09, 1.379757626903009e-10,
    ),
    ("erf_far", "float32"): (  # 2^-29.1
        -0.0002403362886980176, -1.6270666122436523, -0.9189637899398804, -0.15020284056663513, 0.032193299382925034,
        -0.004422364756464958, 0.0002859479864127934,
    ),
    ("erf_far", "float64"): (  # 2^-59.5
        -2.5918053626749804e-07, -1.6279043767273444, -0.9184607660645131, -0.148232944397616, 0.027523945416534364,
        0.0004046832642911341, -0.0025521565556226524, 0.0009250424884256357, -6.468388432693808e-05, -0.00010150674265207226,
        6.497017509498325e-05, -2.3822732098166117e-05, 6.242070670438533e-06, -1.2270011270416315e-06, 1.8133405447519659e-07,
        -1.965673163111433e-08, 1.479564843307239e-09, -6.91811706748896e-11, 1.5140116376872078e-12,
    ),
    ("pow_log2", "float32"): (  # 2^-35.8
        1.4426950408687083, -0.721347520868786, 0.48089836139514275, -0.36067367483155854, 0.2885372935218468,
        -0.2404531654786716, 0.20617535853364308, -0.18030060276403811, 0.1587698028294452, -0.14315642504692533,
        0.1447484557708646, -0.1428396529253061, 0.07737077633536901,
    ),
    ("pow_exp2", "float32"): (  # 2^-28.9
        0.6931472030148341, 0.24022647904428301, 0.05550332119156851, 0.009618437773294767, 0.0013399016860553906,
        0.00015353472734356419,
    ),
    ("pow_log2", "float64"): (  # 2^-66.3
        0.5770780163556178, 0.4121985830919892, 0.3205989022653018, 0.2623077018125358, 0.22198396742959323,
        0.19125584229358963, 0.1903792927470822,
    ),
}  # fmt: skip


# --- Floating-point formats -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format, with the constants of the functions."""

    dtype: str
    scalar: str  # LLVM's name
    integer: str  # the integer type of the same width
    mantissa: int  # stored bits of the mantissa
    bias: int  # of the exponent
    ln2: tuple[float, float]  # log(2), high and low part
    exp_range: tuple[float, float]  # exp underflows to 0 below the first and overflows above the second
    tanh_end: float  # tanh rounds to 1 from here on
    erf_split: float  # where erf changes from its near to its far polynomial
    erf_end: float  # erf rounds to 1 from here on

    def magic(self, addend: int) -> float:
        """The number M such that x + M, rounded, has round(x) + addend in its low bits, for |x| far below 2^mantissa."""
        return 1.5 * 2.0**self.mantissa + addend


FORMATS = {
    "float32": Format(
        "float32", "float", "i32", 23, 127, (0.6931471824645996, -1.9046542121259336e-09), (-104.0, 89.0), 9.02, 0.9, 3.95
    ),
    "float64": Format(
        "float64", "double", "i64", 52, 1023, (0.6931471805599453, 2.3190468138462996e-17), (-746.0, 710.0), 19.1, 1.0, 5.95
    ),
}


# --- Parts ----------------------------------------------------------------------------------------------------------------


def _scaled(b: Body, fmt: Format, p: Value, t: Value) -> Value:
    """p * 2^n, rounded once, for p near 1 and every n of a result that is finite, subnormal, just overflowing or just 0.

    `t` is n + fmt.magic(2 * bias). Its low bits, halved, are two biased exponents whose sum is n: p * 2^n1 is exact.
    """
    if b.avx512 and (scaled := _scaled_avx512(b, p, t - fmt.magic(2 * fmt.bias))) is not None:
        return scaled
    bits = b.bitcast(t, fmt.integer)
    half = bits >> 1
    first = b.bitcast(half << fmt.mantissa, fmt.scalar)
    second = b.bitcast((bits - half) << fmt.mantissa, fmt.scalar)
    return p * first * second


def _fills_registers(x: Value) -> bool:
    """True where the lanes fill 128, 256, or a power of two of 512 bits."""
    bits = _bits_of(x)
    return bits >= 128 and bits & (bits - 1) == 0


def _bits_of(x: Value) -> int:
    return x.lanes * (32 if x.type == "float" else 64)


def _scaled_avx512(b: Body, p: Value, n: Value) -> Value | None:
    """p * 2^n by VSCALEF, rounded once; None where the lanes do not fill registers."""
    if not _fills_registers(p):
        return None
    if (bits := _bits_of(p)) > 512:
        half = p.lanes // 2
        parts = (range(i, i + half) for i in (0, half))
        low, high = (_scaled_avx512(b, *(b.shuffled(v, None, part) for v in (p, n))) for part in parts)
        return None if low is None or high is None else b.shuffled(low, high, range(p.lanes))
    mask = Value("-1", f"i{max(8, p.lanes)}")
    rounding = [Value("4", "i32")] if bits == 512 else []  # the current rounding mode
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if p.type == 'float' else 'pd'}.{bits}"
    return b.invoke(name, p.type, p.lanes, p, n, Value("poison", p.type, p.lanes), mask, *rounding)


def _nearest(fmt: Format, x: Value, addend: int) -> tuple[Value, Value]:
    """n + fmt.magic(addend) for the whole number n next to x, and x - n."""
    t = x + fmt.magic(addend)
    return t, x - (t - fmt.magic(addend))


def _power_of_two(b: Body, fmt: Format, t: Value) -> Value:
    """2^n for a normal result, where `t` is n + fmt.magic(bias)."""
    return b.bitcast(b.bitcast(t, fmt.integer) << fmt.mantissa, fmt.scalar)


def _reduced(b: Body, fmt: Format, x: Value, addend: int) -> tuple[Value, Value]:
    """t and r with x = n log(2) + r, |r| <= log(2) / 2 and t = n + fmt.magic(addend)."""
    high, low = fmt.ln2
    magic = fmt.magic(addend)
    t = b.fma(x, LOG2E, magic)
    n = t - magic
    return t, b.fma(n, -low, b.fma(n, -high, x))


def _exp_clamped(b: Body, fmt: Format, x: Value, capped: bool = False) -> Value:
    """exp(x) for x within fmt.exp_range, and at most 0 if `capped`. Then 2^n is a normal number times a constant, which goes into
    the coefficients."""
    single = capped and not b.avx512
    shift = (fmt.mantissa + 2) | 1 if single else fmt.bias  # odd, as the bias is: so numbers between two n go to the same one
    if not b.fused and fmt.dtype == "float32":
        p, t = _exp_unfused(b, fmt, x, fmt.bias + shift)
        p = p * 2.0**-shift if single else p
    else:
        t, r = _reduced(b, fmt, x, fmt.bias + shift)
        coefficients = (1.0, 1.0, *COEFFICIENTS["exp", fmt.dtype])
        p = b.polynomial([c * 2.0**-shift for c in coefficients] if single else coefficients, r)
    return p * _power_of_two(b, fmt, t) if single else _scaled(b, fmt, p, t)


def _exp_unfused(b: Body, fmt: Format, x: Value, addend: int) -> tuple[Value, Value]:
    """exp(x) * 2^-n, and t = n + fmt.magic(addend), in float32 with rounded products. n times the high part of log(2) is exact
    (Cody and Waite), and in 1 + (r + r^2 P(r)) only the rounding of the last two sums weighs."""
    magic = fmt.magic(addend)
    t = x * LOG2E + magic
    n = t - magic
    r = x - n * LN2_SHORT - n * LN2_REST
    *rest, tail = COEFFICIENTS["exp", fmt.dtype]
    p: Operand = tail
    for c in reversed(rest):
        p = r * p + c
    return r * r * p + r + 1.0, t


def _mantissa_and_exponent(b: Body, fmt: Format, x: Value) -> tuple[Value, Value]:
    """The mantissa m in [sqrt(1/2), sqrt(2)) and the exponent e, as floats, with x = m * 2^e, for finite x > 0."""
    tiny = b.compare("olt", x, 2.0 ** (1 - fmt.bias))
    normal = b.select(tiny, x * 2.0**fmt.mantissa, x)
    return _split_normal(b, fmt, normal, b.select(tiny, b.splat(fmt.mantissa, x), 0.0))


def _split_normal(b: Body, fmt: Format, x: Value, shift: Operand = 0.0) -> tuple[Value, Value]:
    """The mantissa and the exponent of x * 2^-shift, for x not subnormal."""
    sqrt_half = _bits(fmt, 0.5**0.5)
    one = fmt.bias << fmt.mantissa
    # Shifted so that the exponent field changes at sqrt(2) rather than at 2.
    shifted = b.bitcast(x, fmt.integer) + (one - sqrt_half)
    m = b.bitcast((shifted & ((1 << fmt.mantissa) - 1)) + sqrt_half, fmt.scalar)
    # The exponent field in the low bits of 2^mantissa: no integer conversion, which AVX2 lacks for 64 bits.
    biased = b.bitcast((shifted >> fmt.mantissa) | _bits(fmt, 2.0**fmt.mantissa), fmt.scalar)
    return m, biased - (shift + (2.0**fmt.mantissa + fmt.bias))


def _bits(fmt: Format, number: float) -> int:
    """The bit pattern of `number` in the format."""
    code, integer = ("f", "I") if fmt.dtype == "float32" else ("d", "Q")
    return struct.unpack(integer, struct.pack(code, number))[0]


def _two_sum(a: Operand, c: Value) -> tuple[Value, Value]:
    """a + c as an unevaluated sum, exactly, for |a| >= |c| or a = 0 (Dekker)."""
    high = a + c
    return high, c - (high - a)


def _two_product(b: Body, a: Value, c: Value) -> tuple[Value, Value]:
    """a * c as an unevaluated sum, exactly."""
    high = a * c
    return high, b.fma(a, c, -high)


# --- Functions ------------------------------------------------------------------------------------------------------------


def _exp(b: Body, fmt: Format, x: Value) -> Value:
    low, high = fmt.exp_range
    # VSCALEF by a large number gives infinity for every positive number, and by infinity for NaN too. A polynomial of even degree
    # with positive coefficients in place of 1 / n! is positive everywhere, also where r is far from its range.
    overflows = b.avx512 and fmt.dtype == "float32" and _fills_registers(x)
    return _exp_clamped(b, fmt, b.at_least(x if overflows else b.at_most(x, high), low))


def _exp2(b: Body, fmt: Format, x: Value) -> Value:
    low, high = fmt.exp_range
    t, r = _nearest(fmt, b.at_least(b.at_most(x, high * LOG2E), low * LOG2E), 2 * fmt.bias)
    table = COEFFICIENTS["pow_exp2" if fmt.dtype == "float32" else "exp2", fmt.dtype]
    return _scaled(b, fmt, b.polynomial((1.0, *table), r), t)


def _log(b: Body, fmt: Format, x: Value) -> Value:
    m, e = _mantissa_and_exponent(b, fmt, x)
    f = m - 1.0
    table = COEFFICIENTS["log", fmt.dtype]
    high, low = fmt.ln2
    if fmt.dtype == "float32":
        # log(1 + f) = f - f^2 / 2 + f^3 P(f)
        square = f * f
        tail = b.fma(e, low, square * b.fma(f, b.polynomial(table, f), -0.5))
    else:
        # With s = f / (2 + f), log(1 + f) = 2 s + s^3 P(s^2) = f - (f^2 / 2 - s (f^2 / 2 + s^2 P(s^2))): half the degree.
        s = f / (f + 2.0)
        z = s * s
        half_square = f * f * 0.5
        tail = b.fma(s, b.fma(z, b.polynomial(table, z), half_square), e * low) - half_square
    result = b.fma(e, high, f + tail)
    result = b.select(b.compare("olt", x, INF), result, x)
    result = b.select(b.compare("olt", x, 0.0), NAN, result)
    return b.select(b.compare("oeq", x, 0.0), -INF, result)


def _tanh(b: Body, fmt: Format, x: Value) -> Value:
    # tanh(a) = q / (q + 2) with q = expm1(2 a) = 2^n expm1(r) + (2^n - 1)
    a = b.at_most(b.intrinsic("fabs", x), fmt.tanh_end)
    t, r = _reduced(b, fmt, a + a, fmt.bias)
    p = b.fma(r * r, b.polynomial(COEFFICIENTS["expm1", fmt.dtype], r), r)
    scale = _power_of_two(b, fmt, t)
    q = b.fma(p, scale, scale - 1.0)
    return b.intrinsic("copysign", q / (q + 2.0), x)


def _sigmoid(b: Body, fmt: Format, x: Value) -> Value:
    # With e = exp(-|x|), which underflows gradually, and w = e / (1 + e): 1 - w right of 0, and w itself left of it, but as
    # e - e w, where the rounding of 1 + e weighs less.
    e = _exp_clamped(b, fmt, b.at_least(-b.intrinsic("fabs", x), fmt.exp_range[0]), capped=True)
    w = e / (e + 1.0)
    limit = b.select(b.compare("olt", x, 0.0), e, 1.0)
    return b.fma(-limit, w, limit)


def _erf(b: Body, fmt: Format, x: Value) -> Value:
    a = b.at_most(b.intrinsic("fabs", x), fmt.erf_end)
    near = b.fma(a, b.polynomial(COEFFICIENTS["erf_near", fmt.dtype], a * a), a)
    # far = 1 - 2^g with g = log2(erfc(a)) = n + r
    t, r = _nearest(fmt, b.polynomial(COEFFICIENTS["erf_far", fmt.dtype], a), fmt.bias)
    p = b.polynomial((1.0, *COEFFICIENTS["exp2", fmt.dtype]), r)
    far = b.fma(-p, _power_of_two(b, fmt, t), 1.0)
    return b.intrinsic("copysign", b.select(b.compare("olt", a, fmt.erf_split), near, far), x)


def _pow(b: Body, fmt: Format, x: Value, y: Value) -> Value:
    """C's pow: 2^(y log2|x|), then the sign and the special cases."""
    a = b.intrinsic("fabs", x)
    # Beyond 2^70 every |x| but 1 overflows or underflows; bounded, y = inf gives 1^y = 1 rather than inf * 0.
    bounded = b.at_least(b.at_most(y, 2.0**70), -(2.0**70))
    magnitude = (_pow_float32 if fmt.dtype == "float32" else _pow_float64)(b, fmt, a, bounded)
    # A base of 0 or infinity: the result is the one or the other.
    extreme = b.compare("oeq", a, 0.0) | b.compare("oeq", a, INF)
    infinite = b.compare("olt", a, 1.0) ^ b.compare("ogt", y, 0.0)
    magnitude = b.select(extreme, b.select(infinite, b.splat(INF, x), 0.0), magnitude)
    # A negative base: odd exponents keep the sign, fractions have no result. Infinities and all large numbers are even.
    whole = b.compare("oeq", y, b.intrinsic("floor", y))
    half = y * 0.5
    odd = whole & b.compare("one", half, b.intrinsic("floor", half))
    signed = b.select(odd, b.intrinsic("copysign", magnitude, x), magnitude)
    imaginary = b.compare("olt", x, 0.0) & b.compare("ogt", x, -INF) & b.compare("one", y, b.intrinsic("floor", y))
    result = b.select(imaginary | b.compare("uno", x, y), NAN, signed)
    return b.select(b.compare("oeq", x, 1.0) | b.compare("oeq", y, 0.0), 1.0, result)


def _pow_float32(b: Body, fmt: Format, a: Value, y: Value) -> Value:
    """a^y in float64, where y log2(a) is good to 2^-28 and no result overflows or is subnormal; rounded once, at the end."""
    wide = FORMATS["float64"]
    m, e = _split_normal(b, wide, b.convert("fpext", a, wide.scalar))
    f = m - 1.0
    log2 = b.fma(f, b.polynomial(COEFFICIENTS["pow_log2", "float32"], f), e)
    t, r = _nearest(wide, b.at_least(b.at_most(b.convert("fpext", y, wide.scalar) * log2, 200.0), -200.0), wide.bias)
    p = b.polynomial((1.0, *COEFFICIENTS["pow_exp2", "float32"]), r)
    return b.convert("fptrunc", p * _power_of_two(b, wide, t), fmt.scalar)


def _pow_float64(b: Body, fmt: Format, a: Value, y: Value) -> Value:
    """a^y with the logarithm as a sum of two float64 (about 2^-64): its error is multiplied by up to 1075."""
    m, e = _mantissa_and_exponent(b, fmt, a)
    # s = (m - 1) / (m + 1), high and low part
    f = m - 1.0
    u = m + 1.0
    u_low = m - (u - 1.0)
    inverse = 1.0 / u
    s = f * inverse
    s_low = inverse * b.fma(-s, u_low, b.fma(-s, u, f))
    # log2(m) = s (C1 + z (C3 + z P(z))), z = s^2: the part under P is small enough for one float64.
    z, z_low = _two_product(b, s, s)
    z_low = b.fma(s + s, s_low, z_low)
    third, third_low = _two_sum(b.splat(C3[0], s), z * b.polynomial(COEFFICIENTS["pow_log2", "float64"], z))
    third_low = third_low + C3[1]
    w, w_low = _two_product(b, z, third)
    w_low = b.fma(z, third_low, b.fma(z_low, third, w_low))
    v, v_low = _two_sum(b.splat(C1[0], s), w)
    v_low = v_low + w_low + C1[1]
    log2, log2_low = _two_product(b, s, v)
    log2_low = b.fma(s, v_low, b.fma(s_low, v, log2_low))
    high, low = _two_sum(e, log2)
    low = low + log2_low
    # 2^(y (high + low)) = 2^n 2^r
    exponent, rest = _two_product(b, y, high)
    rest = b.fma(y, low, rest)
    in_range = b.compare("olt", b.intrinsic("fabs", exponent), 1100.0)
    exponent = b.at_least(b.at_most(exponent, 1100.0), -1100.0)
    rest = b.select(in_range, rest, 0.0)
    t, r = _nearest(fmt, exponent, 2 * fmt.bias)
    return _scaled(b, fmt, b.polynomial((1.0, *COEFFICIENTS["exp2", "float64"]), r + rest), t)


def _fmod(b: Body, fmt: Format, x: Value, y: Value) -> Value:
    """C's fmod, exactly: |x| - q |y| for q = trunc(|x| / |y|), where q is small enough that both are exact.

    A quotient that was rounded up to a whole number makes q too large by 1, and the difference negative. float32 is computed in
    float64, where products of 29 and 24 bits are exact.
    """
    single = fmt.dtype == "float32"
    limit = 2.0**29 if single else 2.0**52 if b.fused else 2.0
    size, by = (b.intrinsic("fabs", b.convert("fpext", v, "double") if single else v) for v in (x, y))
    ratio = size / by
    whole = b.intrinsic("trunc", ratio)
    rest = b.fma(-whole, by, size) if b.fused else size - whole * by
    rest = b.select(b.compare("olt", rest, 0.0), rest + by, rest)
    quick = b.intrinsic("copysign", b.convert("fptrunc", rest, "float") if single else rest, x)
    exact = b.compare("olt", ratio, limit) & b.compare("olt", by, INF)
    return b.where_all(exact, quick, lambda: _of_library("fmod")(b, fmt, x, y))


def _away(b: Body, rest: Value, y: Value) -> Value:
    """True where the truncated quotient by y, which leaves `rest`, is above the floor of the quotient."""
    return b.compare("une", rest, 0.0) & (b.compare("olt", y, 0.0) ^ b.compare("olt", rest, 0.0))


def _floormod(b: Body, fmt: Format, x: Value, y: Value) -> Value:
    """numpy's remainder, which has the sign of y."""
    rest = _fmod(b, fmt, x, y)
    found = b.select(_away(b, rest, y), rest + y, rest)
    return b.select(b.compare("oeq", rest, 0.0), b.intrinsic("copysign", rest, y), found)


def _floordiv(b: Body, fmt: Format, x: Value, y: Value) -> Value:
    """numpy's floor division: the whole number next to (x - fmod(x, y)) / y, less 1 where that is above the quotient."""
    rest, ratio = _fmod(b, fmt, x, y), x / y
    exact = (x - rest) / y
    exact = b.select(_away(b, rest, y), exact - 1.0, exact)
    whole = b.intrinsic("floor", exact)
    whole = b.select(b.compare("ogt", exact - whole, 0.5), whole + 1.0, whole)
    found = b.select(b.compare("oeq", exact, 0.0), b.intrinsic("copysign", exact, ratio), whole)
    return b.select(b.compare("oeq", y, 0.0), ratio, found)


def _intrinsic(name: str) -> Callable[..., Value]:
    return lambda b, fmt, *x: b.intrinsic(name, *x)


def _of_library(name: str) -> Callable[..., Value]:
    """A function of the C library, called for one lane after the other."""

    def write(b: Body, fmt: Format, *x: Value) -> Value:
        symbol = name if fmt.dtype == "float64" else f"{name}f"
        if x[0].lanes == 1:
            return b.invoke(symbol, fmt.scalar, 1, *x)
        result = Value("poison", fmt.scalar, x[0].lanes, b)
        for lane in range(x[0].lanes):
            elements = [b.op(f"extractelement {v}, i32 {lane}", fmt.scalar) for v in x]
            element = b.invoke(symbol, fmt.scalar, 1, *elements)
            result = b.op(f"insertelement {result}, {element}, i32 {lane}", fmt.scalar, result.lanes)
        return result

    return write


LIBRARY = (
    "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
    "atan2", "hypot", "fmod",
)  # fmt: skip

FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": _exp,
    "exp2": _exp2,
    "log": _log,
    "tanh": _tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "pow": _pow,
    "rsqrt": lambda b, fmt, x: 1.0 / b.intrinsic("sqrt", x),
    "abs": _intrinsic("fabs"),
    **{name: _intrinsic(name) for name in ("sqrt", "floor", "ceil", "nearbyint", "round", "trunc", "copysign")},
    **{name: _of_library(name) for name in LIBRARY},
    "fmod": _fmod,  # which calls it where quotients are large
}
# Functions that programs write in other forms, with the number of arguments: exp(min(x, 0)), x // y and x % y.
OTHERS: dict[str, tuple[int, Callable[..., Value]]] = {
    "capped_exp": (1, lambda b, fmt, x: _exp_clamped(b, fmt, b.at_least(b.at_most(x, 0.0), fmt.exp_range[0]), capped=True)),
    "floordiv": (2, _floordiv), "floormod": (2, _floormod),
}  # fmt: skip


# --- The interface --------------------------------------------------------------------------------------------------------


def function_name(op: str, dtype: str, lanes: int) -> str:
    """The name, without @, of the function for `lanes` elements: tir.exp.v16f32, or tir.exp.f32 where lanes is 1."""
    if op not in FUNCTIONS and op not in OTHERS:
        raise ValueError(f"no math function {op!r}; there are {', '.join(FUNCTIONS)}")
    if dtype not in FORMATS:
        raise TypeError(f"math functions are for float32 and float64, not {dtype!r}; convert the operand to float32 first")
    if lanes < 1:
        raise ValueError(f"a vector has at least 1 lane, got {lanes}")
    return f"tir.{op}.{suffix(FORMATS[dtype].scalar, lanes)}"


@functools.cache
def definition(op: str, dtype: str, lanes: int, avx512: bool = False, fused: bool = True) -> tuple[str, frozenset[str]]:
    """The LLVM IR of `op` on vectors of `lanes` elements of float32 or float64 (on scalars where `lanes` is 1), and the `declare`
    lines of its intrinsics; a module holds each once.

    The function is internal, is to be inlined, and takes one argument or two. `avx512` says that the target has
    AVX-512F and AVX-512VL, with which exp and similar functions are shorter; `fused`, that it has fused multiply-adds. Raises
    ValueError for an unknown op and TypeError for another dtype.
    """
    name = function_name(op, dtype, lanes)
    fmt = FORMATS[dtype]
    arity, write = OTHERS[op] if op in OTHERS else (INTRINSICS[op].arity, FUNCTIONS[op])
    return function(name, [fmt.scalar] * arity, lanes, lambda b, *x: write(b, fmt, *x), avx512, fused)
