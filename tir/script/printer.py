"""Functions, statements and expressions printed in the script dialect."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import assert_never

from ..ir import (
    TRUE,
    Allocate,
    Axis,
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Evaluate,
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
    Unary,
    Var,
)
from ..traverse import walk

HEADER = "from tir.script import tir as T"

_PRECEDENCE = {"or": 1, "and": 2, "not": 3, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6, "neg": 7}


def expr_text(expr: Expr) -> str:
    """An expression as source text, with the fewest parentheses that keep its tree."""
    return _expr(expr, 0)


def _expr(e: Expr, outer: int) -> str:
    match e:
        case Var(name):
            return name
        case Const():
            return _const(e)
        case Binary("min" | "max" as op, a, b):
            return f"T.{op}({_expr(a, 0)}, {_expr(b, 0)})"
        case Binary(op, a, b):
            p = _PRECEDENCE[op]
            # Comparisons do not chain: parenthesise both sides; the right side of the others must bind tighter.
            left = _expr(a, p + 1 if p == 4 else p)
            if isinstance(a, Const) and isinstance(b, Const) and a.dtype == b.dtype == "int32":
                left = f"T.int32({a.value})"  # Python would fold two literals
            text = f"{left} {op} {_expr(b, p + 1)}"
            return f"({text})" if p < outer else text
        case Unary(op, a):
            p = _PRECEDENCE[op]
            if op == "not":
                text = f"not {_expr(a, p)}"
            else:
                text = f"T.neg({_expr(a, 0)})" if isinstance(a, Const) else f"-{_expr(a, p)}"
            return f"({text})" if p < outer else text
        case Cast(dtype, value):
            return f'T.Cast("{dtype}", {_expr(value, 0)})'
        case Select(c, t, f, lazy):
            return f"T.{'if_then_else' if lazy else 'Select'}({_expr(c, 0)}, {_expr(t, 0)}, {_expr(f, 0)})"
        case Call(op, args):
            return f"T.{op}({', '.join(_expr(a, 0) for a in args)})"
        case Load(buffer, indices):
            return _element(buffer, indices)
        case _:
            return e.text(lambda x: _expr(x, 0))  # type: ignore[attr-defined]  # the nodes of te say themselves


def _const(c: Const) -> str:
    if c.dtype == "bool":
        return f"T.bool({c.value})"
    if c.dtype == "int32":
        return str(c.value)
    if isinstance(c.value, float) and not math.isfinite(c.value):
        return f'T.{c.dtype}("{c.value}")'
    return f"T.{c.dtype}({c.value!r})"


def _element(buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    return f"{buffer.name}[{', '.join(_expr(i, 0) for i in indices) if indices else '()'}]"


def _tuple(items: list[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _shape(buffer: Buffer) -> str:
    return _tuple([_expr(s, 0) for s in buffer.shape])


def _region(region: Region) -> str:
    parts = []
    for r in region.ranges:
        if r.extent == Const(1, r.extent.dtype):
            parts.append(_expr(r.min, 0))
        else:
            from ..simplify import simplify

            parts.append(f"{_expr(r.min, 0)}:{_expr(simplify(r.min + r.extent), 0)}")
    return f"{region.buffer.name}[{', '.join(parts) or '()'}]"


@dataclass
class Printed:
    """Printed lines, and where each statement stands: `spans[id(stmt)]` is (line, first column, end column), from 0."""

    lines: list[str] = field(default_factory=list)
    spans: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    extents: dict[str, Expr] = field(default_factory=dict)  # of the loops printed so far

    def add(self, depth: int, text: str, *stmts: Stmt) -> None:
        line = "    " * depth + text
        for s in stmts:
            self.spans[id(s)] = (len(self.lines), 4 * depth, len(line))
        self.lines.append(line)

    def rename(self, stmt: Stmt, start: int, end: int) -> None:
        line, _, _ = self.spans[id(stmt)]
        self.spans[id(stmt)] = (line, start, end)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def printed(func: PrimFunc) -> Printed:
    """The function's lines with the place of each statement; no import line."""
    out = Printed()
    used = {n.name for n in walk(func.body) if isinstance(n, Var)}
    params = []
    for p in func.params:
        match p:
            case Buffer():
                params.append(f'{p.name}: T.Buffer({_shape(p)}, "{p.dtype}"{_scope(p)})')
            case Var(name, dtype):
                params.append(f"{name}: T.{dtype}")
                used.discard(name)
    out.add(0, "@T.prim_func")
    out.add(0, f"def {func.name}({', '.join(params)}):")
    if func.attrs:
        out.add(1, f"T.func_attr({_mapping(func.attrs)})")
    if func.allocs or any(isinstance(n, Block) for n in walk(func.body)):
        out.add(1, '# with T.block("root"):')
    for b in func.allocs:
        out.add(1, f"{b.name} = {_alloc(b)}")
    _stmt(out, func.body, 1)
    return out


def script(func: PrimFunc) -> str:
    """The function as Python source in the script dialect, import line included."""
    return f"{HEADER}\n\n\n{printed(func).text}"


def stmt_text(stmt: Stmt) -> str:
    """A statement alone, for messages."""
    out = Printed()
    _stmt(out, stmt, 0)
    return out.text


def show(func: PrimFunc, file=None) -> None:
    """Print the script to `file` (standard output), coloured where that is a terminal."""
    file = file or sys.stdout
    if file.isatty():
        from rich.console import Console
        from rich.syntax import Syntax

        Console(file=file).print(Syntax(script(func), "python", theme="ansi_dark", background_color="default"))
    else:
        file.write(script(func))


def _scope(b: Buffer) -> str:
    return "" if b.scope == "global" else f', scope="{b.scope}"'


def _alloc(b: Buffer) -> str:
    dtype = "" if b.dtype == "float32" else f', "{b.dtype}"'
    return f"T.alloc_buffer({_shape(b)}{dtype}{_scope(b)})"


def _value(v) -> str:
    match v:
        case bool():
            return f"T.bool({v})"
        case dict():
            return _mapping(tuple(v.items()))
        case list() | tuple():
            return f"[{', '.join(_value(x) for x in v)}]"
        case str():
            return '"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case _:
            return repr(v)


def _mapping(annotations) -> str:
    return "{" + ", ".join(f'"{k}": {_value(v)}' for k, v in annotations) + "}"


def _plain(loop: Stmt) -> bool:
    return isinstance(loop, For) and loop.kind is Kind.SERIAL and not loop.annotations


def _stmt(out: Printed, s: Stmt, depth: int) -> None:
    match s:
        case Seq(stmts):
            for x in stmts:
                _stmt(out, x, depth)
        case For():
            _loops(out, s, depth)
        case Block():
            _block(out, s, depth)
        case Store(buffer, indices, value):
            out.add(depth, f"{_element(buffer, indices)} = {_expr(value, 0)}", s)
        case If(condition, then, orelse):
            out.add(depth, f"if {_expr(condition, 0)}:", s)
            _stmt(out, then, depth + 1)
            if orelse is not None:
                out.add(depth, "else:")
                _stmt(out, orelse, depth + 1)
        case Let(var, value, body):
            out.add(depth, f"{var.name}: T.{var.dtype} = {_expr(value, 0)}", s)
            _stmt(out, body, depth)
        case Allocate(buffer, body):
            out.add(depth, f"{buffer.name} = {_alloc(buffer)}", s)
            _stmt(out, body, depth)
        case Evaluate(value):
            out.add(depth, f"T.evaluate({_expr(value, 0)})", s)
        case _:
            assert_never(s)  # type: ignore[arg-type]


def _loops(out: Printed, loop: For, depth: int) -> None:
    """A loop; directly nested plain ones share one `T.grid` line."""
    grid = [loop]
    out.extents[loop.name] = loop.extent
    while _plain(grid[-1]) and _plain(grid[-1].body):
        inner = grid[-1].body
        if any(isinstance(n, Var) and n.name in {g.name for g in grid} for n in walk(inner.extent)):  # type: ignore[attr-defined]
            break
        grid.append(inner)  # type: ignore[arg-type]
    if _plain(loop) and len(grid) > 1:
        start = 4 * depth + len("for ")
        out.add(depth, f"for {', '.join(g.name for g in grid)} in T.grid({', '.join(_expr(g.extent, 0) for g in grid)}):", *grid)
        for g in grid:
            out.extents[g.name] = g.extent
            out.rename(g, start, start + len(g.name))
            start += len(g.name) + 2
        _stmt(out, grid[-1].body, depth + 1)
        return
    notes = f", annotations={_mapping(loop.annotations)}" if loop.annotations else ""
    extent = _expr(loop.extent, 0)
    match loop.kind:
        case Kind.SERIAL if not notes:
            call = f"range({extent})"
        case Kind.SERIAL | Kind.PARALLEL | Kind.VECTORIZED | Kind.UNROLLED:
            call = f"T.{loop.kind.value}({extent}{notes})"
        case Kind.THREAD:
            call = f'T.thread_binding({extent}, thread="{loop.thread}"{notes})'
        case _:
            assert_never(loop.kind)
    out.add(depth, f"for {loop.name} in {call}:", loop)
    _stmt(out, loop.body, depth + 1)


_AXIS = {Axis.SPATIAL: "spatial", Axis.REDUCE: "reduce", Axis.OPAQUE: "opaque"}


def _block(out: Printed, b: Block, depth: int) -> None:
    out.add(depth, f'with T.block("{b.name}"):', b)
    depth += 1
    # T.axis.remap takes each extent from the loop bound to it.
    if len(b.iters) > 1 and all(isinstance(it.binding, Var) and out.extents.get(it.binding.name) == it.extent for it in b.iters):
        kinds = "".join(it.axis.value for it in b.iters)
        names = ", ".join(it.var.name for it in b.iters)
        out.add(depth, f'{names} = T.axis.remap("{kinds}", [{", ".join(_expr(it.binding, 0) for it in b.iters)}])')
    else:
        for it in b.iters:
            out.add(depth, f"{it.var.name} = T.axis.{_AXIS[it.axis]}({_expr(it.extent, 0)}, {_expr(it.binding, 0)})")
    if b.predicate != TRUE:
        out.add(depth, f"T.where({_expr(b.predicate, 0)})")
    if b.reads is not None:
        out.add(depth, f"T.reads({', '.join(_region(r) for r in b.reads)})")
    if b.writes is not None:
        out.add(depth, f"T.writes({', '.join(_region(r) for r in b.writes)})")
    if b.annotations:
        out.add(depth, f"T.block_attr({_mapping(b.annotations)})")
    for buffer in b.allocs:
        out.add(depth, f"{buffer.name} = {_alloc(buffer)}")
    if b.init is not None:
        out.add(depth, "with T.init():")
        _stmt(out, b.init, depth + 1)
    _stmt(out, b.body, depth)
