"""assume: the function takes a condition on its sizes for granted."""

from __future__ import annotations

import ast

from tir.arith.simplify import simplify
from tir.assumptions import with_assumption
from tir.ir import FALSE, TRUE, Expr, PrimFunc
from tir.nearest import did_you_mean
from tir.script.error import ScriptError
from tir.traverse import variables

from ...error import ScheduleError, listing
from ...primitive import primitive


@primitive
def assume(func: PrimFunc, condition: str) -> tuple[PrimFunc, None]:
    """Take a condition on the sizes of the function for granted: later steps may rely on it.

    The condition is text, such as "n % 16 == 0". A call with sizes for which it does not hold raises an error and runs nothing;
    exported code does not check it. Source: Exo, PLDI 2022, section 3 (preconditions).

    Rewrite   def f(A, n): S   =>   def f(A, n): T.func_attr({"assumed": ["n % 16 == 0"]}); S
    Legal     if the condition is over sizes alone, and neither always nor never holds.
    Example   sized: s.assume("n % 4 == 0")
    """
    holds = _condition_over_sizes(func, condition)
    names = [v.name for v in func.sizes]
    decided = simplify(holds, dict.fromkeys(names, (1, None)))
    if decided in (TRUE, FALSE) or not variables(holds):
        known = listing(names)
        raise ScheduleError(
            f"expected a condition on sizes that neither always nor never holds, got {condition!r}; sizes: {known}"
        )
    return with_assumption(func, holds), None


def _condition_over_sizes(func: PrimFunc, text: str) -> Expr:
    """A condition over the sizes of a function, read from text."""
    from tir.script.conditions import read_condition
    from tir.script.source import python_tree

    sizes = {p.name: p for p in func.sizes}
    try:
        node = python_tree(text.strip(), mode="eval").body
    except SyntaxError as e:
        raise ScheduleError(f"the condition {text!r} is not an expression: {e.msg}", hint="'n % 16 == 0'") from None
    unknown = sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - set(sizes) - {"T"})
    if unknown:
        raise ScheduleError(
            f"`{unknown[0]}` in the condition is no size of the function; these are {listing(sizes)}",
            hint=did_you_mean(unknown[0], sizes),
        )
    try:
        return read_condition(text, sizes)
    except ScriptError as e:
        raise ScheduleError(f"the condition {text!r} cannot be read: {e.reason}", hint=e.hint) from None
