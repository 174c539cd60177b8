"""Proofs that a statement writes each element of a buffer before it reads it, so that it may be privatised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..arith.bounds import ranges_of
from ..arith.intervals import Interval, Ranges
from ..arith.polynomial import Polynomial, add, as_constant, coefficient, names_in, polynomial, split_terms, to_expr
from ..arith.prove import nonnegative, prove
from ..arith.simplify import simplify, wraps
from ..ir.blocks import Block
from ..ir.buffers import Buffer
from ..ir.expressions import Binary, Const, Expr, Var, conjunction, conjuncts
from ..ir.foreign import Opaque
from ..ir.statements import Allocate, For, If, Kind, Let, Seq, Stmt, Store, guarded, seq
from ..traverse import accessed_names, children, loads, substatements, substitute, variables
from .context import Context, accesses, buffer_names

ONE: tuple[int, Polynomial] = (1, {(): 1})  # the step and the count of a single integer


@dataclass(frozen=True)
class _Extent:
    """The integers `base + i1 * stride1 + ...` with 0 <= i < count for each (stride, count), up to `last` if given. A count that
    is no constant may be 0 or less: then there are none."""

    base: Polynomial
    steps: tuple[tuple[int, Polynomial], ...] = ()
    last: Polynomial | None = None

    def runs(self) -> list[tuple[int, Polynomial]]:
        """The steps by decreasing stride, adjacent ones merged where they leave no gaps: no integers where one step has none."""
        found: list[tuple[int, Polynomial]] = []
        for stride, count in sorted(self.steps, key=lambda step: -step[0]):
            known = as_constant(count)
            if found and known is not None and found[-1][0] % stride == 0 and found[-1][0] <= stride * known:
                outer, times = found[-1]
                if as_constant(times) is not None or outer == stride * known:
                    found.pop()
                    count = add(add(count, times, outer // stride), {(): outer // stride}, -1)
            found.append((stride, count))
        return found

    def length(self) -> int | None:
        """The number of these integers if they are consecutive; None where they have gaps, or it is unknown."""
        runs = self.runs() or [ONE]
        count = as_constant(runs[0][1])
        if len(runs) > 1 or runs[0][0] != 1 or count is None:
            return None
        if self.last is None:
            return int(count)
        after = as_constant(add(self.last, self.base, -1))
        return None if after is None or after < 0 else min(int(count), int(after) + 1)

    def with_next(self, other: _Extent) -> _Extent | None:
        """The union with `other`, if that begins within these or right after them, and both are consecutive."""
        length, more, gap = self.length(), other.length(), as_constant(add(other.base, self.base, -1))
        if length is None or more is None or gap is None or not 0 <= gap <= length:
            return None
        return _Extent(self.base, ((1, {(): max(length, int(gap) + more)}),))


@dataclass(frozen=True)
class _Box:
    """The elements that a statement writes, an extent for each dimension, where conditions on the loops around hold (`given`)."""

    dims: tuple[_Extent, ...]
    given: tuple[Expr, ...] = ()


def writes_before_reads(body: Stmt, buffer: Buffer, outer: dict[str, Interval]) -> bool:
    """True where every element of `buffer` that `body` reads is certainly written before, in the same execution of `body`.

    A write is certain without a condition, or with one that only keeps its index within the buffer. So is one whose condition
    holds in the first iteration of loops in `body` that its index does not depend on, as of an init. For a read in the same
    iteration, a condition that holds there suffices.
    """
    reader = _Reader(buffer, outer)
    reader.stmt(body, [], Context())
    return reader.complete


def live_ranges(s: Stmt, buffer: Buffer, outer: Ranges) -> Iterator[Stmt]:
    """The live ranges of a buffer: `s`, which holds all its accesses, and the statements in it that could have a buffer of their
    own. Such a statement writes what it reads, and no other reads what it wrote."""
    yield s
    parts = [x for x in substatements(s) if buffer.name in accessed_names(x)]
    if any(buffer.name in accessed_names(x) for x in children(s) if not isinstance(x, Stmt)):
        return
    inside = ranges_of([s], outer)
    alone = len(parts) == 1 and not isinstance(s, For | Block | Opaque)
    if alone or all(writes_before_reads(x, buffer, inside) for x in parts):
        for x in parts:
            yield from live_ranges(x, buffer, inside)


class _Reader:
    """Walks statements in execution order; `complete` as long as each element read of the buffer was written before."""

    def __init__(self, buffer: Buffer, outer: Ranges):
        self.buffer, self.outer = buffer, outer
        self.complete = True

    def ranges(self, around: Context) -> dict[str, Interval]:
        return {**self.outer, **around.ranges(self.outer)}

    def expr(self, e: Expr, written: list[_Box], around: Context) -> None:
        for x, inside in accesses(e, around):
            if x.buffer.name == self.buffer.name and self.complete:
                indices = [inside.closed(i) for i in x.indices]
                ranges, facts = self.ranges(inside), [inside.closed(c) for c in (*inside.conditions, *inside.selected)]
                self.complete = any(_reads_inside(box, indices, self.buffer, ranges, facts) for box in written)

    def stmt(self, s: Stmt, written: list[_Box], around: Context) -> list[_Box]:
        """The boxes that `s` certainly writes, given those written before."""
        if not self.complete or self.buffer.name not in buffer_names(s):
            return []
        match s:
            case Seq(stmts):
                made: list[_Box] = []
                for x in stmts:
                    for box in self.stmt(x, [*written, *made], around):
                        _join(made, box)
                return made
            case For(var, extent, inner):
                self.expr(extent, written, around)
                return _over(var.name, around.closed(extent), self.stmt(inner, written, around.inside(s)))
            case If(condition, then, orelse):
                self.expr(condition, written, around)
                made = self.stmt(then, written, around.under(condition))
                if orelse is not None:
                    self.stmt(orelse, written, around)
                first = {x.name for x in around.loops if x.kind in (Kind.SERIAL, Kind.UNROLLED)}
                ranges = self.ranges(around)
                holds = around.closed(condition)
                return [b for box in made if (b := _under(holds, box, self.buffer, first, ranges)) is not None]
            case Let(_, value, inner):
                self.expr(value, written, around)
                return self.stmt(inner, written, around.inside(s))
            case Allocate(_, inner):
                return self.stmt(inner, written, around)
            case Opaque(body=effect):  # it reads, and only may write
                self.stmt(effect, written, around)
                return []
            case Block():
                return self.stmt(_expanded(s), written, around)
            case Store(b, indices, value):
                for e in (*indices, value):
                    self.expr(e, written, around)
                closed = [around.closed(i) for i in indices]
                if b.name != self.buffer.name or any(wraps(i) for i in closed):
                    return []
                ranges = self.ranges(around)
                return [_Box(tuple(_Extent(polynomial(simplify(i, ranges))) for i in closed))]
            case _:
                for c in children(s):
                    if isinstance(c, Expr):
                        self.expr(c, written, around)
                return []


def _expanded(block: Block) -> Stmt:
    """The statement that a block executes in one iteration of the loops around it, over their variables."""
    bindings = {it.var.name: it.binding for it in block.iters}
    body = substitute(block.body, bindings)
    if block.init is not None:
        body = seq(guarded(conjunction(*block.first_step), substitute(block.init, bindings)), body)
    return guarded(block.predicate, body)


def _reads_inside(box: _Box, indices: Iterable[Expr], buffer: Buffer, ranges: dict[str, Interval], facts: Iterable[Expr]) -> bool:
    """True where the element of the buffer that is read provably lies in the box, for all values of its indices."""
    facts = [*facts]
    if not all(c in facts or prove(c, ranges, facts) for c in box.given):
        return False
    for written, index, dim in zip(box.dims, indices, buffer.shape, strict=True):
        known = [*facts, Binary(">=", index, Const(0)), Binary("<", index, dim)]
        rest = add(polynomial(simplify(index, ranges)), written.base, -1)
        runs = written.runs()
        for stride, count in runs if runs and runs[-1][0] == 1 else [*runs, ONE]:
            part = {m: c for m, c in rest.items() if c % stride == 0}
            rest = {m: c for m, c in rest.items() if c % stride}
            place = to_expr({m: c // stride for m, c in part.items()})
            if not all(prove(e, ranges, known) for e in (Binary(">=", place, Const(0)), Binary("<", place, to_expr(count)))):
                return False
        if written.last is not None and not prove(Binary("<=", index, to_expr(written.last)), ranges, known):
            return False
    return True


def _over(name: str, extent: Expr, boxes: list[_Box]) -> list[_Box]:
    """The boxes that a whole loop writes, from those of one iteration. Of a loop that may not run these are only boxes that its
    variable moves, which are empty then."""
    certain = isinstance(extent, Const) and extent.value > 0
    if not certain and (isinstance(extent, Const) or wraps(extent) or loads(extent)):
        return []
    result: list[_Box] = []
    for box in boxes:
        moved = [n for n, d in enumerate(box.dims) if name in names_in(d.base)]
        held = [p for d in box.dims for p in (d.last or {}, *(count for _, count in d.steps))]
        if any(name in names_in(p) for p in held) or name in variables(*box.given) or not (certain or moved):
            continue
        steps = _index_steps(name, extent, [box.dims[n].base for n in moved])
        if steps is not None:
            new = list(box.dims)
            for n, step in zip(moved, steps, strict=True):
                _, base = split_terms(new[n].base, {name})
                new[n] = _Extent(base, (*new[n].steps, step), new[n].last)
            result.append(replace(box, dims=tuple(new)))
    return result


def _index_steps(name: str, extent: Expr, indices: Sequence[Polynomial]) -> list[tuple[int, Polynomial]] | None:
    """The step and the number of values of each index that a loop moves. It moves one index; or two, by its quotient and its
    remainder, which then take all pairs of values. None in other cases, or for a step below 1."""
    found: list[tuple[int | None, Polynomial]] = []
    if len(indices) < 2:
        found = [(coefficient(p, name), polynomial(extent)) for p in indices]
    else:
        digits = set[tuple[str, int]]()
        for p in indices:
            match list(split_terms(p, {name})[0].items()), extent:
                case [((Binary("//" | "%" as op, Var(v), Const(int(f))),), step)], Const(int(n)) if v == name and f > 0 == n % f:
                    found.append((step, {(): n // f if op == "//" else f}))
                    digits.add((op, f))
        if len(found) != 2 or len(indices) != 2 or len(digits) != 2 or len({f for _, f in digits}) != 1:
            return None
    return None if any(step is None or step <= 0 for step, _ in found) else found  # type: ignore[return-value]


def _join(boxes: list[_Box], box: _Box) -> None:
    """Add a box to `boxes`, merged with one that it continues along a dimension, as the pieces of a cut loop do."""
    for n, other in enumerate(boxes):
        pairs = [*zip(other.dims, box.dims, strict=True)]
        differing = [d for d, (x, y) in enumerate(pairs) if (x.base, x.runs(), x.last) != (y.base, y.runs(), y.last)]
        if other.given != box.given:
            continue
        if not differing:
            return
        if len(differing) == 1:
            (d,) = differing
            x, y = pairs[d]
            both = x.with_next(y) or y.with_next(x)
            if both is not None:
                boxes[n] = replace(other, dims=(*other.dims[:d], both, *other.dims[d + 1 :]))
                return
    boxes.append(box)


def _under(condition: Expr, box: _Box, buffer: Buffer, first: set[str], ranges: Ranges) -> _Box | None:
    """A box that is written under a condition; None where memory decides, since it may change before the read."""
    for c in conjuncts(condition if wraps(condition) else simplify(condition, ranges)):
        if wraps(c):
            return None
        if c != Const(True) and not _keeps_inside(c, box, buffer) and not _first_iteration(c, box, first):
            box = _part_under(c, box) or replace(box, given=(*box.given, c))
    return box


def _part_under(condition: Expr, box: _Box) -> _Box | None:
    """The part of a box under a condition that is an upper bound of an index; None for any other condition."""
    limits = [] if wraps(condition) else nonnegative(simplify(condition))
    if len(limits) != 1:
        return None
    for n, d in enumerate(box.dims):
        last = add(limits[0], d.base)
        if not d.steps and d.last is None and names_in(limits[0]) <= names_in(d.base) and names_in(last) < names_in(d.base):
            return replace(box, dims=(*box.dims[:n], replace(d, last=last), *box.dims[n + 1 :]))
    return None


def _keeps_inside(condition: Expr, box: _Box, buffer: Buffer) -> bool:
    """True where the condition only states that an index is less than its dimension, or at least 0."""
    limits = [] if wraps(condition) else nonnegative(simplify(condition))
    if len(limits) != 1:
        return False
    for d, dim in zip(box.dims, buffer.shape, strict=True):
        above = as_constant(add(add(limits[0], d.base), polynomial(dim), -1))  # of index < dim: bound - 1 - index >= 0
        below = as_constant(add(limits[0], d.base, -1))  # of index >= 0: index - bound >= 0
        if not d.steps and ((above is not None and above >= -1) or (below is not None and below >= 0)):
            return True
    return False


def _first_iteration(condition: Expr, box: _Box, first: set[str]) -> bool:
    """True where the condition holds in the first iteration of some loops on which the box does not depend."""
    match condition:
        case Binary("==", a, b):
            p = add(polynomial(a), polynomial(b), -1)
            used = names_in(p)
            return () not in p and used <= first and not any(used & names_in(d.base) for d in box.dims)
        case _:
            return False
