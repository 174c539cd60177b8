"""unroll: iterations written out one after another."""

from __future__ import annotations

from tir.ir import Kind, PrimFunc

from ...legality.independence import need_markable
from ...primitive import LoopName, constant_extent, loop_at, primitive, replace_path


@primitive
def unroll(func: PrimFunc, loop: LoopName) -> tuple[PrimFunc, None]:
    """Write out the iterations of a loop one after another.

    Rewrite   for i in range(4): S(i)   =>   for i in T.unroll(4): S(i)
    Legal     if the loop is serial, or bound to a GPU axis, which it leaves, and its extent a constant. The iterations are
              unchanged, and those of a serial loop keep their order.
    Example   matmul: s.unroll("k")
    """
    target, above = loop_at(func, loop)
    need_markable(target, Kind.UNROLLED, Kind.THREAD)
    constant_extent(target)
    return replace_path(func, above, target.with_(kind=Kind.UNROLLED, thread="")), None
