"""The intrinsics: the functions that expressions apply to elements, with what all layers know of each.

A backend says how it computes them: `codegen.llvm.math` by polynomials, CUDA C by the functions of these names.
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


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A function of `arity` floats, and what it means. `evaluate` gives its value in the interpreter, which rounds it. `ulps` are
    the largest errors of compiled code for CPUs, in units in the last place of the result: of float32, and of float64."""

    name: str
    meaning: str
    evaluate: Callable
    ulps: tuple[float, float] = (0.0, 0.0)
    arity: int = 1
    integers: bool = False  # whether it takes integers, too


_EXP = "e to the power x; x and the result have one floating dtype, for others TypeError, as in all functions below."

INTRINSICS = {
    i.name: i
    for i in (
        Intrinsic("exp", _EXP, lambda x: np.exp(np.float64(x)), (1.0, 1.0)),
        Intrinsic("log", "The natural logarithm.", lambda x: np.log(np.float64(x)), (1.0, 1.0)),
        Intrinsic("sqrt", "The square root.", lambda x: np.sqrt(np.float64(x)), (0.5, 0.5)),
        Intrinsic("rsqrt", "1 / sqrt(x).", lambda x: 1.0 / np.sqrt(np.float64(x)), (1.5, 1.5)),
        Intrinsic("tanh", "The hyperbolic tangent.", lambda x: np.tanh(np.float64(x)), (3.0, 3.0)),
        Intrinsic("erf", "The error function.", lambda x: math.erf(x), (2.0, 1.5)),
        Intrinsic("sigmoid", "1 / (1 + exp(-x)).", _sigmoid, (2.0, 2.0)),
        Intrinsic("abs", "The absolute value, of floating and integer dtypes.", lambda x: abs(x), integers=True),
        Intrinsic("floor", "The largest whole number that is at most x, in its floating dtype.", lambda x: np.floor(x)),
        Intrinsic("ceil", "The smallest whole number that is at least x, in its floating dtype.", lambda x: np.ceil(x)),
        Intrinsic("pow", "x to the power y.", lambda x, y: np.float64(x) ** np.float64(y), (1.0, 1.5), arity=2),
    )
}
