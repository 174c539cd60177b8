"""Statements of a script."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from .. import dtypes
from ..ir import NOTHING, Evaluate, Expr, For, Foreign, If, Kind, Let, Opaque, Stmt, Store, Var, as_expr, cast, opaque, seq
from ..traverse import loads, named_buffers, variables, written_by
from . import namespace
from .blocks import Blocks
from .buffers import Buffers
from .draft import Body, Draft, Wrapper
from .elements import array, element, index_nodes
from .error import ScriptError
from .expressions import Arguments, Expressions, Lane
from .loops import Loops
from .values import NAMEABLE, Thread, is_python_value
from .views import as_view

# Attributes that cannot change the result of a program.
_REMARKS = ("pragma_", "buffer_dim_align", "storage_alignment", "hand_threaded", "realize_scope", "storage_scope", "extern_scope")

# Statements of Python that are not in the dialect, each with a hint.
_REFUSED: dict[type[ast.stmt], tuple[str, str]] = {
    ast.While: ("`while`", "only counted loops: for i in range(n)"),
    ast.Return: ("`return`", "results are written to parameters"),
    ast.FunctionDef: ("a function inside a function", "define it outside; it may be called with expressions"),
    ast.Break: ("`break`", "guard what follows: if condition:"),
    ast.Continue: ("`continue`", "guard what follows: if condition:"),
    ast.Delete: ("`del`", "buffers end with the block or statement list that they stand in"),
}

_Binding = Mapping[str, Callable[[str, Arguments], Wrapper | None]]


class Statements:
    """Reader of the statements of a function. Its tables hold what reads the forms of the dialect, by where they may stand."""

    def __init__(self, read: Expressions, draft: Draft):
        self.read, self.draft = read, draft
        buffers, blocks = Buffers(read, draft), Blocks(read, draft)
        self._blocks = blocks
        self.loops = Loops(read, draft, self._inside)
        around: _Binding = {
            "allocate": buffers.allocate, "allocate_const": buffers.allocate_const, "decl_buffer": buffers.decl_buffer,
            "launch_thread": self.loops.launch_thread,
        }  # fmt: skip
        self._right_of_equals: _Binding = {
            **around, "match_buffer": buffers.match_buffer, "alloc_buffer": buffers.alloc_buffer, "Buffer": buffers.decl_buffer,
            "var": self._var, "env_thread": self._env_thread,
        }  # fmt: skip
        self._with_a_name: _Binding = {**around, "LetStmt": self._let_statement, "let": self._let_statement}
        self._with_no_name: Mapping[str, Callable[[Arguments, Body], Stmt | None]] = {
            "block": blocks.block, "init": blocks.init, "attr": self._attr
        }  # fmt: skip
        self._alone: Mapping[str, Callable[[Arguments], Stmt | Wrapper | None]] = {
            "where": blocks.where, "reads": blocks.regions, "writes": blocks.regions, "block_attr": blocks.block_attr,
            "func_attr": self._func_attr, "evaluate": self._evaluate, "assume": self._assume, "attr": self._remark,
            "launch_thread": self._launch,
        }  # fmt: skip

    def statements(self, nodes: list[ast.stmt]) -> Stmt | None:
        """The statements in order; None where they only declare."""
        done: list[Stmt] = []
        for n, node in enumerate(nodes):
            result = self._statement(node)
            if isinstance(result, Stmt):
                done.append(result)
                self.draft.header.begun |= self.draft.directly
            elif result is not None:  # it wraps the rest
                done.append(result(self.statements(nodes[n + 1 :]) or NOTHING))
                break
        return seq(*done) if done else None

    def _inside(self, nodes: list[ast.stmt], names: Mapping[str, Any] | None = None) -> Stmt | None:
        """Statements in a scope of their own."""
        with self.read.scopes.inner(names):
            return self.statements(nodes)

    def _statement(self, node: ast.stmt) -> Stmt | Wrapper | None:
        self.read.scopes.line = node.lineno
        match node:
            case ast.For():
                return self.loops.loop(node)
            case ast.With(items=items, body=body):
                return self._with(items, lambda: self.statements(body))
            case ast.If(test=test, body=body, orelse=orelse):
                return self._if(test, body, orelse)
            case ast.Assign(targets=[target], value=value):
                return self._assign(target, value, node)
            case ast.Assign():
                raise self.read.error("one name at a time is assigned", node)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value):
                return self._typed(name, annotation, value)
            case ast.AugAssign(target=ast.Subscript() as target, op=op, value=value):
                read = ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
                return self._store(target, ast.copy_location(ast.BinOp(read, op, value), node))
            case ast.AugAssign(target=target):
                reason = f"`{self.read.text(target)}` is no element of a buffer"
                raise self.read.error(reason, node, "bind a new name: y = x + 1")
            case ast.Expr(value=ast.Call() as call):
                return self._call(call)
            case ast.Assert(test=test):
                self._check(self.read.condition(test), test)
                return None
            case ast.Pass() | ast.Return(value=None | ast.Constant(value=0)):
                return None
            case ast.Expr(value=ast.Constant(value=value)) if value is Ellipsis or isinstance(value, str):
                return None
            case ast.Expr():
                raise self._unused(node)
        if type(node) not in _REFUSED:
            raise self.read.error(f"`{type(node).__name__}` is not a statement of the dialect", node)
        what, hint = _REFUSED[type(node)]
        raise self.read.error(f"{what} is not in the dialect", node, hint)

    def _if(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> Stmt | None:
        condition = self.read.value(test)
        if not isinstance(condition, Expr) and is_python_value(condition):  # known to Python
            chosen = body if condition else orelse
            return self._inside(chosen) if chosen else None
        condition = self.read.convert.condition(condition, test)
        self.draft.branches += 1
        then, otherwise = self._inside(body) or NOTHING, (self._inside(orelse) or NOTHING) if orelse else None
        self.draft.branches -= 1
        return If(condition, then, otherwise)

    # --- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Stmt | Wrapper | None:
        """A call that is a statement."""
        form = self.read.form(node)
        if isinstance(form, namespace.Form) and not isinstance(form, namespace.ForeignForm):
            if form.name not in self._alone:
                raise self.read.error(f"`{self.read.text(node.func)}` {form.place}", node)
            return self._alone[form.name](self.read.arguments(form, node))
        if not isinstance(form, namespace.Type):
            match self.read.value(node):
                case Stmt() as statement:
                    return statement
                case Foreign() as foreign:
                    return self._foreign(foreign)
        raise self._unused(node)

    def _unused(self, node: ast.AST) -> ScriptError:
        return self.read.error("this value is not used", node, "T.evaluate(...) evaluates an expression for its effect")

    def _foreign(self, call: Foreign) -> Opaque:
        """A foreign call as a statement. The buffers that it writes are limited by the stated writes of the block around."""
        writes, stated = written_by(call), self.draft.header.stated
        if "writes" in stated:
            writes &= {r.buffer.name for r in stated["writes"]}
        buffers = named_buffers(call)
        return opaque(call, buffers, self.draft.names.loop, {b.name for b in buffers} - writes)

    def _evaluate(self, given: Arguments) -> Stmt | Wrapper | None:
        inner = given["value"]
        if self.read.form(inner) is namespace.assume:
            return self._call(inner)  # type: ignore[arg-type]
        value = self.read.value(inner)
        return self._foreign(value) if isinstance(value, Foreign) else Evaluate(self.read.convert.expr(value, inner))

    def _assume(self, given: Arguments) -> None:
        self._check(self.read.condition(given["condition"]), given["condition"], known=True)

    def _check(self, condition: Expr, node: ast.AST, known: bool = False) -> None:
        """Note a condition on sizes, checked at each call. Any other condition is ignored if `known` to hold, else an error."""
        sizes, used = {v.name for v in (*self.draft.scalars, *self.draft.sizes)}, variables(condition)
        if used and used <= sizes and not loads(condition) and not self.draft.branches:
            self.draft.asserted.append(condition)
        elif not known and self.draft.branches:
            hint = "a call is checked once: move it out of the `if`"
            raise self.read.error(f"`assert {condition}` is under a condition", node, hint)
        elif not known:
            hint = "it may be over the sizes of the function; tir.verify proves accesses in bounds"
            raise self.read.error(f"`assert {condition}` cannot be checked at the call", node, hint)

    def _func_attr(self, given: Arguments) -> None:
        self.draft.headers[0].annotations |= given.attributes("attrs")

    def _remark(self, given: Arguments) -> None:
        """Ignore a `T.attr` that cannot change the result; refuse any other."""
        key = given.value("attr_key")
        if not isinstance(key, str) or not key.startswith(_REMARKS):
            hint = "T.launch_thread, or T.thread_binding" if key in ("thread_extent", "virtual_thread") else None
            raise given.error(f"T.attr with {key!r} may change what the program means", hint)

    def _launch(self, given: Arguments) -> Wrapper:
        """A thread axis that has a name already, around the statements that follow."""
        if not isinstance(given["thread"], ast.Name):
            raise given.error(f"`{given.function}` {given.form.place}")
        return self.loops.launch_thread(given["thread"].id, given)

    # --- assignments ---------------------------------------------------------------------------------------------------

    def _assign(self, target: ast.expr, value: ast.expr, node: ast.stmt) -> Stmt | Wrapper | None:
        if isinstance(target, ast.Subscript):
            return self._store(target, value)
        form = self.read.form(value)
        if isinstance(value, ast.Call) and isinstance(form, namespace.Form):
            if form.name in self._right_of_equals:
                given = self.read.arguments(form, value)
                return self._right_of_equals[form.name](self.read.identifier(target), given)
            if isinstance(form, namespace.AxisForm):
                axes = self._blocks.remap if form is namespace.axis.remap else self._blocks.axis
                return axes(target, self.read.arguments(form, value))
        return self._bind(target, value, node)

    def _bind(self, target: ast.expr, value: ast.expr, node: ast.stmt) -> Wrapper | None:
        """Names bound to values, or to new sizes: `n = T.int32()`, `n, m = T.int32(), T.int64()`."""
        targets = target.elts if isinstance(target, (ast.Tuple, ast.List)) else None
        several = targets is not None and isinstance(value, ast.Tuple)
        sizes = [self._size(v) for v in (value.elts if several else [value])]  # type: ignore[attr-defined]
        found: Any = sizes if None not in sizes else self.read.value(value)
        if isinstance(target, ast.Name):
            targets, found = [target], [found] if found is not sizes else found
        if targets is None or not isinstance(found, (tuple, list)):
            raise self.read.error(f"`{self.read.text(target)}` cannot be assigned to", target, "a name, or an element A[i, j]")
        if len(found) != len(targets):
            raise self.read.error(f"{len(targets)} names, but {len(found)} values", node)
        wrappers: list[Wrapper] = []
        for t, v in zip(targets, found, strict=True):
            if found is sizes:
                self.draft.declare_size(self.read.identifier(t), v.name, value)
            elif (wrapper := self.let(self.read.identifier(t), v, value)) is not None:
                wrappers.insert(0, wrapper)
        return (lambda rest: reduce(lambda inner, wrap: wrap(inner), wrappers, rest)) if wrappers else None

    def _size(self, value: ast.expr) -> Any:
        """The dtype of a new size, of a value that is `T.int32()` or the like; else None."""
        plain = isinstance(value, ast.Call) and not value.args and not value.keywords
        return form if plain and isinstance(form := self.read.form(value), namespace.Type) else None

    def _var(self, name: str, given: Arguments) -> None:
        self.draft.declare_size(name, given.string("dtype", "int32"), given.call)

    def _env_thread(self, name: str, given: Arguments) -> None:
        self.read.scopes.bind(name, Thread(given.string("thread_tag")))

    def _let_statement(self, name: str, given: Arguments) -> Wrapper | None:
        return self.let(name, self.read.expr(given["value"]), given.call)

    def let(self, name: str, value: Any, node: ast.AST, dtype: str | None = None) -> Wrapper | None:
        """Bind a name for the statements that follow; a Python value is substituted for the name."""
        read, header = self.read, self.draft.header
        if dtype is None and not isinstance(value, Expr):
            if not is_python_value(value) and not isinstance(value, NAMEABLE):
                read.convert.number(value, node)  # it is none, which is an error
            read.scopes.bind(name, value)
            return None
        value = read.convert.expr(value, node, dtype)
        if dtype is not None and value.dtype != dtype:
            reason = f"`{name}` is declared as {dtype}, but its value is {value.dtype}"
            raise read.error(reason, node, f'convert it: T.Cast("{dtype}", ...)')
        var = Var(self.draft.names.local(name, read.scopes.here), value.dtype)
        read.facts.let(var.name, value)
        if self.draft.directly:
            header.lets[var.name] = header.closed(value)
        read.scopes.bind(name, var)
        return lambda rest: Let(var, value, rest)

    def _typed(self, name: str, annotation: ast.expr, value: ast.expr) -> Wrapper | None:
        annotation = self.read.annotation(annotation)
        if isinstance(annotation, ast.Subscript):  # T.let[T.int32]
            annotation = annotation.slice
        kind = self.read.value(annotation)
        if kind is namespace.let:
            return self.let(name, self.read.expr(value), value)
        if kind is not namespace.handle and not isinstance(kind, namespace.Type):
            reason = f"`{self.read.text(annotation)}` is no type of a value"
            raise self.read.error(reason, annotation, "T.int32, T.float32, ...")
        return self.let(name, self.read.value(value), value, None if kind is namespace.handle else kind.name)

    def _store(self, target: ast.Subscript, value: ast.expr) -> Stmt:
        read = self.read
        view = as_view(array(read, target))
        if view is None:
            raise read.error(f"`{read.text(target.value)}` is no buffer", target.value)
        vector = (isinstance(n, ast.Slice) or read.form(n) is namespace.ramp for n in index_nodes(target))
        if read.lane is None and any(vector):
            return self._store_vector(target, value)
        buffer, indices = element(read, view, target)
        stored = read.number(value)
        if not isinstance(stored, Expr):
            stored = read.guard(as_expr, value, stored, buffer.dtype)
        elif stored.dtype != buffer.dtype:
            if dtypes.promote(stored.dtype, buffer.dtype) != buffer.dtype:
                reason = f"a value of dtype {stored.dtype} is stored into `{buffer.name}`, which holds {buffer.dtype}"
                raise read.error(reason, value, f'convert it: T.Cast("{buffer.dtype}", ...)')
            stored = cast(stored, buffer.dtype)
        return Store(buffer, indices, stored)

    def _store_vector(self, target: ast.Subscript, value: ast.expr) -> Stmt:
        """A statement on vectors: a loop over their elements."""
        name = self.draft.names.loop("lane")
        lane = self.read.lane = Lane(Var(name))
        with self.read.scopes.inner({name: lane.var}):
            stored = self._store(target, value)
        self.read.lane = None
        assert lane.count is not None
        return For(lane.var, lane.count, stored, Kind.VECTORIZED)

    # --- with ----------------------------------------------------------------------------------------------------------

    def _with(self, items: list[ast.withitem], body: Body) -> Stmt | None:
        item, *more = items
        call, bound = item.context_expr, item.optional_vars
        inner: Body = (lambda: self._with(more, body)) if more else body
        form = self.read.form(call)
        if not isinstance(call, ast.Call) or not isinstance(form, namespace.Form):
            raise self.read.error(f"`{self.read.text(call)}` has no meaning in a `with`", call, 'with T.block("C"):')
        function, name = self.read.text(call.func), None if bound is None else self.read.identifier(bound)
        if bound is not None and (form is namespace.let or form.name in self._with_no_name):
            raise self.read.error(f"`{function}` binds no name", bound)
        if form.name in self._with_no_name:
            return self._with_no_name[form.name](self.read.arguments(form, call), inner)
        if form.name not in self._with_a_name:
            raise self.read.error(f"`{function}` {form.place}", call)
        given = self.read.arguments(form, call)
        if name is None:
            known = given.nodes.get("var" if form is namespace.let else "thread")
            if form is not namespace.let and not isinstance(known, ast.Name):
                raise given.error(f"`{function}` needs a name", f"with {self.read.text(call)} as x:")
            name = self.read.identifier(known)  # type: ignore[arg-type]
        with self.read.scopes.inner():
            wrap = self._with_a_name[form.name](name, given)
            result = inner()
        return wrap(result or NOTHING) if wrap is not None else result

    def _attr(self, given: Arguments, body: Body) -> Stmt | None:
        self._remark(given)
        with self.read.scopes.inner():
            return body()
