"""Functions of a script: their parameters, and what their statements declare."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from .. import dtypes
from ..assumptions import assumptions, with_assumption
from ..constants import constants
from ..ir import MAX_DEPTH, NOTHING, Buffer, PrimFunc, Var
from ..traverse import tree_depth
from . import namespace
from .buffers import Buffers
from .draft import Draft, Header
from .expressions import Expressions
from .names import BUFFERS, SourceNames
from .source import Source
from .statements import Statements
from .values import Handle


def read_function(source: Source, captured: Mapping[str, Any], live: bool, node: ast.FunctionDef) -> PrimFunc:
    """The function of a definition; see `Expressions` for the names from outside."""
    read = Expressions(source, captured, live)
    a = node.args
    if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults:
        raise read.error("a function of the dialect has plain parameters only", node)
    draft = Draft(read, SourceNames(node))
    params = _parameters(read, draft, a.args)
    draft.headers.append(header := Header(read.scopes.here, block=False))
    body = Statements(read, draft).statements(_without_root(read, node.body)) or NOTHING
    result: list[Buffer | Var] = []
    for p in a.args:
        value = params[p.arg]
        if isinstance(value, Handle) and value.buffer is None:
            raise read.error(f"the handle `{p.arg}` is given no shape", p, f"A = T.match_buffer({p.arg}, (128,))")
        result.append(value.buffer if isinstance(value, Handle) else value)  # type: ignore[arg-type]
    attrs = tuple(sorted(header.annotations.items()))
    func = PrimFunc(node.name, (*result, *draft.sizes), body, tuple(header.allocs), attrs)
    try:
        constants(func)
        assumptions(func)
        for condition in draft.asserted:
            func = with_assumption(func, condition)
    except ValueError as error:
        raise read.error(str(error), node) from None
    if tree_depth(func) > MAX_DEPTH:
        raise RecursionError
    return func


def _parameters(read: Expressions, draft: Draft, args: list[ast.arg]) -> dict[str, Buffer | Handle | Var]:
    """The parameters by name: scalars first, which shapes of the others may use."""
    found: dict[str, Buffer | Handle | Var] = {}
    late: list[tuple[ast.arg, ast.expr]] = []
    for p in args:
        if p.annotation is None:
            raise read.error(f"the parameter `{p.arg}` has no annotation", p, 'write A: T.Buffer((128, 128), "float32")')
        annotation = read.annotation(p.annotation)
        kind = read.value(annotation) if isinstance(annotation, ast.Attribute) else None
        if not isinstance(kind, namespace.Type):
            late.append((p, annotation))
            continue
        if not dtypes.is_int(kind.name):
            reason = f"the scalar parameter `{p.arg}` must be an integer, got {kind.name}"
            raise read.error(reason, p, "pass it as T.Buffer((1,), ...)")
        draft.scalars.append(Var(p.arg, kind.name))
        draft.names.taken.add(p.arg)
        found[p.arg] = read.scopes.bind(p.arg, draft.scalars[-1])
    for p, annotation in late:
        found[p.arg] = read.scopes.bind(p.arg, _array(read, draft, p.arg, annotation))
    return found


def _array(read: Expressions, draft: Draft, name: str, node: ast.expr) -> Buffer | Handle:
    """A parameter that is an array, or a handle of one."""
    form: Any = None
    match node:
        case ast.Call():
            form = read.form(node)
        case ast.Subscript(value=value, slice=arguments):
            form = read.value(value)
            items = arguments.elts if isinstance(arguments, ast.Tuple) else [arguments]
            node = ast.copy_location(ast.Call(value, items, []), node)
        case ast.Attribute():
            form = read.value(node)
    if form is namespace.handle:
        return Handle(name)
    if form is not namespace.Buffer or not isinstance(node, ast.Call):
        hint = 'T.Buffer((128, 128), "float32"), T.handle, or T.int32 for a size'
        raise read.error(f"`{read.text(node)}` is no type of a parameter", node, hint)
    draft.names.taken.add(name)
    given = read.arguments(form, node)
    view = Buffers(read, draft).declaration(given)
    if "data" in given:
        raise given.error("a parameter has memory of its own", at="data")
    return view.buffer.with_(name=name)


def _without_root(read: Expressions, body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements without `with T.block("root"):` around the last: the function is that block."""

    def form(s: ast.stmt) -> Any:
        """The form or type to the right of an assignment, or None."""
        return read.form(s.value) if isinstance(s, ast.Assign) else None

    def inert(s: ast.stmt) -> bool:
        made = form(s)
        declares = isinstance(made, namespace.Form) and made.name in (*BUFFERS, "var")
        return isinstance(s, ast.Expr) or isinstance(made, namespace.Type) or declares

    match body:
        case [*before, ast.With([ast.withitem(ast.Call(args=[ast.Constant("root")], keywords=[]) as call, None)], inner)]:
            axes = any(isinstance(form(s), namespace.AxisForm) for s in inner)
            if read.form(call) is not namespace.block or axes or not all(map(inert, before)):
                return body
        case _:
            return body
    kept = []
    for s in inner:
        stated = read.form(s.value) if isinstance(s, ast.Expr) else None
        if stated is namespace.block_attr:
            s.value.func.attr = "func_attr"  # type: ignore[attr-defined]
        if stated is not namespace.reads and stated is not namespace.writes:
            kept.append(s)
    return [*before, *kept]
