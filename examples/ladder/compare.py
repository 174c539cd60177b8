"""Whether two functions are the same program up to names."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tir.arith.simplify import simplify
from tir.ir import Block, Buffer, Const, For, Iter, Let, Node, PrimFunc, Range, Var
from tir.traverse import rewrite, substitute


def difference(a: PrimFunc, b: PrimFunc) -> str:
    """The first place where two functions differ other than in names, as text; empty where they are the same program.

    Names are those of the functions, buffers, blocks, loops and block axes. Where a loop runs once, its variable counts as 0;
    bindings are compared as `simplify` leaves them.
    """
    return _Comparison().difference(_plain(a), _plain(b))


def _plain(func: PrimFunc) -> PrimFunc:
    """The function with the variables of loops that run once written as 0, and without stated regions, which follow from it."""

    def visit(n: Node) -> Node:
        match n:
            case For(var, Const(1), body):
                return n.with_(body=substitute(body, {var.name: Const(0, var.dtype)}))
            case Block():
                return n.with_(reads=None, writes=None)
            case _:
                return n

    def folded(n: Node) -> Node:
        return n.with_(binding=simplify(n.binding)) if type(n) is Iter else n

    return rewrite(rewrite(func, visit), folded)


class _Comparison:
    """Walks two trees side by side; `names` maps the names of the first to those of the second."""

    def __init__(self) -> None:
        self.names: dict[tuple[str, str], str] = {}

    def difference(self, a: Any, b: Any) -> str:
        if type(a) is not type(b):
            return f"{_text(a)} is not {_text(b)}"
        match a:
            case Var():
                same = self.names.get(("variable", a.name), a.name) == b.name and a.dtype == b.dtype
                return "" if same else f"{_text(a)} is not {_text(b)}"
            case tuple():
                if len(a) != len(b):
                    return f"{_text(a)} has {len(a)} parts, {_text(b)} has {len(b)}"
                return next(filter(None, map(self.difference, a, b)), "")
            case For() | Iter() | Let():
                self.names["variable", a.var.name] = b.var.name
            case Buffer():
                if self.names.setdefault(("buffer", a.name), b.name) != b.name:
                    return f"{a.name} is not {b.name}"
            case Node():
                pass
            case _:
                return "" if a == b else f"{_text(a)} is not {_text(b)}"
        names = () if isinstance(a, Range) else ("name",)
        parts = (f.name for f in fields(a) if f.name not in names)
        return next(filter(None, (self.difference(getattr(a, p), getattr(b, p)) for p in parts)), "")


def _text(x: Any) -> str:
    if isinstance(x, tuple):
        return f"({', '.join(map(_text, x))})"
    return f"{type(x).__name__} `{getattr(x, 'name', x)}`" if isinstance(x, Node) else repr(x)
