"""The loop nest of a function in a few lines, for human readers; it cannot be parsed.

Unlike in the script, perfectly nested loops share a line, and a block is its assignment over loop variables. Loops of one
iteration, annotations and dtypes of expressions are omitted.
"""

from __future__ import annotations

from typing import assert_never

from ..analysis.context import Context
from ..arith.simplify import simplify
from ..ir.blocks import Block
from ..ir.buffers import Buffer, Load
from ..ir.expressions import TRUE, Binary, Call, Cast, Const, Expr, Select, Var, conjunction
from ..ir.foreign import Opaque
from ..ir.functions import PrimFunc
from ..ir.nodes import Node
from ..ir.statements import Allocate, Evaluate, For, If, Kind, Let, Seq, Stmt, Store
from ..traverse import blocks, rewrite
from .printer import expr_text, foreign_text

WIDTH = 120
BREAKS = (",", " +", " -", " *", " /", " //", " %", " and", " or")  # a line may end after one of these, outside brackets


def outline_text(func: PrimFunc) -> str:
    """The loop nest of `func`: a line for its parameters, one for the buffers that it allocates, then its loops and assignments.

    An update that starts from a value says so: `C[i, j] += A[i, k] * B[k, j]  # from 0`.
    """
    lines = [signature_text(func)]
    allocated = [*func.allocs, *(buffer for block in blocks(func.body) for buffer in block.allocs)]
    if allocated:
        _Outline(lines).write(1, f"allocates {', '.join(map(_declared, allocated))}")
    _Outline(lines).add(func.body, 1, Context())
    return "\n".join(lines) + "\n"


def signature_text(func: PrimFunc) -> str:
    """The name of a function and its parameters, with their shapes: `gmm(A[64, 64], B[64, 64], C[64, 64])`."""
    scalars = [p.name for p in func.sizes]
    return f"{func.name}({', '.join([*map(_declared, func.buffers), *scalars])})"


class _Outline:
    """Writer of an outline: the lines so far."""

    def __init__(self, lines: list[str]):
        self.lines = lines

    def add(self, s: Stmt, depth: int, around: Context) -> None:
        match s:
            case Seq(stmts):
                for x in stmts:
                    self.add(x, depth, around)
            case For() | Block():
                self._nest(s, depth, around)
            case Store(buffer, indices, value):
                self.write(depth, _assignment(*(self._known(x, around) for x in (Load(buffer, indices), value))))
            case If(condition, then, orelse):
                self.write(depth, f"if {_text(self._known(condition, around))}:")
                self.add(then, depth + 1, around)
                if orelse is not None:
                    self.write(depth, "else:")
                    self.add(orelse, depth + 1, around)
            case Let(var, value, body):
                self.write(depth, f"{var.name} = {_text(self._known(value, around))}")
                self.add(body, depth, around)
            case Allocate(buffer, body):
                self.write(depth, f"allocate {_declared(buffer)}")
                self.add(body, depth, around)
            case Evaluate(value):
                self.write(depth, _text(self._known(value, around)))
            case Opaque(call):
                self.write(depth, foreign_text(call).replace("T.", ""))
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def _nest(self, s: Stmt, depth: int, around: Context) -> None:
        """A perfect nest of loops, with the blocks among them, and its body."""
        heads: list[str] = []
        condition: Expr = TRUE
        init = None
        while init is None:
            match s:
                case For(var, extent, body):
                    extent = self._known(extent, around)
                    if not extent.is_one:
                        heads.append(f"{var.name} in {_count(s, _text(extent))}")
                    around, s = around.inside(s), body
                case Block(body=body):
                    condition = conjunction(condition, self._known(s.predicate, around))
                    around, init, s = around.inside(s), s.init, body
                case _:
                    break
        where = "" if condition == TRUE else _text(condition)
        if heads:
            self.write(depth, f"for {', '.join(heads)}{where and ' where '}{where}:")
        elif where:
            self.write(depth, f"if {where}:")
        depth += bool(heads or where)
        match init, s:
            case Store(buffer, indices, value), Store() if (buffer, indices) == (s.buffer, s.indices):
                self.add(s, depth, around)
                self.lines[-1] += f"  # from {_text(self._known(value, around))}"
            case None, _:
                self.add(s, depth, around)
            case _:
                self.write(depth, "at first:")
                self.add(init, depth + 1, around)
                self.add(s, depth, around)

    def _known(self, e: Expr, around: Context) -> Expr:
        return simplify(around.closed(e), around.ranges({}))

    def write(self, depth: int, text: str) -> None:
        """Add a line; a long one is broken, first after the sign of an assignment or before the condition of loops."""
        lines = [text]
        if 4 * depth + len(text) > WIDTH:
            cut = text.find(" where ") if text.startswith("for ") else text.find("= ") + 1
            parts = [text[:cut], text[cut + 1 :]] if cut > 0 else [text]
            lines = [line for part in parts for line in _broken(part, WIDTH - 4 * (depth + 2))]
        self.lines += ["    " * (depth + 2 * (n > 0)) + line for n, line in enumerate(lines)]


def _broken(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` characters, as far as it has places to break."""
    lines, start, last, brackets = [], 0, 0, 0
    for n, letter in enumerate(text):
        brackets += (letter in "([") - (letter in ")]")
        if n - start >= width and last > start:
            lines.append(text[start:last])
            start = last + 1
        if letter == " " and not brackets and text[:n].endswith(BREAKS):
            last = n
    return [*lines, text[start:]]


def _declared(buffer: Buffer) -> str:
    scope = "" if buffer.scope == "global" else f" in {buffer.scope}"
    dtype = "" if buffer.dtype == "float32" else f" {buffer.dtype}"
    return f"{buffer.name}[{', '.join(map(_text, buffer.shape))}]{dtype}{scope}"


def _count(loop: For, extent: str) -> str:
    match loop.kind:
        case Kind.SERIAL:
            return extent
        case Kind.PARALLEL | Kind.VECTORIZED | Kind.UNROLLED:
            return f"{loop.kind.value}({extent})"
        case Kind.THREAD:
            return f"{loop.thread}({extent})"
        case _:
            assert_never(loop.kind)


def _assignment(element: Expr, value: Expr) -> str:
    match value:
        case Binary("+" | "-" | "*" as op, a, b) if a == element:
            return f"{_text(element)} {op}= {_text(b)}"
        case _:
            return f"{_text(element)} = {_text(value)}"


def _text(e: Expr) -> str:
    """An expression as short text: numbers without their types, functions without the dialect's prefix."""
    return expr_text(rewrite(e, _short)).replace("T.", "")


def _short(node: Node) -> Node | None:
    match node:
        case Const(value, dtype) if dtype != "int32":
            return Var(f"{value:g}" if isinstance(value, float) else str(value))
        case Cast(dtype, value):
            return Call(dtype, (value,), dtype)
        case Select(condition, a, b):
            return Var(f"({_text(a)} if {_text(condition)} else {_text(b)})")
        case _:
            return None
