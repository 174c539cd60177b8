"""reverse_compute_inline: a consumer's formula goes into its producer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from tir.arith.bounds import ranges_of
from tir.arith.polynomial import affine_index
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.ir.blocks import Axis, Block, Iter
from tir.ir.buffers import Load
from tir.ir.expressions import TRUE, Const, Expr, Var, all_zero, conjunction, conjuncts
from tir.ir.functions import PrimFunc
from tir.ir.statements import For, If, Stmt, Store
from tir.traverse import loads, rewrite, substitute, variables

from ...error import ScheduleError, listing
from ...legality.axis_windows import AxisWindow, partial_windows, windows
from ...legality.dataflow import BlockScope, Leaf, locate, shared_loops, span
from ...legality.instances import instances
from ...legality.iter_map import proving
from ...legality.requirements import need_complete, need_own_temporary, own_axes, single_store
from ...primitive import BlockName, primitive
from ...rewriting.edits import Names, edited, without_buffers
from ...rewriting.index_map import IndexMap, Layout, invert, place_names


@primitive
def reverse_compute_inline(func: PrimFunc, block: BlockName) -> tuple[PrimFunc, None]:
    """Put the formula of a block into its only producer, and remove the block and the buffer between the two.

    Rewrite   for i: X[i] = f(i)
              for i: Y[i] = g(X[i])
           => for i: Y[i] = g(f(i))            # if i is in the domain of the block, unless that is proved
    Legal     if both are data parallel, single stores, the producer perhaps with an init. X is a temporary written by the
              producer alone, at its own axes, and read by the block alone, at its own axes plus constants. If they share no
              loops, the producer may also write at a one-to-one index map that fills a box. The block may then read at a
              provably one-to-one index map, such as `i * 16 + j` with j < 16. An instance of the block reads one element, and
              each element is read at most once. The block runs over its whole domain, once. So does the producer, at least
              where the block reads. In an iteration of common loops they run over the same part. The producer reads nothing that
              the block writes. No statement between the two writes other inputs of the block, or touches its output.
    Example   chain: s.reverse_compute_inline("C")
    """
    scope, leaf = locate(func, block)
    plain = [(x.block, stored) for x in scope.leaves if x.writes & leaf.inputs and (stored := _without_init(x.stmt)) is not None]
    if plain:
        with suppress(ScheduleError):
            return reverse_compute_inline(edited(func, plain), block)
    consumer = leaf.block
    if consumer.is_reduction:
        raise ScheduleError(
            f"`{block}` is a reduction, not an elementwise function of its input", (consumer, "reduces"), hint=_instead(block)
        )
    need_complete(scope, leaf, "inlined into its producer")
    last = single_store(consumer)
    made = _only_producer(scope, leaf)
    producer = made.block
    first = single_store(producer)
    name = first.buffer.name
    _need_nothing_between(scope, made, leaf, name)
    mapping, read = _matched_axes(scope, made, leaf, first)

    ranges = ranges_of([producer])
    inside = [*read]
    for it in consumer.iters:
        if it.axis is Axis.SPATIAL:
            inside += [mapping[it.var.name] >= 0, mapping[it.var.name] < it.extent]
    condition = conjunction(*(simplify(c, ranges) for c in inside if not prove(c, ranges)))
    # The block's axes are replaced in its own formula, not in the producer's.
    made_here = Var("made here", first.value.dtype)

    def moved(e: Expr) -> Expr:
        marked = rewrite(e, lambda n: made_here if type(n) is Load and n.buffer.name == name else None)
        return substitute(substitute(marked, mapping), {made_here: first.value})

    store = Store(last.buffer, tuple(moved(i) for i in last.indices), moved(last.value))
    body: Stmt = store if condition == TRUE else If(condition, store)
    merged = producer.with_(body=body, reads=None, writes=None)
    return without_buffers(edited(func, [(consumer, None), (producer, merged)]), [name]), None


def _instead(block: str) -> str:
    """The hint for a block that cannot become a part of its producer."""
    return f"reverse_compute_at({block!r}, ...) runs it right after its producer"


def _only_producer(scope: BlockScope, leaf: Leaf) -> Leaf:
    """The one block that writes a temporary which `leaf` reads; refuses unless it is complete and the only writer."""
    block, consumer = leaf.name, leaf.stmt
    candidates = [w for w in scope.leaves if w is not leaf and w.order < leaf.order and w.writes & leaf.inputs]
    options = [w for w in candidates if not (w.writes & scope.outputs)]
    if not options:
        raise ScheduleError(
            f"no block makes a temporary that `{block}` reads",
            (consumer, "the block"),
            hint=f"`{block}` must read what another block writes, and what is no parameter of the function",
        )
    if len(options) > 1:
        raise ScheduleError(
            f"`{block}` has several producers, {listing(w.name for w in options)}", (consumer, "the block"), hint=_instead(block)
        )
    made = options[0]
    if type(made.stmt) is not Block:
        raise ScheduleError(
            f"{made.quoted} writes what `{block}` reads, and is no block", (made.stmt, "the producer"), hint=_instead(block)
        )
    producer: Block = made.stmt
    if producer.is_reduction or producer.init is not None:
        raise ScheduleError(
            f"`{producer.name}`, the producer of `{block}`, is a reduction: its result is not final where it is stored",
            (producer, "reduces"),
            (consumer, "reads the result"),
            hint=_instead(block),
        )
    need_own_temporary(scope, made, "extended by its consumer")
    return made


def _need_nothing_between(scope: BlockScope, made: Leaf, leaf: Leaf, name: str) -> None:
    """Refuse if another statement reads the buffer `name`, or a dependence forbids to move `leaf` to `made`."""
    block, consumer, producer = leaf.name, leaf.stmt, made.stmt
    other = next((r for r in scope.readers(name) if r is not leaf), None)
    if other is not None:
        raise ScheduleError(
            f"{other.quoted} reads `{name}` too",
            (producer, f"writes {name}"),
            (other.stmt, "another reader"),
            (consumer, "the block"),
            hint=f"compute_inline({made.name!r}) puts its formula into all its readers",
        )
    for x in span(scope, (*leaf.above, consumer), (*made.above, producer)):
        if x is leaf or x is made:
            continue
        changed = sorted(x.writes & leaf.inputs) if x.order > made.order or shared_loops(x.above, made.above) else []
        touched = sorted((x.reads | x.writes) & leaf.writes) or changed
        if touched:
            raise ScheduleError(
                f"{x.quoted} {'writes' if changed else 'uses'} `{touched[0]}` between `{made.name}` and `{block}`",
                (x.stmt, f"uses {touched[0]}"),
                (consumer, "the block"),
                hint=f"move {x.quoted} before `{made.name}` or after `{block}` first",
            )
    if leaf.writes & made.reads:
        clash = sorted(leaf.writes & made.reads)[0]
        raise ScheduleError(
            f"`{made.name}` reads `{clash}`, which `{block}` writes",
            (producer, f"reads {clash}"),
            (consumer, f"writes {clash}"),
            hint=_instead(block),
        )


def _without_init(stmt: Stmt) -> Block | None:
    """A block with an init but no reduction, as one store: the init's value replaces its loads. None for other statements."""
    match stmt:
        case Block(init=Store(b, place, start), body=Store(c, there) as store) if (
            b == c and place == there and not stmt.is_reduction
        ):
            visit = lambda n: start if type(n) is Load and n.buffer == b and n.indices == place else None  # noqa: E731
            return stmt.with_(init=None, body=store.with_(value=rewrite(store.value, visit)))
    return None


Source = tuple[Expr, Expr]  # the index of the producer's store in a dimension, and the number of its values


def _sources(func: PrimFunc, producer: Block, store: Store, apart: bool) -> list[Source | None]:
    """The index of the producer's store in each dimension: an axis, or None for 0.

    If it shares no loops with its reader (`apart`), the indices may also be a one-to-one index map that fills a box."""
    theirs = {it.var.name: it for it in producer.iters}
    try:
        return [None if v is None else (theirs[v].var, theirs[v].extent) for v in own_axes(producer, store)]
    except ScheduleError:
        with suppress(ScheduleError):
            layout, _ = _layout(func, producer.spatial, store.indices)
            if apart and not layout.conditions:
                return list(zip(store.indices, layout.extents, strict=True))
        raise


def _layout(func: PrimFunc, axes: Collection[Iter], indices: Sequence[Expr]) -> tuple[Layout, dict[str, Expr]]:
    """The layout that the indices give to a box of axes, and each axis as a formula of the layout's new indices.

    Refuses indices that are not provably one to one."""
    inputs = [it for it in axes if not it.extent.is_one]
    fixed = all_zero(it.var for it in axes if it.extent.is_one)
    index_map = IndexMap(tuple(it.var for it in inputs), tuple(simplify(substitute(i, fixed)) for i in indices))
    layout = invert(index_map, [it.extent for it in inputs], place_names(func, Names.of(func), len(indices)))
    return layout, fixed | {it.var.name: e for it, e in zip(inputs, layout.inverse, strict=True)}


def _matched_axes(scope: BlockScope, made: Leaf, leaf: Leaf, store: Store) -> tuple[dict[str, Expr], list[Expr]]:
    """The axes of `leaf` in terms of those of `made`, such that `leaf` reads the element that the `store` of `made` writes.

    Returns also the conditions for that, except those that the domain of `leaf` implies."""
    consumer, name = leaf.block, store.buffer.name
    axes = {it.var.name: it for it in consumer.spatial}
    common = shared_loops(leaf.above, made.above)
    sources = _sources(scope.func, made.block, store, not common)
    written, run = _share(made, common, leaf.name), _share(leaf, common, leaf.name)

    def refusal(reason: str) -> ScheduleError:
        instead = f"compute_inline({made.name!r}) puts the formula of the producer into `{leaf.name}`"
        return ScheduleError(reason, (consumer, f"reads {name}"), hint=instead)

    first, *others = dict.fromkeys(load.indices for load in loads(consumer) if load.buffer.name == name)
    if others:
        raise refusal(f"`{leaf.name}` reads several elements of `{name}`")
    _need_run_where_read(scope, made, leaf, dict(zip((s and s[0] for s in sources), first, strict=True)))
    strange = next((i for i, source in zip(first, sources, strict=True) if not _reads_at_axis(i, source, axes)), None)
    if strange is not None:
        if common or type(strange) is Const:
            raise refusal(f"`{leaf.name}` reads `{name}` at `{strange}`, which is not an axis of its own")
        try:
            return _inverted(scope.func, first, sources, axes)
        except ScheduleError:
            reason = f"`{leaf.name}` reads `{name}` at `{strange}`, which is neither an axis of its own nor a part of a map"
            raise refusal(f"{reason} of its axes that is shown to be one to one") from None
    mapping: dict[str, Expr] = {}
    for index, source in zip(first, sources, strict=True):
        read = affine_index(index, axes)
        if source is None or read is None:
            continue
        (place, extent), axis = source, axes[read[0]]
        inside = read[0] not in mapping and read[1] >= 0 and prove(axis.extent + read[1] <= extent, {})
        same = not common or (type(place) is Var and written[place.name] == run[read[0]] and read[1] == 0)
        if not inside or not same:
            raise refusal(f"`{leaf.name}` reads other elements of `{name}` than `{made.name}` makes there")
        mapping[read[0]] = simplify(place - read[1])
    for v, it in axes.items():
        if v not in mapping:
            if not it.extent.is_one:
                raise refusal(f"the axis `{v}` of `{leaf.name}` does not index `{name}`, so an element is used more than once")
            mapping[v] = Const(0, it.var.dtype)
    return mapping, []


def _reads_at_axis(index: Expr, source: Source | None, axes: Mapping[str, Iter]) -> bool:
    """True where an index is an axis plus a constant, or 0 in a dimension where the producer writes only 0."""
    if source is not None and affine_index(index, axes) is not None:
        return True
    return index.is_zero and (source is None or source[1].is_one)


def _inverted(
    func: PrimFunc, indices: Sequence[Expr], sources: Sequence[Source | None], axes: Mapping[str, Iter]
) -> tuple[dict[str, Expr], list[Expr]]:
    """The axes of a block in terms of the producer's, by inverting its read indices, and the conditions for a read."""
    layout, back = _layout(func, axes.values(), indices)
    at = {p: Const(0, p.dtype) if source is None else source[0] for p, source in zip(layout.places, sources, strict=True)}
    read: list[Expr] = []
    for extent, place, source in zip(layout.extents, layout.places, sources, strict=True):
        least = Const(1, extent.dtype) if source is None else source[1]
        if not prove(extent <= least, {}):
            raise ScheduleError("it reads beyond what is written")
        read.append(at[place] < extent)
    return {v: substitute(e, at) for v, e in back.items()}, read


def _share(x: Leaf, common: Sequence[For], block: str) -> dict[str, AxisWindow]:
    """The windows of a block's axes in an iteration of `common`; refuses unless it runs over its whole domain.

    The producer of `block` may skip points, if it runs at them in no other iteration."""
    found = windows if x.name == block else partial_windows
    with proving(f"that {x.quoted} runs over its whole domain, once", (x.stmt, "the block"), hint=_instead(block)):
        return found(x.block, common, x.inside(common))


def _need_run_where_read(scope: BlockScope, made: Leaf, leaf: Leaf, read: Mapping[Expr | None, Expr]) -> None:
    """Refuse a producer whose conditions may exclude an element that is read; `read` are the read indices by the written ones."""
    kept = [c for c in conjuncts(made.block.predicate) if not prove(c, {}, [d for it in made.block.iters for d in it.domain])]
    if not kept:
        return
    _, conditions, lost = instances(scope, made)
    at = {v: i for v, i in read.items() if type(v) is Var}
    known = {v.name for v in at}
    there = [simplify(substitute(c, at)) for c in conditions if variables(c) <= known]
    if lost or len(there) < len(conditions) or not all(prove(c, ranges_of([leaf.block])) for c in there):
        raise ScheduleError(
            f"`{made.name}` does not run where `{kept[0]}` is false, and may leave out what `{leaf.name}` reads",
            (made.stmt, "the producer"),
            (leaf.stmt, "reads what it makes"),
            hint=_instead(leaf.name),
        )
