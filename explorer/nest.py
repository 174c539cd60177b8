"""The loop nest as boxes in boxes, coloured by how the loops run."""

from __future__ import annotations

from html import escape

from tir.arith.bounds import extent_range
from tir.arith.simplify import simplify
from tir.ir.blocks import Block
from tir.ir.buffers import Buffer
from tir.ir.expressions import TRUE, Const, Expr
from tir.ir.functions import PrimFunc
from tir.ir.statements import Allocate, Evaluate, For, If, Kind, Let, Seq, Stmt, Store
from tir.script.printer import expr_text
from tir.traverse import loops, substitute

NAMES = {
    Kind.SERIAL: "serial",
    Kind.PARALLEL: "parallel",
    Kind.VECTORIZED: "vector",
    Kind.UNROLLED: "unrolled",
    Kind.THREAD: "bound",
}


def boxes(func: PrimFunc) -> str:
    """The nest of a function as HTML: a box for each loop, which holds those of its body."""
    held = [*func.allocs]
    head = f"<p class=held>holds {', '.join(_buffer(b) for b in held)}</p>" if held else ""
    ranges = {x.name: extent_range(x.extent, {}) for x in loops(func.body) if isinstance(x.extent, Const)}
    return f"<div class=nest>{head}{_Boxes(ranges).box(func.body)}</div>"


def _buffer(b: Buffer) -> str:
    return escape(f"{b.name}[{', '.join(expr_text(d) for d in b.shape)}]")


class _Boxes:
    """Draws statements, whose loops have known ranges."""

    def __init__(self, ranges: dict):
        self._ranges = ranges

    def box(self, s: Stmt) -> str:
        match s:
            case Seq(stmts):
                return "".join(map(self.box, stmts))
            case For():
                return self._loop(s)
            case Block():
                return self._block(s)
            case Store(buffer, indices, value):
                return _line(f"{buffer.name}[{', '.join(map(self._text, indices))}] = {self._text(value)}")
            case If(condition, then, orelse):
                other = "" if orelse is None else f"<div class=guard>else{self.box(orelse)}</div>"
                return f"<div class=guard>if {escape(self._text(condition))}{self.box(then)}</div>{other}"
            case Let(var, value, body):
                return _line(f"{var.name} = {self._text(value)}") + self.box(body)
            case Allocate(buffer, body):
                return f"<p class=held>holds {_buffer(buffer)}</p>{self.box(body)}"
            case Evaluate(value):
                return _line(self._text(value))
        raise AssertionError(type(s))

    def _loop(self, loop: For) -> str:
        how = NAMES[loop.kind]
        note = f" <i>{escape(loop.thread) if loop.kind is Kind.THREAD else how}</i>" if loop.kind is not Kind.SERIAL else ""
        name = f'<b data-loop="{escape(loop.name)}">{escape(loop.name)}</b> in {escape(expr_text(loop.extent))}'
        return f'<div class="loop {how}">{name}{note}{self.box(loop.body)}</div>'

    def _block(self, b: Block) -> str:
        """The statements of a block in terms of the loops."""
        bound: dict[str, Expr] = {it.var.name: it.binding for it in b.iters}
        guard = "" if b.predicate == TRUE else f"where {escape(self._text(b.predicate))}"
        held = f"<p class=held>holds {', '.join(map(_buffer, b.allocs))}</p>" if b.allocs else ""
        first = "" if b.init is None else f"<span class=first>first {self.box(substitute(b.init, bound))}</span>"
        body = self.box(substitute(b.body, bound))
        return f'<div class="block" title="block {escape(b.name)}">{guard}{held}{first}{body}</div>'

    def _text(self, e: Expr) -> str:
        """An expression, as simple as the ranges of the loops allow."""
        return expr_text(simplify(e, self._ranges))


def _line(text: str) -> str:
    return f"<code>{escape(text)}</code>"
