"""peel: a loop with conditions becomes a main part without them, and parts before and after it."""

from __future__ import annotations

from tir.arith.bounds import ranges_of
from tir.ir import PrimFunc
from tir.traverse import variables

from ...error import ScheduleError, listing
from ...primitive import LoopName, constant_extent, loop_at, primitive, replace_path
from ...rewriting.predicates import guarded_statements, iterations_where, trimmed
from ..loops.loop_partition import loop_partition


@primitive
def peel(func: PrimFunc, loop: LoopName) -> tuple[PrimFunc, list[str]]:
    """Divide a loop into the iterations in which all conditions below it hold, and those before and after; returns the loops.

    The names are in the order of the program. A split that does not divide the extent gives a main part without conditions, and a
    tail whose loops lose the iterations that do nothing.

    Rewrite   for i_0 in range(4): for i_1 in range(4): with T.block("B"): where(i_0 * 4 + i_1 < 13); S(i_0 * 4 + i_1)
           => for i_0_0 in range(3): for i_1 in range(4): with T.block("B_i_0_0"): S(i_0_0 * 4 + i_1)
              for i_0_1 in range(1): for i_1_1 in range(1): with T.block("B_i_0_1"): S(i_0_1 * 4 + i_1_1 + 12)
    Legal     if the extent is a constant, a condition below depends on the loop, and `loop_partition` is legal. Those conditions
              that are inequalities linear in the loop must always hold in some, but not in all, of its iterations. The loops of
              all parts but the main one are trimmed (`trim`).
    Example   vector: s.split("i", [None, 4]); s.peel("i_0")
    """
    target, above = loop_at(func, loop)
    extent = int(constant_extent(target))
    start, stop, marks = 0, extent, []
    for g in guarded_statements(target):
        inside = ranges_of((*above[:-1], *g.loops))
        for c in g.conditions:
            if loop not in variables(c):
                continue
            found = iterations_where(c, target, inside, always=True)
            marks.append((g.stmt, f"runs where `{c}`"))
            if found is not None and found[0] < found[1]:
                start, stop = max(start, found[0]), min(stop, found[1])
    if not marks:
        others = sorted({v for g in guarded_statements(target) for c in g.conditions for v in variables(c)})
        hint = f"conditions below it depend on {listing(others)}" if others else "a split that does not divide makes conditions"
        raise ScheduleError(f"no condition below `{loop}` depends on it", (target, "nothing to peel"), hint=hint)
    if start >= stop or (start, stop) == (0, extent):
        raise ScheduleError(
            f"`{loop}` has no iterations in which its conditions always hold",
            (target, "the loop"),
            marks[0],
            hint="with a smaller factor in split there are such iterations",
        )
    sizes = [n for n in (start, stop - start, extent - stop) if n > 0]
    func, parts = loop_partition(func, loop, list(sizes))
    main = parts[1 if start else 0]
    for name in parts:
        if name != main:
            part, path = loop_at(func, name)
            func = replace_path(func, path, trimmed(part, ranges_of(path[:-1])))
    return func, parts
