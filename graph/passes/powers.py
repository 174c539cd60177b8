"""Powers of small exponents become products."""

from __future__ import annotations

from tir import dtypes

from ..ir import Call, Value
from .rewriting import Rewriting, each_call


@each_call
def expand_powers(r: Rewriting, call: Call) -> Value | None:
    """x ** 2 becomes x * x and x ** 3 becomes x * x * x, where the exponent is one constant number.

    x ** 0.5 stays: the square root of -0 and of -inf is another.
    """
    if call.operator != "Pow":
        return None
    base, exponent = call.values
    power = r.number(exponent)
    exact = dtypes.is_float(base.dtype) or not dtypes.is_float(exponent.dtype)
    if power not in (2, 3) or base.shape != call.outputs[0].shape or not exact:
        return None
    square = r("Mul", base, base)
    return square if power == 2 else r("Mul", square, base)
