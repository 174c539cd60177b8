"""The regions of buffers that statements read and write, as boxes over the variables around them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from ..affine import Interval, Ranges, add, as_constant, bounds, constant, polynomial, split_terms, to_expr
from ..ir import Block, Buffer, Const, Expr, For, Let, Load, Node, Range, Region, Stmt, Store
from ..simplify import bounds as expr_bounds
from ..simplify import extent_range, ranges_of, simplify
from ..size import lesser
from ..traverse import N, children, substatements, substitute, walk

Regions = dict[str, Region]  # by buffer name


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
    found = _Accessed(ranges or {}, only)
    found.visit(stmt, _Around({}, {}))
    return found.reads, found.writes


@dataclass(frozen=True, slots=True)
class _Around:
    """What holds at an access: the ranges of the loops passed, what variables are bound to, and whether the blocks around leave
    reads and writes to be found (their authors may have stated them)."""

    ranges: dict[str, Interval]
    bindings: dict[str, Expr]
    reads: bool = True
    writes: bool = True

    def closed(self, e: N) -> N:
        """An expression over the loop variables alone."""
        return substitute(e, self.bindings)

    def binding(self, bindings: dict[str, Expr]) -> _Around:
        return replace(self, bindings={**self.bindings, **bindings})


class _Accessed:
    """Collects the regions that statements access; `free` are the ranges of the variables free in them."""

    def __init__(self, free: Ranges, only: Collection[str] | None):
        self.free, self.only = free, only
        self.reads: Regions = {}
        self.writes: Regions = {}

    def visit(self, n: Node, around: _Around) -> None:
        match n:
            case For(var, extent, body):
                own = extent_range(around.closed(extent), {**self.free, **around.ranges})
                self.visit(body, replace(around, ranges={**around.ranges, var.name: own}))
            case Block():
                if self.only is None or any(type(x) is Buffer and x.name in self.only for x in walk(n)):
                    self.block(n, around)
            case Let(var, value, body):
                self.visit(value, around)
                self.visit(body, around.binding({var.name: around.closed(value)}))
            case Load(buffer, indices):
                self.visit_all(indices, around)
                if around.reads:
                    self.note(self.reads, buffer, indices, around)
            case Store(buffer, indices, value):
                self.visit_all((*indices, value), around)
                if around.writes:
                    self.note(self.writes, buffer, indices, around)
            case Buffer():
                pass
            case _:
                self.visit_all(children(n), around)

    def visit_all(self, nodes: Iterable[Node], around: _Around) -> None:
        for n in nodes:
            self.visit(n, around)

    def block(self, b: Block, around: _Around) -> None:
        self.visit_all((*(it.binding for it in b.iters), b.predicate), around)
        inside = around.binding({it.var.name: around.closed(it.binding) for it in b.iters})
        for wanted, into, regions in ((around.reads, self.reads, b.reads), (around.writes, self.writes, b.writes)):
            for region in regions or () if wanted else ():  # both corners of the box, as if they were two accesses
                self.note(into, region.buffer, tuple(r.min for r in region.ranges), inside)
                self.note(into, region.buffer, tuple(r.min + r.extent - 1 for r in region.ranges), inside)
        inside = replace(inside, reads=around.reads and b.reads is None, writes=around.writes and b.writes is None)
        if inside.reads or inside.writes:
            self.visit_all([part for part in (b.init, b.body) if part is not None], inside)

    def note(self, into: Regions, buffer: Buffer, indices: tuple[Expr, ...], around: _Around) -> None:
        if self.only is None or buffer.name in self.only:
            region = relax([around.closed(i) for i in indices], buffer, around.ranges, self.free)
            into[buffer.name] = union(into[buffer.name], region) if buffer.name in into else region


def block_regions(block: Block) -> tuple[Regions, Regions]:
    """The regions that one instance of a block reads and writes, over its iteration variables."""
    found = _Accessed(ranges_of([block]), None)
    found.visit_all(substatements(block), _Around({}, {}))
    reads, writes = found.reads, found.writes
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
