"""parallel: iterations on several threads."""

from __future__ import annotations

from tir.ir import Kind, PrimFunc

from ...legality.independence import independent_iterations, need_markable, need_no_lanes
from ...legality.privatisation import private_buffers
from ...primitive import LoopName, loop_at, primitive, replace_path


@primitive
def parallel(func: PrimFunc, loop: LoopName) -> tuple[PrimFunc, None]:
    """Run the iterations of a loop on several threads.

    Rewrite   for i in range(N): S(i)   =>   for i in T.parallel(N): S(i)
    Legal     if the loop is serial, no loop around is vectorized, and no iteration touches an element that another one writes.
              In each block below, the loop drives spatial axes only, and different iterations get different values of these.
              Between different blocks, and for statements outside of blocks, the touched elements are compared. Buffers
              allocated inside the loop are private to an iteration. So are temporaries used only there, if each iteration reads
              only elements that it has written itself.
    Example   matmul: s.parallel("i")
    """
    target, above = loop_at(func, loop)
    need_markable(target, Kind.PARALLEL)
    need_no_lanes(above, "lanes of a vector cannot start threads; make an outer loop parallel")
    independent_iterations(above, "parallel", lambda: private_buffers(func, above))
    return replace_path(func, above, target.with_(kind=Kind.PARALLEL)), None
