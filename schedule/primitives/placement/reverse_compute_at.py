"""reverse_compute_at: a consumer moves to its producers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tir.arith.bounds import ranges_of
from tir.arith.injectivity import determined
from tir.arith.intervals import Ranges
from tir.arith.polynomial import affine_index, plus_constant, polynomial
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.assumptions import assumptions
from tir.ir import IN_ANY_ORDER, Axis, Block, Const, Expr, For, Load, PrimFunc, Stmt, conjuncts
from tir.traverse import loads, loops_in, variables

from ...error import ScheduleError, listing
from ...legality.axis_windows import AxisWindow, TiledIndex, in_elements, partial_windows, windows, written_indices
from ...legality.dataflow import BlockScope, Leaf, facts_of, locate, locate_loop, loops_and_ranges, shared, shared_loops, span
from ...legality.instances import instances, narrowed
from ...legality.iter_map import proving
from ...legality.requirements import need_complete, need_safe_domain
from ...primitive import KIND_WORDS, BlockName, LoopName, primitive
from ...primitive import path as path_of
from ...rewriting.cache_stages import restricted
from ...rewriting.edits import Insertion, Names, edited, pick_position, statements_of
from ...rewriting.index_map import IndexMap
from ...rewriting.placement import INLINE, ROOT, nest_over_windows
from ..blocks.transform_block_layout import transform_block_layout
from .reverse_compute_inline import reverse_compute_inline


@primitive
def reverse_compute_at(
    func: PrimFunc, block: BlockName, loop: LoopName, preserve_unit_loops: bool = False, index: int = -1
) -> tuple[PrimFunc, None]:
    """Move a consumer under a loop of its producers; in each iteration it runs for the elements that they finish there.

    `index` picks the place in the loop: -1 the last, -2 right after the producers, else the number of the statement that follows
    it. In place of a loop, "root" leaves the block where it is, and "inline" is `reverse_compute_inline`.

    Rewrite   for l: S(l)                                 # writes X[p(l) .. p(l) + e - 1]
              for i in range(N): B(i)                     # reads X[i]
           => for l:
                  S(l)
                  for ax0 in range(e): B(p(l) + ax0)      # where p(l) + ax0 < N, unless that is proved
              Axes that do not index X get their whole domain. Loops of extent 1 are left out, unless `preserve_unit_loops`.
    Legal     if the block is data parallel or a reduction with its init, and stands after its producers. The windows of X that
              the iterations write tile X, except for elements that conditions always skip. Each is finished in its iteration: no
              reduction is driven by `loop` or a loop around it. All writers of X are in the nest of `loop`, before the new
              place. If a window is less than a whole dimension, the block reads that at a spatial axis plus a constant, or
              `transform_block_layout` makes it so. All reads bound the same axes by the same windows (or larger ones, of
              producers in fewer of the loops). The block runs over its whole domain, once; its reduction may skip terms by
              conditions or ends of loops. No statement between the two places writes its other inputs or touches its outputs.
              The loop is in the same enclosing block, and neither vectorized nor in a vectorized loop.
    Example   chain: s.reverse_compute_at("C", "i")
    """
    if loop in (ROOT, INLINE) and not path_of(func, For, loop):
        return (func, None) if loop == ROOT else reverse_compute_inline(func, block)
    scope, moved = locate(func, block)
    need_complete(scope, moved, "moved")
    target, path = locate_loop(scope, moved, loop)
    consumer = moved.block
    producers = _producers(scope, moved, target)
    feeding = _producers_between(scope, moved, path, producers[-1])
    ranges = ranges_of(path, scope.ranges)
    try:
        made = _finished_windows(scope, moved, feeding, path, ranges)
        _need_same_share(scope, moved, feeding, shared(moved.above, path))
    except ScheduleError as refusal:
        plain = _with_plain_reads(func, moved, feeding)
        if plain is None:
            raise
        try:
            return reverse_compute_at(plain, block, loop, preserve_unit_loops, index)
        except ScheduleError:
            raise refusal from None

    # The windows above are of the spatial axes; terms that the reduction skips are skipped at the new place, too.
    box, kept, lost = instances(scope, moved)
    reducing = {it.var.name: it.binding for it in consumer.reduction}
    need_safe_domain(scope, moved, [c for c in lost if variables(c) & variables(*reducing.values())], "moved")
    made |= {v: window for v, window in box.items() if v in reducing}

    stmts = statements_of(target.body)
    first = max(n for n, s in enumerate(stmts) if any(p.under(s) for p in producers)) + 1
    position = pick_position(index, first, len(stmts), target)
    removed = edited(func, [(consumer, None)])
    facts = facts_of(scope, loops_in(path))
    placed = nest_over_windows(consumer, made, ranges, Names.of(removed), preserve_unit_loops, exact=True, facts=facts)
    once = _conditions_of_one(scope, moved, feeding, path, made)
    placed = restricted(placed, [*once, *(c for c in kept if variables(c) & reducing.keys())], ranges)
    return edited(removed, [], Insertion(target.body, position, placed)), None


def _conditions_of_one(
    scope: BlockScope, moved: Leaf, feeding: Sequence[Leaf], path: tuple[Stmt, ...], made: Mapping[str, AxisWindow]
) -> list[Expr]:
    """The common conditions of all producers, if several iterations of loops have one window, else none.

    Refuses if iterations of a parallel or bound loop would still run the block for the same window."""
    ranges = ranges_of(path, scope.ranges)
    mine = [x for x in loops_in(path) if x not in moved.loops and not x.extent.is_one]
    known = ranges.keys() - {x.name for x in mine}

    def repeated(ranges: Ranges) -> list[For]:
        told = determined([polynomial(w.start) for w in made.values()], known, ranges)
        return [x for x in mine if x.name not in told and ranges[x.name] != (0, 0)]

    if not repeated(ranges):
        return []
    visible = {x.name for x in loops_in(path)}
    first, *others = [conjuncts(p.block.predicate) for p in feeding]
    common = [c for c in first if all(c in other for other in others) and variables(c) and variables(c) <= visible]
    again = [x for x in repeated(narrowed(ranges, [simplify(c, ranges) for c in common])) if x.kind in IN_ANY_ORDER]
    if again:
        raise ScheduleError(
            f"`{moved.name}` would run in each iteration of `{again[0].name}` for the same elements",
            (again[0], KIND_WORDS[again[0].kind]),
            (moved.stmt, "the block"),
            hint="name a loop around it",
        )
    return common


def _producers(scope: BlockScope, moved: Leaf, target: For) -> list[Leaf]:
    """The producers of a block under a loop; refuses unless there are some, all before the block."""
    block, consumer = moved.name, moved.stmt
    found = [p for p in scope.leaves_under(target) if p.writes & moved.inputs]
    if not found:
        elsewhere = dict.fromkeys(x.name for p in scope.leaves if p.writes & moved.inputs for x in p.loops)
        under = f"what it reads is written under {listing(elsewhere)}"
        raise ScheduleError(
            f"no producer of `{block}` is under `{target.name}`",
            (target, "the loop"),
            (consumer, "the block"),
            hint=under if elsewhere else f"nothing here writes what `{block}` reads",
        )
    if found[-1].order > moved.order:
        raise ScheduleError(
            f"`{block}` stands before {found[-1].quoted}, its producer",
            (consumer, "first"),
            (found[-1].stmt, "then"),
            hint=f"compute_at({block!r}, ...) moves a block to what reads it",
        )
    return found


def _producers_between(scope: BlockScope, moved: Leaf, path: tuple[Stmt, ...], last: Leaf) -> list[Leaf]:
    """The producers of a block between its place and the end of `path`, where the `last` one is.

    Refuses other uses of its outputs in between, producers that run too late, and writers of its inputs elsewhere."""
    block, consumer = moved.name, moved.stmt
    top = path[len(shared(moved.above, path))]
    between = [x for x in span(scope, (*moved.above, consumer), path) if x is not moved]
    for other in between:
        touched = sorted((other.reads | other.writes) & moved.writes)
        if touched:
            raise ScheduleError(
                f"{other.quoted} uses `{touched[0]}`, which `{block}` writes, between the two places",
                (other.stmt, f"uses {touched[0]}"),
                (consumer, f"writes {touched[0]}"),
                hint=f"move {other.quoted} first, or choose a loop after it",
            )
    feeding = [x for x in between if x.writes & moved.inputs]
    for other in feeding:
        if not other.under(top) or (other.order > last.order and not other.under(path[-1])):
            changed = sorted(other.writes & moved.inputs)[0]
            raise ScheduleError(
                f"{other.quoted} writes `{changed}`, which `{block}` reads, after the new place",
                (other.stmt, f"writes {changed}"),
                (consumer, f"reads {changed}"),
                hint=f"move {other.quoted} before it first",
            )
    for other in feeding:
        for name in sorted(other.writes & moved.inputs):
            outside = next((w for w in scope.writers(name) if w not in feeding), None)
            if outside is not None:
                raise ScheduleError(
                    f"`{name}` is written by {other.quoted} and by {outside.quoted}, which is not under the same loops",
                    (other.stmt, f"writes {name}"),
                    (outside.stmt, f"writes {name}"),
                    hint=f"merge the loops of {other.quoted} and {outside.quoted} first",
                )
    return feeding


def _finished_windows(
    scope: BlockScope, moved: Leaf, feeding: list[Leaf], path: tuple[Stmt, ...], ranges: Ranges
) -> dict[str, AxisWindow]:
    """The window of each axis of the consumer for which its inputs are finished in an iteration of the last loop on `path`.

    Theorem: if one read bounds axes by windows that tile the dimensions it reads, the block runs once at each of its points. All
    other reads may bound these axes only, and not more tightly.
    """
    block = moved.block
    loops = loops_in(path)
    found: list[tuple[Leaf, dict[str, AxisWindow]]] = []
    tiling: dict[str, AxisWindow] | None = None
    for producer in feeding:
        outer = shared_loops(path, producer.above)
        for share in _shares(moved, producer, outer, assumptions(scope.func)):
            found.append((producer, share))
            if len(outer) == len(loops) and (tiling is None or len(share) > len(tiling)):
                tiling = share
    assert tiling is not None, "a producer is under the loop"
    for producer, share in found:
        for v, other in share.items():
            if v not in tiling:
                raise ScheduleError(
                    f"`{block.name}` is bound in `{v}` by what {producer.quoted} finishes, but in other axes by other reads, "
                    "so that some of its points would be left out",
                    (producer.stmt, "a producer"),
                    (block, "the block"),
                    hint="choose a loop in which all that it reads is finished for the same axes, further outside",
                )
            best = tiling[v]
            inside = prove(other.start <= best.start, ranges) and prove(
                best.start + best.extent <= other.start + other.extent, ranges
            )
            if other != best and not (inside and not other.limits):
                raise ScheduleError(
                    f"the inputs of `{block.name}` are not finished in the same windows of `{v}`",
                    (producer.stmt, "a producer"),
                    (block, "the block"),
                    hint="choose a loop further outside, or compute_at one of its producers first",
                )
    return tiling


def _with_plain_reads(func: PrimFunc, moved: Leaf, feeding: list[Leaf]) -> PrimFunc | None:
    """`func` with a block transformed to read the producers' elements at its axes, instead of at an index map of them.

    None if it reads at its axes already, or if the transformation is refused."""
    block = moved.block
    written = set().union(*(p.writes for p in feeding))
    ranges = ranges_of([block])
    found = {x.indices for x in loads(block) if x.buffer.name in written}
    places = {tuple(fixed if type(fixed := simplify(i, ranges)) is Const else i for i in indices) for indices in found}
    axes = [it.var.name for it in block.iters]
    if len(places) != 1 or all(affine_index(i, axes) is not None or type(i) is Const for i in next(iter(places))):
        return None
    (indices,) = places
    used = variables(*indices)
    outputs = (*indices, *(it.var for it in block.iters if it.var.name not in used))
    try:
        plain, _ = transform_block_layout(func, block.name, IndexMap(tuple(it.var for it in block.iters), outputs))
    except ScheduleError:
        return None
    _, new = locate(plain, block.name)
    own = [it.var.name for it in new.block.iters]
    read = [i for x in loads(new.block) if x.buffer.name in written for i in x.indices]
    return plain if read and all(affine_index(i, own) is not None or type(i) is Const for i in read) else None


def _shares(moved: Leaf, producer: Leaf, outer: tuple[For, ...], facts: Sequence[Expr]) -> list[dict[str, AxisWindow]]:
    """For each read of a producer's elements: the windows of the consumer's axes for which an iteration of `outer` finishes them.

    An axis without a window reads a dimension that is finished as a whole.
    """
    block = moved.block
    source = producer.stmt
    if type(source) is not Block:
        raise ScheduleError(
            f"{producer.quoted} writes what `{block.name}` reads, so what is finished is unknown",
            (source, "not in a block"),
            hint="only what a block writes can be told apart: put the statement into one (T.block)",
        )
    what = f"that `{source.name}` finishes a part of its own in each iteration of `{outer[-1].name}`"
    marks = (outer[-1], "the loop"), (source, "the producer"), (block, "the consumer")
    with proving(what, *marks, hint=f"choose a loop outside of `{outer[-1].name}`"):
        share = partial_windows(source, outer, producer.inside(outer), facts)
    result: list[dict[str, AxisWindow]] = []
    for name in sorted(producer.writes & moved.inputs):
        for load in loads(block):
            if load.buffer.name == name and (bound := _windows_of_read(block, source, load, share)) not in result:
                result.append(bound)
    return result


def _windows_of_read(block: Block, source: Block, load: Load, share: dict[str, AxisWindow]) -> dict[str, AxisWindow]:
    """The windows of the axes of `block` for one read, given the windows `share` of the axes of its producer `source`."""
    name = load.buffer.name
    marks = (source, f"writes {name}"), (block, f"reads {name}")
    axes = {it.var.name: it for it in block.spatial}
    extents = {it.var.name: it.extent for it in source.iters}
    result: dict[str, AxisWindow] = {}
    for n, (index, length, dim) in enumerate(
        zip(load.indices, load.buffer.shape, _written_dimensions(source, name), strict=True)
    ):
        if length.is_one:
            continue
        if dim is None:
            raise ScheduleError(
                f"dimension {n} of `{name}` is not indexed by an axis of `{source.name}`, so what is finished is unknown",
                marks[0],
                hint=f"let {source.name!r} write dimension {n} at one of its axes, or choose a loop outside of its loops",
            )
        assert dim.axis is not None
        window, extent = in_elements(share[dim.axis], dim), simplify(extents[dim.axis] * dim.tile)
        if window.extent == extent and not window.limits:
            continue
        read = affine_index(index, axes)
        if read is None:
            raise ScheduleError(
                f"`{block.name}` reads dimension {n} of `{name}` at `{index}`, which is not one of its spatial axes, "
                "but only a part of it is finished in an iteration",
                *marks,
                hint="choose a loop further outside, in which all of that dimension is finished",
            )
        assert type(dim.offset) is Const
        axis, shift = axes[read[0]], int(dim.offset.value) - read[1]
        if not (prove(axis.extent <= plus_constant(extent, shift), {}) and shift <= 0):
            raise ScheduleError(
                f"`{block.name}` reads more of dimension {n} of `{name}` than `{source.name}` writes",
                marks[1],
                hint="choose a loop outside of all that writes the rest",
            )
        mine = AxisWindow(simplify(plus_constant(window.start, -read[1])), window.extent, window.limits)
        if result.setdefault(axis.var.name, mine) != mine:
            raise ScheduleError(
                f"`{block.name}` reads `{name}` at several places along `{axis.var.name}`, "
                "which are not finished in the same iteration",
                *marks,
                hint="choose a loop further outside, in which all of them are finished",
            )
    return result


def _written_dimensions(block: Block, name: str) -> list[TiledIndex | None]:
    """The index of all stores of a block in each dimension of a buffer: an axis, perhaps tiled, plus a constant; else None.

    Such an axis indexes no other dimension."""
    first, *others = written_indices(block, name)
    dims = [a if all(other[n] == a for other in others) else None for n, a in enumerate(first)]
    axes = [p.axis for p in dims if p is not None]
    return [p if p is not None and axes.count(p.axis) == 1 and p.axis and type(p.offset) is Const else None for p in dims]


def _need_same_share(scope: BlockScope, moved: Leaf, feeding: list[Leaf], common: tuple[Stmt, ...]) -> None:
    """Refuse unless the block runs over its whole domain, and in an iteration of common loops for just its finished elements."""
    block = moved.block
    around, ranges = loops_and_ranges(common, scope.ranges)
    with proving(f"that `{block.name}` runs over its whole domain, once", (block, "the block")):
        now = windows(block, around, moved.inside(around), assumptions(scope.func))
    if not around:
        return
    then = _finished_windows(scope, moved, feeding, common, ranges)
    for it in block.iters:
        if it.axis is not Axis.SPATIAL:
            continue
        mine = now[it.var.name]
        other = then.get(it.var.name, AxisWindow(Const(0, it.extent.dtype), it.extent))
        if mine != other:
            raise ScheduleError(
                f"in an iteration of `{around[-1].name}`, `{block.name}` runs for other values of `{it.var.name}` "
                "than its producers finish",
                (around[-1], "around both"),
                (block, "the block"),
                hint=f"choose a loop that is not inside `{around[-1].name}`",
            )
