"""trim: iterations at the end of a loop that do nothing are cut off."""

from __future__ import annotations

from tir.affine import Interval
from tir.ir import Block, Const, For, PrimFunc, Stmt, Store
from tir.traverse import map_statements

from .error import ScheduleError
from .guards import assuming, guarded_statements, iterations_where
from .loops import ranges_of
from .primitive import constant_extent, loop_at, primitive, replace_path


@primitive
def trim(func: PrimFunc, loop: str) -> tuple[PrimFunc, None]:
    """Cut off the iterations at the end of a loop in which no block below it runs; one iteration stays in any case.

    Rewrite   for i in range(N): with T.block("B"): where(i < n); S(i)   =>   for i in range(n): with T.block("B"): S(i)
    Legal     if the extent is a constant, and there is an iteration to cut off: in each of these every statement below has a
              condition, an inequality linear in the loop, that provably never holds there.
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
    return replace_path(func, above, assuming(new, ranges)), None


def trimmed(stmt: Stmt, ranges: dict[str, Interval]) -> Stmt:
    """`stmt` with all loops in it trimmed where they can be, outer ones first; `ranges` are those of the variables around it."""
    match stmt:
        case For(extent=Const(value)):
            size = max(useful_iterations(stmt, ranges), 1) if value > 1 else value
            name = stmt.name
            if size < value:
                stmt = assuming(stmt.with_(extent=Const(size, stmt.extent.dtype)), ranges)
            ranges = {**ranges, name: (0, size - 1)}
        case Block(body=Store()):
            return stmt
        case _:
            ranges = ranges_of([stmt], ranges)
    return map_statements(stmt, lambda s: trimmed(s, ranges))


def useful_iterations(loop: For, ranges: dict[str, Interval]) -> int:
    """The number of iterations of a loop of constant extent after which nothing below it runs any more."""
    extent = int(loop.extent.value)  # type: ignore[attr-defined]
    most = 0
    for g in guarded_statements(loop):
        inside = ranges_of(g.loops, ranges)
        found = [iterations_where(c, loop, inside, always=False) for c in g.conditions]
        most = max(most, min((stop for _, stop in (f for f in found if f is not None)), default=extent))
    return most
