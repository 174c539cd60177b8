"""Bounds: bindings stay in the domains of their axes, and indices in their buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from ..affine import Interval
from ..ir import (
    TRUE,
    Allocate,
    Binary,
    Block,
    Buffer,
    Cast,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Let,
    Load,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    conjuncts,
)
from ..points import Opaque, evaluate
from ..simplify import bounds, extent_range, prove, simplify
from ..traverse import children, substitute, variables
from .accesses import is_index, negated
from .points import points_of
from .report import Finding


class Bounds:
    """Bindings stay within their domains, and indices within their buffers."""

    def __init__(self, func: PrimFunc):
        self.findings: list[Finding] = []
        self._buffers = {b.name: b for b in func.buffers}
        ranges: dict[str, Interval] = {p.name: (1, None) for p in func.params if isinstance(p, Var)}
        self._visit(func.body, _Known(ranges))

    def _visit(self, s: Stmt, known: _Known) -> None:
        match s:
            case Seq(stmts):
                for x in stmts:
                    self._visit(x, known)
            case For(var, extent, body):
                self._expr(extent, s, known)
                self._visit(body, known.loop(var, extent))
            case Block():
                for it in s.iters:
                    self._expr(it.binding, s, known)
                self._expr(s.predicate, s, known)
                guarded = known.under(s.predicate)
                for it in s.iters:
                    what = f"`{it.var.name}` of block `{s.name}` = `{it.binding}`"
                    self._within(it.binding, it.extent, what, "its domain", s, guarded)
                inner = guarded.block(s)
                for part in (s.init, s.body):
                    if part is not None:
                        self._visit(part, inner)
            case Store(buffer, indices, value):
                self._element(buffer, indices, s, known)
                self._expr(value, s, known)
            case If(condition, then, orelse):
                self._expr(condition, s, known)
                self._visit(then, known.under(condition))
                if orelse is not None:
                    self._visit(orelse, known.under(negated(condition)))
            case Let(var, value, body):
                self._expr(value, s, known)
                self._visit(body, known.let(var, value))
            case Allocate(_, body):
                self._visit(body, known)
            case Evaluate(value):
                self._expr(value, s, known)
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def _expr(self, e: Expr, stmt: Stmt, known: _Known) -> None:
        match e:
            case Load(buffer, indices):
                self._element(buffer, indices, stmt, known)
            case Select(c, t, f, True):
                self._expr(c, stmt, known)
                self._expr(t, stmt, known.under(c))
                self._expr(f, stmt, known.under(negated(c)))
            case _:
                for child in children(e):
                    if isinstance(child, Expr):
                        self._expr(child, stmt, known)

    def _element(self, buffer: Buffer, indices: tuple[Expr, ...], stmt: Stmt, known: _Known) -> None:
        for dim, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            self._expr(index, stmt, known)
            what = f"index `{index}` of dimension {dim} of `{buffer.name}`"
            self._within(index, extent, what, f"0 .. {_last(extent)}", stmt, known)

    def _within(self, index: Expr, extent: Expr, what: str, domain: str, stmt: Stmt, known: _Known) -> None:
        goals = (Binary(">=", index, Const(0, index.dtype)), Binary("<", *_one_dtype(index, extent)))
        if all(known.proves(g) for g in goals):
            return
        # Over the loops: what the loops around reach may be less than the domains of the axes.
        closed, size = known.closed(index), known.closed(extent)
        points = points_of(known.extents, variables(closed) | variables(size), known.conditions)
        if points is not None:
            try:
                values = np.broadcast_to(evaluate(closed, points.values), len(points))
                wrong = (values < 0) | (values >= evaluate(size, points.values))
            except Opaque:
                wrong = None
            if wrong is not None:
                if np.any(wrong) and points.certain:
                    n = int(np.argmax(wrong))
                    where = points.at(n, points.values)
                    self.findings.append(
                        Finding("error", f"{what} is {values[n]}, outside {domain}{f', where {where}' if where else ''}", stmt)
                    )
                    return
                if points.whole and not np.any(wrong):
                    return
        self.findings.append(Finding("unproved", f"cannot prove that {what} is within {domain}", stmt))


def _one_dtype(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    if a.dtype == b.dtype:
        return a, b
    if isinstance(b, Const):
        return a, Const(b.value, a.dtype)
    return Cast("int64", a), Cast("int64", b)


def _last(extent: Expr) -> str:
    return str(extent.value - 1) if isinstance(extent, Const) else f"{extent} - 1"


@dataclass(frozen=True)
class _Known:
    """What holds at a place of the program: ranges of the visible variables and facts about them; the same over loops alone."""

    ranges: dict[str, Interval]
    facts: tuple[Expr, ...] = ()
    bindings: dict[str, Expr] = field(default_factory=dict)  # iteration variables and lets, over loop variables
    extents: dict[str, int | None] = field(default_factory=dict)
    conditions: tuple[Expr, ...] = ()  # over loop variables

    def closed(self, e: Expr) -> Expr:
        return substitute(e, self.bindings)  # type: ignore[return-value]

    def proves(self, goal: Expr) -> bool:
        if prove(goal, self.ranges, self.facts):
            return True
        closed = self.closed(goal)
        return closed is not goal and prove(closed, self.ranges, self.conditions)

    def loop(self, var: Var, extent: Expr) -> _Known:
        ranges = {**self.ranges, var.name: extent_range(extent, self.ranges)}
        closed = simplify(self.closed(extent))
        size = closed.value if isinstance(closed, Const) else None
        result = _Known(ranges, self.facts, self.bindings, {**self.extents, var.name: size}, self.conditions)
        return result if isinstance(extent, Const) else result.under(Binary("<", *_one_dtype(var, extent)))

    def under(self, condition: Expr) -> _Known:
        if condition == TRUE:
            return self
        conditions = self.conditions + conjuncts(self.closed(condition))
        return _Known(self.ranges, self.facts + conjuncts(condition), self.bindings, self.extents, conditions)

    def let(self, var: Var, value: Expr) -> _Known:
        if not is_index(value):
            return self
        ranges = {**self.ranges, var.name: bounds(value, self.ranges)}
        return _Known(ranges, self.facts, {**self.bindings, var.name: self.closed(value)}, self.extents, self.conditions)

    def block(self, b: Block) -> _Known:
        ranges = {**self.ranges, **{it.var.name: extent_range(it.extent, self.ranges) for it in b.iters}}
        facts = self.facts + tuple(
            Binary("<", *_one_dtype(it.var, it.extent)) for it in b.iters if not isinstance(it.extent, Const)
        )
        bindings = {**self.bindings, **{it.var.name: self.closed(it.binding) for it in b.iters}}
        return _Known(ranges, facts, bindings, self.extents, self.conditions)
