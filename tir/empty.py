"""Removal of loops without iterations; of an empty reduction the init stays."""

from __future__ import annotations

from collections.abc import Callable

from .arith.simplify import simplify
from .ir.blocks import Axis, Block
from .ir.buffers import Buffer
from .ir.expressions import Const, Expr, conjunction, conjuncts
from .ir.functions import PrimFunc
from .ir.nodes import annotated, annotation
from .ir.statements import NOTHING, Allocate, For, If, Let, Seq, Stmt, seq
from .traverse import (
    accessed_names,
    axis_loops,
    blocks,
    map_statements,
    pure_reduction_loops,
    stored_names,
    substatements,
    substitute,
    variables,
    walk_stmts,
)

WRITTEN = "tir.written"  # an attribute of functions, see `without_empty`


def is_empty(extent: Expr) -> bool:
    """True for an extent, of a loop or of a dimension, that is certainly 0."""
    return type(extent) is Const and extent.value < 1


def has_empty(func: PrimFunc) -> bool:
    """True where a loop of a function has no iterations."""
    return any(type(s) is For and is_empty(s.extent) for s in walk_stmts(func.body))


def without_empty(func: PrimFunc) -> PrimFunc:
    """The function without loops of no iterations but inits; WRITTEN lists the parameters whose only stores were removed."""
    if not has_empty(func):
        return func
    body = _without_empty_loops(func.body) or NOTHING
    left = written_names(func) - stored_names(body)
    written = [p.name for p in func.buffers if p.name in left]
    attrs = annotated(func.attrs, WRITTEN, written) if written else func.attrs
    return func.with_(body=body, allocs=_used(func.allocs, body), attrs=attrs)


def written_names(func: PrimFunc) -> frozenset[str]:
    """The names of the buffers that a function stores to, removed stores (see WRITTEN) included."""
    return stored_names(func) | frozenset(annotation(func.attrs, WRITTEN, ()))


def _without_empty_loops(s: Stmt) -> Stmt | None:
    """A statement without its loops of no iterations; None where nothing remains."""
    match s:
        case For() if is_empty(s.extent):
            return inits_of_empty_reductions(s)
        case Seq() | If() | Block(init=None) | For() | Let() | Allocate():
            return _with_parts(s, _without_empty_loops)
        case _:
            return map_statements(s, lambda x: _without_empty_loops(x) or NOTHING)


def _with_parts(s: Stmt, part: Callable[[Stmt], Stmt | None]) -> Stmt | None:
    """A statement with `part` of each of its substatements; None where every part is None."""
    left = {id(x): part(x) for x in substatements(s)}
    if all(x is None for x in left.values()):
        return None
    match s:
        case Seq(stmts):
            return seq(*(left[id(x)] for x in stmts))
        case If(orelse=Stmt() as orelse) if left[id(orelse)] is None:
            s = s.with_(orelse=None)
    new = map_statements(s, lambda x: left[id(x)] or NOTHING)
    return new if new is s or not isinstance(new, Block) else new.with_(allocs=_used(new.allocs, new.body))


def _used(allocs: tuple[Buffer, ...], body: Stmt) -> tuple[Buffer, ...]:
    return tuple(b for b in allocs if b.name in accessed_names(body) or not any(map(is_empty, b.shape)))


def inits_of_empty_reductions(s: Stmt) -> Stmt | None:
    """The inits of the reductions in a statement, without the reduction loops; None where no init runs."""
    match s:
        case For():
            inner = [b for b in blocks(s.body) if b.init is not None]
            reduces = {s.name in pure_reduction_loops(b) for b in inner}
            if True not in reduces:
                found = None if is_empty(s.extent) else inits_of_empty_reductions(s.body)
                return None if found is None else s.with_(body=found)
            return inits_of_empty_reductions(substitute(s.body, {s.var: Const(0, s.var.dtype)}))
        case Block(init=None):
            new = _with_parts(s, inits_of_empty_reductions)
            return None if new is None else new.with_(reads=None, writes=None)
        case Block():
            iters = tuple(it for it in s.iters if it.axis is not Axis.REDUCE)
            placing = axis_loops(s, Axis.SPATIAL, Axis.OPAQUE)
            conditions = (simplify(c) for c in conjuncts(s.predicate) if variables(c) & placing)
            return s.with_(iters=iters, predicate=conjunction(*conditions), init=None, body=s.init, reads=None, writes=None)
        case _:
            return _with_parts(s, inits_of_empty_reductions)
