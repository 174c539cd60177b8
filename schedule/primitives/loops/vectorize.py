"""vectorize: iterations as lanes of vector instructions."""

from __future__ import annotations

from tir.ir import Kind, PrimFunc
from tir.traverse import loops, variables

from ...error import ScheduleError
from ...legality.independence import independent_iterations, need_markable, need_no_lanes
from ...primitive import DEPENDENT_EXTENT_HINT, KIND_WORDS, LoopName, constant_extent, loop_at, primitive, replace_path


@primitive
def vectorize(func: PrimFunc, loop: LoopName) -> tuple[PrimFunc, None]:
    """Run the iterations of a loop as lanes of vector instructions.

    Rewrite   for i in range(4): S(i)   =>   for i in T.vectorized(4): S(i)
    Legal     if the loop is serial, its extent a constant, and its iterations independent, as for `parallel`. But only buffers
              allocated inside the loop are private. No loop around is vectorized. Loops inside are serial or unrolled, and their
              extents do not depend on this one: all lanes run them together.
    Example   matmul: s.reorder("k", "j"); s.vectorize("j")
    """
    target, above = loop_at(func, loop)
    need_markable(target, Kind.VECTORIZED)
    constant_extent(target)
    need_no_lanes(above, "fuse the two loops before marking")
    for inner in loops(target.body):
        if inner.kind not in (Kind.SERIAL, Kind.UNROLLED):
            raise ScheduleError(
                f"`{inner.name}` inside it is {KIND_WORDS[inner.kind]}",
                (target, "cannot be vectorized"),
                (inner, KIND_WORDS[inner.kind]),
                hint=f"vectorize the innermost loop alone, or fuse(..., {inner.name!r}) before either is marked",
            )
        if loop in variables(inner.extent):
            raise ScheduleError(
                f"the extent of `{inner.name}` depends on `{loop}`, so its lanes would run different numbers of iterations",
                (target, "cannot be vectorized"),
                (inner, f"runs over {inner.extent}"),
                hint=DEPENDENT_EXTENT_HINT,
            )
    independent_iterations(above, "vectorized")
    return replace_path(func, above, target.with_(kind=Kind.VECTORIZED)), None
