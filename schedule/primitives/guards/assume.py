"""assume: the function takes a condition on its sizes for granted."""

from __future__ import annotations

from tir.arith.simplify import simplify
from tir.assumptions import with_assumption
from tir.ir import FALSE, TRUE, PrimFunc
from tir.traverse import variables

from ...error import ScheduleError, listing
from ...primitive import primitive
from ...rewriting.predicates import parsed_condition


@primitive
def assume(func: PrimFunc, condition: str) -> tuple[PrimFunc, None]:
    """Take a condition on the sizes of the function for granted: later steps may rely on it.

    The condition is text, such as "n % 16 == 0". A call with sizes for which it does not hold raises an error and runs nothing;
    exported code does not check it. Source: Exo, PLDI 2022, section 3 (preconditions).

    Rewrite   def f(A, n): S   =>   def f(A, n): T.func_attr({"assumed": ["n % 16 == 0"]}); S
    Legal     if the condition is over sizes alone, and neither always nor never holds.
    Example   sized: s.assume("n % 4 == 0")
    """
    holds = parsed_condition(func, (), condition)
    names = [v.name for v in func.sizes]
    decided = simplify(holds, dict.fromkeys(names, (1, None)))
    if decided in (TRUE, FALSE) or not variables(holds):
        known = listing(names)
        raise ScheduleError(
            f"expected a condition on sizes that neither always nor never holds, got {condition!r}; sizes: {known}"
        )
    return with_assumption(func, holds), None
