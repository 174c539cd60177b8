"""The names of a function: bound by its source, and given to loops, blocks, buffers and variables."""

from __future__ import annotations

import ast

from ..traverse import fresh
from .scopes import Scope

BUFFERS = ("match_buffer", "alloc_buffer", "allocate", "allocate_const", "decl_buffer", "Buffer", "sblock_alloc_buffer")


class SourceNames:
    """The names that a source binds, and those given so far."""

    def __init__(self, node: ast.FunctionDef):
        self.source: set[str] = set()
        self.taken: set[str] = set()  # parameters and buffers
        self.loops: set[str] = set()
        self.blocks: set[str] = set()
        self._reserved = {p.arg for p in node.args.args}  # of things other than loops
        self._iters: set[str] = set()
        self._views: dict[str, set[str]] = {}
        self._scan(node.body)
        self._reserved |= self._iters
        self.source |= self._reserved

    def _scan(self, statements: list[ast.stmt]) -> None:
        """Note the names that statements bind, and the shapes of views of memory."""
        for s in statements:
            match s:
                case ast.For(target=target, body=body, orelse=orelse):
                    self._bound(target)
                    self._scan([*body, *orelse])
                case ast.AnnAssign(target=target):
                    self._bound(target)
                case ast.Assign(targets=[target], value=value):
                    self._bound(target, value)
                case ast.With(items=items, body=body):
                    for item in items:
                        self._bound(item.optional_vars, item.context_expr)
                    self._scan(body)
                case ast.If(body=body, orelse=orelse):
                    self._scan([*body, *orelse])

    def _bound(self, target: ast.expr | None, made: ast.expr | None = None) -> None:
        """Note the names that are bound to what a call makes."""
        items = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        bound = [n.id for n in items if isinstance(n, ast.Name)]
        self.source.update(bound)
        match made:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="axis"))):
                self._iters.update(bound)
            case ast.Call(func=ast.Attribute(attr="block" | "sblock"), args=args, keywords=keywords):
                names = (a.value for a in (*args, *(k.value for k in keywords)) if isinstance(a, ast.Constant))
                self._reserved.update(name for name in names if isinstance(name, str))
            case ast.Call(func=ast.Attribute(attr=attr), args=args, keywords=keywords) if attr in BUFFERS:
                self._reserved.update(bound)
                data = next((k.value for k in keywords if k.arg == "data"), None)
                if isinstance(data, ast.Name) and args:
                    self._views.setdefault(data.id, set()).add(ast.dump(args[0]))

    def one_shape(self, pointer: str) -> bool:
        """True where all views of an allocation are of one shape."""
        return len(self._views.get(pointer, ())) <= 1

    def _fresh(self, wanted: str, also: set[str] | None = None) -> str:
        return fresh(self.source.union(self.taken, self.loops, self.blocks, also or ()), wanted)

    def _given(self, wanted: str, names: set[str], *others: set[str]) -> str:
        """`wanted`, or a fresh name like it where it is among `names` or `others`; added to `names`."""
        name = self._fresh(wanted) if any(wanted in taken for taken in (names, *others)) else wanted
        names.add(name)
        return name

    def loop(self, wanted: str) -> str:
        """The name of a loop, which nothing else may have."""
        return self._given(wanted, self.loops, self._reserved, self.taken, self.blocks)

    def buffer(self, wanted: str) -> str:
        """The name of a buffer or a size."""
        return self._given(wanted, self.taken, self._iters)

    def block(self, wanted: str) -> str:
        """The name of a block, which a buffer may have too."""
        return self._given(wanted or "block", self.blocks, self.loops)

    def local(self, wanted: str, scope: Scope) -> str:
        """The name of an iteration variable or a let: other scopes may use it again."""
        around = scope.variables_around()
        return self._fresh(wanted, around) if wanted in self.taken or wanted in around else wanted
