"""Blocks of a script: their axes, predicates, regions, annotations and inits."""

from __future__ import annotations

import ast
from typing import Any

from ..ir import NOTHING, Axis, Block, Expr, Iter, Let, Region, Stmt, Var
from ..traverse import variables
from . import namespace
from .declarations import BlockHeader, Declarations


class Blocks(Declarations):
    def block(self, call: ast.Call, body: list[ast.stmt]) -> Stmt:
        arguments = self.arguments(namespace.block, call)
        name = self.string(arguments["name"]) if "name" in arguments else ""
        outer = self.enter()
        header = BlockHeader(self.scope, block=True)
        self.headers.append(header)
        label = self.names.block(name)
        result = self.statements(body)
        self.headers.pop()
        self.leave(outer)
        fields = {"allocs": tuple(header.allocs), "annotations": tuple(sorted(header.annotations.items())), **header.stated}
        return Block(label, tuple(header.iters), result or NOTHING, **fields)

    def axes(self, target: ast.expr, node: ast.Call, form: Any) -> None:
        """`vi = T.axis.spatial(128, i)`, and the like."""
        header = self.block_header(node)
        if header.begun:
            raise self.error("the axes of a block stand before its statements", node)
        arguments = self.arguments(form, node)
        dtype = self.dtype(arguments) if "dtype" in arguments else None
        if form.name != "remap":
            name = self.identifier(target)
            dom = self.value(arguments["dom"])
            span = dom if isinstance(dom, (tuple, list)) and len(dom) == 2 else (0, dom)
            start, stop = (self.integer(v, arguments["dom"]) for v in span)
            extent, binding = (self.between(start, e) for e in (stop, self.index(arguments["binding"])))
            axis = Axis.OPAQUE if form is namespace.axis.scan else Axis[form.name.upper()]
            self.iteration(header, name, axis, start, extent, binding, dtype)
            return
        targets = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        kinds = self.string(arguments["kinds"])
        bindings = arguments["bindings"]
        if not isinstance(bindings, (ast.List, ast.Tuple)):
            raise self.error("T.axis.remap takes a list of loop variables", bindings, 'T.axis.remap("SR", [i, k])')
        if not len(kinds) == len(bindings.elts) == len(targets):
            raise self.error(
                f"{len(targets)} names, {len(kinds)} kinds and {len(bindings.elts)} loops; they must be as many", node
            )
        for t, letter, n in zip(targets, kinds, bindings.elts, strict=True):
            if letter not in "SRO":
                raise self.error(f"{letter!r} is no kind of axis", arguments["kinds"], '"S" is spatial, "R" reduce, "O" opaque')
            found = self.value(n)
            domain = self.domains.get(found) if isinstance(found, Expr) else None
            if domain is None:
                raise self.error(
                    f"`{self.text(n)}` is no loop variable", n, f"{self.text(t)} = T.axis.spatial(extent, {self.text(n)})"
                )
            self.iteration(header, self.identifier(t), Axis(letter), domain.start, domain.extent, domain.variable, dtype)

    def iteration(
        self, header: BlockHeader, name: str, axis: Axis, start: Expr, extent: Expr, binding: Expr, dtype: str | None = None
    ) -> None:
        """An iteration variable; one that starts elsewhere than at 0 is shifted."""
        var = Var(self.names.local(name, self.scope), dtype or extent.dtype)
        header.iters.append(Iter(var, header.closed(extent), axis, header.closed(binding)))
        self.bind(name, self.running(var, start, extent))
        self.scope.variables.add(var.name)

    def init(self, call: ast.Call, body: list[ast.stmt]) -> None:
        """`with T.init():`, the init of a block, which runs before its first reduction."""
        header = self.block_header(call)
        if "init" in header.stated:
            raise self.error("T.init is stated twice in this block", call)
        init = self.inside(body)
        if header.lets and init is not None:
            used = variables(init)
            for let, value in header.lets.items():
                if let in used:
                    init = Let(Var(let, value.dtype), value, init)
        header.stated["init"] = init

    def state(self, form: Any, node: ast.Call) -> None:
        """Note a statement of a block's header: its predicate, regions or annotations."""
        header = self.block_header(node)
        arguments = self.arguments(form, node)
        if form is namespace.block_attr:
            header.annotations |= self.mapping(arguments["attrs"])
            return
        field = "predicate" if form is namespace.where else form.name
        if field in header.stated:
            raise self.error(f"`{self.text(node.func)}` is stated twice in this block", node)
        if form is namespace.where:
            header.stated[field] = header.closed(self.condition(self.value(arguments[field]), arguments[field]))
        else:
            header.stated[field] = tuple(header.closed(r) for r in self.regions(node.args))

    def block_header(self, node: ast.Call) -> BlockHeader:
        """The block whose body directly contains a statement."""
        header = self.headers[-1]
        if not header.block or header.scope is not self.scope:
            raise self.error(f"`{self.text(node.func)}` stands directly in a block", node, 'with T.block("C"): ...')
        return header

    def regions(self, nodes: list[ast.expr]) -> tuple[Region, ...]:
        result: list[Region] = []
        for n in nodes:
            if isinstance(n, ast.List):
                result.extend(self.regions(n.elts))
                continue
            value = self.as_region(self.value(n))
            if not isinstance(value, Region):
                raise self.error(f"`{self.text(n)}` is no region of a buffer", n, "A[i, j] or A[0:16, j]")
            result.append(value)
            if result[-1].buffer in self.headers[-1].allocs:
                name = result[-1].buffer.name
                raise self.error(
                    f"`{name}` is allocated in this block", n, "a block states what it reads and writes of buffers around it"
                )
        return tuple(result)
