"""serial: iterations one after another, as of a loop without a mark."""

from __future__ import annotations

from tir.ir import Kind, PrimFunc
from tir.traverse import foreign_calls

from ...error import ScheduleError
from ...primitive import KIND_WORDS, LoopName, loop_at, primitive, replace_path


@primitive
def serial(func: PrimFunc, loop: LoopName) -> tuple[PrimFunc, None]:
    """Run the iterations of a marked loop one after another.

    Rewrite   for i in T.parallel(N): S(i)   =>   for i in range(N): S(i)
    Legal     if the loop is not bound to a GPU axis around foreign calls, where its threads may wait for one another. Iterations
              that may run in any order may run in the order of the loop.
    Example   matmul: s.parallel("i"); s.serial("i")
    """
    target, above = loop_at(func, loop)
    if target.kind is Kind.THREAD and (calls := foreign_calls(target.body)):
        raise ScheduleError(
            f"`{loop}` is {KIND_WORDS[target.kind]}, and `T.{calls[0].call.op}` may be where its threads wait for one another",
            (target, "cannot be serial"),
            (calls[0], "a foreign call"),
        )
    return replace_path(func, above, target.with_(kind=Kind.SERIAL, thread="")), None
