"""drop_empty: a function without loops of no iteration."""

from __future__ import annotations

from tir.empty import has_empty, without_empty
from tir.ir import PrimFunc

from ...error import ScheduleError
from ...primitive import primitive


@primitive
def drop_empty(func: PrimFunc) -> tuple[PrimFunc, None]:
    """Remove all loops without iterations; reductions over nothing keep their inits.

    Rewrite   for i in range(0): S(i)   =>   (nothing)
              for i in range(N): for k in range(0): with init: I(i); S(i, k)   =>   for i in range(N): I(i)
    Legal     always, if a loop has no iterations.
    Example   nothing: s.drop_empty()
    """
    if not has_empty(func):
        raise ScheduleError("all loops have iterations")
    return without_empty(func), None
