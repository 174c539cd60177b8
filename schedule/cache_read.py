"""cache_read: a buffer is read through a copy of it."""

from __future__ import annotations

from collections.abc import Sequence

from tir.affine import UNBOUNDED, Interval, Ranges
from tir.analysis.regions import accessed, block_regions, iter_ranges
from tir.ir import Axis, Block, Buffer, Const, Expr, For, Iter, Load, PrimFunc, Stmt, Store, Var, conjunction, conjuncts
from tir.memory import SCOPES
from tir.nearest import did_you_mean, no_such
from tir.simplify import bounds, prove, simplify
from tir.traverse import replace_buffers, replace_stmt, substitute, variables, walk_stmts

from .dataflow import Leaf, Scope, buffer_of, locate, shared
from .edits import Insertion, Names, edited, parts, with_buffer
from .error import ScheduleError, listing
from .loops import nest_at, ranges_of
from .placement import laid_out, loops_and_ranges, needed
from .primitive import primitive


@primitive
def cache_read(
    func: PrimFunc, block: str, read_buffer_index: int | str, storage_scope: str, consumer_blocks: list[str] | None = None
) -> tuple[PrimFunc, str]:
    """Read a buffer through a copy in another memory; returns the name of the copying block.

    The buffer is given by its number among those that `block` reads, from 0, or by name; the memory as for `set_scope`. All
    statements that read the buffer use the copy, or only `consumer_blocks`. Copy and block are named after the buffer and the
    scope: `A_local`.

    Rewrite   S(A[i])
           => for ax0 in range(N): A_local[ax0] = A[ax0]
              S(A_local[i])
              The copy stands after the last writer of A, or first if nothing writes A. Inside loops that the writer and the
              consumers share, and inside another block, only what is read in their iteration is copied; and of a temporary only
              what is read at all.
    Legal     if no consumer writes A, and nothing writes A between the copy and the last use: writers of A before a consumer are
              before all of them, and later ones in no loop around the copy. Each of `consumer_blocks` must read A.
    Example   chain: s.cache_read("C", "B", "local")
    """
    scope, leaf = locate(func, block)
    memory = need_scope(storage_scope)
    source = buffer_of(leaf.stmt, read_buffer_index, written=False)  # type: ignore[arg-type]
    consumers = _consumers(scope, leaf, source.name, consumer_blocks)
    for c in consumers:
        need_reads_alone(c, source.name)
    writers = scope.writers(source.name)
    before = [w for w in writers if w.order < consumers[-1].order]
    common, position = between(before, consumers, source.name) if before else ((scope.root,), 0)
    body = common[-1]
    loops, ranges = loops_and_ranges(common if before else (), scope.ranges)
    need_written_before(writers, before, loops, consumers[0], source.name)

    names = Names.of(func)
    copy = Buffer(names.buffer(f"{source.name}_{memory}"), source.shape, source.dtype, storage_scope)
    copying = copy_block(names, copy.name, source, copy)
    windows = {}
    if loops or scope.block is not None or (before and source.name not in scope.outputs):
        reads, _ = accessed(body, ranges, (source.name,))
        if source.name in reads and (
            loops
            or scope.block is not None
            or any(r.extent != d for r, d in zip(reads[source.name].ranges, source.shape, strict=True))
        ):
            region = reads[source.name]
            windows = needed(copying, {copy.name: type(region)(copy, region.ranges)}, ranges)
    placed = laid_out(copying, windows, ranges, names)
    if all(p.name != source.name for p in func.buffers):
        placed = where_read(placed, source.name, consumers, loops, ranges)
    changes: list[tuple[Stmt, Stmt | None]] = [(c.stmt, replace_buffers(c.stmt, {source.name: copy})) for c in consumers]  # type: ignore[misc]
    new = edited(func, changes, Insertion(body, position, placed))
    return with_buffer(new, scope, copy), copying.name


def where_read(placed: Stmt, name: str, readers: Sequence[Leaf], loops: Sequence[For], ranges: Ranges, box: bool = True) -> Stmt:
    """A copying block in its loops, under the conditions that all readers in `loops` have there: elsewhere nothing need have been
    written. With `box`, its axes are the dimensions of the buffer, and are kept to what the readers reach in their domains."""
    stmts = [r.stmt for r in readers]
    if not all(type(s) is Block for s in stmts):
        return placed
    visible = {x.name for x in loops}
    first, *others = [conjuncts(s.predicate) for s in stmts]  # type: ignore[attr-defined]
    conditions = [c for c in first if all(c in other for other in others) and variables(c) and variables(c) <= visible]
    block = next(s for s in walk_stmts(placed) if type(s) is Block)
    if box:
        reached = [_reached(s, name, len(block.iters)) for s in stmts]  # type: ignore[arg-type]
        for n, it in enumerate(block.iters):
            lows, highs = [r[n][0] for r in reached], [r[n][1] for r in reached]
            if None not in lows:
                conditions.append(it.var >= min(lows))  # type: ignore[type-var]
            if None not in highs:
                conditions.append(it.var <= max(highs))  # type: ignore[type-var]
    return restricted(placed, conditions, ranges)


def restricted(placed: Stmt, conditions: Sequence[Expr], ranges: Ranges) -> Stmt:
    """A block in its loops, within loops of the given ranges, under conditions on its axes and these loops."""
    loops, block = nest_at(placed)
    assert type(block) is Block
    inside = ranges_of(loops, ranges)
    bindings = {it.var: it.binding for it in block.iters}
    facts = [*conjuncts(block.predicate), *(f for it in block.iters for f in (it.binding >= 0, it.binding < it.extent))]
    bound = [substitute(c, bindings) for c in conditions]
    kept = [simplify(c, inside) for c in bound if not prove(c, inside, facts)]
    return replace_stmt(placed, block, block.with_(predicate=conjunction(block.predicate, *kept))) if kept else placed


def _reached(block: Block, name: str, rank: int) -> list[Interval]:
    """For each dimension of a buffer the places that a block can read in its domain."""
    region = block_regions(block)[0].get(name)
    if region is None:  # it is read to find out where the block runs
        return [UNBOUNDED] * rank
    ranges = iter_ranges(block)
    return [(bounds(r.min, ranges)[0], bounds(r.min + r.extent - 1, ranges)[1]) for r in region.ranges]


def _consumers(scope: Scope, leaf: Leaf, name: str, wanted: list[str] | None) -> list[Leaf]:
    readers = scope.readers(name)
    if wanted is None:
        return readers
    known = {r.name: r for r in readers if type(r.stmt) is Block}
    for w in wanted:
        if w not in known:
            raise ScheduleError(
                f"`{w}` is not a block that reads `{name}`; these are {listing(known)}", hint=did_you_mean(w, known)
            )
    if not wanted:
        raise ScheduleError("`consumer_blocks` is empty; leave it out for all blocks that read the buffer")
    return [r for r in readers if r.name in wanted and type(r.stmt) is Block]


def need_reads_alone(reader: Leaf, name: str) -> None:
    """Refuse to let a statement read a copy of a buffer that it writes."""
    if name in reader.writes:
        raise ScheduleError(
            f"{reader.quoted} also writes `{name}`, so it cannot read a copy",
            (reader.stmt, f"reads and writes {name}"),
            hint=f"cache_write gives the block that makes `{name}` a copy to read and to write",
        )


def need_written_before(writers: Sequence[Leaf], before: Sequence[Leaf], loops: Sequence[For], reader: Leaf, name: str) -> None:
    """Refuse a copy, made in `loops` once the writers `before` have run, of a buffer that others write later in these loops."""
    again = next((w for w in writers if w not in before and loops and w.under(loops[0])), None)
    if again is not None:
        raise ScheduleError(
            f"{again.quoted} writes `{name}` again before the next iteration of `{loops[0].name}` reads it",
            (loops[0], "around both"),
            (reader.stmt, f"reads {name}"),
            (again.stmt, f"writes {name}"),
            hint=f"stage_mem({reader.name!r}, {name!r}, ...) copies it right before {reader.quoted}",
        )


def between(writers: list[Leaf], consumers: list[Leaf], name: str) -> tuple[tuple[Stmt, ...], int]:
    """The innermost path that leads to all of them, and the number of the statement there before which all has been written."""
    common = (*writers[0].above, writers[0].stmt)
    for other in (*writers, *consumers):
        common = shared(common, (*other.above, other.stmt))
    last = max(writers, key=lambda w: w.order)
    place = {id(x): next(n for n, s in enumerate(parts(common[-1])) if x.under(s)) for x in (*writers, *consumers)}
    written = max(place[id(w)] for w in writers)
    early = next((c for c in consumers if place[id(c)] <= written), None)
    if early is not None:
        raise ScheduleError(
            f"{last.quoted} writes `{name}` while {early.quoted} reads it already, so there is no time at which to copy it",
            (last.stmt, f"writes {name}"),
            (early.stmt, f"reads {name}"),
            hint="name in consumer_blocks only what stands after the last writer",
        )
    return common, written + 1


def need_scope(storage_scope: str) -> str:
    """A storage scope as it occurs in names; refuses what is none."""
    if storage_scope not in SCOPES:
        raise ScheduleError(no_such("storage scope", storage_scope, SCOPES))
    return storage_scope.replace(".", "_")


def copy_block(names: Names, wanted: str, source: Buffer, target: Buffer) -> Block:
    """A block that copies a whole buffer, its iteration variables not yet bound."""
    iters = []
    for n, dim in enumerate(source.shape):
        v = Var(names.axis(f"v{n}"), dim.dtype)
        iters.append(Iter(v, dim, Axis.SPATIAL, Const(0, dim.dtype)))
    place: tuple[Expr, ...] = tuple(it.var for it in iters)
    return Block(names.block(wanted), tuple(iters), Store(target, place, Load(source, place)))
