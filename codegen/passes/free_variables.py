"""The buffers that a statement uses, and its free variables and buffers."""

from __future__ import annotations

from collections.abc import Container, Sequence

from tir import dtypes
from tir.arith.intervals import Interval
from tir.ir import Allocate, Buffer, For, Let, Load, Node, Seq, Stmt, Store, Var, seq
from tir.traverse import accessed_names, children, map_statements, walk


def accessed_buffers(n: Node) -> dict[str, Buffer]:
    """The buffers that `n` loads or stores, by name, in order."""
    return {x.buffer.name: x.buffer for x in walk(n) if isinstance(x, Load | Store)}


def statements_using(s: Stmt, name: str) -> Stmt:
    """A statement without the parts of its sequences that do not use a buffer; `s` itself if it does not use the buffer."""
    if name not in accessed_names(s):
        return s
    if isinstance(s, Seq):
        return seq(*(statements_using(x, name) for x in s.stmts if name in accessed_names(x)))
    return map_statements(s, lambda x: statements_using(x, name))


def unallocated(s: Stmt, scopes: Container[str]) -> tuple[list[Buffer], Stmt]:
    """The buffers of some scopes that a statement allocates outside of its loops, and the statement without the allocations."""
    match s:
        case Allocate(buffer, body) if buffer.scope in scopes:
            others, body = unallocated(body, scopes)
            return [buffer, *others], body
        case Seq(stmts):
            parts = [unallocated(x, scopes) for x in stmts]
            return [b for found, _ in parts for b in found], seq(*(x for _, x in parts))
    return [], s


def scalar_ranges(params: Sequence[Buffer | Var]) -> dict[str, Interval]:
    """Ranges of the scalar parameters by name, from their types; extents of shapes are not negative."""
    lengths = {d.name for p in params if isinstance(p, Buffer) for d in p.shape if isinstance(d, Var)}
    limits = {p.name: dtypes.limits(p.dtype) for p in params if isinstance(p, Var)}
    return {name: (0 if name in lengths else int(low), int(high)) for name, (low, high) in limits.items()}


def free_names(s: Stmt) -> tuple[dict[str, Var], dict[str, Buffer]]:
    """The variables and the buffers that `s` uses but does not bind, by name, in order."""
    variables: dict[str, Var] = {}
    buffers: dict[str, Buffer] = {}

    def visit(n: Node, bound: frozenset[str]) -> None:
        match n:
            case Var(name):
                if name not in bound:
                    variables.setdefault(name, n)
            case For(var, extent, body):
                visit(extent, bound)
                visit(body, bound | {var.name})
            case Let(var, value, body):
                visit(value, bound)
                visit(body, bound | {var.name})
            case Allocate(buffer, body):
                visit(buffer, bound | {buffer.name})
                visit(body, bound | {buffer.name})
            case Buffer(name, shape):
                if name not in bound:
                    buffers.setdefault(name, n)
                for d in shape:
                    visit(d, bound)
            case _:
                for c in children(n):
                    visit(c, bound)

    visit(s, frozenset())
    return variables, buffers
