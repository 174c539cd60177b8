"""Assumptions of a function about its sizes: conditions such as `n % 16 == 0`, checked at each call.

A function states them in its attribute `ASSUMED`, a list of conditions as text. Proofs about the function may use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from .arith.enumeration import UnknownValue, evaluate
from .arith.polynomial import polynomial
from .ir import Binary, Const, Expr, PrimFunc, annotated, annotation
from .ir.memo import memoized
from .traverse import variables

ASSUMED = "assumed"


@memoized
def assumptions(func: PrimFunc) -> tuple[Expr, ...]:
    """The assumptions of a function. Raises ValueError where its attribute holds anything else."""
    texts = annotation(func.attrs, ASSUMED, ())
    if not isinstance(texts, list | tuple) or not all(isinstance(t, str) for t in texts):
        raise ValueError(f"{func.name}: the attribute {ASSUMED!r} is a list of conditions as text, got {texts!r}")
    if not texts:
        return ()
    from . import script

    sizes = {p.name: p for p in func.sizes}
    found = []
    for text in texts:
        try:
            found.append(script.read_condition(text, sizes))
        except script.ScriptError as error:
            raise ValueError(f"{func.name}: the assumption {text!r} cannot be read: {error.reason}") from None
    return tuple(found)


def with_assumption(func: PrimFunc, condition: Expr) -> PrimFunc:
    """`func` with one more assumption."""
    stated = list(annotation(func.attrs, ASSUMED, ()))
    return func if str(condition) in stated else func.with_(attrs=annotated(func.attrs, ASSUMED, [*stated, str(condition)]))


def broken_assumption(func: PrimFunc, values: Mapping[str, int]) -> str | None:
    """A message on the first assumption that these sizes break; None if none. Assumptions on further sizes are skipped."""
    for condition in assumptions(func):
        if variables(condition) <= values.keys() and not _holds(condition, values):
            given = ", ".join(f"{name} = {values[name]}" for name in sorted(variables(condition)))
            return f"{func.name} takes `{condition}` for granted, got {given}"
    return None


def _holds(condition: Expr, values: Mapping[str, int]) -> bool:
    try:
        return bool(evaluate(condition, values))
    except UnknownValue:  # it divides by zero
        return False


def divides(factor: int, size: Expr, facts: Sequence[Expr]) -> bool:
    """True where a factor provably divides a size, given facts such as `n % 16 == 0`."""
    multiples: dict[Any, int] = {}
    for fact in facts:
        match fact:
            case Binary("==", Binary("%", a, Const(int(c))), Const(0)):
                multiples[a] = max(c, multiples.get(a, 1))
    return all(k * prod(multiples.get(a, 1) for a in m) % factor == 0 for m, k in polynomial(size).items())
