"""Copies of a statement under names of their own."""

from __future__ import annotations

from tir.affine import Interval
from tir.analysis.regions import extent_range
from tir.ir import Allocate, Axis, Block, Buffer, Expr, For, Let, Stmt, Var
from tir.simplify import bounds
from tir.traverse import map_children, replace_buffers, substitute

from .dataflow import Names
from .primitive import statements


def renamed(stmt: Stmt, names: Names, block_suffix: str = "", keep: bool = False) -> Stmt:
    """A copy of a statement whose loops, lets and allocated buffers have fresh names, and whose blocks are named with the suffix.

    With `keep`, only the blocks get new names, and these only where there is a suffix.
    """
    variables: dict[str, Expr] = {}
    buffers: dict[str, Buffer] = {}
    blocks: dict[str, str] = {}
    for s in statements(stmt):
        match s:
            case For(var) | Let(var) if not keep:
                variables[var.name] = Var(names.loop(var.name), var.dtype)
            case Allocate(buffer) if not keep:
                buffers[buffer.name] = buffer.with_(name=names.buffer(buffer.name))
            case Block(name):
                if block_suffix or not keep:
                    blocks[name] = names.block(name + block_suffix)
                if not keep:
                    buffers |= {b.name: b.with_(name=names.buffer(b.name)) for b in s.allocs}
    result = substitute(stmt, variables)
    if buffers:
        result = replace_buffers(result, buffers)

    def rename(n):
        n = map_children(n, lambda c: rename(c) if isinstance(c, Stmt) else c)
        return n.with_(name=blocks[n.name]) if type(n) is Block and n.name in blocks else n

    return rename(result) if blocks else result


def without_idle_inits(stmt: Stmt, ranges: dict[str, Interval]) -> Stmt:
    """`stmt` without the inits of reductions that never start in it: some reduce axis is provably never 0."""

    def visit(s, inside: dict[str, Interval]):
        if type(s) is For:
            inside = {**inside, s.name: extent_range(s.extent, inside)}
        elif type(s) is Block:
            if s.init is not None and any((bounds(it.binding, inside)[0] or 0) >= 1 for it in s.iters if it.axis is Axis.REDUCE):
                s = s.with_(init=None)
            inside = {**inside, **{it.var.name: extent_range(it.extent, inside) for it in s.iters}}
        return map_children(s, lambda c: visit(c, inside) if isinstance(c, Stmt) else c)

    return visit(stmt, ranges)
