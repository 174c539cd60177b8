"""trim: iterations at the end of a loop that do nothing are cut off."""

from __future__ import annotations

from tir.arith.bounds import ranges_of
from tir.arith.statements import drop_implied_conditions
from tir.ir import Const, PrimFunc

from ...error import ScheduleError
from ...primitive import LoopName, constant_extent, loop_at, primitive, replace_path
from ...rewriting.predicates import useful_iterations


@primitive
def trim(func: PrimFunc, loop: LoopName) -> tuple[PrimFunc, None]:
    """Cut off the iterations at the end of a loop in which no block below it runs; at least one iteration stays.

    Rewrite   for i in range(N): with T.block("B"): where(i < n); S(i)   =>   for i in range(n): with T.block("B"): S(i)
    Legal     if the extent is a constant, and there is an iteration to cut off. In each of these, every statement below has a
              condition, an inequality linear in the loop, that provably never holds.
    Example   matmul: s.split("j", [5, 4]); s.trim("j_0")
    """
    target, above = loop_at(func, loop)
    extent = constant_extent(target)
    ranges = ranges_of(above[:-1])
    size = useful_iterations(target, ranges)
    if size >= extent:
        raise ScheduleError(
            f"no iteration at the end of `{loop}` is without effect",
            (target, f"{target.extent} iterations"),
            hint="trim follows a split whose factors make more iterations than the loop has",
        )
    new = target.with_(extent=Const(max(size, 1), target.extent.dtype))
    return replace_path(func, above, drop_implied_conditions(new, ranges)), None
