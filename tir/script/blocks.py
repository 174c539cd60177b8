"""Blocks of a script: their axes, predicates, regions, annotations and inits."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ..ir import NOTHING, Axis, Block, Expr, Iter, Let, Region, Stmt, Var
from ..traverse import variables
from . import namespace
from .draft import Body, Draft, Header
from .elements import between
from .expressions import Arguments, Expressions
from .values import as_region


@dataclass(frozen=True, slots=True)
class Blocks:
    """Reader of the blocks of a function, and of the statements in their headers."""

    read: Expressions
    draft: Draft

    def block(self, given: Arguments, body: Body) -> Stmt:
        """A block with its statements."""
        with self.read.scopes.inner() as scope:
            header = Header(scope, block=True)
            self.draft.headers.append(header)
            label = self.draft.names.block(given.string("name"))
            result = body()
            self.draft.headers.pop()
        fields = {"allocs": tuple(header.allocs), "annotations": tuple(sorted(header.annotations.items())), **header.stated}
        return Block(label, tuple(header.iters), result or NOTHING, **fields)

    def axis(self, target: ast.expr, given: Arguments) -> None:
        """`vi = T.axis.spatial(128, i)`, and the like."""
        header = self._axes_of(given)
        dtype = given.dtype() if "dtype" in given else None
        name = self.read.identifier(target)
        dom = given.value("dom")
        span = dom if isinstance(dom, (tuple, list)) and len(dom) == 2 else (0, dom)
        start, stop = (self.read.convert.integer(v, given["dom"]) for v in span)
        extent, binding = (between(start, e) for e in (stop, self.read.index(given["binding"])))
        kind = Axis.OPAQUE if given.form is namespace.axis.scan else Axis[given.form.name.upper()]
        self._iteration(header, name, kind, start, extent, binding, dtype)

    def remap(self, target: ast.expr, given: Arguments) -> None:
        """`vi, vk = T.axis.remap("SR", [i, k])`."""
        header = self._axes_of(given)
        dtype = given.dtype() if "dtype" in given else None
        targets = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        kinds, bindings = given.string("kinds"), given["bindings"]
        if not isinstance(bindings, (ast.List, ast.Tuple)):
            hint = 'T.axis.remap("SR", [i, k])'
            raise given.error("T.axis.remap takes a list of loop variables", hint, at="bindings")
        if not len(kinds) == len(bindings.elts) == len(targets):
            counts = f"{len(targets)} names, {len(kinds)} kinds and {len(bindings.elts)} loops"
            raise given.error(f"{counts}; they must be as many")
        for t, letter, n in zip(targets, kinds, bindings.elts, strict=True):
            if letter not in "SRO":
                raise given.error(f"{letter!r} is no kind of axis", '"S" is spatial, "R" reduce, "O" opaque', at="kinds")
            found = self.read.value(n)
            domain = self.read.facts.domains.get(found) if isinstance(found, Expr) else None
            if domain is None:
                loop = self.read.text(n)
                hint = f"{self.read.text(t)} = T.axis.spatial(extent, {loop})"
                raise self.read.error(f"`{loop}` is no loop variable", n, hint)
            name = self.read.identifier(t)
            self._iteration(header, name, Axis(letter), domain.start, domain.extent, domain.variable, dtype)

    def _axes_of(self, given: Arguments) -> Header:
        header = self.draft.block_header(given)
        if header.begun:
            raise given.error("the axes of a block stand before its statements")
        return header

    def _iteration(
        self, header: Header, name: str, axis: Axis, start: Expr, extent: Expr, binding: Expr, dtype: str | None
    ) -> None:
        """An iteration variable; one that starts elsewhere than at 0 is shifted."""
        var = Var(self.draft.names.local(name, self.read.scopes.here), dtype or extent.dtype)
        header.iters.append(Iter(var, header.closed(extent), axis, header.closed(binding)))
        self.read.scopes.bind(name, self.read.facts.running(var, start, extent))

    def init(self, given: Arguments, body: Body) -> None:
        """`with T.init():`, the init of a block, which runs before its first reduction."""
        header = self.draft.block_header(given)
        if "init" in header.stated:
            raise given.error("T.init is stated twice in this block")
        with self.read.scopes.inner():
            init = body()
        used = set() if init is None else variables(init)
        for let, value in header.lets.items():
            if let in used:
                init = Let(Var(let, value.dtype), value, init or NOTHING)
        header.stated["init"] = init

    def where(self, given: Arguments) -> None:
        header = self._stating("predicate", given)
        header.stated["predicate"] = header.closed(self.read.condition(given["predicate"]))

    def regions(self, given: Arguments) -> None:
        """`T.reads(...)` or `T.writes(...)`."""
        header = self._stating(given.form.name, given)
        header.stated[given.form.name] = tuple(map(header.closed, self._regions(given.call.args)))

    def block_attr(self, given: Arguments) -> None:
        self.draft.block_header(given).annotations |= given.attributes("attrs")

    def _stating(self, field: str, given: Arguments) -> Header:
        """The header of the block around, in which a field is not stated yet."""
        header = self.draft.block_header(given)
        if field in header.stated:
            raise given.error(f"`{given.function}` is stated twice in this block")
        return header

    def _regions(self, nodes: list[ast.expr]) -> list[Region]:
        result: list[Region] = []
        for n in nodes:
            if isinstance(n, ast.List):
                result += self._regions(n.elts)
                continue
            value = as_region(self.read.value(n))
            if not isinstance(value, Region):
                raise self.read.error(f"`{self.read.text(n)}` is no region of a buffer", n, "A[i, j] or A[0:16, j]")
            if value.buffer in self.draft.header.allocs:
                hint = "a block states what it reads and writes of buffers around it"
                raise self.read.error(f"`{value.buffer.name}` is allocated in this block", n, hint)
            result.append(value)
        return result
