"""compute_at: a producer moves to its consumers."""

from __future__ import annotations

from collections.abc import Iterable

from tir.analysis.regions import accessed
from tir.arith.bounds import ranges_of
from tir.arith.prove import prove
from tir.ir import Block, For, Kind, PrimFunc, Stmt, nest
from tir.memory import SHARED
from tir.traverse import loops_in, stores, variables
from tir.verify.initialised import check_initialised

from ...error import ScheduleError, listing
from ...legality.dataflow import BlockScope, Leaf, facts_of, locate, locate_loop, shared_loops
from ...legality.instances import instances, writes_apart
from ...legality.requirements import (
    need_only_writer,
    need_own_temporary,
    need_read_later,
    need_safe_domain,
    need_unchanged_inputs,
)
from ...primitive import KIND_WORDS, BlockName, LoopName, primitive
from ...primitive import path as path_of
from ...rewriting.cache_stages import restricted
from ...rewriting.edits import Insertion, Names, edited, pick_position, statements_of
from ...rewriting.placement import INLINE, ROOT, nest_over_windows, required_windows
from .compute_inline import compute_inline


@primitive
def compute_at(
    func: PrimFunc, block: BlockName, loop: LoopName, preserve_unit_loops: bool = False, index: int = -1
) -> tuple[PrimFunc, None]:
    """Move a producer under a loop of its consumers, computing in each iteration the elements that they need there.

    `index` is the number of the statement in the loop that follows the block. -1 means the first consumer, -2 the first statement
    after the writers of its inputs. In place of a loop, "root" leaves the block where it is, and "inline" is `compute_inline`.
    Source: Halide, PLDI 2013, section 3.2 (the call schedule).

    Rewrite   for i in range(N): A(i)                     # writes X[i]
              for l: S(l)                                 # reads X[p(l) .. p(l) + e - 1]
           => for l:
                  for ax0 in range(e): A(p(l) + ax0)      # where 0 <= p(l) + ax0 < N, unless that is proved
                  S(l)
              Reduction axes get their whole domain; points that the loops of A skip stay out. Loops of extent 1 are left out,
              unless `preserve_unit_loops`. A block that writes shared memory, and is no reduction, computes the elements that all
              threads need: loops bound to threadIdx do not count as l.
    Legal     if the block is data parallel or a reduction with its init, and X is a temporary. Other writers of X provably write
              other elements, and are under every parallel or bound loop around `loop`. X has readers, all of them under `loop`,
              after the block. No loop around both places drives its reduction. Its inputs are final where it stands, written as
              far as it reads them there, and unchanged until the last use. Its conditions are over its axes, and move with it, or
              its domain implies them. Others concern no reduction, and every access is in bounds without them. The loop is in
              the same enclosing block, and neither vectorized nor in a vectorized loop. No instance of that block then writes
              more than before. No parallel or bound loop that the block leaves contains a writer of its inputs. Elements that
              several iterations need are computed in each of them, always to the same value.
    Example   chain: s.compute_at("B", "i_1")
    """
    if loop in (ROOT, INLINE) and not path_of(func, For, loop):
        return (func, None) if loop == ROOT else compute_inline(func, block)
    scope, moved = locate(func, block)
    what = "moved"
    need_own_temporary(scope, moved, what, lambda other: writes_apart(scope, moved, other))
    target, path = locate_loop(scope, moved, loop)
    marked = [x for x in path if type(x) is For and x.kind in (Kind.PARALLEL, Kind.THREAD)]
    for x in marked[-1:]:  # its iterations would share the elements that a block outside of it writes
        need_only_writer(scope, moved, f"moved under `{x.name}`, which is {KIND_WORDS[x.kind]}", lambda w: w.under(marked[-1]))
    producer = moved.block

    consumers = _consumers_under(scope, moved, target)
    need_read_later(consumers, moved)
    _need_complete_reduction(producer, target, shared_loops(moved.above, path))
    need_unchanged_inputs(scope, moved, [path])
    box, kept, lost = instances(scope, moved)
    need_safe_domain(scope, moved, lost, what)

    stmts = statements_of(target.body)
    last = next(n for n, s in enumerate(stmts) if any(c.under(s) for c in consumers))
    first = max((n + 1 for n, s in enumerate(stmts) if any(w.writes & moved.inputs for w in scope.leaves_under(s))), default=0)
    position = pick_position(index, first, last, target)

    ranges = ranges_of(path, scope.ranges)
    together = _threads_together(producer, path)
    outside = {name: r for name, r in ranges.items() if all(name != x.name for x in together)}
    reads, _ = accessed(nest(together, target.body), outside, moved.writes)
    windows = box | required_windows(producer, reads, ranges, scope.written)
    removed = edited(func, [(producer, None)])
    facts = facts_of(scope, loops_in(path))
    placed = nest_over_windows(producer, windows, ranges, Names.of(removed), preserve_unit_loops, facts=facts)
    placed = restricted(placed, kept, ranges)
    _need_own_elements(scope, moved, nest(loops_in(path), placed))
    result = edited(removed, [], Insertion(target.body, position, placed))
    _need_written(scope, moved, result)
    return result, None


def _threads_together(producer: Block, path: Iterable[Stmt]) -> list[For]:
    """The loops over threads that share a block's result in shared memory; none for a reduction, which one thread does."""
    if producer.is_reduction or not all(s.buffer.scope in SHARED for s in stores(producer)):
        return []
    return [x for x in path if type(x) is For and x.thread.startswith("threadIdx")]


def _need_written(scope: BlockScope, moved: Leaf, result: PrimFunc) -> None:
    """Refuse if a block would read elements of its inputs that their writers, running over a part of their domain, skip."""
    inputs = sorted(moved.inputs - scope.outputs)
    for name in (n for n in inputs if any(type(w.stmt) is Block and any(instances(scope, w)) for w in scope.writers(n))):
        wrong = next((f for f in check_initialised(result, {name}) if f.severity == "error"), None)
        if wrong is not None:
            writer = scope.writers(name)[0]
            raise ScheduleError(
                f"`{moved.name}` would read more than {writer.quoted} computes where it is now: {wrong.message}",
                (moved.stmt, "the producer"),
                (writer.stmt, f"computes a part of {name}"),
                hint=f"move `{moved.name}` first, then {writer.quoted}",
            )


def _need_own_elements(scope: BlockScope, moved: Leaf, placed: Stmt) -> None:
    """Refuse if an instance of the enclosing block would write more elements than before."""
    if scope.block is None:
        return
    own = {b.name for b in scope.block.allocs}
    before, after = (accessed(s, scope.ranges, moved.writes - own)[1] for s in (scope.root, placed))
    for name, region in after.items():
        for here, there in zip(region.ranges, before[name].ranges, strict=True):
            end, last = here.min + here.extent, there.min + there.extent
            if here != there and not (prove(here.min >= there.min, scope.ranges) and prove(end <= last, scope.ranges)):
                raise ScheduleError(
                    f"`{moved.name}` would write more of `{name}` in an iteration of `{scope.block.name}` than it does, perhaps "
                    "what others write",
                    (scope.block, "the enclosing block"),
                    (moved.stmt, "the producer"),
                    hint="move it before blockize, or split by factors that divide the extents",
                )


def _consumers_under(scope: BlockScope, moved: Leaf, target: For) -> list[Leaf]:
    """The readers of a block's outputs; refuses unless there are some, all under the loop `target`."""
    consumers = [c for c in scope.leaves if c is not moved and c.reads & moved.writes]
    if not consumers:
        raise ScheduleError(
            f"nothing reads what `{moved.name}` writes, so it has no place to move to",
            (moved.stmt, "never read"),
            hint=f"reverse_compute_at moves `{moved.name}` to what it reads",
        )
    outside = next((c for c in consumers if not c.under(target)), None)
    if outside is not None:
        raise ScheduleError(
            f"{outside.quoted}, which reads what `{moved.name}` writes, is not under `{target.name}`",
            (target, "the loop"),
            (outside.stmt, "a consumer outside of it"),
            hint=_loops_around(consumers),
        )
    return consumers


def _need_complete_reduction(producer: Block, target: For, common: Iterable[For]) -> None:
    """Refuse a loop around both places, one of `common`, that drives the reduction of the block."""
    for loop in common:
        it = next((it for it in producer.reduction if loop.name in variables(it.binding)), None)
        if it is not None:
            raise ScheduleError(
                f"`{loop.name}` is around `{producer.name}` and `{target.name}` and drives the reduction `{it.var.name}`, "
                "which must be complete",
                (loop, "a loop of the reduction"),
                (producer, "is incomplete here"),
                hint=f"choose a loop outside of `{loop.name}`",
            )


def _loops_around(readers: list[Leaf]) -> str:
    """The hint that lists the loops around all readers."""
    found = [x for x in readers[0].loops if all(any(x is other for other in r.loops) for r in readers)]
    if not found:
        return "its readers share no loop; merge their loops first"
    return f"choose a loop around all its readers: {listing(x.name for x in found)}"
