"""Factors of the operands of products become factors of their results."""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir import Call, Value, rounded
from ..ops import definition
from .rewriting import FULL_RANGE, Rewriting, each_call, parted


@each_call
def move_factors(r: Rewriting, call: Call) -> Value | None:
    """f(a * x, b * y) becomes f(x, y) * (a b), for a linear f, and (x * a) * b becomes x * (a b), for numbers a and b.

    Not for float16: with its range the product may be finite only because of the factor.
    """
    if call.outputs[0].dtype not in FULL_RANGE:
        return None
    if definition(call).linear and len(call.values) == 2:
        return _after(r, call)
    return _joined(r, call) if call.operator == "Mul" else None


def _factor(r: Rewriting, value: Value | None) -> tuple[Value, float] | None:
    """A value as another one of its shape and a number whose product it is; None for other values."""
    number, source = parted(r.producer(value, "Mul"), lambda v: r.number(v) is not None)
    if source is None or value is None or source.shape != value.shape or not r.read_once(value):
        return None
    return source, float(r.number(number) or 0)


def _after(r: Rewriting, call: Call) -> Value | None:
    found, result = [_factor(r, v) for v in call.inputs], call.outputs[0]
    if not any(found):
        return None
    x, y = (v if f is None else f[0] for v, f in zip(call.values, found, strict=True))
    number = r.constant(rounded(np.array(prod(f[1] for f in found if f is not None)), result.dtype), name=f"{result.name}_factor")
    return r("Mul", r(call.operator, x, y, **dict(call.attributes)), number)


def _joined(r: Rewriting, call: Call) -> Value | None:
    number, scaled = parted(call, lambda v: r.number(v) is not None)
    before = _factor(r, scaled)
    if number is None or before is None or before[0].shape != call.outputs[0].shape:
        return None
    factor = rounded(np.array(before[1] * (r.number(number) or 0)), number.dtype)
    return r("Mul", before[0], r.constant(factor, name=f"{call.outputs[0].name}_factor"))
