"""unroll: iterations written out one after another."""

from __future__ import annotations

from tir.ir import Kind, PrimFunc

from ...legality.independence import need_markable
from ...primitive import constant_extent, loop_at, primitive, replace_path


@primitive
def unroll(func: PrimFunc, loop: str) -> tuple[PrimFunc, None]:
    """Write out the iterations of a loop one after another.

    Rewrite   for i in range(4): S(i)   =>   for i in T.unroll(4): S(i)
    Legal     if the loop is serial and the number of its iterations a constant: they and their order are unchanged.
    Example   matmul: s.unroll("k")
    """
    target, above = loop_at(func, loop)
    need_markable(target, Kind.UNROLLED)
    constant_extent(target)
    return replace_path(func, above, target.with_(kind=Kind.UNROLLED)), None
