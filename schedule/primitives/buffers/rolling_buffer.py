"""rolling_buffer: rows from the iteration before are kept, not computed again."""

from __future__ import annotations

from tir.analysis.regions import accessed
from tir.arith.bounds import ranges_of
from tir.arith.polynomial import as_constant, polynomial
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.ir import Axis, Binary, Block, Buffer, Const, Expr, For, Kind, PrimFunc, Store, conjunction
from tir.nearest import did_you_mean
from tir.traverse import axis_loops, replace_buffers, substitute, variables

from ...error import ScheduleError, listing
from ...legality.axis_windows import AxisWindow
from ...legality.dataflow import BlockScope, Leaf, buffer_of, locate
from ...legality.instances import covered_windows
from ...legality.iter_map import proving
from ...legality.requirements import need_final_inputs, need_own_temporary, own_axes, single_store
from ...primitive import KIND_WORDS, BlockName, BufferPlace, primitive
from ...rewriting.edits import edited, with_accesses

MAX_STEPS = 1024  # iterations of a loop that are tried one by one, if its window moves by changing numbers of elements


@primitive
def rolling_buffer(func: PrimFunc, block: BlockName, write_buffer_index: BufferPlace) -> tuple[PrimFunc, None]:
    """Keep the part of a temporary that the iteration before has computed, in a circular buffer, and compute only the rest.

    The block is one that `compute_at` has moved into a loop whose iterations compute overlapping windows: the loop rolls. Along
    the dimension of the movement, the buffer becomes as long as the window. The block's axis along it becomes opaque, since
    elements replace others.

    Rewrite   for r: for x in range(W): X[r * s + x] = f(r * s + x)
                     S(X[r * s], ..., X[r * s + W - 1])
           => for r: for x in range(W) where r == 0 or x >= W - s: X[(r * s + x) % W] = f(r * s + x)
                     S(X[(r * s) % W], ..., X[(r * s + W - 1) % W])
    Legal     if the block is data parallel, or a reduction with its init that is whole in an iteration. It alone writes a
              temporary, by one store at its own axes. All loops around it that hold other statements are serial or unrolled.
              The innermost of them that moves the window rolls; all readers are in it, after the block. An iteration writes a
              window of W elements of one dimension, and the same part of all others; readers access nothing else. The window
              starts 0 < s < W elements after the one before. If s changes, it is nowhere negative, somewhere below W, and not
              always 0. The block reads the same values in all iterations. Writers of its inputs in the loop stand before it, and
              always write the same value to an element.
    Example   blur: s.compute_at("B", "i_1"); s.rolling_buffer("B", 0)
    """
    return with_rolling_buffer(func, block, write_buffer_index), None


def with_rolling_buffer(func: PrimFunc, block: str, place: int | str, keep: str = "") -> PrimFunc:
    """`func` with the windows of a block kept, in the loop `keep` if that is given."""
    scope, leaf = locate(func, block)
    producer = leaf.block
    buffer = buffer_of(producer, place, written=True)
    ordered = next((it for it in producer.iters if it.axis is Axis.OPAQUE), None)
    if ordered is not None:
        reason = f"the axis `{ordered.var.name}` of `{block}` is opaque, so what an iteration computes may change"
        raise ScheduleError(reason, (producer, "the block"))
    need_own_temporary(scope, leaf, "kept")
    places = own_axes(producer, _only_store(producer, buffer))
    loop, share, dim, step = _rolling(scope, leaf, buffer, places, keep)
    ranges = ranges_of(leaf.loops, scope.ranges)
    axis = places[dim]
    assert axis is not None
    window = share[axis]
    _need_within(scope, leaf, loop, buffer, dim, window)

    length = window.extent
    kept = buffer.with_(shape=tuple(length if n == dim else d for n, d in enumerate(buffer.shape)))

    def in_turn(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(simplify(i % length) if n == dim else i for n, i in enumerate(indices))

    rolling = next(it for it in producer.iters if it.var.name == axis)
    first = simplify(rolling.binding - window.start, ranges) >= simplify(length - step, ranges)
    predicate = conjunction(producer.predicate, Binary("or", loop.var.equal(0), first))
    iters = tuple(it.with_(axis=Axis.OPAQUE) if it is rolling else it for it in producer.iters)
    users = [x for x in scope.leaves if buffer.name in x.reads | x.writes and x is not leaf]
    moved = {buffer.name: (buffer, in_turn)}
    changes = [(x.stmt, with_accesses(x.stmt, moved)) for x in users]
    changes.append((producer, with_accesses(producer, moved).with_(iters=iters, predicate=predicate)))
    return replace_buffers(edited(func, changes), {buffer.name: kept})


def _only_store(block: Block, buffer: Buffer) -> Store:
    """The only store of a block, or of a reduction beside its init at the same indices; refuses any other block."""
    if block.init is None:
        return single_store(block)
    match block.init, block.body:
        case Store(b, place), Store(buffer=c, indices=there) as store if b == c == buffer and place == there:
            return store
    reason = f"`{block.name}` is more than a store to `{buffer.name}`, and its init"
    raise ScheduleError(reason, (block, "the block"), hint="only what is reduced by one store can be kept")


def _rolling(
    scope: BlockScope, leaf: Leaf, buffer: Buffer, places: list[str | None], keep: str
) -> tuple[For, dict[str, AxisWindow], int, Expr]:
    """The innermost loop that rolls, the windows of its iterations, the dimension in which they move, and the distance."""
    refusal: ScheduleError | None = None
    for loop in _serial_loops(leaf, keep):
        _need_fixed_surroundings(scope, leaf, loop, buffer)
        outer = leaf.loops[: leaf.loops.index(loop) + 1]
        try:
            beyond = sorted(axis_loops(leaf.block, Axis.REDUCE) & {x.name for x in outer})
            if beyond:
                raise ScheduleError(
                    f"`{beyond[0]}` drives the reduction of `{leaf.name}`, whose elements are not final in an iteration of it",
                    (loop, "the loop"),
                    (leaf.stmt, "reduces"),
                    hint="only a reduction that is whole in an iteration can be kept",
                )
            what = f"which part of `{buffer.name}` an iteration of `{loop.name}` computes"
            with proving(what, (loop, "the loop"), (leaf.stmt, "computes")):
                share = covered_windows(leaf.block, outer, leaf.inside(outer))
            return (loop, share, *_rolling_dimension(leaf.block, buffer, places, share, loop))
        except ScheduleError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _serial_loops(leaf: Leaf, keep: str) -> list[For]:
    """The loops around a block that hold other statements, innermost first, or only `keep`; refuses parallel and bound loops."""
    around = leaf.loops[: len(leaf.loops) - len(leaf.exclusive_loops)]
    if not around:
        raise ScheduleError(
            f"`{leaf.name}` is in no loop that holds its readers, too",
            (leaf.stmt, "the block"),
            hint=f"compute_at({leaf.name!r}, ...) moves it into one",
        )
    for x in around:
        if x.kind not in (Kind.SERIAL, Kind.UNROLLED):
            raise ScheduleError(
                f"`{x.name}` is {KIND_WORDS[x.kind]}, and its iterations would share the window",
                (x, KIND_WORDS[x.kind]),
                hint="do this before loops are marked, or blockize the inner loops first",
            )
    chosen = [x for x in reversed(around) if x.name == (keep or x.name)]
    if not chosen:
        raise ScheduleError(
            f"`{keep}` is no loop around `{leaf.name}` and its readers; these are {listing(x.name for x in around)}",
            (leaf.stmt, "the block"),
            hint=did_you_mean(keep, [x.name for x in around]),
        )
    return chosen


def _need_fixed_surroundings(scope: BlockScope, leaf: Leaf, loop: For, buffer: Buffer) -> None:
    """Refuse readers outside of the loop or before the block, and inputs that may change between iterations."""
    for x in scope.readers(buffer.name):
        if not x.under(loop) or x.order < leaf.order:
            where = "outside of" if not x.under(loop) else "before it in"
            raise ScheduleError(
                f"{x.quoted} reads `{buffer.name}` {where} `{loop.name}`",
                (loop, "the loop"),
                (x.stmt, f"reads {buffer.name}"),
                hint="all readers must stand behind the block, in the loop that rolls",
            )
    for x in scope.leaves_under(loop):
        changed = sorted(x.writes & leaf.inputs)
        if x is not leaf and changed and x.order > leaf.order:
            raise ScheduleError(
                f"{x.quoted} writes `{changed[0]}`, from which `{leaf.name}` computes, behind it in `{loop.name}`",
                (leaf.stmt, f"reads {changed[0]}"),
                (x.stmt, f"writes {changed[0]}"),
                hint="what the iteration before computed would no longer be right",
            )
        if x is not leaf and changed:
            need_final_inputs(
                scope, leaf, x, hint=f"roll `{leaf.name}` before what it reads, or compute {x.quoted} before the loop"
            )


def _rolling_dimension(
    block: Block, buffer: Buffer, places: list[str | None], share: dict[str, AxisWindow], loop: For
) -> tuple[int, Expr]:
    """The only dimension in which the window of an iteration moves, and the distance from the one before."""
    moving = [n for n, v in enumerate(places) if v is not None and loop.name in variables(share[v].start)]
    if len(moving) != 1:
        many = f"{len(moving)} dimensions" if moving else "no dimension"
        raise ScheduleError(
            f"what `{block.name}` computes in an iteration of `{loop.name}` moves in {many} of `{buffer.name}`",
            (loop, "the loop"),
            (block, "the block"),
            hint=f"it must move in one: compute_at({block.name!r}, ...) another loop",
        )
    axis = places[moving[0]]
    assert axis is not None
    start, extent = share[axis].start, share[axis].extent
    step = simplify(start - substitute(start, {loop.var: loop.var - 1}))
    steps = [as_constant(polynomial(step))]
    if steps == [None] and type(loop.extent) is Const and loop.extent.value <= MAX_STEPS:
        at = [substitute(step, {loop.var: Const(n, loop.var.dtype)}) for n in range(1, loop.extent.value)]
        steps = [as_constant(polynomial(simplify(e))) for e in at]
    known = [n for n in steps if n is not None]
    if not known or len(known) < len(steps) or type(extent) is not Const or not 0 <= min(known) < extent.value or not max(known):
        moves = f"by {step} element(s)" if type(step) is Const else "by a changing number of elements"
        raise ScheduleError(
            f"the window of {extent} element(s) that `{block.name}` computes in an iteration of `{loop.name}` moves {moves}, "
            "so nothing of it is computed again",
            (loop, "the loop"),
            (block, "the block"),
            hint="there is nothing to keep",
        )
    return moving[0], step


def _need_within(scope: BlockScope, leaf: Leaf, loop: For, buffer: Buffer, dim: int, window: AxisWindow) -> None:
    """Refuse readers that may access elements beyond the window of an iteration."""
    ranges = ranges_of(leaf.loops[: leaf.loops.index(loop) + 1], scope.ranges)
    reads, _ = accessed(loop.body, ranges, (buffer.name,))
    r = reads[buffer.name].ranges[dim]
    if not (prove(r.min >= window.start, ranges) and prove(r.min + r.extent <= window.start + window.extent, ranges)):
        raise ScheduleError(
            f"what an iteration of `{loop.name}` reads of `{buffer.name}` may be beyond what `{leaf.name}` computes there",
            (loop, "the loop"),
            (leaf.stmt, "the block"),
            hint=f"compute_at({leaf.name!r}, {loop.name!r}) computes what is read",
        )
