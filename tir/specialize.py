"""Specialization of a function with symbolic sizes to constant ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import SupportsIndex

from .arith.simplify import simplify
from .assumptions import ASSUMED, assumptions, broken_assumption, with_assumption
from .dtypes import is_int
from .ir import Binary, Buffer, Cast, Const, For, Iter, Node, PrimFunc, need_func
from .nearest import no_such
from .traverse import children, rewrite, substitute, variables


def specialize(func: PrimFunc, values: Mapping[str, int]) -> PrimFunc:
    """The function with these sizes, by name, as constants in place of parameters. Names of loops and blocks stay.

    Raises ValueError for an unknown size, a value that is not a positive integer, or values that break an assumption.
    """
    known = {v.name: v for v in need_func(func, "specialize").sizes}
    if not isinstance(values, Mapping):
        raise TypeError(f"specialize takes sizes by name, such as {{'n': 128}}, got {values!r}")
    for name, value in values.items():
        if name not in known:
            raise ValueError(no_such(f"size of {func.name}", name, known))
        if isinstance(value, bool) or not isinstance(value, SupportsIndex) or value < 1:
            raise ValueError(f"the size {name} of {func.name} must be a positive integer, got {value!r}")
    params = tuple(p for p in func.params if p.name not in values)
    consts = {name: Const(value.__index__(), known[name].dtype) for name, value in values.items()}
    if broken := broken_assumption(func, values):
        raise ValueError(broken)
    special = func.with_(params=params, attrs=tuple(a for a in func.attrs if a[0] != ASSUMED))
    for condition in assumptions(func):
        if not variables(condition) <= values.keys():
            special = with_assumption(special, simplify(substitute(condition, consts)))
    return rewrite(substitute(special, consts), _folded)


def _folded(n: Node) -> Node | None:
    """The node with its extent or shape simplified, an integer for an expression of constants; None for any other node."""
    match n:
        case For() | Iter():
            return n.with_(extent=simplify(n.extent))
        case Buffer():
            return n.with_(shape=tuple(map(simplify, n.shape)))
        case Cast() | Binary() if is_int(n.dtype) and all(isinstance(c, Const) for c in children(n)):
            return simplify(n)
        case _:
            return None
