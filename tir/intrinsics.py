"""The intrinsics, functions of elements: name, meaning, accuracy and value of each, for all layers.

Backends compute them: `codegen.llvm.math` by polynomials and the C library, CUDA C by its functions of these names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


def _sigmoid(x):
    if x >= 0:
        return 1.0 / (1.0 + np.exp(-np.float64(x)))
    return np.exp(np.float64(x)) / (1.0 + np.exp(np.float64(x)))


def _round(x):
    whole = np.trunc(x)
    return whole + np.copysign(1.0, x) if abs(x) < 2.0**53 and abs(x - whole) >= 0.5 else whole


def _popcount(x):
    count = zero = x ^ x  # all of the dtype of x: numba makes a float of a uint64 and a literal
    while x != zero:
        one = x // x
        count += one
        x &= x - one
    return count


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A function of `arity` values of one dtype, which is of one of `kinds`. `evaluate` gives its value in the interpreter, which
    rounds it. `ulps` bounds the error of compiled CPU code, in units in the last place: of float32, and of float64."""

    name: str
    meaning: str
    evaluate: Callable
    ulps: tuple[float, float] = (0.0, 0.0)
    arity: int = 1
    kinds: tuple[str, ...] = ("float",)


INTEGERS = ("int", "uint")
SHIFTS = ("shl", "shr")


def _of_library(name: str, meaning: str, evaluate: Callable, ulps: tuple[float, float] = (1.0, 1.0)) -> Intrinsic:
    return Intrinsic(name, meaning, lambda x: evaluate(np.float64(x)), ulps)


_EXP = "e to the power x; x and the result have one floating dtype, for others TypeError, as in all functions below."
_SHIFT = "y is at least 0 and less than the dtype has bits."

INTRINSICS = {
    i.name: i
    for i in (
        Intrinsic("exp", _EXP, lambda x: np.exp(np.float64(x)), (1.0, 1.0)),
        Intrinsic("exp2", "2 to the power x.", lambda x: np.exp2(np.float64(x)), (1.0, 1.0)),
        Intrinsic("log", "The natural logarithm.", lambda x: np.log(np.float64(x)), (1.0, 1.0)),
        Intrinsic("sqrt", "The square root.", lambda x: np.sqrt(np.float64(x)), (0.5, 0.5)),
        Intrinsic("rsqrt", "1 / sqrt(x).", lambda x: 1.0 / np.sqrt(np.float64(x)), (1.5, 1.5)),
        Intrinsic("tanh", "The hyperbolic tangent.", lambda x: np.tanh(np.float64(x)), (3.0, 3.0)),
        Intrinsic("erf", "The error function.", lambda x: math.erf(x), (2.0, 1.5)),
        Intrinsic("sigmoid", "1 / (1 + exp(-x)).", _sigmoid, (2.0, 2.0)),
        Intrinsic("abs", "The absolute value, of floating and integer dtypes.", lambda x: abs(x), kinds=("float", *INTEGERS)),
        Intrinsic("floor", "The largest whole number that is at most x, in its floating dtype.", lambda x: np.floor(x)),
        Intrinsic("ceil", "The smallest whole number that is at least x, in its floating dtype.", lambda x: np.ceil(x)),
        Intrinsic("nearbyint", "The nearest whole number, of two the even one, in its floating dtype.", lambda x: np.rint(x)),
        Intrinsic("round", "The nearest whole number, of two the one away from 0, in its floating dtype.", _round),
        Intrinsic("trunc", "The whole number next to x toward 0, in its floating dtype.", lambda x: np.trunc(x)),
        _of_library("log2", "The logarithm to base 2.", np.log2),
        _of_library("log10", "The logarithm to base 10.", np.log10, (2.5, 2.5)),
        _of_library("log1p", "The natural logarithm of 1 + x.", np.log1p),
        _of_library("expm1", "exp(x) - 1.", np.expm1),
        _of_library("sin", "The sine.", np.sin),
        _of_library("cos", "The cosine.", np.cos),
        _of_library("tan", "The tangent.", np.tan, (2.0, 2.0)),
        _of_library("asin", "The inverse of the sine, from -pi / 2 to pi / 2.", np.arcsin),
        _of_library("acos", "The inverse of the cosine, from 0 to pi.", np.arccos),
        _of_library("atan", "The inverse of the tangent, from -pi / 2 to pi / 2.", np.arctan),
        _of_library("sinh", "The hyperbolic sine.", np.sinh, (2.0, 2.0)),
        _of_library("cosh", "The hyperbolic cosine.", np.cosh, (2.0, 2.0)),
        _of_library("asinh", "The inverse of the hyperbolic sine.", np.arcsinh, (2.0, 2.0)),
        _of_library("acosh", "The inverse of the hyperbolic cosine, at least 0.", np.arccosh, (2.5, 2.5)),
        _of_library("atanh", "The inverse of the hyperbolic tangent.", np.arctanh, (2.0, 2.0)),
        Intrinsic(
            "atan2",
            "The angle of the point (y, x), whose tangent is x / y, from -pi to pi.",
            lambda x, y: np.arctan2(np.float64(x), np.float64(y)),
            (2.0, 1.0),
            arity=2,
        ),
        Intrinsic(
            "hypot", "The square root of x^2 + y^2.", lambda x, y: np.hypot(np.float64(x), np.float64(y)), (1.0, 1.0), arity=2
        ),
        Intrinsic("copysign", "x with the sign of y.", lambda x, y: np.copysign(x, y), arity=2),
        Intrinsic("fmod", "x - n y with the sign of x, for the n toward zero.", lambda x, y: np.fmod(x, y), arity=2),
        Intrinsic("bit_and", "The bits that both have.", lambda x, y: x & y, arity=2, kinds=INTEGERS),
        Intrinsic("bit_or", "The bits that one of them has.", lambda x, y: x | y, arity=2, kinds=INTEGERS),
        Intrinsic("bit_xor", "The bits that just one of them has.", lambda x, y: x ^ y, arity=2, kinds=INTEGERS),
        Intrinsic("popcount", "The number of bits that are 1.", _popcount, kinds=("uint",)),
        Intrinsic("shl", f"x 2^y, wrapped around; {_SHIFT}", lambda x, y: x << y, arity=2, kinds=INTEGERS),
        Intrinsic("shr", f"x / 2^y, rounded down; {_SHIFT}", lambda x, y: x >> y, arity=2, kinds=INTEGERS),
        Intrinsic("pow", "x to the power y.", lambda x, y: np.float64(x) ** np.float64(y), (1.0, 1.5), arity=2),
    )
}
