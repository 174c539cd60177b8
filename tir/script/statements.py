"""Statements of a script, and the function that they make."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..assumptions import assumptions, with_assumption
from ..constants import constants
from ..ir import (
    MAX_DEPTH,
    NOTHING,
    Buffer,
    Evaluate,
    Expr,
    For,
    Foreign,
    If,
    Kind,
    Opaque,
    PrimFunc,
    Stmt,
    Store,
    Var,
    as_expr,
    cast,
    opaque,
    seq,
)
from ..traverse import loads, named_buffers, tree_depth, variables, written_by
from . import namespace
from .blocks import Blocks
from .context import Lane
from .declarations import BlockHeader, Wrapper
from .error import ScriptError
from .loops import Loops
from .names import BUFFERS, SourceNames
from .values import Handle, is_python_value
from .views import as_view

AXES = ("spatial", "reduce", "opaque", "scan", "remap")

# Attributes that cannot change the result of a program.
_REMARKS = ("pragma_", "buffer_dim_align", "storage_alignment", "hand_threaded", "realize_scope", "storage_scope", "extern_scope")

# Statements of Python that are not in the dialect, each with a hint.
_STATEMENTS: dict[type[ast.stmt], tuple[str, str]] = {
    ast.While: ("`while`", "only counted loops: for i in range(n)"),
    ast.Return: ("`return`", "results are written to parameters"),
    ast.FunctionDef: ("a function inside a function", "define it outside; it may be called with expressions"),
    ast.Break: ("`break`", "guard what follows: if condition:"),
    ast.Continue: ("`continue`", "guard what follows: if condition:"),
    ast.Delete: ("`del`", "buffers end with the block or statement list that they stand in"),
}


class FunctionReader(Loops, Blocks):
    """Reads one function."""

    def function(self, node: ast.FunctionDef) -> PrimFunc:
        """The function of a definition."""
        a = node.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults:
            raise self.error("a function of the dialect has plain parameters only", node)
        self.names = SourceNames(node)
        self.scalars: list[Var] = []
        params: dict[str, Any] = {}
        late: list[tuple[ast.arg, ast.expr]] = []
        for p in a.args:
            if p.annotation is None:
                raise self.error(f"the parameter `{p.arg}` has no annotation", p, 'write A: T.Buffer((128, 128), "float32")')
            annotation = self.annotation(p.annotation)
            kind = self.value(annotation) if isinstance(annotation, ast.Attribute) else None
            if isinstance(kind, namespace.Type):
                if not dtypes.is_int(kind.name):
                    raise self.error(
                        f"the scalar parameter `{p.arg}` must be an integer, got {kind.name}", p, "pass it as T.Buffer((1,), ...)"
                    )
                params[p.arg] = self.bind(p.arg, Var(p.arg, kind.name))
                self.scalars.append(params[p.arg])
                self.names.taken.add(p.arg)
            else:
                params[p.arg] = None
                late.append((p, annotation))
        for p, annotation in late:
            params[p.arg] = self.bind(p.arg, self.parameter(p, annotation))
        self.headers.append(BlockHeader(self.scope, block=False))
        body = self.statements(self.without_root(node.body))
        result: list[Buffer | Var] = []
        for p in a.args:
            value = params[p.arg]
            if isinstance(value, Handle):
                if value.buffer is None:
                    raise self.error(f"the handle `{p.arg}` is given no shape", p, f"A = T.match_buffer({p.arg}, (128,))")
                value = value.buffer
            result.append(value)
        header = self.headers.pop()
        attrs = tuple(sorted(header.annotations.items()))
        func = PrimFunc(node.name, (*result, *self.sizes), body or NOTHING, tuple(header.allocs), attrs)
        try:
            constants(func)
            assumptions(func)
            for condition in self.asserted:
                func = with_assumption(func, condition)
        except ValueError as error:
            raise self.error(str(error), node) from None
        if tree_depth(func) > MAX_DEPTH:
            raise RecursionError
        return func

    def parameter(self, p: ast.arg, node: ast.expr) -> Buffer | Handle:
        form: Any = None
        match node:
            case ast.Call():
                form = self.form(node)
            case ast.Subscript(value=value, slice=arguments):
                form = self.value(value)
                items = arguments.elts if isinstance(arguments, ast.Tuple) else [arguments]
                node = ast.copy_location(ast.Call(value, items, []), node)
            case ast.Attribute():
                form = self.value(node)
        if form is namespace.handle:
            return Handle(p.arg)
        if form is not namespace.Buffer or not isinstance(node, ast.Call):
            raise self.error(
                f"`{self.text(node)}` is no type of a parameter",
                node,
                'T.Buffer((128, 128), "float32"), T.handle, or T.int32 for a size',
            )
        self.names.taken.add(p.arg)
        view, given = self.declaration(form, node)
        if "data" in given:
            raise self.error("a parameter has memory of its own", given["data"])
        return view.buffer.with_(name=p.arg)

    def without_root(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements without `with T.block("root"):` around the last: the function is that block."""

        def form(s: ast.stmt) -> str:
            """The form to the right of an assignment."""
            return getattr(self.form(s.value), "name", "") if isinstance(s, ast.Assign) else ""

        match body:
            case [*before, ast.With([ast.withitem(ast.Call(args=[ast.Constant("root")], keywords=[]) as call, None)], inner)]:
                inert = all(isinstance(s, ast.Expr) or form(s) in (*BUFFERS, "var", *dtypes.TABLE) for s in before)
                if self.form(call) is not namespace.block or not inert or any(form(s) in AXES for s in inner):
                    return body
            case _:
                return body
        kept = []
        for s in inner:
            stated = self.form(s.value) if isinstance(s, ast.Expr) else None
            if stated is namespace.reads or stated is namespace.writes:
                continue
            if stated is namespace.block_attr:
                s.value.func.attr = "func_attr"  # type: ignore[attr-defined]
            kept.append(s)
        return [*before, *kept]

    # --- statements ----------------------------------------------------------------------------------------------------

    def statements(self, nodes: list[ast.stmt]) -> Stmt | None:
        """The statements in order; None where they only declare."""
        done: list[Stmt] = []
        for n, node in enumerate(nodes):
            result = self.statement(node)
            if isinstance(result, Stmt):
                done.append(result)
                if self.headers[-1].scope is self.scope:
                    self.headers[-1].begun = True
            elif result is not None:  # it wraps the rest
                done.append(result(self.statements(nodes[n + 1 :]) or NOTHING))
                break
        return seq(*done) if done else None

    def statement(self, node: ast.stmt) -> Stmt | Wrapper | None:
        self.line = node.lineno
        match node:
            case ast.For():
                return self.loop(node)
            case ast.With():
                return self.with_(node, node.items)
            case ast.If(test=test, body=body, orelse=orelse):
                condition = self.value(test)
                if not isinstance(condition, Expr) and is_python_value(condition):  # known to Python
                    chosen = body if condition else orelse
                    return self.inside(chosen) if chosen else None
                condition = self.condition(condition, test)
                self.branches += 1
                then, otherwise = self.inside(body) or NOTHING, (self.inside(orelse) or NOTHING) if orelse else None
                self.branches -= 1
                return If(condition, then, otherwise)
            case ast.Assign(targets=[target], value=value):
                return self.assign(target, value, node)
            case ast.Assign():
                raise self.error("one name at a time is assigned", node)
            case ast.AnnAssign(target=ast.Name() as target, annotation=annotation, value=ast.expr() as value):
                return self.typed(target, annotation, value)
            case ast.AugAssign(target=ast.Subscript() as target, op=op, value=value):
                read = ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
                return self.store(target, ast.copy_location(ast.BinOp(read, op, value), node))
            case ast.AugAssign(target=target):
                raise self.error(f"`{self.text(target)}` is no element of a buffer", node, "bind a new name: y = x + 1")
            case ast.Expr(value=ast.Constant(value=value)) if value is Ellipsis or isinstance(value, str):
                return None
            case ast.Expr(value=ast.Call() as call):
                return self.called(call)
            case ast.Assert(test=test):
                self.assume(self.condition(self.value(test), test), test)
                return None
            case ast.Pass() | ast.Return(value=None | ast.Constant(value=0)):
                return None
            case ast.Expr():
                raise self.unused(node)
        if type(node) not in _STATEMENTS:
            raise self.error(f"`{type(node).__name__}` is not a statement of the dialect", node)
        what, hint = _STATEMENTS[type(node)]
        raise self.error(f"{what} is not in the dialect", node, hint)

    def called(self, node: ast.Call) -> Stmt | Wrapper | None:
        """A call that is a statement."""
        form = self.form(node)
        if form is None or isinstance(form, namespace.ForeignForm):
            match self.value(node):
                case Stmt() as statement:
                    return statement
                case Foreign() as foreign:
                    return self.foreign_statement(foreign)
            raise self.unused(node)
        match form.name:
            case "evaluate":
                inner = self.arguments(form, node)["value"]
                if isinstance(inner, ast.Call) and self.form(inner) is namespace.assume:
                    return self.called(inner)
                value = self.value(inner)
                return self.foreign_statement(value) if isinstance(value, Foreign) else Evaluate(self.as_expr(value, inner))
            case "assume":
                condition = self.arguments(form, node)["condition"]
                self.assume(self.condition(self.value(condition), condition), condition, known=True)
                return None
            case "func_attr":
                self.headers[0].annotations |= self.mapping(self.arguments(form, node)["attrs"])
                return None
            case "attr":
                self.remark(node)
                return None
            case "launch_thread" if isinstance(thread := self.arguments(form, node)["thread"], ast.Name):
                return self.launch(thread, node, form)
            case "where" | "reads" | "writes" | "block_attr":
                self.state(form, node)
                return None
        if isinstance(form, namespace.Type):
            raise self.unused(node)
        raise self.error(f"`{self.text(node.func)}` {form.place}", node)

    def foreign_statement(self, call: Foreign) -> Opaque:
        """A foreign call as a statement. The buffers that it writes are limited by the stated writes of the block around."""
        writes = written_by(call)
        if "writes" in self.headers[-1].stated:
            writes &= {r.buffer.name for r in self.headers[-1].stated["writes"]}
        buffers = named_buffers(call)
        return opaque(call, buffers, self.names.loop, {b.name for b in buffers} - writes)

    def assume(self, condition: Expr, node: ast.AST, known: bool = False) -> None:
        """Note a condition on sizes, checked at each call. Any other condition is ignored if `known` to hold, else an error."""
        sizes = {v.name for v in (*self.scalars, *self.sizes)}
        if variables(condition) <= sizes and variables(condition) and not loads(condition) and not self.branches:
            self.asserted.append(condition)
        elif not known and self.branches:
            raise self.error(
                f"`assert {condition}` is under a condition", node, "a call is checked once: move it out of the `if`"
            )
        elif not known:
            hint = "it may be over the sizes of the function; tir.verify proves accesses in bounds"
            raise self.error(f"`assert {condition}` cannot be checked at the call", node, hint)

    def unused(self, node: ast.AST) -> ScriptError:
        return self.error("this value is not used", node, "T.evaluate(...) evaluates an expression for its effect")

    def remark(self, node: ast.Call) -> None:
        """Ignore a `T.attr` that cannot change the result; refuse any other."""
        key = self.value(self.arguments(namespace.attr, node)["attr_key"])
        if not isinstance(key, str) or not key.startswith(_REMARKS):
            hint = "T.launch_thread, or T.thread_binding" if key in ("thread_extent", "virtual_thread") else None
            raise self.error(f"T.attr with {key!r} may change what the program means", node, hint)

    # --- assignments ---------------------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: ast.expr, node: ast.stmt) -> Stmt | Wrapper | None:
        if isinstance(target, ast.Subscript):
            return self.store(target, value)
        form = self.form(value)
        if isinstance(value, ast.Call) and isinstance(form, namespace.Form) and form.name in _DECLARATIONS:
            return _DECLARATIONS[form.name](self, target, value, form)
        if self.declares_size(value):
            self.declare_size(target, form.name, value)
            return None
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and all(map(self.declares_size, value.elts)):
            if len(target.elts) != len(value.elts):
                raise self.error(f"{len(target.elts)} names, but {len(value.elts)} values", node)
            for t, v in zip(target.elts, value.elts, strict=True):
                self.declare_size(t, self.form(v).name, v)
            return None
        found = self.value(value)
        if isinstance(target, ast.Name):
            return self.let(target.id, found, value)
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(found, (tuple, list)):
            if len(found) != len(target.elts):
                raise self.error(f"{len(target.elts)} names, but {len(found)} values", node)
            wrappers = [self.let(self.identifier(t), v, value) for t, v in zip(target.elts, found, strict=True)]
            return _nested([w for w in wrappers if w is not None])
        raise self.error(f"`{self.text(target)}` cannot be assigned to", target, "a name, or an element A[i, j]")

    def declares_size(self, value: ast.expr) -> bool:
        """True where a value is `T.int32()`, or of another dtype."""
        plain = isinstance(value, ast.Call) and not value.args and not value.keywords
        return plain and isinstance(self.form(value), namespace.Type)

    def typed(self, target: ast.Name, annotation: ast.expr, value: ast.expr) -> Wrapper | None:
        annotation = self.annotation(annotation)
        if isinstance(annotation, ast.Subscript):  # T.let[T.int32]
            annotation = annotation.slice
        kind = self.value(annotation)
        if kind is namespace.let:
            return self.let(target.id, self.expr(value), value)
        if kind is namespace.handle:
            return self.let(target.id, self.value(value), value)
        if not isinstance(kind, namespace.Type):
            raise self.error(f"`{self.text(annotation)}` is no type of a value", annotation, "T.int32, T.float32, ...")
        return self.let(target.id, self.value(value), value, kind.name)

    def store(self, target: ast.Subscript, value: ast.expr) -> Stmt:
        view = as_view(self.array(target.value))
        if view is None:
            raise self.error(f"`{self.text(target.value)}` is no buffer", target.value)
        vector = lambda n: isinstance(n, ast.Slice) or self.form(n) is namespace.ramp  # noqa: E731
        if self.lane is None and any(map(vector, self.index_nodes(target))):
            return self.store_vector(target, value)
        buffer, indices = self.element(view, target)
        stored = self.scalar(value)
        if not isinstance(stored, Expr):
            stored = self.guard(as_expr, value, stored, buffer.dtype)
        elif stored.dtype != buffer.dtype:
            if dtypes.promote(stored.dtype, buffer.dtype) != buffer.dtype:
                raise self.error(
                    f"a value of dtype {stored.dtype} is stored into `{buffer.name}`, which holds {buffer.dtype}",
                    value,
                    f'convert it: T.Cast("{buffer.dtype}", ...)',
                )
            stored = cast(stored, buffer.dtype)
        return Store(buffer, indices, stored)

    def store_vector(self, target: ast.Subscript, value: ast.expr) -> Stmt:
        """A statement on vectors: a loop over their elements."""
        outer = self.enter()
        name = self.names.loop("lane")
        self.lane = Lane(self.bind(name, Var(name)))
        stored, lane = self.store(target, value), self.lane
        self.lane = None
        self.leave(outer)
        assert lane.count is not None
        return For(lane.var, lane.count, stored, Kind.VECTORIZED)

    # --- with ----------------------------------------------------------------------------------------------------------

    def with_(self, node: ast.With, items: list[ast.withitem]) -> Stmt | None:
        item, *more = items
        body = node.body
        if more:
            inner = ast.copy_location(ast.With(more, node.body), node)
            body = [inner]
        call = item.context_expr
        form = self.form(call)
        if not isinstance(call, ast.Call) or not isinstance(form, namespace.Form):
            raise self.error(f"`{self.text(call)}` has no meaning in a `with`", call, 'with T.block("C"):')
        bound = item.optional_vars
        if bound is not None:
            self.identifier(bound)
            if form.name in ("block", "init", "let", "attr"):
                raise self.error(f"`{self.text(call.func)}` binds no name", bound)
        elif form.name in ("LetStmt", "allocate", "allocate_const", "decl_buffer", "launch_thread"):
            bound = self.arguments(form, call).get("thread")
            if not isinstance(bound, ast.Name):
                raise self.error(f"`{self.text(call.func)}` needs a name", call, f"with {self.text(call)} as x:")
        match form.name:
            case "block":
                return self.block(call, body)
            case "init":
                self.init(call, body)
                return None
            case "attr":
                self.remark(call)
                return self.inside(body)
            case "let" | "LetStmt" | "allocate" | "allocate_const" | "decl_buffer" | "launch_thread":
                outer = self.enter()
                wrap = _DECLARATIONS.get(form.name, FunctionReader.let_statement)(self, bound, call, form)
                result = self.statements(body)
                self.leave(outer)
                return wrap(result or NOTHING) if wrap is not None else result
        raise self.error(f"`{self.text(call.func)}` {form.place}", call)


# The forms that bind names, and the methods that read them from target, call and form.
_DECLARATIONS: dict[str, Callable[[FunctionReader, Any, ast.Call, Any], Wrapper | None]] = {
    "match_buffer": FunctionReader.match_buffer,
    "alloc_buffer": FunctionReader.alloc_buffer,
    "allocate": FunctionReader.allocate,
    "allocate_const": FunctionReader.allocate_const,
    "decl_buffer": FunctionReader.declare_buffer,
    "Buffer": FunctionReader.declare_buffer,
    **dict.fromkeys(AXES, FunctionReader.axes),
    "var": FunctionReader.var,
    "env_thread": FunctionReader.env_thread,
    "launch_thread": FunctionReader.launch,
}


def _nested(wrappers: list[Wrapper]) -> Wrapper | None:
    def wrap(rest: Stmt) -> Stmt:
        for w in reversed(wrappers):
            rest = w(rest)
        return rest

    return wrap if wrappers else None
