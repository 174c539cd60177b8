"""Exponents that are differences from a maximum, and so are not positive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from tir.arith.mixed_radix import mixed_radix
from tir.arith.polynomial import polynomial
from tir.ir import Binary, Call, Const, Expr, For, If, Load, Node, PrimFunc, Select, Seq, Stmt, Store, Var, conjuncts
from tir.traverse import loads, map_statements, rewrite, stored_names, substitute, variables

from ..processor import scales_by_powers


class _Update(NamedTuple):
    """A store in perfectly nested loops, of `extents` by variable, under `conditions`."""

    store: Store
    extents: Mapping[str, Expr]
    conditions: tuple[Expr, ...]


class _Maximum(NamedTuple):
    """An update after which each element that it stores is at least `read`."""

    update: _Update
    read: Load


def bound_exponents(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for j in range(n): m[0] = max(m[0], A[j])
                 for j in range(n): B[j] = exp(A[j] - m[0])
              => ...
                 for j in range(n): B[j] = exp(Select(A[j] - m[0] > 0, 0, A[j] - m[0]))

    where earlier statements in the same iteration of the loops around make m the maximum of A, directly or from maxima of its
    parts. Values change only where A holds a NaN and m is not NaN. An exponential of numbers that are not positive needs
    fewer instructions, unless the processor has one that multiplies by any power of two.
    """
    if scales_by_powers(target.features):
        return func

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, Seq):
            return map_statements(s, visit)
        known: list[_Maximum] = []  # in order
        found = []
        for part in s.stmts:
            consumer = _only_store_in(part)
            found.append(visit(part) if consumer is None else rewrite(part, partial(_bounded, consumer=consumer, known=known)))
            new = _maximum(consumer)
            written = stored_names(part)
            raised = set() if new is None else {new.update.store.buffer.name}  # which only grow
            known = [k for k in known if k.read.buffer.name not in written and k.update.store.buffer.name not in written - raised]
            known += [] if new is None else [new]
        return s.with_(stmts=tuple(found))

    return func.with_(body=visit(func.body))


def _only_store_in(s: Stmt) -> _Update | None:
    """The only store of a statement, if only loops of constant extent and conditions are around it."""
    extents: dict[str, Expr] = {}
    conditions: list[Expr] = []
    while not isinstance(s, Store):
        match s:
            case For(var, Const() as extent, body) if extent.value > 0:
                extents[var.name] = extent
                s = body
            case If(condition, body, None):
                conditions += conjuncts(condition)
                s = body
            case _:
                return None
    return _Update(s, extents, tuple(conditions))


def _maximum(update: _Update | None) -> _Maximum | None:
    """The update as a running maximum, if its conditions and indices load nothing; else None."""
    if update is None or any(loads(e) for e in (*update.conditions, *update.store.indices)):
        return None
    own = Load(update.store.buffer, update.store.indices)
    match update.store.value:
        case Binary("max", a, b) if own in (a, b):
            other = b if a == own else a
            if isinstance(other, Load) and other.buffer != own.buffer and not any(map(loads, other.indices)):
                return _Maximum(update, other)
    return None


def _bounded(n: Node, consumer: _Update, known: Sequence[_Maximum]) -> Expr | None:
    match n:
        case Call("exp", (Binary("-", Load() as x, Load() as top) as exponent,)):
            if consumer.store.buffer in (x.buffer, top.buffer) or not _at_least(top, x, consumer, known):
                return None
            zero = Const(0.0, exponent.dtype)
            return n.with_(args=(Select(Binary(">", exponent, zero), zero, exponent),))
    return None


def _at_least(top: Load, x: Load, consumer: _Update, known: Sequence[_Maximum]) -> bool:
    """True where `top` is at least `x`: the maxima that made it read all elements along the dimensions of their loops."""
    free: Mapping[str, Expr] = {}  # loops, of which some iteration will be chosen
    conditions: tuple[Expr, ...] = ()  # that hold in it
    for maximum in reversed(known):
        store, extents = maximum.update.store, maximum.update.extents
        if store.buffer != top.buffer:
            continue
        if extents.keys() & (free.keys() | consumer.extents.keys()):  # one name, two loops
            return False
        chosen: dict[str, Expr] = {}  # iterations that stored the element asked for
        for size, stored, asked in zip(store.buffer.shape, store.indices, top.indices, strict=True):
            if isinstance(stored, Var) and extents.get(stored.name) == size and stored.name not in chosen:
                chosen[stored.name] = asked
            elif stored != asked or variables(stored) & extents.keys():
                return False
        free = {**free, **{v: n for v, n in extents.items() if v not in chosen}}
        conditions = (*conditions, *(substitute(c, chosen) for c in maximum.update.conditions))
        top = substitute(maximum.read, chosen)
        if top.buffer == x.buffer:
            break
    else:
        return False
    covered: dict[Expr, Expr] = {}  # sums of free loops that take all values from 0 on, and how many
    for size, taken, asked in zip(x.buffer.shape, top.indices, x.indices, strict=True):
        if taken == asked and not variables(taken) & free.keys():
            continue
        total = mixed_radix(polynomial(taken), free)
        if total is None or any(variables(taken) & variables(other) for other in covered):
            return False
        covered[taken] = size
        if not (isinstance(size, Const) and isinstance(total[1], Const) and total[1].value >= size.value):
            return False
    within = [Binary("<", taken, size) for taken, size in covered.items()]
    return all(c in within or (c in consumer.conditions and not variables(c) & free.keys()) for c in conditions)
