"""Loops of a script: `for` over ranges and the forms of `T`, and GPU thread axes."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from ..arith.simplify import simplify
from ..ir import NOTHING, THREAD_AXES, Annotations, Const, Expr, For, Kind, Stmt, Var, binary
from ..nearest import did_you_mean
from . import namespace
from .declarations import Declarations, Wrapper
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


class Loops(Declarations):
    def loop(self, node: ast.For) -> Stmt:
        if node.orelse:
            raise self.error("`else` of a loop is not in the dialect", node.orelse[0])
        header = self.loop_header(node.iter)
        targets = node.target.elts if isinstance(node.target, (ast.Tuple, ast.List)) else [node.target]
        if len(targets) != len(header.spans):
            found, wanted = len(targets), len(header.spans)
            raise self.error(f"{found} loop variable{'s' * (found != 1)}, but {wanted} extent{'s' * (wanted != 1)}", node)
        loops: list[tuple[Var, Expr]] = []
        names: dict[str, Any] = {}
        step = header.step
        for target, (start, stop) in zip(targets, header.spans, strict=True):
            name = self.identifier(target)
            extent = self.between(start, stop)
            if step != 1:
                extent = simplify(binary("//", binary("+", extent, step - 1), step))
            var = Var(self.names.loop(name), header.dtype or extent.dtype)
            names[name] = self.running(var, start, extent, step)
            loops.append((var, extent))
        body = self.inside(node.body, names, {var.name for var, _ in loops}) or NOTHING
        for var, extent in reversed(loops):
            body = For(var, extent, body, header.kind, header.annotations, header.thread)
        return body

    def loop_header(self, call: ast.expr) -> LoopHeader:
        """The header of a `for`, read from the call that it runs over."""
        form = self.form(call)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range":
            return self.python_range(call)
        if not isinstance(call, ast.Call) or getattr(form, "place", None) != namespace.grid.place:
            hint = "range(n), T.grid(m, n), T.serial(n), T.parallel(n), T.vectorized(n), ..."
            raise self.error(f"`{self.text(call)}` is no range of a loop", call, hint)
        if form is namespace.grid:
            if call.keywords:
                raise self.error("T.grid takes extents only", call.keywords[0].value)
            return LoopHeader(tuple((Const(0), extent) for extent in self.indices(call.args)))
        given = {k: n for k, n in self.arguments(form, call).items() if not (isinstance(n, ast.Constant) and n.value is None)}
        kind, thread = Kind(form.name), ""
        if kind is Kind.THREAD:
            stop = given.get("stop")
            if "thread" not in given and isinstance(stop, ast.Constant) and isinstance(stop.value, str):
                given["thread"] = given.pop("stop")  # T.thread_binding(128, "threadIdx.x")
            if "thread" not in given:
                raise self.error("T.thread_binding needs the axis", call, 'T.thread_binding(128, thread="threadIdx.x")')
            thread = self.thread_axis(self.string(given["thread"]), given["thread"])
        first = self.index(given["start"])
        span = (first, self.index(given["stop"])) if "stop" in given else (Const(0), first)
        notes = tuple(sorted(self.mapping(given["annotations"]).items())) if "annotations" in given else ()
        return LoopHeader((span,), kind, notes, thread, dtype=self.dtype(given) if "dtype" in given else None)

    def python_range(self, call: ast.Call) -> LoopHeader:
        if call.keywords or not 1 <= len(call.args) <= 3:
            raise self.error("range takes one to three numbers", call)
        first, *others = (self.index(a) for a in call.args)
        if not others:
            return LoopHeader(((Const(0), first),))
        if len(others) == 1:
            return LoopHeader(((first, others[0]),))
        step = others[1].value if isinstance(others[1], Const) else 0
        if step < 1:
            raise self.error(f"the step of a loop is a positive constant, not `{self.text(call.args[2])}`", call.args[2])
        return LoopHeader(((first, others[0]),), step=step)

    def thread_axis(self, tag: str, node: ast.expr) -> str:
        if tag not in THREAD_AXES:
            hint = did_you_mean(tag, THREAD_AXES) or f"these are {', '.join(THREAD_AXES)}"
            raise self.error(f"{tag!r} is no thread axis", node, hint)
        return tag

    def launch(self, target: ast.expr, node: ast.Call, form: Any) -> Wrapper:
        """A thread axis around the statements that follow."""
        name, arguments = self.identifier(target), self.arguments(form, node)
        thread = self.value(arguments["thread"])
        tag = thread.tag if isinstance(thread, Thread) else thread
        if not isinstance(tag, str):
            raise self.error(f"`{self.text(arguments['thread'])}` is no thread axis", arguments["thread"], '"threadIdx.x"')
        self.thread_axis(tag, arguments["thread"])
        extent = self.index(arguments["extent"])
        var = self.bind(name, Var(self.names.loop(name), extent.dtype))
        if isinstance(thread, Thread) and isinstance(arguments["thread"], ast.Name):
            self.bind(arguments["thread"].id, var)
        self.running(var, Const(0), extent)
        return lambda body: For(var, extent, body, Kind.THREAD, (), tag)
