"""Temporaries of a few vectors live in registers."""

from __future__ import annotations

from math import ceil, prod
from typing import NamedTuple

from tir.analysis.context import Context, accesses
from tir.arith.polynomial import Monomial, Polynomial, names_in, polynomial, to_expr
from tir.ir import Allocate, Buffer, Call, Const, Expr, For, Kind, Load, PrimFunc, Stmt, Store, Var
from tir.traverse import map_statements, move_accesses, rewrite_statements, stores, walk

from .free_variables import statements_using


def promote_temporaries(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   t = alloc(7, 16);  for i in unroll(7): for l in vectorized(16): t[i, l] = f;  for i in range(7): ... g(t[i, l])
              => t of scope "register", and both loops over i unrolled

    where a temporary is accessed in whole vectors only, at indices that are constant once loops are unrolled, and takes at most
    twice the registers, or as many where functions compute it: the results of a register tile on their way to an epilogue. In
    memory they would be stored and loaded again, and a load of masked lanes waits until the store has reached the cache. Of
    windows that slide, few are needed at a time; what else does not fit is kept in memory as whole vectors.
    """

    def visit(s: Stmt) -> Stmt:
        s = map_statements(s, visit)
        return _promoted(s, target) if isinstance(s, Allocate) and s.buffer.scope != "register" else s

    return func.with_(body=visit(func.body))


def _promoted(s: Allocate, target) -> Allocate:
    """The allocation, in registers if that is possible."""
    buffer = s.buffer
    if not buffer.shape or not buffer.has_const_shape:
        return s
    name = buffer.name
    places = [_place_of(x, around) for x, around in accesses(statements_using(s.body, name)) if x.buffer.name == name]
    known = [p for p in places if p is not None]
    lanes = max((p.lanes for p in known), default=1)
    if len(known) < len(places) or lanes == 1 or any(c % lanes for p in known for c in p.column.values()):
        return s
    *rows, last = (max(highs) + 1 for highs in zip(*(p.highest for p in known), strict=True))
    columns = ceil(last / lanes)
    computed = any(isinstance(n, Call) for x in stores(s.body) if x.buffer.name == buffer.name for n in walk(x.value))
    if prod(rows) * columns > 2 * target.registers // (1 + computed):  # functions need registers, too
        return s
    body = _unrolled(s.body, set().union(*(p.counted for p in known)))
    if body is None:
        return s
    register = buffer.with_(shape=tuple(map(Const, (*rows, columns, lanes))), scope="register")

    def moved(b: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]] | None:
        if b.name != buffer.name:
            return None
        column = polynomial(indices[-1])
        (lane,) = [p.lane for p in known if (p.lane,) in column][:1]
        del column[lane,]
        return register, (*indices[:-1], to_expr({m: c // lanes for m, c in column.items()}), lane)

    return Allocate(register, move_accesses(body, moved))


class _Place(NamedTuple):
    """A vector of a temporary: lane, lanes, first column, the loops of the indices, and the highest indices."""

    lane: Var
    lanes: int
    column: Polynomial
    counted: set[str]
    highest: list[int]


def _place_of(x: Load | Store, around: Context) -> _Place | None:
    """The place of an access over unrollable loops; None for any other, as in parallel loops or for no vector. A guarded place
    may be out of bounds."""
    if any(s.kind is Kind.PARALLEL for s in around.loops):
        return None
    *rows, column = map(polynomial, x.indices)
    lane = next((s for s in around.loops if s.kind is Kind.VECTORIZED), None)
    if lane is None or not isinstance(lane.extent, Const) or column.pop((lane.var,), 0) != 1:
        return None
    lasts: dict[Monomial, int] = {(): 1}  # of the loops that may be unrolled, by their terms
    for s in around.loops:
        if s.kind in (Kind.SERIAL, Kind.UNROLLED) and isinstance(s.extent, Const):
            lasts[s.var,] = int(s.extent.value) - 1
    if not all(m in lasts and c >= 0 for p in (*rows, column) for m, c in p.items()):
        return None
    lanes = int(lane.extent.value)
    highest = [sum(c * lasts[m] for m, c in p.items()) for p in (*rows, column)]
    highest[-1] += lanes - 1
    return _Place(lane.var, lanes, column, {name for p in (*rows, column) for name in names_in(p)}, highest)


def _unrolled(body: Stmt, names: set[str]) -> Stmt | None:
    """`body` with the loops `names` unrolled; None where one holds serial loops."""
    refused = False

    def visit(s: Stmt) -> Stmt:
        nonlocal refused
        if not isinstance(s, For) or s.name not in names or s.kind is Kind.UNROLLED:
            return s
        inner = [x.kind for x in walk(s.body) if isinstance(x, For)]
        refused |= any(kind not in (Kind.VECTORIZED, Kind.UNROLLED) for kind in inner)
        return s.with_(kind=Kind.UNROLLED)

    new = rewrite_statements(body, visit)
    return None if refused else new
