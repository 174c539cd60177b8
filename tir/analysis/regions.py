"""The regions of buffers that statements read and write, as boxes over the variables around them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..affine import Interval, Ranges, add, as_constant, bounds, constant, polynomial, split_terms, to_expr
from ..ir import Block, Buffer, Const, Expr, For, Let, Load, Node, Range, Region, Stmt, Store
from ..simplify import bounds as expr_bounds
from ..simplify import simplify
from ..size import lesser
from ..traverse import children, substitute, walk

Regions = dict[str, Region]  # by buffer name


def extent_range(extent: Expr, ranges: Ranges | None = None) -> Interval:
    """The interval of a variable that runs over `range(extent)`."""
    if type(extent) is Const:
        return 0, extent.value - 1
    _, high = expr_bounds(extent, ranges or {})
    return 0, None if high is None else high - 1


def loop_ranges(stmts: Iterable[Stmt]) -> dict[str, Interval]:
    """The ranges of the loop variables among `stmts` (the statements on a path, outermost first)."""
    ranges: dict[str, Interval] = {}
    for s in stmts:
        if isinstance(s, For):
            ranges[s.name] = extent_range(s.extent, ranges)
    return ranges


def iter_ranges(block: Block) -> dict[str, Interval]:
    """The ranges of a block's iteration variables."""
    return {it.var.name: extent_range(it.extent) for it in block.iters}


def relax(indices: Iterable[Expr], buffer: Buffer, inner: Ranges, outer: Ranges) -> Region:
    """The box that `buffer[indices]` touches as the variables `inner` run over their ranges and all others stand still.

    A dimension whose index cannot be bounded is taken whole.
    """
    ranges = {**outer, **inner}
    result = []
    for index, dim in zip(indices, buffer.shape, strict=True):
        moving, fixed = split_terms(polynomial(simplify(index, ranges)), set(inner))
        low, high = bounds(moving, ranges)
        if low is None or high is None:
            result.append(Range(Const(0, index.dtype), dim))
        else:
            start = to_expr(add(fixed, constant(low)), index.dtype)
            result.append(Range(start, Const(high - low + 1, index.dtype)))
    return Region(buffer, tuple(result))


def union(a: Region, b: Region) -> Region:
    """The smallest box around both, where their distance is a constant; the whole dimension elsewhere."""
    ranges = []
    for ra, rb, dim in zip(a.ranges, b.ranges, a.buffer.shape, strict=True):
        if ra == rb:
            ranges.append(ra)
            continue
        pa, pb = polynomial(ra.min), polynomial(rb.min)
        distance = as_constant(add(pb, pa, -1))
        ea, eb = as_constant(polynomial(ra.extent)), as_constant(polynomial(rb.extent))
        if distance is None or ea is None or eb is None:
            ranges.append(Range(Const(0, ra.min.dtype), dim))
        else:
            low, high = min(0, distance), max(ea, distance + eb)
            ranges.append(Range(to_expr(add(pa, constant(low)), ra.min.dtype), Const(high - low, ra.min.dtype)))
    return Region(a.buffer, tuple(ranges))


def accessed(stmt: Stmt, ranges: Ranges | None = None, only: Collection[str] | None = None) -> tuple[Regions, Regions]:
    """The regions that `stmt` reads and writes, by buffer (all, or `only` some), as boxes over the variables free in it.

    Loops and block variables inside `stmt` are relaxed. `ranges` bounds the free variables. What a guard excludes is not
    subtracted: a region may reach past the buffer where a predicate or a lazy select keeps the access inside; see `clip`.
    Regions that the author of a block stated are trusted.
    """
    reads: Regions = {}
    writes: Regions = {}
    free: Ranges = ranges or {}

    def wanted(buffer: Buffer) -> bool:
        return only is None or buffer.name in only

    def note(into: Regions, buffer: Buffer, indices: tuple[Expr, ...], inner: dict[str, Interval]) -> None:
        region = relax(indices, buffer, inner, free)
        into[buffer.name] = union(into[buffer.name], region) if buffer.name in into else region

    def state(into: Regions, region: Region, bindings: dict[str, Expr], inner: dict[str, Interval]) -> None:
        # Both corners of the stated box, as if they were two accesses.
        if not wanted(region.buffer):
            return
        first = tuple(substitute(r.min, bindings) for r in region.ranges)
        last = tuple(substitute(r.min + r.extent - 1, bindings) for r in region.ranges)
        note(into, region.buffer, first, inner)
        note(into, region.buffer, last, inner)

    def visit(n: Node, inner: dict[str, Interval], bindings: dict[str, Expr]) -> None:
        match n:
            case For(var, extent, body):
                inside = {**inner, var.name: extent_range(substitute(extent, bindings), {**free, **inner})}
                visit(body, inside, bindings)
            case Block():
                if only is not None and not any(type(x) is Buffer and x.name in only for x in walk(n)):
                    return
                bound = {**bindings}
                for it in n.iters:
                    visit(it.binding, inner, bindings)
                    bound[it.var.name] = substitute(it.binding, bindings)
                visit(n.predicate, inner, bindings)
                for region in n.reads or ():
                    state(reads, region, bound, inner)
                for region in n.writes or ():
                    state(writes, region, bound, inner)
                if n.reads is None or n.writes is None:
                    r, w = _own_accesses(n, bound)
                    for buffer, indices, extra in r if n.reads is None else ():
                        note(reads, buffer, indices, {**inner, **extra})
                    for buffer, indices, extra in w if n.writes is None else ():
                        note(writes, buffer, indices, {**inner, **extra})
            case Let(var, value, body):
                visit(value, inner, bindings)
                visit(body, inner, {**bindings, var.name: substitute(value, bindings)})
            case Load(buffer, indices):
                for i in indices:
                    visit(i, inner, bindings)
                if wanted(buffer):
                    note(reads, buffer, tuple(substitute(i, bindings) for i in indices), inner)
            case Store(buffer, indices, value):
                for i in indices:
                    visit(i, inner, bindings)
                visit(value, inner, bindings)
                if wanted(buffer):
                    note(writes, buffer, tuple(substitute(i, bindings) for i in indices), inner)
            case Buffer():
                pass
            case _:
                for c in children(n):
                    visit(c, inner, bindings)

    def _own_accesses(block: Block, bindings: dict[str, Expr]):
        """Accesses in the body and init of a block, as (buffer, indices over loop variables, ranges of loops inside)."""
        r: list[tuple[Buffer, tuple[Expr, ...], dict[str, Interval]]] = []
        w: list[tuple[Buffer, tuple[Expr, ...], dict[str, Interval]]] = []

        def inside(n: Node, extra: dict[str, Interval], bound: dict[str, Expr]) -> None:
            match n:
                case For(var, extent, body):
                    inside(body, {**extra, var.name: extent_range(extent, {**free, **extra})}, bound)
                case Block():
                    nested = {**bound, **{it.var.name: substitute(it.binding, bound) for it in n.iters}}
                    for part in (n.init, n.body):
                        if part is not None:
                            inside(part, extra, nested)
                case Let(var, value, body):
                    inside(value, extra, bound)
                    inside(body, extra, {**bound, var.name: substitute(value, bound)})
                case Load(buffer, indices):
                    for i in indices:
                        inside(i, extra, bound)
                    if wanted(buffer):
                        r.append((buffer, tuple(substitute(i, bound) for i in indices), extra))  # type: ignore[misc]
                case Store(buffer, indices, value):
                    for i in (*indices, value):
                        inside(i, extra, bound)
                    if wanted(buffer):
                        w.append((buffer, tuple(substitute(i, bound) for i in indices), extra))  # type: ignore[misc]
                case Buffer():
                    pass
                case _:
                    for c in children(n):
                        inside(c, extra, bound)

        for part in (block.init, block.body):
            if part is not None:
                inside(part, {}, bindings)
        return r, w

    visit(stmt, {}, {})
    return reads, writes


def block_regions(block: Block) -> tuple[Regions, Regions]:
    """The regions that one instance of a block reads and writes, over its iteration variables."""
    free = iter_ranges(block)
    parts = [p for p in (block.init, block.body) if p is not None]
    reads: Regions = {}
    writes: Regions = {}
    for part in parts:
        r, w = accessed(part, free)
        for into, new in ((reads, r), (writes, w)):
            for name, region in new.items():
                into[name] = union(into[name], region) if name in into else region
    if block.reads is not None:
        reads = {r.buffer.name: r for r in block.reads}
    if block.writes is not None:
        writes = {r.buffer.name: r for r in block.writes}
    return reads, writes


def clip(region: Region, ranges: Ranges) -> Region:
    """The region cut to the shape of its buffer, dimension by dimension, where its place is constant or provably outside."""
    result = []
    for r, dim in zip(region.ranges, region.buffer.shape, strict=True):
        low, high = expr_bounds(r.min, ranges)
        size, _ = expr_bounds(dim, ranges)
        extent, _ = expr_bounds(r.extent, ranges)
        if low is None or high is None or size is None or extent is None:
            result.append(r)
        elif low == high:
            start = max(low, 0)
            stop = lesser(low + extent, size)
            result.append(Range(Const(start, r.min.dtype), Const(max(stop - start, 0), r.min.dtype)))
        elif extent >= size:
            result.append(Range(Const(0, r.min.dtype), dim))
        else:
            result.append(r)
    return Region(region.buffer, tuple(result))
