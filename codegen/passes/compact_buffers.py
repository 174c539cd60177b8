"""Temporaries shrink to the window that is live, and move into the loops that use them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tir.affine import Interval, Polynomial, add, as_constant, coefficient, polynomial, to_expr
from tir.analysis.regions import Regions, accessed, clip, extent_range, union
from tir.ir import (
    Allocate,
    Binary,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Kind,
    Let,
    Load,
    PrimFunc,
    Region,
    Select,
    Seq,
    Stmt,
    Store,
    annotation,
    conjuncts,
)
from tir.simplify import prove, simplify, wraps
from tir.traverse import children, replace_buffers, rewrite, variables, walk, walk_stmts

from .lower_blocks import ALIGNED


def compact_buffers(func: PrimFunc, target) -> PrimFunc:
    """Each allocated buffer is placed in the innermost statement that holds all its accesses and needs nothing from an
    earlier iteration, with the shape of the region touched there; its indices become relative to that region.

    A tile computed inside a loop thus takes the memory of one tile, and is private to the iterations of a parallel loop. The
    strides that `storage_align` asked for are those of the shapes found here.
    """
    body = func.body
    for buffer in func.allocs:
        if any(isinstance(n, (Load, Store)) and n.buffer.name == buffer.name for n in walk(body)):
            body = place(body, buffer, {})
    rules = annotation(func.attrs, ALIGNED, {})
    attrs = tuple(a for a in func.attrs if a[0] != ALIGNED)
    return func.with_(body=apply_strides(body, rules) if rules else body, allocs=(), attrs=attrs)


def apply_strides(body: Stmt, rules: dict[str, list[list[int]]]) -> Stmt:
    """`body` with the strides of its buffers as the rules say: a dimension grows until the stride of the one before is right."""
    table: dict[str, Buffer] = {}
    for s in walk_stmts(body):
        if isinstance(s, Allocate) and s.buffer.name in rules and all(isinstance(dim, Const) for dim in s.buffer.shape):
            shape = [int(dim.value) for dim in s.buffer.shape]  # type: ignore[attr-defined]
            for rule in sorted(rules[s.buffer.name], reverse=True):  # inner dimensions first
                match rule:
                    case [int(axis), int(factor), int(offset)] if 0 <= axis < len(shape) - 1 and factor > 0:
                        inner, n = prod(shape[axis + 2 :]), shape[axis + 1]
                        shape[axis + 1] = next((m for m in range(n, n + factor) if m * inner % factor == offset), n)
            new = tuple(Const(n, dim.dtype) for n, dim in zip(shape, s.buffer.shape, strict=True))
            table[s.buffer.name] = s.buffer.with_(shape=new)
    return replace_buffers(body, table)


def _touches(s: Stmt, buffer: Buffer) -> bool:
    return any(isinstance(n, (Load, Store)) and n.buffer.name == buffer.name for n in walk(s))


def place(s: Stmt, buffer: Buffer, ranges: dict[str, Interval]) -> Stmt:
    """`s`, which holds all accesses of the buffer, with the buffer allocated as deep inside it as possible.

    The iterations of a parallel loop are independent: what one of them reads of a buffer that is used only there, it has written.
    """
    match s:
        case For(var, extent, body, kind) if kind is Kind.PARALLEL or (
            kind is Kind.SERIAL and self_contained(body, buffer, ranges)
        ):
            inside = {**ranges, var.name: extent_range(extent, ranges)}
            return s.with_(body=place(body, buffer, inside))
        case Seq(stmts):
            users = [i for i, x in enumerate(stmts) if _touches(x, buffer)]
            if len(users) == 1:
                (i,) = users
                return s.with_(stmts=(*stmts[:i], place(stmts[i], buffer, ranges), *stmts[i + 1 :]))
            first, last = users[0], users[-1] + 1
            if last - first < len(stmts):  # only the statements that need it see it
                part = allocate(Seq(stmts[first:last]), buffer, ranges)
                return Seq((*stmts[:first], part, *stmts[last:]))
        case Let(var, value, body) if not any(isinstance(n, Load) and n.buffer.name == buffer.name for n in walk(value)):
            return s.with_(body=place(body, buffer, ranges))
        case Allocate(_, body):
            return s.with_(body=place(body, buffer, ranges))
        case If(condition, then, None) if not any(isinstance(n, Load) and n.buffer.name == buffer.name for n in walk(condition)):
            return s.with_(then=place(then, buffer, ranges))
    return allocate(s, buffer, ranges)


@dataclass(frozen=True)
class _Extent:
    """The integers `base + i1 * stride1 + i2 * stride2 + ...` with 0 <= i < count for each (stride, count)."""

    base: Polynomial
    steps: tuple[tuple[int, int], ...] = ()

    def count(self) -> int | None:
        """How many there are, if they follow one another without gaps."""
        n = 1
        for stride, count in sorted(self.steps):
            if stride > n:
                return None
            n += stride * (count - 1)
        return n


_Box = tuple[_Extent, ...]  # one a dimension


def self_contained(body: Stmt, buffer: Buffer, outer: dict[str, Interval]) -> bool:
    """Whether every element that `body` reads of the buffer was surely written before, in the same run of `body`.

    A write is sure that stands under no condition; or under one that only keeps its index inside the buffer; or under one that
    holds in the first iteration of loops within `body`, if it does not depend on them, as an init does.
    """
    complete = True

    def read(e: Expr, written: list[_Box], ranges: dict[str, Interval], facts: list[Expr]) -> None:
        nonlocal complete
        match e:
            case Select(c, t, f, True):
                read(c, written, ranges, facts)
                read(t, written, ranges, [*facts, *conjuncts(c)])
                read(f, written, ranges, facts)
            case Load(b, indices):
                complete = complete and (b.name != buffer.name or any(_holds(box, e, ranges, facts) for box in written))
                for i in indices:
                    read(i, written, ranges, facts)
            case _:
                for child in children(e):
                    if isinstance(child, Expr):
                        read(child, written, ranges, facts)

    def visit(s: Stmt, written: list[_Box], ranges: dict[str, Interval], facts: list[Expr], first: frozenset[str]) -> list[_Box]:
        """The boxes that `s` surely writes, given those written before; `first` are the loops within `body` around `s`."""
        if not complete:
            return []
        match s:
            case Seq(stmts):
                made: list[_Box] = []
                for x in stmts:
                    made += visit(x, [*written, *made], ranges, facts, first)
                return made
            case For(var, extent, inner, kind):
                read(extent, written, ranges, facts)
                inside = {**ranges, var.name: extent_range(extent, ranges)}
                once = first | {var.name} if kind in (Kind.SERIAL, Kind.UNROLLED) else first
                return _over(var.name, extent, visit(inner, written, inside, facts, once))
            case If(condition, then, orelse):
                read(condition, written, ranges, facts)
                made = visit(then, written, ranges, [*facts, *conjuncts(condition)], first)
                if orelse is not None:
                    visit(orelse, written, ranges, facts, first)
                return [b for box in made if (b := _under(condition, box, buffer, first)) is not None]
            case Let(var, value, inner):
                read(value, written, ranges, facts)
                made = visit(inner, written, ranges, facts, first)
                return [box for box in made if not any(_mentions(d.base, var.name) for d in box)]
            case Allocate(_, inner):
                return visit(inner, written, ranges, facts, first)
            case Store(b, indices, value):
                for e in (*indices, value):
                    read(e, written, ranges, facts)
                if b.name != buffer.name or any(wraps(i) for i in indices):
                    return []
                return [tuple(_Extent(polynomial(simplify(i, ranges))) for i in indices)]
            case _:
                for c in children(s):
                    if isinstance(c, Expr):
                        read(c, written, ranges, facts)
                return []

    visit(body, [], outer, [], frozenset())
    return complete


def _mentions(p: Polynomial, name: str) -> bool:
    return any(name in variables(atom) for m in p for atom in m)


def _holds(box: _Box, access: Load, ranges: dict[str, Interval], facts: list[Expr]) -> bool:
    """Whether the element read lies in the box, wherever it lies in the buffer."""
    for written, index, dim in zip(box, access.indices, access.buffer.shape, strict=True):
        n = written.count()
        if n is None:
            return False
        known = [*facts, Binary(">=", index, Const(0)), Binary("<", index, dim)]
        distance = to_expr(add(polynomial(simplify(index, ranges)), written.base, -1))
        if not prove(Binary(">=", distance, Const(0)), ranges, known) or not prove(
            Binary("<", distance, Const(n)), ranges, known
        ):
            return False
    return True


def _over(name: str, extent: Expr, boxes: list[_Box]) -> list[_Box]:
    """The boxes after all iterations of a loop, of those written in one."""
    if not (isinstance(extent, Const) and extent.value > 0):  # it may not run at all
        return []
    result: list[_Box] = []
    for box in boxes:
        moved = [n for n, d in enumerate(box) if _mentions(d.base, name)]
        if not moved:
            result.append(box)
        elif len(moved) == 1:
            old = box[moved[0]]
            step = coefficient(old.base, name)
            if step is not None and step > 0:
                base = {m: c for m, c in old.base.items() if not any(name in variables(atom) for atom in m)}
                new = _Extent(base, (*old.steps, (step, int(extent.value))))
                result.append((*box[: moved[0]], new, *box[moved[0] + 1 :]))
    return result


def _under(condition: Expr, box: _Box, buffer: Buffer, first: frozenset[str]) -> _Box | None:
    """What of the box is surely written under a condition; None if that is not known."""
    for c in conjuncts(condition):
        if not _keeps_inside(c, box, buffer) and not _first_iteration(c, box, first):
            return None
    return box


def _keeps_inside(condition: Expr, box: _Box, buffer: Buffer) -> bool:
    """Whether the condition says of an index no more than that it is less than its dimension, or at least 0."""
    match condition:
        case Binary("<" | "<=" as op, a, b) if not wraps(a) and not wraps(b):
            below = add(polynomial(a), polynomial(b), -1)  # < 0, or <= 0
            slack = 0 if op == "<" else -1
        case Binary(">" | ">=" as op, a, b) if not wraps(a) and not wraps(b):
            below = add(polynomial(b), polynomial(a), -1)
            slack = 0 if op == ">" else -1
        case _:
            return False
    for d, dim in zip(box, buffer.shape, strict=True):
        if d.steps:
            continue
        over = as_constant(add(add(below, d.base, -1), polynomial(dim)))  # index < dim: below = index - bound
        under = as_constant(add(below, d.base))  # index >= 0: below = bound - index
        if (over is not None and over + slack <= 0) or (under is not None and under + slack <= -1):
            return True
    return False


def _first_iteration(condition: Expr, box: _Box, first: frozenset[str]) -> bool:
    """Whether the condition holds in the first iteration of some loops on which the box does not depend."""
    match condition:
        case Binary("==", a, b):
            p = add(polynomial(a), polynomial(b), -1)
            used = set().union(*(variables(atom) for m in p for atom in m), set())
            return () not in p and used <= first and not any(_mentions(d.base, name) for d in box for name in used)
        case _:
            return False


def allocate(s: Stmt, buffer: Buffer, ranges: dict[str, Interval]) -> Stmt:
    """Allocate the region of the buffer that `s` touches, around `s`."""
    reads, writes = accessed(s, ranges)
    region = _merge(reads, writes, buffer)
    region = clip(region, ranges)
    starts: list[Expr] = []
    shape: list[Expr] = []
    for r, dim in zip(region.ranges, buffer.shape, strict=True):
        narrower = isinstance(r.extent, Const) and (not isinstance(dim, Const) or r.extent.value < dim.value)
        starts.append(r.min if narrower else Const(0, r.min.dtype))
        shape.append(r.extent if narrower else dim)
    if all(a == b for a, b in zip(shape, buffer.shape, strict=True)) and all(x == Const(0, x.dtype) for x in starts):
        return Allocate(buffer, s)
    small = buffer.with_(shape=tuple(shape))

    def relative(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(simplify(i - start) for i, start in zip(indices, starts, strict=True))

    def visit(n):
        match n:
            case Load(b, indices) if b.name == buffer.name:
                return Load(small, relative(indices))
            case Store(b, indices, value) if b.name == buffer.name:
                return Store(small, relative(indices), value)
        return None

    return Allocate(small, rewrite(s, visit))  # type: ignore[arg-type]


def _merge(reads: Regions, writes: Regions, buffer: Buffer) -> Region:
    found = [r[buffer.name] for r in (reads, writes) if buffer.name in r]
    return found[0] if len(found) == 1 else union(found[0], found[1])
