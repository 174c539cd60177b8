"""Cache stages: the copying blocks of cache_read, cache_write, reindex and stage_mem, their places and regions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import reduce

from tir.analysis.axis_conditions import axis_conditions
from tir.analysis.regions import accessed, block_regions
from tir.arith.bounds import bounds, ranges_of
from tir.arith.intervals import UNBOUNDED, Interval, Ranges
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.ir.blocks import Axis, Block, Iter
from tir.ir.buffers import Buffer, Load
from tir.ir.expressions import TRUE, Binary, Const, Expr, Var, conjunction, conjuncts
from tir.ir.nodes import Node
from tir.ir.statements import IN_ANY_ORDER, NOTHING, For, If, Let, Seq, Stmt, Store, seq
from tir.memory import SCOPES
from tir.nearest import did_you_mean, no_such
from tir.traverse import (
    axis_loops,
    loads,
    path_to,
    perfect_nest,
    replace_stmt,
    rewrite,
    stored_names,
    substitute,
    variables,
    walk_stmts,
)

from ..error import ScheduleError, listing
from ..legality.axis_windows import AxisWindow, TiledIndex, in_elements, windows, written_indices
from ..legality.dataflow import BlockScope, Leaf, loops_and_ranges, scope_of, shared
from ..legality.independence import independent_iterations
from ..legality.instances import instances, narrowed
from ..legality.iter_map import Unproved, proving
from ..legality.privatisation import private_buffers
from ..primitive import KIND_WORDS, is_parameter
from .edits import Insertion, Names, statements_of
from .placement import nest_over_windows


def need_scope(storage_scope: str) -> str:
    """A storage scope in the form used in names; refuses an unknown one."""
    if storage_scope not in SCOPES:
        raise ScheduleError(no_such("storage scope", storage_scope, SCOPES))
    return storage_scope.replace(".", "_")


def copy_block(names: Names, wanted: str, source: Buffer, target: Buffer) -> Block:
    """A block that copies a whole buffer, with unbound iteration variables."""
    iters = copy_axes(names, [(dim, dim.dtype) for dim in source.shape])
    place = tuple(it.var for it in iters)
    return Block(names.block(wanted), iters, Store(target, place, Load(source, place)))


def copy_axes(names: Names, extents: Iterable[tuple[Expr, str]]) -> tuple[Iter, ...]:
    """Unbound spatial iteration variables of the given extents and dtypes."""
    return tuple(
        Iter(Var(names.axis(f"v{n}"), dtype), extent, Axis.SPATIAL, Const(0, dtype)) for n, (extent, dtype) in enumerate(extents)
    )


def need_only_reads(reader: Leaf, name: str) -> None:
    """Refuse a reader of a copy that also writes the buffer."""
    if name in reader.writes:
        raise ScheduleError(
            f"{reader.quoted} also writes `{name}`, so it cannot read a copy",
            (reader.stmt, f"reads and writes {name}"),
            hint=f"cache_write gives the block that makes `{name}` a copy to read and to write",
        )


def named_readers(readers: list[Leaf], name: str, wanted: Sequence[str]) -> list[Leaf]:
    """The blocks called `wanted` among the readers of a buffer, in this order; refuses an unknown name."""
    known = {r.name: r for r in readers if type(r.stmt) is Block}
    strange = next((w for w in wanted if w not in known), None)
    if strange is not None:
        reason = f"`{strange}` is not a block that reads `{name}`; these are {listing(known)}"
        raise ScheduleError(reason, hint=did_you_mean(strange, known))
    return [known[w] for w in dict.fromkeys(wanted)]


@dataclass(frozen=True, slots=True)
class CopyPlace:
    """The place of a copy: before statement `position` of the body at the end of `path`, in `loops`, with variable ranges."""

    path: tuple[Stmt, ...]
    position: int
    loops: list[For]
    ranges: dict[str, Interval]

    def insertion(self, copying: Stmt) -> Insertion:
        return Insertion(self.path[-1], self.position, copying)


def place_to_copy(scope: BlockScope, readers: list[Leaf], name: str) -> CopyPlace:
    """The place after the last writer of a buffer before its readers, or the scope's start; refuses later ones in its loops."""
    writers = scope.writers(name)
    before = [w for w in writers if w.order < readers[-1].order]
    path, position = _between(before, readers, name) if before else ((scope.root,), 0)
    loops, ranges = loops_and_ranges(path if before else (), scope.ranges)
    again = next((w for w in writers if w not in before and loops and w.under(loops[0])), None)
    if again is not None:
        raise ScheduleError(
            f"{again.quoted} writes `{name}` again before the next iteration of `{loops[0].name}` reads it",
            (loops[0], "around both"),
            (readers[0].stmt, f"reads {name}"),
            (again.stmt, f"writes {name}"),
            hint=f"stage_mem({readers[0].name!r}, {name!r}, ...) copies it right before {readers[0].quoted}",
        )
    return CopyPlace(path, position, loops, ranges)


def readers_behind(scope: BlockScope, leaf: Leaf, name: str) -> list[Leaf]:
    """The readers of a buffer after the place of its copy for `leaf`, in the loops of that place."""
    readers = scope.readers(name)
    before = [w for w in scope.writers(name) if w.order < leaf.order]
    if not before:
        return readers
    path, position = _between(before, [leaf], name)
    first = statements_of(path[-1])[:position]
    return [r for r in readers if r.under(path[-1]) and not any(r.under(s) for s in first)]


def place_behind(scope: BlockScope, writer: Leaf, readers: list[Leaf], name: str) -> CopyPlace:
    """The place after the nest of a buffer's only writer, under the same `if`, in the loops shared with a reader.

    Refuses a buffer that is private to iterations of a parallel loop around the writer alone, if several write one element."""
    whole = writer.path
    inside = max((n + 1 for n, s in enumerate(whole) if type(s) is If), default=0)
    common = whole[: inside + 1] if type(whole[inside]) is Seq else whole[:inside]
    for r in readers:
        common = max(common, shared(whole, r.above), key=len)
    path = common if common and type(common[-1]) is Seq else (*common, whole[inside])
    position = next(n for n, s in enumerate(statements_of(path[-1])) if writer.under(s)) + 1
    place = CopyPlace(path, position, *loops_and_ranges(common, scope.ranges))
    for loop in writer.inside(place.loops):
        if loop.kind in IN_ANY_ORDER:
            _need_one_for_all(scope, writer, loop, name)
    return place


def _need_one_for_all(scope: BlockScope, writer: Leaf, loop: For, name: str) -> None:
    """Refuse a buffer that is private to the iterations of a loop, if several of them write the same element."""
    above = path_to(scope.func.body, loop.name)
    private = private_buffers(scope.func, above)
    if name not in private:
        return
    try:
        independent_iterations(above, KIND_WORDS[loop.kind], lambda: private - {name})
    except ScheduleError:
        raise ScheduleError(
            f"`{loop.name}` is {KIND_WORDS[loop.kind]}, and each of its iterations has a `{name}` of its own, so a copy after "
            "it has no source",
            (loop, KIND_WORDS[loop.kind]),
            (writer.stmt, f"writes {name}"),
            hint=f"serial({loop.name!r}) first, or leave readers in the loop to `{name}`",
        ) from None


def _between(writers: list[Leaf], consumers: list[Leaf], name: str) -> tuple[tuple[Stmt, ...], int]:
    """The innermost path common to all writers and consumers, and the position there after the last writer."""
    common = writers[0].path
    for other in (*writers, *consumers):
        common = shared(common, other.path)
    last = max(writers, key=lambda w: w.order)
    place = {id(x): next(n for n, s in enumerate(statements_of(common[-1])) if x.under(s)) for x in (*writers, *consumers)}
    written = max(place[id(w)] for w in writers)
    early = next((c for c in consumers if place[id(c)] <= written), None)
    if early is not None:
        raise ScheduleError(
            f"{last.quoted} writes `{name}` while {early.quoted} reads it already, so it cannot be copied in between",
            (last.stmt, f"writes {name}"),
            (early.stmt, f"reads {name}"),
            hint="name in consumer_blocks only what stands after the last writer",
        )
    return common, written + 1


def restrict_to_reads(
    scope: BlockScope,
    placed: Stmt,
    name: str,
    readers: Sequence[Leaf],
    loops: Sequence[For],
    ranges: Ranges,
    axes: Mapping[str, Expr] | None = None,
) -> Stmt:
    """A copying block in its loops, under the conditions that its readers and writers share; of a parameter without conditions.

    Elements that nothing has written must not be copied. Without `axes` the block's axes are the dimensions of the buffer,
    bounded by the elements that readers access. `axes` gives the axes of the only reader in terms of the block's."""
    if is_parameter(scope.func, name):
        return placed
    block = next(s for s in walk_stmts(placed) if type(s) is Block)
    made = _where_made(scope, name, loads(block.body)[0].indices)
    blocks = [r.stmt for r in readers if isinstance(r.stmt, Block)]
    if len(blocks) < len(readers):
        return restricted(placed, made, ranges)
    visible = {x.name for x in loops}
    first, *others = [conjuncts(s.predicate) for s in blocks]
    conditions = [c for c in first if all(c in other for other in others) and variables(c) and variables(c) <= visible]
    if axes is not None:
        own = axis_conditions(blocks[0], ranges_of(readers[0].above, scope.ranges))
        conditions += [substitute(c, axes) for c in own if variables(c) <= axes.keys()]
    else:
        reached = [_read_bounds(r, scope.ranges, name, len(block.iters)) for r in readers]
        for n, it in enumerate(block.iters):
            lows = [low for r in reached if (low := r[n][0]) is not None]
            highs = [high for r in reached if (high := r[n][1]) is not None]
            if len(lows) == len(reached):
                conditions.append(it.var >= min(lows))
            if len(highs) == len(reached):
                conditions.append(it.var <= max(highs))
    return restricted(placed, [*conditions, *made], ranges)


def _where_made(scope: BlockScope, name: str, place: Sequence[Expr]) -> list[Expr]:
    """The conditions under which all writers of a temporary write the element at `place`, as far as their axes express them."""
    while name in scope.outputs and scope.around:
        scope = scope_of(scope.func, scope.around)
    visible = variables(*place) | {v.name for v in scope.func.sizes}
    found: list[list[Expr]] = []
    for w in scope.writers(name):
        dims = written_indices(w.block, name) if isinstance(w.stmt, Block) else []
        if not dims or any(d is None or type(d.offset) is not Const for d in dims[0]) or any(x != dims[0] for x in dims):
            found = []
            break
        own = {d.axis: (p - d.offset) // d.tile for d, p in zip(dims[0], place, strict=True) if d and d.axis}
        left = {it.var.name for it in w.block.iters} - own.keys()
        found.append([substitute(c, own) for c in instances(scope, w)[1] if not variables(c) & left])
    region = accessed(scope.root, scope.ranges, (name,))[1].get(name)
    box = [c for p, r in zip(place, region.ranges, strict=True) for c in (p >= r.min, p < r.min + r.extent)] if region else []
    said = [c for c in found[0] if all(c in other for other in found)] if found else []
    return [c for c in (*box, *said) if variables(c) <= visible]


def restricted(placed: Stmt, conditions: Sequence[Expr], ranges: Ranges) -> Stmt:
    """A block in its loops, with conditions on its axes and the loops around added; `ranges` are those of the latter."""
    loops, block = perfect_nest(placed)
    assert type(block) is Block
    inside = ranges_of(loops, ranges)
    bindings = {it.var: it.binding for it in block.iters}
    facts = [*conjuncts(block.predicate), *(f for it in block.iters for f in it.domain)]
    kept: list[Expr] = []
    for c in (substitute(c, bindings) for c in conditions):
        if not prove(c, inside, (*facts, *kept)):
            kept.append(simplify(c, inside))
    return replace_stmt(placed, block, block.with_(predicate=conjunction(block.predicate, *kept))) if kept else placed


def _read_bounds(reader: Leaf, outside: Ranges, name: str, rank: int) -> list[Interval]:
    """The interval of indices that a block can read in each dimension of a buffer, in the part of its domain where it runs."""
    region = block_regions(reader.block)[0].get(name)
    if region is None:  # only bindings or the predicate read it
        return [UNBOUNDED] * rank
    around, ranges = ranges_of(reader.above, outside), ranges_of([reader.block])
    for it in reader.block.iters:
        own = bounds(it.binding, around), ranges[it.var.name]
        lows, highs = ([x for x in ends if x is not None] for ends in zip(*own, strict=True))
        ranges[it.var.name] = max(lows, default=None), min(highs, default=None)
    ranges = narrowed(ranges, axis_conditions(reader.block, around))
    return [(bounds(r.min, ranges)[0], bounds(r.min + r.extent - 1, ranges)[1]) for r in region.ranges]


BufferPart = tuple[dict[str, AxisWindow], tuple[Expr, ...]]  # windows of the copying block's axes, conditions on them


def written_part(scope: BlockScope, leaf: Leaf, target: Buffer, copying: Block, loops: Sequence[For]) -> BufferPart:
    """The part of `target` that the block writes in an iteration of `loops`; raises Unproved unless it is exact."""
    block = leaf.block
    dims = _dimensions(block, target)
    for d in dims:
        if moving := variables(d.offset) & {x.name for x in leaf.inside(loops)}:
            raise Unproved(f"its place depends on `{min(moving)}`, which is not one of its axes")
    own: dict[str, Expr] = {it.var.name: Const(0) for it in block.spatial}  # of axes of one value
    own |= {d.axis: (it.var - d.offset) // d.tile for it, d in zip(copying.iters, dims, strict=True) if d.axis is not None}
    conditions, rest = _split_axis_conditions(block, target.name)
    share = windows(rest, (*_axes_around(scope, block), *loops), leaf.inside(loops))
    result: dict[str, AxisWindow] = {}
    for it, d in zip(copying.iters, dims, strict=True):
        whole = AxisWindow(Const(0, it.extent.dtype), Const(1, it.extent.dtype)) if d.axis is None else share[d.axis]
        result[it.var.name] = in_elements(whole, d)
    return result, tuple(simplify(substitute(c, own)) for c in conditions)


def copy_nest(copying: Block, part: BufferPart, ranges: Ranges, names: Names, facts: Sequence[Expr]) -> Stmt:
    """The copying block in loops over a part; `ranges` and `facts` hold in the loops around."""
    share, conditions = part
    return restricted(nest_over_windows(copying, share, ranges, names, exact=True, facts=facts), conditions, ranges)


def proving_part(leaf: Leaf, target: Buffer, loops: Sequence[For]) -> AbstractContextManager[None]:
    """Turn `Unproved` into the refusal that the part of a buffer written by a block in an iteration of `loops` is unknown."""
    where = f" in an iteration of `{loops[-1].name}`" if loops else ""
    return proving(
        f"which part of `{target.name}` is written by {leaf.quoted}{where}",
        *([(loops[-1], "the loop")] if loops else []),
        (leaf.stmt, f"writes {target.name}"),
    )


def _axes_around(scope: BlockScope, block: Block) -> list[For]:
    """The axes of enclosing blocks that drive spatial axes of a block, as loops."""
    used = axis_loops(block, Axis.SPATIAL)
    return [For(it.var, it.extent, NOTHING) for b in scope.around if type(b) is Block for it in b.iters if it.var.name in used]


def _split_axis_conditions(block: Block, name: str) -> tuple[list[Expr], Block]:
    """The conditions over its spatial axes under which a block writes a buffer, and the block without them.

    Conditions that its domain implies, such as those of `split`, stay with the block.
    """
    spatial = frozenset(it.var.name for it in block.spatial)
    inner, body = _store_condition(block.body, name, spatial) if block.init is None else (TRUE, block.body)
    if inner != TRUE:
        others, without = _split_axis_conditions(block.with_(body=body), name)
        return [*conjuncts(inner), *others], without
    bindings: dict[Node, Var] = {it.binding: it.var for it in block.spatial if variables(it.binding)}
    axes = {v.name for v in bindings.values()}
    ranges = ranges_of([block])
    conditions, rest = [], []
    for c in conjuncts(block.predicate):
        over_axes = rewrite(c, lambda n: bindings.get(n))
        if variables(over_axes) <= axes and not prove(over_axes, ranges):
            conditions.append(over_axes)
        else:
            rest.append(c)
    return conditions, block.with_(predicate=conjunction(*rest)) if conditions else block


def _store_condition(stmt: Stmt, name: str, axes: frozenset[str]) -> tuple[Expr, Stmt]:
    """The condition over `axes` under which a statement writes a buffer, and the statement without it."""
    match stmt:
        case If(condition, body, None) | Block(iters=(), predicate=condition, body=body, init=None):
            if condition != TRUE and (loads(condition) or not variables(condition) <= axes):
                return TRUE, stmt
            inner, body = _store_condition(body, name, axes)
            return conjunction(condition, inner), body if type(stmt) is If else stmt.with_(predicate=TRUE, body=body)
        case Seq(stmts):
            found = [_store_condition(s, name, axes) if name in stored_names(s) else (None, s) for s in stmts]
            conditions = [c for c, _ in found if c is not None]
            if conditions and TRUE not in conditions:
                return reduce(lambda a, b: Binary("or", a, b), conditions), seq(*(s for _, s in found))
    return TRUE, stmt


def _dimensions(block: Block, target: Buffer) -> list[TiledIndex]:
    """The index of a block's stores in each dimension; raises Unproved unless each axis indexes one dimension."""
    axes = sorted(it.var.name for it in block.spatial)
    units = {it.var.name for it in block.iters if it.extent.is_one}
    found = written_indices(block, target.name)
    for dims in found:
        used = sorted(d.axis for d in dims if d is not None and d.axis is not None)
        if None in dims or [v for v in used if v not in units] != [v for v in axes if v not in units] or not {*used} <= {*axes}:
            raise Unproved(
                "its axes are not those of the buffer", f"each spatial axis must index one dimension of `{target.name}`"
            )
        if dims != found[0]:
            raise Unproved("it writes at several places", f"all its stores to `{target.name}` must write one place")
    if not found:
        raise Unproved("it may not reach its store")
    need_stores(_split_axis_conditions(block, target.name)[1])
    return [d for d in found[0] if d is not None]


def need_stores(block: Block) -> None:
    """Raise Unproved unless an instance of a block reaches all of its stores."""
    for s in walk_stmts(block.body):
        if type(s) is Block and s.predicate == TRUE:
            continue
        if not (isinstance(s, (Store, Seq, Let)) or (type(s) is For and type(s.extent) is Const and s.extent.value > 0)):
            raise Unproved("it may not reach its store")
