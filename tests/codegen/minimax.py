"""Fits the polynomials of `codegen.llvm.math`: a weighted Remez exchange in 60-digit decimal arithmetic.

`python -m tests.codegen.minimax` prints every table of `math.COEFFICIENTS` with its weighted error; test_math.py recomputes them.
The weights make the error relative to the final result of the function that uses the polynomial, not to the polynomial's value.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

DIGITS = 60
Function = Callable[[Decimal], Decimal]


@dataclass(frozen=True, slots=True)
class Fit:
    """One polynomial: `function` on [low, high] by degree `degree`, minimising the largest |weight * (function - polynomial)|.

    `precision` is the dtype that the coefficients are rounded to.
    """

    function: Function
    weight: Function
    low: Decimal
    high: Decimal
    degree: int
    precision: str


def round_to(precision: str, value: Decimal) -> float:
    """The nearest float64 (or, as a float64, the nearest float32) to `value`."""
    nearest = float(value)
    return struct.unpack("f", struct.pack("f", nearest))[0] if precision == "float32" else nearest


def fit(spec: Fit) -> tuple[tuple[float, ...], float]:
    """The rounded coefficients, lowest degree first, and the largest weighted error of the rounded polynomial.

    The coefficients are rounded one after the other from the lowest degree up; those not yet rounded are fitted again each time,
    so that they make good the rounding of the ones before.
    """
    with localcontext() as context:
        context.prec = DIGITS
        grid = chebyshev_points(spec.low, spec.high, 20 * (spec.degree + 2))
        rest = [spec.function(x) for x in grid]
        weights = [abs(spec.weight(x)) for x in grid]
        coefficients: list[float] = []
        for degree in range(spec.degree, -1, -1):
            leading = round_to(spec.precision, remez(grid, rest, weights, degree)[0])
            coefficients.append(leading)
            # What remains to be fitted is (function - leading) / x, and its error weighs x times as much.
            rest = [(f - Decimal(leading)) / x for f, x in zip(rest, grid, strict=True)]
            weights = [w * abs(x) for w, x in zip(weights, grid, strict=True)]
        error = max(w * abs(f) for f, w in zip(rest, weights, strict=True))
    return tuple(coefficients), float(error)


def chebyshev_points(low: Decimal, high: Decimal, count: int) -> list[Decimal]:
    """`count` points of [low, high], dense towards its ends, ascending and never 0."""
    centre, radius = (low + high) / 2, (high - low) / 2
    points = [centre - radius * cosine(pi() * k / (count - 1)) for k in range(count)]
    return [x for x in points if abs(x) > radius * Decimal("1e-3")]


def remez(grid: Sequence[Decimal], values: Sequence[Decimal], weights: Sequence[Decimal], degree: int) -> list[Decimal]:
    """The polynomial of `degree` that minimises max |weight * (value - polynomial)| over the grid (Remez's multiple exchange)."""
    needed = degree + 2
    reference = [round(Fraction(k * (len(grid) - 1), needed - 1)) for k in range(needed)]  # the extrema of a Chebyshev polynomial
    for _ in range(40):
        rows = [[grid[p] ** k for k in range(degree + 1)] + [(-1) ** i / weights[p], values[p]] for i, p in enumerate(reference)]
        *coefficients, level = solve(rows)
        errors = [w * (f - horner(coefficients, x)) for x, f, w in zip(grid, values, weights, strict=True)]
        peaks = _alternating_peaks(errors, needed)
        if len(peaks) < needed or max(map(abs, errors)) <= abs(level) * Decimal("1.000001"):
            return coefficients
        reference = peaks
    return coefficients


def _alternating_peaks(errors: Sequence[Decimal], count: int) -> list[int]:
    """Positions of `count` errors of alternating sign, the largest of each run of one sign."""
    peaks: list[int] = []
    for i, error in enumerate(errors):
        if not peaks or (errors[peaks[-1]] > 0) != (error > 0):
            peaks.append(i)
        elif abs(error) > abs(errors[peaks[-1]]):
            peaks[-1] = i
    while len(peaks) > count + 1:  # runs that the reference does not need come in neighbouring pairs, or at an end
        weakest = min(range(len(peaks)), key=lambda i: abs(errors[peaks[i]]))
        if 0 < weakest < len(peaks) - 1:
            neighbour = min(weakest - 1, weakest + 1, key=lambda i: abs(errors[peaks[i]]))
            del peaks[max(weakest, neighbour)], peaks[min(weakest, neighbour)]
        else:
            del peaks[weakest]
    if len(peaks) > count:
        del peaks[0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1]
    return peaks


def solve(rows: list[list[Decimal]]) -> list[Decimal]:
    """The solution of a square linear system whose rows end with the right-hand side (Gauss, partial pivoting)."""
    rows = [list(row) for row in rows]
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda r: abs(rows[r][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = rows[column]
        for row in rows[column + 1 :]:
            factor = row[column] / head[column]
            for k in range(column, size + 1):
                row[k] -= factor * head[k]
    solution = [Decimal(0)] * size
    for i in range(size - 1, -1, -1):
        solution[i] = (rows[i][size] - sum(rows[i][k] * solution[k] for k in range(i + 1, size))) / rows[i][i]
    return solution


def horner(coefficients: Sequence[Decimal], x: Decimal) -> Decimal:
    result = Decimal(0)
    for c in reversed(coefficients):
        result = result * x + c
    return result


@functools.cache
def pi() -> Decimal:
    """Machin: pi / 4 = 4 atan(1/5) - atan(1/239)."""

    def atan_inverse(n: int) -> Decimal:
        power, total, k = Decimal(1) / n, Decimal(0), 0
        while abs(power) > Decimal(10) ** -(DIGITS + 2):
            total += power / (2 * k + 1) * (-1) ** k
            power /= n * n
            k += 1
        return total

    with localcontext() as context:
        context.prec = DIGITS + 5
        return 4 * (4 * atan_inverse(5) - atan_inverse(239))


def cosine(x: Decimal) -> Decimal:
    term, total, k = Decimal(1), Decimal(1), 0
    while abs(term) > Decimal(10) ** -(DIGITS + 2):
        k += 2
        term = -term * x * x / (k * (k - 1))
        total += term
    return total


def erf(x: Decimal) -> Decimal:
    """erf(x) = 2 / sqrt(pi) * exp(-x^2) * sum 2^n x^(2n+1) / (2n+1)!!, all terms of one sign."""
    term, total, n = x, x, 0
    while abs(term) > abs(total) * Decimal(10) ** -DIGITS:
        n += 1
        term = term * 2 * x * x / (2 * n + 1)
        total += term
    return 2 / pi().sqrt() * (-x * x).exp() * total


def _fits() -> dict[tuple[str, str], Fit]:
    """What each table of `math.COEFFICIENTS` approximates. `r` is the reduced argument, `f` = mantissa - 1, `s` = f / (2 + f)."""
    one, two = Decimal(1), Decimal(2)
    ln2 = two.ln()
    half = Decimal("0.5005")  # the reduced argument of exp2 lies in [-1/2, 1/2], up to its rounding
    mantissa = Decimal("0.5").sqrt() - 1 - Decimal("1e-7"), two.sqrt() - 1 + Decimal("1e-7")
    s_squared = Decimal(0), ((two.sqrt() - 1) / (two.sqrt() + 1)) ** 2 * Decimal("1.000001")
    far = {"float32": Decimal("3.95"), "float64": Decimal("5.95")}  # erf rounds to 1 from here on
    near = {"float32": Decimal("0.9"), "float64": one}

    def exp_tail(r: Decimal) -> Decimal:
        return (r.exp() - 1 - r) / (r * r)

    def exp2_tail(r: Decimal) -> Decimal:
        return ((r * ln2).exp() - 1) / r

    def log_tail(f: Decimal) -> Decimal:
        return ((1 + f).ln() - f + f * f / 2) / f**3

    def log2_tail(f: Decimal) -> Decimal:
        return (1 + f).ln() / ln2 / f

    def atanh(z: Decimal) -> Decimal:
        s = z.sqrt()
        return ((1 + s) / (1 - s)).ln() / s  # log(1 + f) / s

    def erf_tail(z: Decimal) -> Decimal:
        return erf(z.sqrt()) / z.sqrt() - 1

    def log2_erfc(a: Decimal) -> Decimal:
        return (1 - erf(a)).ln() / ln2

    def erf_far(dtype: str, degree: int) -> Fit:
        return Fit(log2_erfc, lambda a: ln2 * (1 - erf(a)) / erf(a), near[dtype], far[dtype], degree, dtype)

    def erf_near(dtype: str, degree: int) -> Fit:
        return Fit(erf_tail, lambda z: z.sqrt() / erf(z.sqrt()), Decimal(0), near[dtype] ** 2, degree, dtype)

    return {
        # exp(r) = 1 + r + r^2 P(r); expm1 weighs the same expansion by 1 / (exp(r) - 1) instead of 1 / exp(r).
        ("exp", "float32"): Fit(exp_tail, lambda r: r * r / r.exp(), -half * ln2, half * ln2, 4, "float32"),
        ("exp", "float64"): Fit(exp_tail, lambda r: r * r / r.exp(), -half * ln2, half * ln2, 9, "float64"),
        ("expm1", "float32"): Fit(exp_tail, lambda r: r * r / (r.exp() - 1), -half * ln2, half * ln2, 4, "float32"),
        ("expm1", "float64"): Fit(exp_tail, lambda r: r * r / (r.exp() - 1), -half * ln2, half * ln2, 10, "float64"),
        # 2^r = 1 + r P(r). erf multiplies it by erfc < 0.21, so that the float32 one may be short.
        ("exp2", "float32"): Fit(exp2_tail, lambda r: r / (r * ln2).exp(), -half, half, 4, "float32"),
        ("exp2", "float64"): Fit(exp2_tail, lambda r: r / (r * ln2).exp(), -half, half, 10, "float64"),
        # log(1 + f) = f - f^2 / 2 + f^3 P(f)
        ("log", "float32"): Fit(log_tail, lambda f: f**3 / (1 + f).ln(), *mantissa, 7, "float32"),
        # log(1 + f) = 2 s + s^3 P(s^2)
        ("log", "float64"): Fit(lambda z: (atanh(z) - 2) / z, lambda z: z, *s_squared, 6, "float64"),
        # erf(a) = a + a P(a^2) below the split, 1 - 2^P(a) above
        ("erf_near", "float32"): erf_near("float32", 5),
        ("erf_near", "float64"): erf_near("float64", 12),
        ("erf_far", "float32"): erf_far("float32", 6),
        ("erf_far", "float64"): erf_far("float64", 18),
        # pow in float32 is computed in float64: log2(1 + f) = f P(f), 2^r = 1 + r P(r)
        ("pow_log2", "float32"): Fit(log2_tail, lambda f: f * ln2 / (1 + f).ln(), *mantissa, 12, "float64"),
        ("pow_exp2", "float32"): Fit(exp2_tail, lambda r: r / (r * ln2).exp(), -half, half, 5, "float64"),
        # pow in float64: log2(1 + f) = s (2 / ln 2 + s^2 (2 / (3 ln 2) + s^2 P(s^2))), to about 2^-66
        ("pow_log2", "float64"): Fit(
            lambda z: ((atanh(z) - 2) / z - two / 3) / z / ln2, lambda z: z * z * ln2 / 2, *s_squared, 6, "float64"
        ),
    }


def tables() -> dict[tuple[str, str], tuple[tuple[float, ...], float]]:
    """Every table of `math.COEFFICIENTS` with its weighted error, computed anew."""
    with localcontext() as context:
        context.prec = DIGITS
        return {key: fit(spec) for key, spec in _fits().items()}


def main() -> None:
    for (name, dtype), (coefficients, error) in tables().items():
        print(f'    ("{name}", "{dtype}"): (  # 2^{math.log2(error):.1f}')
        for start in range(0, len(coefficients), 5):
            print(f"        {', '.join(map(repr, coefficients[start : start + 5]))},")
        print("    ),")


if __name__ == "__main__":
    main()
