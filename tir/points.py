"""Integer expressions over arrays of values, for proofs by enumeration."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from .ir import Binary, Cast, Const, Expr, Select, Unary, Var

_NUMPY = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod, "min": np.minimum, "max": np.maximum,
    "and": np.logical_and, "or": np.logical_or, "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
    ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip


def grid(counts: Mapping[str, int]) -> dict[str, np.ndarray]:
    """All combinations of values of variables, of which each has `counts` from 0 up: for each an array as long as there are many."""
    axes = np.meshgrid(*(np.arange(n) for n in counts.values()), indexing="ij")
    return {name: a.reshape(-1) for name, a in zip(counts, axes, strict=True)} if counts else {}


def evaluate(e: Expr, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """An integer or boolean expression, exactly, over arrays of the values of its variables. ValueError for what is neither."""
    match e:
        case Const(value):
            return np.asarray(value)
        case Var(name):
            return values[name]
        case Cast(_, value):
            return evaluate(value, values)
        case Unary("not", a):
            return np.logical_not(evaluate(a, values))
        case Unary(_, a):
            return np.negative(evaluate(a, values))
        case Select(c, t, f):
            return np.where(evaluate(c, values), evaluate(t, values), evaluate(f, values))
        case Binary(op, a, b) if op in _NUMPY:
            return _NUMPY[op](evaluate(a, values), evaluate(b, values))
        case _:
            raise ValueError(f"`{e}` is not made of variables and constants")


def size(counts: Mapping[str, int]) -> int:
    """The number of combinations."""
    return prod(counts.values())
