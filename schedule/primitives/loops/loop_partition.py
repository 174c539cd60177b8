"""loop_partition: one loop becomes consecutive ones."""

from __future__ import annotations

from tir.arith.bounds import ranges_of
from tir.ir import Const, For, PrimFunc, Var, seq
from tir.traverse import loops_in

from ...error import ScheduleError
from ...primitive import LoopName, constant_extent, fixed_factors, loop_at, need_serial, primitive, replace_path
from ...rewriting.clones import clone, with_starting_inits
from ...rewriting.edits import Names
from ...rewriting.loops import substitute_loops


@primitive
def loop_partition(
    func: PrimFunc, loop: LoopName, factors: list[int | None], preserve_unit_iters: bool = True
) -> tuple[PrimFunc, list[str]]:
    """Divide a serial loop into consecutive loops of the given numbers of iterations; returns their names.

    The factors are numbers of iterations, in order. One may be None: the iterations that the others leave. If all are given,
    remaining iterations become one more loop at the end. The blocks below are copied, and the copies named after their loop: `B`
    in `i_1` becomes `B_i_1`. Without `preserve_unit_iters`, bindings have 0 for the variable of a loop of one iteration.

    Rewrite   for i in range(N): S(i)
           => for i_0 in range(f): S(i_0)
              for i_1 in range(N - f): S(f + i_1)
    Legal     if the loop is serial and not annotated, its extent a constant, and each factor at least 1. Their sum is at most N,
              with None less. The iterations and their order are unchanged. Conditions that hold throughout a part are dropped
              there, and so are inits of reductions that do not start in it. A reduction that the loop drives must provably start
              in the first part only.
    Example   vector: s.loop_partition("i", [2, None])
    """
    target, above = loop_at(func, loop)
    need_serial(target, "partitioned")
    known = fixed_factors(factors, example=f"loop_partition({loop!r}, [1, None])")
    extent, total = constant_extent(target), sum(known)
    if total > extent:
        raise ScheduleError(
            f"the factors make {total} iterations, but `{loop}` has {extent}",
            (target, f"{extent} iterations"),
            hint="factors are numbers of iterations, one part after the other; a factor None becomes what is left",
        )
    if total == extent and len(known) < len(factors):
        raise ScheduleError(
            f"the factors leave no iteration for None: `{loop}` has {extent}",
            (target, f"{extent} iterations"),
            hint="leave None out, or make the others smaller",
        )
    sizes = [extent - total if f is None else f for f in factors]
    if sum(sizes) < extent:
        sizes.append(extent - total)

    names = Names.of(func)
    around = loops_in(above[:-1])
    for n in range(1, len(sizes)):  # refuses before anything is copied, with marks in the function
        first = sum(sizes[:n])
        within = {**ranges_of(around), loop: (first, first + sizes[n] - 1)}
        with_starting_inits(target.body, within, above, (), lambda driving: loop not in driving)
    pieces: list[For] = []
    start = 0
    for n, size in enumerate(sizes):
        var = Var(names.loop(f"{loop}_{n}"), target.var.dtype)
        piece = For(var, Const(size, target.extent.dtype), target.body)
        copy = clone(target.body, names, f"_{var.name}", keep=n == 0)
        folded = () if preserve_unit_iters or size > 1 else (var.name,)
        inside = [*around, piece]
        body = substitute_loops(copy, {loop: var + start if start else var}, inside, folded)
        pieces.append(piece.with_(body=with_starting_inits(body, ranges_of(inside), above)))
        start += size
    return replace_path(func, above, seq(*pieces)), [p.name for p in pieces]
