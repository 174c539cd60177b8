"""hoist_predicate: conditions of blocks become one condition around a loop."""

from __future__ import annotations

from tir.arith.bounds import ranges_of
from tir.arith.prove import prove
from tir.arith.statements import drop_implied_conditions
from tir.ir import If, PrimFunc, conjunction
from tir.traverse import loops, variables

from ...error import ScheduleError
from ...primitive import LoopName, loop_at, primitive, replace_path
from ...rewriting.predicates import guarded_statements


@primitive
def hoist_predicate(func: PrimFunc, loop: LoopName) -> tuple[PrimFunc, None]:
    """Move the conditions that do not change in a loop from the blocks below it to an `if` around it.

    Rewrite   for i: with T.block("B"): where(c and d(i)); S(i)
           => if c: for i: with T.block("B"): where(d(i)); S(i)
    Legal     if such a condition exists: the same in all statements under the loop, not always true, without variables of `loop`
              and loops inside.
    Example   matmul: s.split("k", [None, 4]); s.reorder("k_0", "k_1", "i", "j"); s.hoist_predicate("i")
    """
    target, above = loop_at(func, loop)
    inside = {x.name for x in loops(target)}
    guards = guarded_statements(target)
    ranges = ranges_of(above[:-1])
    hoisted = [
        c
        for c in dict.fromkeys(guards[0].conditions)
        if not variables(c) & inside and all(c in g.conditions for g in guards) and not prove(c, ranges)
    ]
    if not hoisted:
        some = next((g for g in guards if g.conditions), guards[0])
        what = " and ".join(f"`{c}`" for c in some.conditions) if some.conditions else "no condition"
        raise ScheduleError(
            f"no condition is the same throughout `{loop}` for all that runs under it",
            (target, "the loop"),
            (some.stmt, f"runs under {what}"),
            hint="peel divides a loop where its conditions begin and cease to hold; add_guard divides by any condition",
        )
    holds = conjunction(*hoisted)
    return replace_path(func, above, If(holds, drop_implied_conditions(target, ranges, [holds]))), None
