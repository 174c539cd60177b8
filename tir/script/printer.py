"""Functions, statements and expressions printed in the script dialect."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from ..arith.simplify import simplify
from ..ir.blocks import Block, Iter
from ..ir.buffers import Buffer, Load, Region
from ..ir.expressions import COMPARISONS, TRUE, Binary, Call, Cast, Const, Expr, Select, Unary, Var
from ..ir.foreign import Address, Foreign, Opaque, Text
from ..ir.functions import PrimFunc
from ..ir.nodes import Node
from ..ir.statements import Allocate, Evaluate, For, If, Kind, Let, Seq, Stmt, Store
from ..traverse import variables, walk_stmts

HEADER = "from tir.script import tir as T"
FIRST_LINE = 4  # the number of a function's first line in its script, after the header and two empty lines
MODULE_HEADER = "from tir.script import ir as I, tir as T"

# The precedence of operators, as in Python; `neg` is the unary minus.
_LEVELS = (("or",), ("and",), ("not",), COMPARISONS, ("+", "-"), ("*", "/", "//", "%"), ("neg",))
PRECEDENCE = {op: level for level, ops in enumerate(_LEVELS, start=1) for op in ops}


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
            p = PRECEDENCE[op]
            # Comparisons do not chain: parenthesise both sides; the right side of the others must bind tighter.
            left = _expr(a, p + 1 if p == 4 else p)
            if isinstance(a, Const) and isinstance(b, Const) and a.dtype == b.dtype == "int32":
                left = f"T.int32({a.value})"  # Python would fold two literals
            text = f"{left} {op} {_expr(b, p + 1)}"
            return f"({text})" if p < outer else text
        case Unary(op, a):
            p = PRECEDENCE[op]
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
            return e.text(lambda x: _expr(x, 0))  # type: ignore[attr-defined]  # nodes of te print themselves


def last_index(extent: Expr) -> str:
    """The last index below an extent, as source text."""
    return str(extent.value - 1) if isinstance(extent, Const) else f"{extent} - 1"


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


def _shape(buffer: Buffer, quoted: bool = False) -> str:
    """The shape; with `quoted`, symbolic dimensions are strings, since Python evaluates the annotations of parameters."""
    texts = [_expr(s, 0) for s in buffer.shape]
    if quoted:
        texts = [f'"{t}"' if variables(s) else t for t, s in zip(texts, buffer.shape, strict=True)]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _region(region: Region) -> str:
    parts = []
    for r in region.ranges:
        if r.extent.is_one:
            parts.append(_expr(r.min, 0))
        else:
            parts.append(f"{_expr(r.min, 0)}:{_expr(simplify(r.min + r.extent), 0)}")
    return f"{region.buffer.name}[{', '.join(parts) or '()'}]"


@dataclass
class Printed:
    """Printed lines, and the position of each statement: `spans[id(stmt)]` is (line, first column, end column), from 0."""

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
    params = []
    for p in func.params:
        match p:
            case Buffer():
                params.append(f'{p.name}: T.Buffer({_shape(p, quoted=True)}, "{p.dtype}"{_scope(p)})')
            case Var(name, dtype):
                params.append(f"{name}: T.{dtype}")
    out.add(0, "@T.prim_func")
    out.add(0, f"def {func.name}({', '.join(params)}):")
    if func.attrs:
        out.add(1, f"T.func_attr({_mapping(func.attrs)})")
    depth = 1
    if isinstance(func.body, Block) and func.body.name == "root":  # a comment would make this block the function's root
        out.add(1, 'with T.block("root"):')
        depth = 2
    elif func.allocs or any(isinstance(n, Block) for n in walk_stmts(func.body)):
        out.add(1, '# with T.block("root"):')
    for b in func.allocs:
        out.add(depth, f"{b.name} = T.alloc_buffer({_declared(b)})")
    _stmt(out, func.body, depth)
    return out


def func_text(func: PrimFunc) -> str:
    """The function as Python source in the script dialect, import line included."""
    return f"{HEADER}\n\n\n{printed(func).text}"


def module_text(name: str, functions: Mapping[str, PrimFunc]) -> str:
    """A module of functions as Python source in the script dialect, import line included."""
    texts = [textwrap.indent(printed(f.with_(name=key)).text, "    ") for key, f in functions.items()]
    return f"{MODULE_HEADER}\n\n\n@I.ir_module\nclass {name}:\n" + ("\n".join(texts) or "    pass\n")


def stmt_text(stmt: Stmt) -> str:
    """The text of a statement, for messages."""
    out = Printed()
    _stmt(out, stmt, 0)
    return out.text


def show(func: PrimFunc, file=None) -> None:
    """Print the script to `file` (standard output), coloured where that is a terminal."""
    show_text(func_text(func), file)


def show_text(text: str, file=None) -> None:
    """Print a script to `file` (standard output), coloured where that is a terminal."""
    file = file or sys.stdout
    if file.isatty():
        from rich.console import Console
        from rich.syntax import Syntax

        Console(file=file).print(Syntax(text, "python", theme="ansi_dark", background_color="default"))
    else:
        file.write(text)


def _scope(b: Buffer) -> str:
    """The other arguments that declare a buffer."""
    scope = "" if b.scope == "global" else f', scope="{b.scope}"'
    return f"{scope}, axis_separators={list(b.axis_separators)}" if b.axis_separators else scope


def _declared(b: Buffer) -> str:
    """The arguments that declare a buffer."""
    dtype = "" if b.dtype == "float32" else f', "{b.dtype}"'
    return f"{_shape(b)}{dtype}{_scope(b)}"


def _value(v) -> str:
    match v:
        case bool():
            return f"T.bool({v})"
        case dict():
            return _mapping(tuple(v.items()))
        case list() | tuple():
            return f"[{', '.join(_value(x) for x in v)}]"
        case str():
            return _string(v)
        case float() if not math.isfinite(v):
            return f'T.float64("{v}")'
        case _:
            return repr(v)


def foreign_text(n: Node) -> str:
    """A foreign call, or an argument of one."""
    match n:
        case Foreign(op, args, dtype):
            stated = [f'dtype="{dtype}"'] if dtype else []
            return f"T.{op}({', '.join([*map(foreign_text, args), *stated])})"
        case Text(value):
            return _string(value)
        case Address(buffer):
            return f"{buffer.name}.data"
    assert isinstance(n, Expr)
    return _expr(n, 0)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _mapping(annotations) -> str:
    return "{" + ", ".join(f"{_string(str(k))}: {_value(v)}" for k, v in annotations) + "}"


def _fits_grid(loop: For) -> bool:
    """True where `T.grid` can express a loop: a serial one without annotations."""
    return loop.kind is Kind.SERIAL and not loop.annotations and loop.var.dtype == loop.extent.dtype


def _stmt(out: Printed, s: Stmt, depth: int) -> None:
    match s:
        case Seq(stmts):
            for x in stmts[:-1]:
                _closed(out, x, depth)
            _stmt(out, stmts[-1], depth)
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
            out.add(depth, f"{buffer.name} = T.decl_buffer({_declared(buffer)})", s)
            _stmt(out, body, depth)
        case Evaluate(value):
            out.add(depth, f"T.evaluate({_expr(value, 0)})", s)
        case Opaque(call):
            out.add(depth, f"T.evaluate({foreign_text(call)})", s)
        case _:
            assert_never(s)  # type: ignore[arg-type]


def _closed(out: Printed, s: Stmt, depth: int) -> None:
    """A statement that others follow: the scope of the name that it binds must end with it."""
    match s:
        case Let(var, value, body):
            out.add(depth, f"with T.LetStmt({_expr(value, 0)}) as {var.name}:", s)
            _stmt(out, body, depth + 1)
        case Allocate(buffer, body):
            out.add(depth, f"with T.decl_buffer({_declared(buffer)}) as {buffer.name}:", s)
            _stmt(out, body, depth + 1)
        case _:
            _stmt(out, s, depth)


def _loops(out: Printed, loop: For, depth: int) -> None:
    """A loop; perfectly nested serial loops without annotations share one `T.grid` line."""
    grid, inner = [loop], loop.body
    if _fits_grid(loop):
        while isinstance(inner, For) and _fits_grid(inner) and not variables(inner.extent) & {g.name for g in grid}:
            grid.append(inner)
            inner = inner.body
    out.extents |= {g.name: g.extent for g in grid}
    if len(grid) > 1:
        start = 4 * depth + len("for ")
        out.add(depth, f"for {', '.join(g.name for g in grid)} in T.grid({', '.join(_expr(g.extent, 0) for g in grid)}):", *grid)
        for g in grid:
            out.rename(g, start, start + len(g.name))
            start += len(g.name) + 2
        _stmt(out, inner, depth + 1)
        return
    notes = f", annotations={_mapping(loop.annotations)}" if loop.annotations else ""
    if loop.var.dtype != loop.extent.dtype:
        notes += f', dtype="{loop.var.dtype}"'
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


def _block(out: Printed, b: Block, depth: int) -> None:
    out.add(depth, f"with T.block({_string(b.name)}):", b)
    depth += 1
    if len(b.iters) > 1 and all(_remapped(out, it) for it in b.iters):
        kinds = "".join(it.axis.value for it in b.iters)
        names = ", ".join(it.var.name for it in b.iters)
        out.add(depth, f'{names} = T.axis.remap("{kinds}", [{", ".join(_expr(it.binding, 0) for it in b.iters)}])')
    else:
        for it in b.iters:
            dtype = "" if it.var.dtype == it.extent.dtype else f', dtype="{it.var.dtype}"'
            bound = f"{_expr(it.extent, 0)}, {_expr(it.binding, 0)}"
            out.add(depth, f"{it.var.name} = T.axis.{it.axis.name.lower()}({bound}{dtype})")
    if b.predicate != TRUE:
        out.add(depth, f"T.where({_expr(b.predicate, 0)})")
    if b.reads is not None:
        out.add(depth, f"T.reads({', '.join(_region(r) for r in b.reads)})")
    if b.writes is not None:
        out.add(depth, f"T.writes({', '.join(_region(r) for r in b.writes)})")
    if b.annotations:
        out.add(depth, f"T.block_attr({_mapping(b.annotations)})")
    for buffer in b.allocs:
        out.add(depth, f"{buffer.name} = T.alloc_buffer({_declared(buffer)})")
    if b.init is not None:
        out.add(depth, "with T.init():")
        _stmt(out, b.init, depth + 1)
    _stmt(out, b.body, depth)


def _remapped(out: Printed, it: Iter) -> bool:
    """True where `T.axis.remap` can declare an iteration variable: it takes the extent of the loop that it is bound to."""
    return isinstance(it.binding, Var) and out.extents.get(it.binding.name) == it.extent and it.var.dtype == it.extent.dtype
