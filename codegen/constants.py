"""Computations of a scheduled function from constants alone become a function of their own, which runs once.

    prepare, main = split_constants(func)

Rewrite   for i: for j in range(n): P[i, j] = f(W, i, j)       # P a temporary, W constant
                 Y[i] = S(X, P, i)
       => prepare(W, P): for i: for j in range(n): P[i, j] = f(W, i, j)
          main(X, P, Y): for i: Y[i] = S(X, P, i)

A statement is moved if no other statement writes its temporaries, and it reads only constants, its own results and those of
statements moved before. Loops around it that it depends on move with it; it leaves the others, and runs once for all their
iterations. Sound where one of these holds:

    - no loop is around it;
    - each element of a temporary has one value in all iterations: its index holds all spatial axes of the one block that writes
      it, and the loops of a sum are moved whole;
    - the statement, and each iteration of the loops that move with it, writes elements of its temporaries before it reads them.
      The temporaries then get a dimension for each of these loops, outermost first.

It stays in the call where none is proved, where a condition around it reads anything else, or where an extent is symbolic. It
also stays inside blocks that hold others, and where its results take more than `MAX_GROWTH` times the bytes of their constants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from schedule.buffer_annotations import without_stale_annotations
from schedule.primitive import loops_on
from schedule.rewriting.edits import edited, unstated, without_buffers
from tir.analysis.write_before_read import writes_before_reads
from tir.arith.bounds import ranges_of
from tir.assumptions import ASSUMED
from tir.constants import CONSTANTS, constants
from tir.ir.blocks import Axis, Block, Iter
from tir.ir.buffers import Buffer, buffer_nbytes
from tir.ir.expressions import Const, Expr, Var, conjuncts
from tir.ir.functions import PrimFunc
from tir.ir.statements import Evaluate, For, If, Kind, Let, Seq, Stmt, Store, seq
from tir.traverse import blocks, fresh, loads, move_accesses, names, rewrite_statements, stores, substitute, variables, walk_stmts

from .passes.free_variables import accessed_buffers

MAX_GROWTH = 8  # bytes prepared for a byte of constants, at most: Winograd's F(6x6, 3x3) takes 64 / 9


@dataclass(frozen=True)
class _Found:
    """Adjacent statements to move. `sources` names their constants; `around` are the loops and conditions that move with them.
    Other statements read their `results`, with a dimension for each loop if `expanded`, but not their `inner` temporaries."""

    stmts: tuple[Stmt, ...]
    sources: frozenset[str]
    around: tuple[For | If, ...]
    results: tuple[Buffer, ...]
    inner: tuple[Buffer, ...]
    expanded: bool

    @property
    def loops(self) -> tuple[For, ...]:
        return tuple(s for s in self.around if isinstance(s, For))


def split_constants(func: PrimFunc) -> tuple[PrimFunc | None, PrimFunc]:
    """The function that prepares constants, None if there is nothing to prepare, and the function for each call.

    The first takes the constants that it reads, in call order, and then the arrays that it writes. The second takes the
    parameters of `func` without unused constants, and those arrays before the first that it writes. Both together compute
    `func`. Raises ValueError for invalid constants.
    """
    known = {b.name: b for b in constants(func)}
    main, taken = func, names(func)
    nests: list[Stmt] = []
    made: dict[str, Buffer] = {}
    inner: list[Buffer] = []
    for step in _steps(func, taken):
        nests.append(_in_loops(step.part, step.found.around, taken))
        made |= {b.name: b for b in step.results}
        inner += step.found.inner
        main = step.main
    if not nests:
        return None, func
    kept, read = accessed_buffers(main.body), accessed_buffers(seq(*nests))
    results = [b for b in made.values() if b.name in kept]
    attrs = tuple(a for a in func.attrs if a[0] != CONSTANTS)
    sources = [b for b in known.values() if b.name in read]
    inner += [b for b in made.values() if b.name not in kept]
    prepare = PrimFunc(
        f"{func.name}_prepare", (*sources, *results), seq(*nests), tuple(inner), tuple(a for a in attrs if a[0] != ASSUMED)
    )
    params = [p for p in func.params if p.name not in known or p.name in kept]
    written = {s.buffer.name for s in stores(main.body)}
    first = next((n for n, p in enumerate(params) if p.name in written), len(params))
    main = main.with_(params=(*params[:first], *results, *params[first:]), attrs=attrs)
    return prepare, without_stale_annotations(func, main)


def prepared_statements(func: PrimFunc) -> list[Stmt]:
    """The statements of a function that `split_constants` moves away, up to the first whose results get more dimensions."""
    found: list[Stmt] = []
    for step in _steps(func, names(func)):
        found += step.found.stmts
        if step.found.expanded:
            break
    return found


@dataclass(frozen=True)
class _Step:
    """The next step: a part to move, as one statement with its results, and the function without it."""

    found: _Found
    part: Stmt
    results: tuple[Buffer, ...]
    main: PrimFunc


def _steps(func: PrimFunc, taken: set[str]) -> Iterator[_Step]:
    known, main = {b.name: frozenset({b.name}) for b in constants(func)}, func
    while known and (found := next(_candidates(main, known), None)) is not None:
        step = _moved(main, found, taken)
        known, main = known | {b.name: found.sources for b in step.results}, step.main
        yield step


# --- what can be moved ---------------------------------------------------------------------------------------------------


def _candidates(func: PrimFunc, known: Mapping[str, frozenset[str]]) -> Iterator[_Found]:
    """The movable statements, outer ones first; `known` has constants and buffers made of them, with the constants' names."""
    search = _Search(func, known)

    def visit(path: tuple[Stmt, ...]) -> Iterator[_Found]:
        found = search.movable(path[:-1], path[-1:])
        if found is not None:
            yield found
            return
        match path[-1]:
            case For(body=body) | If(then=body, orelse=None):
                yield from visit((*path, body))
            case Seq(stmts):
                for s in stmts:
                    yield from visit((*path, s))
                for begin in range(len(stmts)):  # writers of one temporary, such as an init and the steps of its sum
                    for end in range(begin + 2, len(stmts) + 1):
                        found = search.movable(path, stmts[begin:end])
                        if found is not None:
                            yield found

    yield from visit((func.body,))


class _Search:
    """Search for the movable statements of a function."""

    def __init__(self, func: PrimFunc, known: Mapping[str, frozenset[str]]):
        self.func, self.known = func, known
        self.temporaries = {b.name: b for b in func.allocs if b.scope == "global"}
        self.written = Counter(s.buffer.name for s in stores(func.body))
        self.read = Counter(x.buffer.name for x in loads(func.body))
        self.sizes = {p.name for p in func.sizes}

    def movable(self, path: Sequence[Stmt], stmts: tuple[Stmt, ...]) -> _Found | None:
        """The statements with their loops, conditions and temporaries, if a move is sound; else None."""
        part = seq(*stmts)
        written, read = Counter(s.buffer.name for s in stores(part)), Counter(x.buffer.name for x in loads(part))
        own = {b.name for x in blocks(part) for b in x.allocs}
        outside = [n for n in written if n not in own]
        alone = all(n in self.temporaries and written[n] == self.written[n] for n in outside)
        if not outside or not alone or not read.keys() <= {*self.known, *written} or not read.keys() & self.known.keys():
            return None
        if any(isinstance(s, Evaluate) or (isinstance(s, For) and s.kind is Kind.THREAD) for s in walk_stmts(part)):
            return None
        around = self._around(path, part)
        results = [self.temporaries[n] for n in outside if self.read[n] > read[n]]
        if around is None or not results:
            return None
        expanded = self._expanded(path, part, around, written, read)
        if expanded is None:
            return None
        inner = tuple(self.temporaries[n] for n in outside if self.read[n] == read[n])
        sources = frozenset[str]().union(*(self.known[n] for n in read if n in self.known))
        found = _Found(stmts, sources, around, tuple(results), inner, expanded)
        nbytes = buffer_nbytes(*(b for b in self.func.buffers if b.name in sources))
        return found if buffer_nbytes(*_result_buffers(found)) <= MAX_GROWTH * nbytes else None

    def _around(self, path: Sequence[Stmt], part: Stmt) -> tuple[For | If, ...] | None:
        """The loops and conditions around a statement that it depends on; None where these forbid a move."""
        conditions = [s.condition for s in path if isinstance(s, If)]
        needed = variables(part, *conditions)
        if needed & self.sizes or any(x.buffer.name not in self.known for c in conditions for x in loads(c)):
            return None
        around = tuple(s for s in path if isinstance(s, If) or (isinstance(s, For) and s.name in needed))
        constant = all(isinstance(s.extent, Const) for s in around if isinstance(s, For))
        return around if constant and not any(isinstance(s, Block | Let) for s in path) else None

    def _expanded(
        self, path: Sequence[Stmt], part: Stmt, around: Sequence[Stmt], written: Counter[str], read: Counter[str]
    ) -> bool | None:
        """True where temporaries need a dimension for each loop that moves along; None where a move is not sound."""
        outer = loops_on(path)
        if not outer or _single_valued(part, {x.name for x in outer}):
            return False
        ranges = ranges_of(path)
        for name in written.keys() & read.keys() & self.temporaries.keys():
            if not writes_before_reads(part, self.temporaries[name], ranges):
                return None
        own = loops_on(around)
        if not own:
            return False
        iteration = own[-1].body
        inside = Counter(x.buffer.name for x in loads(iteration))
        for b in (self.temporaries[name] for name in written if name in self.temporaries):
            if inside[b.name] != self.read[b.name] or not writes_before_reads(iteration, b, ranges):
                return None
        nested = any(blocks(x.body) and accessed_buffers(x).keys() & written.keys() for x in blocks(iteration))
        return None if nested else True


def _single_valued(part: Stmt, outer: set[str]) -> bool:
    """True where each element that a statement writes has one value in all iterations of the `outer` loops."""
    found = blocks(part)
    names = [s.buffer.name for b in found for s in stores(b.body)]
    if len(set(names)) < len(names) or len(stores(part)) != sum(1 + (b.init is not None) for b in found):
        return False
    if any(isinstance(s, Let) for s in walk_stmts(part)):
        return False
    conditional = any(isinstance(s, If) for s in walk_stmts(part))
    return all(_one_value(b, outer, conditional) for b in found)


def _one_value(b: Block, outer: set[str], conditional: bool) -> bool:
    if not isinstance(b.body, Store) or any(it.axis is Axis.OPAQUE for it in b.iters):
        return False
    place = b.body.indices
    if any(it.axis is Axis.SPATIAL and not it.extent.is_one and it.var not in place for it in b.iters):
        return False
    if not b.is_reduction:
        return b.init is None and all(x.buffer.name != b.body.buffer.name for x in loads(b.body))
    reduced = variables(*(it.binding for it in b.reduction))
    mixed = any(variables(c) & reduced and variables(c) & outer for c in conjuncts(b.predicate))
    begins = isinstance(b.init, Store) and b.init.buffer == b.body.buffer and b.init.indices == place and not loads(b.init)
    return begins and not mixed and not reduced & outer and not conditional


# --- moving it -----------------------------------------------------------------------------------------------------------


def _result_buffers(found: _Found) -> tuple[Buffer, ...]:
    """The results with the shapes in which other statements read them."""
    lengths = tuple(x.extent for x in found.loops) if found.expanded else ()
    return tuple(b.with_(shape=(*lengths, *b.shape)) for b in found.results)


def _moved(main: PrimFunc, found: _Found, taken: set[str]) -> _Step:
    results = _result_buffers(found)
    part = seq(*found.stmts)
    main = edited(main, [(s, None) for s in found.stmts])
    main = without_buffers(main, [b.name for b in (*found.results, *found.inner)])
    if not found.expanded:
        return _Step(found, part, results, main)
    table = {b.name: b for b in results}
    main = main.with_(body=_with_dimensions(main.body, table, found.loops, Axis.OPAQUE, taken))
    return _Step(found, _with_dimensions(part, table, found.loops, Axis.SPATIAL, taken), results, main)


def _with_dimensions(body: Stmt, table: Mapping[str, Buffer], around: Sequence[For], axis: Axis, taken: set[str]) -> Stmt:
    """`body` with loop variables as first indices of the buffers in `table`. In a block they are axes, old or new ones."""

    def accesses(n: Stmt, first: tuple[Expr, ...]) -> Stmt:
        def place(b: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]] | None:
            new = table.get(b.name, b)
            return None if new == b else (new, (*first, *indices))

        return move_accesses(n, place)

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, Block) or not accessed_buffers(s).keys() & table.keys():
            return s
        iters = list(s.iters)
        for x in around:
            if all(it.binding != x.var for it in iters):
                iters.append(Iter(Var(fresh(taken, f"v_{x.name}"), x.var.dtype), x.extent, axis, x.var))
        first = tuple(next(it.var for it in iters if it.binding == x.var) for x in around)
        return accesses(unstated(s, *table).with_(iters=tuple(iters)), first)

    return accesses(rewrite_statements(body, visit), tuple(x.var for x in around))


def _in_loops(part: Stmt, around: Sequence[For | If], taken: set[str]) -> Stmt:
    """A statement in serial copies of loops, under fresh names, and in conditions."""
    for s in reversed(around):
        if isinstance(s, If):
            part = s.with_(then=part)
            continue
        var = s.var.with_(name=fresh(taken, s.name))
        part = For(var, s.extent, substitute(part, {s.name: var}))
    return part
