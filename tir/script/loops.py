"""Loops of a script: `for` over ranges and the forms of `T`, and GPU thread axes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..arith.simplify import simplify
from ..ir import NOTHING, THREAD_AXES, Annotations, Const, Expr, For, Kind, Stmt, Var, binary
from ..nearest import did_you_mean
from . import namespace
from .draft import Draft, Wrapper
from .elements import between
from .expressions import Arguments, Expressions
from .values import Thread


@dataclass(frozen=True)
class LoopHeader:
    """The header of a `for`: start and stop of each of its variables, and the kind of its loops."""

    spans: tuple[tuple[Expr, Expr], ...]
    kind: Kind = Kind.SERIAL
    annotations: Annotations = ()
    thread: str = ""
    step: int = 1
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Loops:
    """Reader of the loops of a function; `inside` reads the statements of a body with names bound in it."""

    read: Expressions
    draft: Draft
    inside: Callable[[list[ast.stmt], Mapping[str, Any]], Stmt | None]

    def loop(self, node: ast.For) -> Stmt:
        if node.orelse:
            raise self.read.error("`else` of a loop is not in the dialect", node.orelse[0])
        header = self._header(node.iter)
        targets = node.target.elts if isinstance(node.target, (ast.Tuple, ast.List)) else [node.target]
        found, wanted, step = len(targets), len(header.spans), header.step
        if found != wanted:
            reason = f"{found} loop variable{'s' * (found != 1)}, but {wanted} extent{'s' * (wanted != 1)}"
            raise self.read.error(reason, node)
        loops: list[tuple[Var, Expr]] = []
        names: dict[str, Any] = {}
        for target, (start, stop) in zip(targets, header.spans, strict=True):
            name = self.read.identifier(target)
            extent = between(start, stop)
            if step != 1:
                extent = simplify(binary("//", binary("+", extent, step - 1), step))
            var = Var(self.draft.names.loop(name), header.dtype or extent.dtype)
            names[name] = self.read.facts.running(var, start, extent, step)
            loops.append((var, extent))
        body = self.inside(node.body, names) or NOTHING
        for var, extent in reversed(loops):
            body = For(var, extent, body, header.kind, header.annotations, header.thread)
        return body

    def _header(self, call: ast.expr) -> LoopHeader:
        """The header of a `for`, read from the call that it runs over."""
        form = self.read.form(call)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range":
            return self._range(call)
        if not isinstance(call, ast.Call) or not isinstance(form, namespace.LoopForm):
            hint = "range(n), T.grid(m, n), T.serial(n), T.parallel(n), T.vectorized(n), ..."
            raise self.read.error(f"`{self.read.text(call)}` is no range of a loop", call, hint)
        if form is namespace.grid:
            if call.keywords:
                raise self.read.error("T.grid takes extents only", call.keywords[0].value)
            return LoopHeader(tuple((Const(0), extent) for extent in self.read.indices(call.args)))
        given = self.read.arguments(form, call)
        for name in [name for name, n in given.nodes.items() if isinstance(n, ast.Constant) and n.value is None]:
            del given.nodes[name]
        kind, thread = Kind(form.name), ""
        if kind is Kind.THREAD:
            stop = given.nodes.get("stop")
            if "thread" not in given and isinstance(stop, ast.Constant) and isinstance(stop.value, str):
                given.nodes["thread"] = given.nodes.pop("stop")  # T.thread_binding(128, "threadIdx.x")
            if "thread" not in given:
                raise given.error("T.thread_binding needs the axis", 'T.thread_binding(128, thread="threadIdx.x")')
            thread = self._axis(given.string("thread"), given["thread"])
        first = self.read.index(given["start"])
        span = (first, self.read.index(given["stop"])) if "stop" in given else (Const(0), first)
        notes = tuple(sorted(given.attributes("annotations").items()))
        return LoopHeader((span,), kind, notes, thread, dtype=given.dtype() if "dtype" in given else None)

    def _range(self, call: ast.Call) -> LoopHeader:
        if call.keywords or not 1 <= len(call.args) <= 3:
            raise self.read.error("range takes one to three numbers", call)
        match [self.read.index(a) for a in call.args]:
            case [stop]:
                return LoopHeader(((Const(0), stop),))
            case [start, stop]:
                return LoopHeader(((start, stop),))
            case [start, stop, Const(int(step))] if step >= 1:
                return LoopHeader(((start, stop),), step=step)
        reason = f"the step of a loop is a positive constant, not `{self.read.text(call.args[2])}`"
        raise self.read.error(reason, call.args[2])

    def _axis(self, tag: str, node: ast.expr) -> str:
        if tag not in THREAD_AXES:
            hint = did_you_mean(tag, THREAD_AXES) or f"these are {', '.join(THREAD_AXES)}"
            raise self.read.error(f"{tag!r} is no thread axis", node, hint)
        return tag

    def launch_thread(self, name: str, given: Arguments) -> Wrapper:
        """A thread axis around the statements that follow."""
        node = given["thread"]
        thread = self.read.value(node)
        tag = thread.tag if isinstance(thread, Thread) else thread
        if not isinstance(tag, str):
            raise given.error(f"`{self.read.text(node)}` is no thread axis", '"threadIdx.x"', at="thread")
        self._axis(tag, node)
        extent = self.read.index(given["extent"])
        var = self.read.scopes.bind(name, Var(self.draft.names.loop(name), extent.dtype))
        if isinstance(thread, Thread) and isinstance(node, ast.Name):
            self.read.scopes.bind(node.id, var)
        self.read.facts.running(var, Const(0), extent)
        return lambda body: For(var, extent, body, Kind.THREAD, (), tag)
