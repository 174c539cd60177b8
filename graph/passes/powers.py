"""Powers of small exponents become products."""

from __future__ import annotations

from tir import dtypes

from ..ir import Call, Graph, Value
from .rewriting import Rewriting, rewrite


def expand_powers(graph: Graph) -> Graph:
    """x ** 2 becomes x * x and x ** 3 becomes x * x * x, where the exponent is one constant number.

    x ** 0.5 stays: the square root of -0 and of -inf is another.
    """
    return rewrite(graph, _product)


def _product(r: Rewriting, call: Call) -> Value | None:
    """The product of a power, if its exponent is 2 or 3 and changes neither shape nor type; else None."""
    if call.operator != "Pow":
        return None
    base, exponent = call.values
    power = r.number(exponent)
    exact = dtypes.is_float(base.dtype) or not dtypes.is_float(exponent.dtype)
    if power not in (2, 3) or base.shape != call.outputs[0].shape or not exact:
        return None
    square = r("Mul", base, base)
    return square if power == 2 else r("Mul", square, base)
