"""Scripts read: a text or a decorated function becomes a function of the IR.

The program is never executed. Names from outside a decorated function stand for their values; loops and blocks that share a name are
told apart by suffixes, since names are the handles of schedules; what the IR says in one way only (loops that start at 0, buffers
without views) is brought into that way here.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import dtypes
from ..ir import (
    TRUE,
    Allocate,
    Axis,
    Block,
    Buffer,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Iter,
    Kind,
    Let,
    Load,
    PrimFunc,
    Range,
    Region,
    Stmt,
    Store,
    Var,
    as_expr,
    as_index,
    binary,
    cast,
    seq,
)
from ..simplify import equal, simplify
from ..traverse import N, fresh, substitute, variables
from . import ir as namespace_ir, tir as namespace_tir
from .error import ScriptError
from .expressions import Data, Expressions, Handle, Pointer, Scope, Thread
from .module import Module
from .source import Source
from .views import Reshaped, View, Window, size, strides

Wrapper = Callable[[Stmt], Stmt]  # a statement around all that follow it

_ITERS = {"spatial": Axis.SPATIAL, "reduce": Axis.REDUCE, "opaque": Axis.OPAQUE, "scan": Axis.OPAQUE}
_KINDS = {
    "serial": Kind.SERIAL,
    "parallel": Kind.PARALLEL,
    "vectorized": Kind.VECTORIZED,
    "unroll": Kind.UNROLLED,
    "thread_binding": Kind.THREAD,
}
_A_VALUE = object()
_BUFFERS = ("match_buffer", "alloc_buffer", "allocate", "decl_buffer", "Buffer", "sblock_alloc_buffer")

# Remarks that cannot change what a program computes.
_REMARKS = ("pragma_", "buffer_dim_align", "storage_alignment", "hand_threaded", "realize_scope", "storage_scope", "extern_scope")

_STATEMENTS: dict[type[ast.stmt], tuple[str, str]] = {
    ast.While: ("`while` is not in the dialect", "only counted loops: for i in range(n)"),
    ast.Return: ("`return` is not in the dialect", "results are written to parameters"),
    ast.Assert: ("`assert` is not in the dialect", "tir.verify proves accesses in bounds"),
    ast.FunctionDef: ("a function inside a function is not in the dialect", "define it outside; it may be called with expressions"),
    ast.Break: ("`break` is not in the dialect", "guard what follows: if condition:"),
    ast.Continue: ("`continue` is not in the dialect", "guard what follows: if condition:"),
    ast.Delete: ("`del` is not in the dialect", "buffers end with the block or statement list that they stand in"),
}


# --- entry points ------------------------------------------------------------------------------------------------------


def parse(source: str, filename: str = "<script>") -> PrimFunc | Module:
    """The function, or the module, that a text defines.

    The text holds one function under `@T.prim_func` or one class under `@I.ir_module` (several functions make a module called
    Module), import lines, and constants such as `N = 128`. Nothing is executed. ScriptError says where it is no program.
    """
    text = Source(filename, tuple(source.splitlines()))
    tree = _tree(source, text)
    captured: dict[str, Any] = {"T": namespace_tir, "I": namespace_ir}
    outside = Expressions(text, captured, live=False)
    functions: list[PrimFunc] = []
    modules: list[Module] = []
    for s in tree.body:
        match s:
            case ast.Import() | ast.ImportFrom():
                _import(s, captured)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                captured[name] = outside.value(value)
            case ast.FunctionDef():
                _decorated(s, "prim_func", outside)
                functions.append(Parser(text, captured, live=False).function(s))
            case ast.ClassDef():
                _decorated(s, "ir_module", outside)
                modules.append(_module(s, text, captured, outside))
            case _:
                raise text.error("only imports, constants, functions and modules stand at the top of a script", s)
    match functions, modules:
        case [func], []:
            return func
        case [], [module]:
            return module
        case [], []:
            raise ScriptError("there is no function in this script", filename, hint="put @T.prim_func above the function")
        case _, []:
            return Module("Module", {f.name: f for f in functions})
    raise ScriptError("a script holds one module, or functions outside of one", filename)


def parse_function(function: Callable, around: Mapping[str, Any]) -> PrimFunc:
    """The function that a decorated Python function says; `around` are the local names where it is defined."""
    name = getattr(function, "__name__", repr(function))
    if not inspect.isfunction(function):
        raise ScriptError(f"@T.prim_func stands above a function, not {name}")
    filename = function.__code__.co_filename
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise ScriptError(
            f"the source of `{name}` cannot be read",
            filename,
            hint="put the function into a file, or give its text to tir.script.parse",
        ) from None
    source = Source(filename, tuple(line.rstrip("\n") for line in lines), first)
    indented = lines[0][:1].isspace()
    tree = _tree(("if 1:\n" if indented else "") + "".join(lines), source)
    ast.increment_lineno(tree, first - (2 if indented else 1))
    definition = tree.body[0].body[0] if indented else tree.body[0]  # type: ignore[attr-defined]
    captured = dict(function.__globals__) | dict(around)
    for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            captured[free] = cell.cell_contents
        except ValueError:  # not bound yet
            pass
    if not isinstance(definition, ast.FunctionDef):
        raise source.error("@T.prim_func stands above a `def`", definition)
    return Parser(source, captured, live=True).function(definition)


def _tree(text: str, source: Source) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as e:
        line, start = (e.lineno or 1) + source.first - 1, max(0, (e.offset or 1) - 1)
        end = (e.end_offset or 0) - 1 if e.end_lineno == e.lineno else start + 1
        shown = source.lines[e.lineno - 1] if e.lineno and e.lineno <= len(source.lines) else (e.text or "").rstrip("\n")
        raise ScriptError(f"not Python: {e.msg}", source.filename, line, start, end, shown) from None


def _import(s: ast.Import | ast.ImportFrom, captured: dict[str, Any]) -> None:
    """The names of the namespaces; other imports are read over, since nothing is executed."""
    if isinstance(s, ast.ImportFrom) and s.module and s.module.split(".")[-1] == "script":
        for alias in s.names:
            space = {"tir": namespace_tir, "ir": namespace_ir}.get(alias.name)
            if space is not None:
                captured[alias.asname or alias.name] = space


def _decorated(s: ast.FunctionDef | ast.ClassDef, name: str, outside: Expressions) -> None:
    """Check that `@T.prim_func` (or `@I.ir_module`) stands above."""
    names = [ast.unparse(d.func if isinstance(d, ast.Call) else d).split(".")[-1] for d in s.decorator_list]
    if names != [name]:
        what = "function" if isinstance(s, ast.FunctionDef) else "class"
        above = f"@{'T' if name == 'prim_func' else 'I'}.{name}"
        raise outside.error(f"{above} belongs above the {what} `{s.name}`, and nothing else", s)


def _module(s: ast.ClassDef, text: Source, captured: dict[str, Any], outside: Expressions) -> Module:
    functions: dict[str, PrimFunc] = {}
    for item in s.body:
        match item:
            case ast.FunctionDef():
                _decorated(item, "prim_func", outside)
                functions[item.name] = Parser(text, captured, live=False).function(item)
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="module_attrs" | "module_global_infos"))):
                pass
            case _:
                raise text.error("a module holds functions under @T.prim_func, and nothing else", item)
    return Module(s.name, functions)


# --- the parser --------------------------------------------------------------------------------------------------------


@dataclass
class Frame:
    """What belongs to a block, or to the function: collected while its statements are read."""

    node: ast.AST
    scope: Scope
    block: bool
    iters: list[Iter] = field(default_factory=list)
    allocs: list[Buffer] = field(default_factory=list)
    annotations: dict[str, Any] = field(default_factory=dict)
    predicate: Expr | None = None
    reads: tuple[Region, ...] | None = None
    writes: tuple[Region, ...] | None = None
    init: Stmt | None = None
    has: set[str] = field(default_factory=set)  # what has been stated
    lets: dict[str, Expr] = field(default_factory=dict)  # bound directly in it: what it states may use them

    def closed(self, node: N) -> N:
        """Without the lets of this block, which start only after its header."""
        return substitute(node, self.lets) if self.lets else node


@dataclass(frozen=True)
class Domain:
    """What a loop or iteration variable runs over, as the source says it: `start`, and how many."""

    start: Expr
    extent: Expr
    variable: Var


class Parser(Expressions):
    """Reads one function."""

    def __init__(self, source: Source, captured: Mapping[str, Any], live: bool):
        super().__init__(source, captured, live)
        self.frames: list[Frame] = []
        self.sizes: list[Var] = []  # symbolic sizes that the body declares
        self.domains: dict[Expr, Domain] = {}
        self.root = self.scope
        self.line = 0  # of the statement being read
        self.lines: dict[str, int] = {}  # where a name was last bound

    # --- functions -----------------------------------------------------------------------------------------------------

    def function(self, node: ast.FunctionDef) -> PrimFunc:
        """The function that a definition says."""
        a = node.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults:
            raise self.error("a function of the dialect has plain parameters only", node)
        self.names = Names(node)
        params: dict[str, Any] = {}
        late: list[tuple[ast.arg, ast.expr]] = []
        for p in a.args:
            if p.annotation is None:
                raise self.error(f"the parameter `{p.arg}` has no annotation", p, 'write A: T.Buffer((128, 128), "float32")')
            annotation = self.annotation(p.annotation)
            kind = self.value(annotation) if isinstance(annotation, ast.Attribute) else None
            if isinstance(kind, namespace_tir.Type):
                if not dtypes.is_int(kind.name):
                    raise self.error(
                        f"the scalar parameter `{p.arg}` must be an integer, got {kind.name}", p, "pass it as T.Buffer((1,), ...)"
                    )
                params[p.arg] = self.bind(p.arg, Var(p.arg, kind.name))
                self.names.taken.add(p.arg)
            else:
                params[p.arg] = None
                late.append((p, annotation))
        for p, annotation in late:
            params[p.arg] = self.bind(p.arg, self.parameter(p, annotation))
        self.frames.append(Frame(node, self.scope, block=False))
        body = self.statements(self.without_root(node.body))
        result: list[Buffer | Var] = []
        for p in a.args:
            value = params[p.arg]
            if isinstance(value, Handle):
                if value.buffer is None:
                    raise self.error(f"the handle `{p.arg}` is given no shape", p, f"A = T.match_buffer({p.arg}, (128,))")
                value = value.buffer
            result.append(value)
        frame = self.frames.pop()
        attrs = tuple(sorted(frame.annotations.items()))
        return PrimFunc(node.name, (*result, *self.sizes), body or Evaluate(Const(0)), tuple(frame.allocs), attrs)

    def annotation(self, node: ast.expr) -> ast.expr:
        """An annotation, taken out of the string that it may be."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                inner = ast.parse(node.value.strip(), mode="eval").body
            except SyntaxError:
                raise self.error(f"the annotation {node.value!r} is not an expression", node) from None
            return _placed(inner, node)
        return node

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
        if form is namespace_tir.handle:
            return Handle(p.arg, p)
        if form is not namespace_tir.Buffer or not isinstance(node, ast.Call):
            raise self.error(
                f"`{self.text(node)}` is no type of a parameter", node, 'T.Buffer((128, 128), "float32"), T.handle, or T.int32 for a size'
            )
        self.names.taken.add(p.arg)
        shape, dtype, scope, arguments_ = self.declaration(form, node)
        if "data" in arguments_:
            raise self.error("a parameter has memory of its own", arguments_["data"])
        return Buffer(p.arg, shape, dtype, scope)

    def without_root(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements with `with T.block("root"):` taken away where it is the last and binds nothing: the function is that block."""
        if not body or not isinstance(body[-1], ast.With):
            return body
        match body[-1].items:
            case [ast.withitem(context_expr=ast.Call(args=[ast.Constant(value="root")], keywords=[]) as call, optional_vars=None)]:
                if self.form(call) is not namespace_tir.block:
                    return body
            case _:
                return body
        for s in body[:-1]:
            inert = isinstance(s, ast.Expr) or (isinstance(s, ast.Assign) and getattr(self.form(s.value), "name", "") in (*_BUFFERS, "var", *dtypes.TABLE))
            if not inert:
                return body
        inner = body[-1].body
        if any(isinstance(s, ast.Assign) and isinstance(s.value, ast.Call) and ".axis." in self.text(s.value.func) for s in inner):
            return body
        kept = []
        for s in inner:
            form = self.form(s.value) if isinstance(s, ast.Expr) else None
            if form is namespace_tir.reads or form is namespace_tir.writes:
                continue
            if form is namespace_tir.block_attr:
                s.value.func.attr = "func_attr"  # type: ignore[attr-defined]
            kept.append(s)
        return [*body[:-1], *kept]

    # --- scopes --------------------------------------------------------------------------------------------------------

    def bind(self, name: str, value: Any) -> Any:
        self.scope.names[name] = value
        self.lines[name] = self.line
        if isinstance(value, Var):
            self.scope.variables.add(value.name)
        return value

    def inside(self, nodes: list[ast.stmt], names: Mapping[str, Any] | None = None, variables: set[str] | None = None) -> Stmt | None:
        """Statements in a scope of their own."""
        outer = self.enter()
        for name, value in (names or {}).items():
            self.bind(name, value)
        self.scope.variables |= variables or set()
        result = self.statements(nodes)
        self.leave(outer)
        return result

    def enter(self) -> Scope:
        """Start a scope; returns the one around it, for `leave`."""
        outer, self.scope = self.scope, Scope(self.scope)
        return outer

    def leave(self, outer: Scope) -> None:
        """End a scope, and remember where its names were bound, for messages."""
        for name in self.scope.names:
            self.left[name] = self.lines[name]
        self.scope = outer

    # --- statements ----------------------------------------------------------------------------------------------------

    def statements(self, nodes: list[ast.stmt]) -> Stmt | None:
        """The statements in order; None where they only declare."""
        done: list[Stmt] = []
        for n, node in enumerate(nodes):
            result = self.statement(node)
            if isinstance(result, Stmt):
                done.append(result)
                if self.frames[-1].scope is self.scope:
                    self.frames[-1].has.add("statements")
            elif result is not None:  # it holds for the rest
                done.append(result(self.statements(nodes[n + 1 :]) or Evaluate(Const(0))))
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
                if not isinstance(condition, Expr) and self.plain(condition):  # known to Python
                    chosen = body if condition else orelse
                    return self.inside(chosen) if chosen else None
                return If(
                    self.condition(condition, test),
                    self.inside(body) or Evaluate(Const(0)),
                    (self.inside(orelse) or Evaluate(Const(0))) if orelse else None,
                )
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
            case ast.Pass():
                return None
        reason, hint = _STATEMENTS.get(type(node), (f"`{type(node).__name__}` is not a statement of the dialect", None))
        if isinstance(node, ast.Expr):
            reason, hint = "this value is not used", "T.evaluate(...) evaluates an expression for its effect"
        raise self.error(reason, node, hint)

    def called(self, node: ast.Call) -> Stmt | Wrapper | None:
        """A call that is a statement."""
        form = self.form(node)
        if form is None:
            value = self.value(node)
            if isinstance(value, Stmt):
                return value
            raise self.error("this value is not used", node, "T.evaluate(...) evaluates an expression for its effect")
        match form.name:
            case "evaluate":
                return Evaluate(self.expr(self.arguments(form, node)["value"]))
            case "func_attr":
                self.frames[0].annotations |= self.mapping(self.arguments(form, node)["attrs"])
                return None
            case "attr":
                self.remark(node)
                return None
            case "launch_thread" if isinstance(thread := self.arguments(form, node)["thread"], ast.Name):
                return self.launch(thread.id, node)
            case "where" | "reads" | "writes" | "block_attr":
                frame = self.frame(node)
                arguments = self.arguments(form, node)
                if form.name in frame.has and form.name != "block_attr":
                    raise self.error(f"`{self.text(node.func)}` is stated twice in this block", node)
                frame.has.add(form.name)
                match form.name:
                    case "where":
                        frame.predicate = frame.closed(self.condition(self.value(arguments["predicate"]), arguments["predicate"]))
                    case "reads":
                        frame.reads = tuple(frame.closed(r) for r in self.regions(node.args))
                    case "writes":
                        frame.writes = tuple(frame.closed(r) for r in self.regions(node.args))
                    case _:
                        frame.annotations |= self.mapping(arguments["attrs"])
                return None
        if isinstance(form, namespace_tir.Type):
            raise self.error("this value is not used", node, "T.evaluate(...) evaluates an expression for its effect")
        raise self.error(f"`{self.text(node.func)}` {form.place}", node)

    def frame(self, node: ast.Call) -> Frame:
        """The block that a statement stands directly in."""
        frame = self.frames[-1]
        if not frame.block or frame.scope is not self.scope:
            raise self.error(f"`{self.text(node.func)}` stands directly in a block", node, 'with T.block("C"): ...')
        return frame

    def regions(self, nodes: list[ast.expr]) -> tuple[Region, ...]:
        result: list[Region] = []
        for n in nodes:
            if isinstance(n, ast.List):
                result.extend(self.regions(n.elts))
                continue
            value = self.value(n)
            match value:
                case Region():
                    result.append(value)
                case Load(buffer, indices):
                    result.append(Region(buffer, tuple(Range(i, Const(1, i.dtype)) for i in indices)))
                case Buffer(shape=shape):
                    result.append(Region(value, tuple(Range(Const(0), d) for d in shape)))
                case _:
                    raise self.error(f"`{self.text(n)}` is no region of a buffer", n, "A[i, j] or A[0:16, j]")
            if result[-1].buffer in self.frames[-1].allocs:
                name = result[-1].buffer.name
                raise self.error(f"`{name}` is allocated in this block", n, "a block states what it reads and writes of buffers around it")
        return tuple(result)

    def remark(self, node: ast.Call) -> None:
        """`T.attr`: nothing, where it cannot change the result."""
        key = self.value(self.arguments(namespace_tir.attr, node)["attr_key"])
        if not isinstance(key, str) or not key.startswith(_REMARKS):
            hint = "T.launch_thread, or T.thread_binding" if key in ("thread_extent", "virtual_thread") else None
            raise self.error(f"T.attr with {key!r} may change what the program means", node, hint)

    def mapping(self, node: ast.expr) -> dict[str, Any]:
        value = self.data(self.value(node), node)
        if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
            raise self.error("attributes are a dictionary with strings as keys", node, '{"pragma_unroll": 16}')
        return value

    def data(self, value: Any, node: ast.AST) -> Any:
        """A value as plain data, such as annotations hold."""
        match value:
            case Const(value=plain):
                return plain
            case None | bool() | int() | float() | str():
                return value
            case list() | tuple():
                return [self.data(v, node) for v in value]
            case dict():
                return {k: self.data(v, node) for k, v in value.items()}
        raise self.error(f"attributes hold plain data, not {type(value).__name__}", node, "numbers, strings, lists and dictionaries")

    # --- assignments ---------------------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: ast.expr, node: ast.stmt) -> Stmt | Wrapper | None:
        if isinstance(target, ast.Subscript):
            return self.store(target, value)
        form = self.form(value)
        if form is not None and isinstance(value, ast.Call):
            declared = self.declare(target, value, form)
            if declared is not _A_VALUE:
                return declared
        found = self.value(value)
        if isinstance(target, ast.Name):
            return self.let(target.id, found, value)
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(found, (tuple, list)):
            if len(found) != len(target.elts):
                raise self.error(f"{len(target.elts)} names, but {len(found)} values", node)
            wrappers = [self.let(self.identifier(t), v, value) for t, v in zip(target.elts, found, strict=True)]
            return _nested([w for w in wrappers if w is not None])
        raise self.error(f"`{self.text(target)}` cannot be assigned to", target, "a name, or an element A[i, j]")

    def declare(self, target: ast.expr, value: ast.Call, form: Any) -> Any:
        """What a form to the right of `=` declares; `_A_VALUE` where it is a value after all."""
        match form.name:
            case "match_buffer":
                return self.match_buffer(self.identifier(target), value)
            case "alloc_buffer":
                shape, dtype, scope, arguments = self.declaration(form, value)
                if "data" in arguments:
                    raise self.error("T.alloc_buffer makes memory of its own", arguments["data"], "T.Buffer(shape, data=...) is a view")
                shape = tuple(self.frames[-1].closed(d) for d in shape)
                buffer = Buffer(self.names.buffer(self.identifier(target)), shape, dtype, scope)
                self.frames[-1].allocs.append(buffer)
                self.bind(self.identifier(target), buffer)
                return None
            case "allocate":
                return self.allocate(self.identifier(target), value)
            case "decl_buffer" | "Buffer":
                return self.declare_buffer(self.identifier(target), value, form)
            case "spatial" | "reduce" | "opaque" | "scan" | "remap":
                return self.axes(target, value, form)
            case "var" | "env_thread":
                arguments = self.arguments(form, value)
                if form.name == "env_thread":
                    self.bind(self.identifier(target), Thread(self.string(arguments["thread_tag"])))
                    return None
                return self.size(target, self.string(arguments["dtype"]) if "dtype" in arguments else "int32", value)
            case "launch_thread":
                return self.launch(self.identifier(target), value)
            case name if isinstance(form, namespace_tir.Type) and not value.args and not value.keywords:
                return self.size(target, name, value)
        return _A_VALUE

    def size(self, target: ast.expr, dtype: str, node: ast.AST) -> None:
        """A symbolic size: a parameter after all the others."""
        name = self.identifier(target)
        if dtype not in dtypes.TABLE or not dtypes.is_int(dtype):
            raise self.error(f"a size must be an integer, not {dtype}", node)
        var = Var(self.names.buffer(name), dtype)
        self.sizes.append(var)
        self.root.variables.add(var.name)
        self.bind(name, var)

    def let(self, name: str, value: Any, node: ast.AST, dtype: str | None = None) -> Wrapper | None:
        """Bind a name for the statements that follow; what Python knows is put in where the name stands."""
        if dtype is None and not isinstance(value, Expr):
            if not self.plain(value) and not isinstance(value, (Buffer, Reshaped, Window)):
                self.checked(value, node)
            self.bind(name, value)
            return None
        value = self.guard(as_expr, node, self.checked(value, node), dtype)
        if dtype is not None and value.dtype != dtype:
            raise self.error(
                f"`{name}` is declared as {dtype}, but its value is {value.dtype}", node, f'convert it: T.Cast("{dtype}", ...)'
            )
        var = Var(self.names.local(name, self.scope), value.dtype)
        self.let_range(var.name, value)
        if self.frames[-1].scope is self.scope:
            self.frames[-1].lets[var.name] = self.frames[-1].closed(value)
        self.bind(name, var)
        return lambda rest: Let(var, value, rest)

    def typed(self, target: ast.Name, annotation: ast.expr, value: ast.expr) -> Wrapper | None:
        annotation = self.annotation(annotation)
        if isinstance(annotation, ast.Subscript):  # T.let[T.int32]
            annotation = annotation.slice
        kind = self.value(annotation)
        if kind is namespace_tir.let:
            return self.let(target.id, self.expr(value), value)
        if not isinstance(kind, namespace_tir.Type):
            raise self.error(f"`{self.text(annotation)}` is no type of a value", annotation, "T.int32, T.float32, ...")
        return self.let(target.id, self.value(value), value, kind.name)

    def store(self, target: ast.Subscript, value: ast.expr) -> Stmt:
        base = self.value(target.value)
        if isinstance(base, Pointer):
            base = self.memory(base)
        if not isinstance(base, (Buffer, Reshaped, Window)):
            raise self.error(f"`{self.text(target.value)}` is no buffer", target.value)
        for n in self.index_nodes(target):
            if isinstance(n, ast.Slice):
                raise self.error("elements are stored one at a time", n, "write a loop: for i in T.vectorized(16): A[i] = ...")
        buffer, indices = self.element(base, target)
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

    # --- buffers -------------------------------------------------------------------------------------------------------

    def declaration(self, form: Any, node: ast.Call) -> tuple[tuple[Expr, ...], str, str, dict[str, ast.expr]]:
        """Shape, dtype and scope of a declared buffer, and the other arguments; what the IR cannot say is refused."""
        arguments = self.arguments(form, node)
        shape = self.shape(arguments["shape"]) if "shape" in arguments else ()
        dtype = self.dtype(arguments["dtype"]) if "dtype" in arguments else "float32"
        scope = (self.string(arguments["scope"]) if "scope" in arguments else "") or "global"
        if "strides" in arguments:
            given = self.value(arguments["strides"])
            if given not in (None, (), []):
                steps = [self.integer(v, arguments["strides"]) for v in given]
                if len(steps) != len(shape) or not all(equal(a, b) for a, b in zip(steps, strides(shape), strict=True)):
                    raise self.error("buffers are dense and row-major; strides are not in the dialect", arguments["strides"])
        if "elem_offset" in arguments and "data" not in arguments:
            offset = self.value(arguments["elem_offset"])
            if offset is not None and not (isinstance(offset, int) and offset == 0) and offset != Const(0, "int64") and offset != Const(0):
                raise self.error("buffers start at their first element; elem_offset is not in the dialect", arguments["elem_offset"])
        if "axis_separators" in arguments and self.value(arguments["axis_separators"]) not in (None, [], ()):
            raise self.error("axis_separators are not in the dialect", arguments["axis_separators"])
        if "buffer_type" in arguments and self.value(arguments["buffer_type"]) not in ("", "default"):
            raise self.error("broadcasting buffers are not in the dialect", arguments["buffer_type"])
        return shape, dtype, scope, arguments

    def string(self, node: ast.expr) -> str:
        value = self.value(node)
        if isinstance(value, namespace_tir.Type):
            return value.name
        if not isinstance(value, str):
            raise self.error(f"a string is needed here, not `{self.text(node)}`", node)
        return value

    def dtype(self, node: ast.expr) -> str:
        return self.guard(dtypes.check, node, self.string(node))

    def shape(self, node: ast.expr) -> tuple[Expr, ...]:
        if isinstance(node, (ast.Tuple, ast.List)):
            result: list[Expr] = []
            for n in node.elts:
                if isinstance(n, ast.Constant) and isinstance(n.value, str):
                    result.append(self.symbolic(n))
                elif isinstance(n, ast.Starred):
                    result.extend(self.integer(v, n) for v in self.items([n]))
                else:
                    result.append(self.index(n))
            return tuple(result)
        value = self.value(node)
        items = value if isinstance(value, (tuple, list)) else (value,)
        return tuple(self.integer(v, node) for v in items)

    def symbolic(self, node: ast.Constant) -> Expr:
        """A dimension in quotation marks, so that Python need not know its names: one that is new becomes a size."""
        inner = self.annotation(node)
        if isinstance(inner, ast.Name) and self.scope.find(inner.id) is None and inner.id not in self.captured:
            self.size(inner, "int32", node)
        return self.index(inner)

    def match_buffer(self, name: str, node: ast.Call) -> None:
        arguments = self.arguments(namespace_tir.match_buffer, node)
        param = self.value(arguments["param"])
        shape, dtype, scope, arguments = self.declaration(namespace_tir.match_buffer, node)
        if isinstance(param, Load):
            param = Region(param.buffer, tuple(Range(i, Const(1, i.dtype)) for i in param.indices))
        if isinstance(param, Buffer):
            param = Region(param, tuple(Range(Const(0), d) for d in param.shape))
        if isinstance(param, Region):
            self.bind(name, self.window(param, shape if "shape" in arguments else None, dtype, scope, arguments, node))
            return
        if not isinstance(param, Handle):
            raise self.error(f"`{self.text(arguments['param'])}` is neither a handle nor a region", arguments["param"])
        if param.buffer is not None:
            raise self.error(f"`{param.name}` has a shape already", node, "another view is T.Buffer(shape, data=A.data)")
        if "shape" not in arguments:
            raise self.error(f"`{self.text(node.func)}`: the shape is missing", node, f"T.match_buffer({param.name}, (128, 128))")
        param.buffer = self.bind(name, Buffer(self.names.buffer(name), shape, dtype, scope))

    def window(
        self, region: Region, shape: tuple[Expr, ...] | None, dtype: str, scope: str, arguments: dict[str, ast.expr], node: ast.Call
    ) -> Window:
        """A part of a buffer under a name of its own: dimensions of extent 1 may be left out."""
        if dtype != region.buffer.dtype:
            raise self.error(f"`{region.buffer.name}` holds {region.buffer.dtype}, not {dtype}", node, f'dtype="{region.buffer.dtype}"')
        if "scope" in arguments and scope != region.buffer.scope:
            raise self.error(f"`{region.buffer.name}` is in {region.buffer.scope}, not {scope}", node)
        extents = [r.extent for r in region.ranges]
        starts = tuple(r.min for r in region.ranges)
        if shape is None:
            return Window(region.buffer, tuple(extents), starts, tuple(range(len(extents))))
        dims: list[int] = []
        d = 0
        for extent in shape:  # each takes the next dimension that is as long
            while d < len(extents) and not equal(extents[d], extent, self.ranges) and extents[d] == Const(1, extents[d].dtype):
                d += 1
            if d == len(extents) or not equal(extents[d], extent, self.ranges):
                break
            dims.append(d)
            d += 1
        if len(dims) != len(shape) or any(extents[k] != Const(1, extents[k].dtype) for k in range(d, len(extents))):
            given, wanted = (f"({', '.join(map(str, s))})" for s in (extents, shape))
            raise self.error(f"a region of extents {given} is not of shape {wanted}", node, "only dimensions of extent 1 may be left out")
        return Window(region.buffer, shape, starts, tuple(dims))

    def allocate(self, name: str, node: ast.Call) -> Wrapper:
        arguments = self.arguments(namespace_tir.allocate, node)
        extents = self.shape(arguments["extents"])
        dtype = self.dtype(arguments["dtype"]) if "dtype" in arguments else "float32"
        scope = self.string(arguments["scope"]) if "scope" in arguments else "global"
        if "condition" in arguments and self.value(arguments["condition"]) not in (True, TRUE):
            raise self.error("memory is allocated always, not under a condition", arguments["condition"])
        pointer = Pointer(self.names.buffer(name), extents, dtype, scope, self.names.one_shape(name))
        self.bind(name, pointer)
        return lambda rest: Allocate(pointer.seen_as(extents, size(extents)), rest)

    def declare_buffer(self, name: str, node: ast.Call, form: Any) -> Wrapper | None:
        """A view of memory, or without `data` a buffer for the statements that follow."""
        shape, dtype, scope, arguments = self.declaration(form, node)
        if "shape" not in arguments:
            raise self.error(f"`{self.text(node.func)}`: the shape is missing", node)
        memory = self.value(arguments["data"]) if "data" in arguments else None
        if memory is None:
            if form is namespace_tir.Buffer:
                raise self.error("a view says whose elements it shows", node, f"{name} = T.Buffer(shape, data=A.data), or T.alloc_buffer(shape)")
            buffer = self.bind(name, Buffer(self.names.buffer(name), shape, dtype, scope))
            return lambda rest: Allocate(buffer, rest)
        offset: Expr = self.index(arguments["elem_offset"]) if "elem_offset" in arguments else Const(0)
        match memory:
            case Pointer():
                if "scope" in arguments and scope != memory.scope:
                    raise self.error(f"`{memory.name}` is in {memory.scope}, not {scope}", arguments["scope"])
                self.same_dtype(dtype, memory.dtype, memory.name, node)
                base = memory.seen_as(shape, size(memory.extents))
            case Handle():
                if memory.buffer is None:
                    memory.buffer = Buffer(self.names.buffer(name), shape, dtype, scope)
                base = memory.buffer
            case Data(buffer=base):
                pass
            case _:
                raise self.error(
                    f"`{self.text(arguments['data'])}` is no memory", arguments["data"], "A.data of a buffer, or what T.allocate made"
                )
        self.same_dtype(dtype, base.dtype, base.name, node)
        room, needed = size(base.shape), simplify(binary("+", size(shape), offset))
        if isinstance(room, Const) and isinstance(needed, Const) and needed.value > room.value:
            raise self.error(f"a view up to element {needed.value} of `{base.name}`, which has {room.value}", node)
        self.bind(name, base if shape == base.shape and offset == Const(0) else Reshaped(base, shape, offset))
        return None

    def same_dtype(self, dtype: str, wanted: str, name: str, node: ast.AST) -> None:
        if dtype != wanted:
            raise self.error(f"a view of `{name}` as {dtype}, but it holds {wanted}", node, "bits cannot be reinterpreted")

    # --- loops ---------------------------------------------------------------------------------------------------------

    def loop(self, node: ast.For) -> Stmt:
        if node.orelse:
            raise self.error("`else` of a loop is not in the dialect", node.orelse[0])
        form = self.form(node.iter)
        call = node.iter
        is_range = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"
        if not isinstance(call, ast.Call) or not (is_range or getattr(form, "place", None) == namespace_tir.grid.place):
            raise self.error(
                f"`{self.text(call)}` is no range of a loop", call, "range(n), T.grid(m, n), T.serial(n), T.parallel(n), T.vectorized(n), ..."
            )
        targets = node.target.elts if isinstance(node.target, (ast.Tuple, ast.List)) else [node.target]
        kind, notes, thread, step = Kind.SERIAL, {}, "", 1
        dtype: str | None = None
        spans: list[tuple[Expr, Expr]] = []
        if form is namespace_tir.grid:
            arguments = call.args
            if call.keywords:
                raise self.error("T.grid takes extents only", call.keywords[0].value)
            if any(isinstance(a, ast.Starred) for a in arguments):
                spans = [(Const(0), self.integer(v, call)) for v in self.items(arguments)]
            else:
                spans = [(Const(0), self.index(a)) for a in arguments]
        else:
            if is_range:
                if call.keywords or not 1 <= len(call.args) <= 3:
                    raise self.error("range takes one to three numbers", call)
                first, *others = call.args
                if len(others) == 2:
                    value = self.value(others[1])
                    step = value.value if isinstance(value, Const) else value
                    if not isinstance(step, int) or step < 1:
                        raise self.error(f"the step of a loop is a positive constant, not `{self.text(others[1])}`", others[1])
                given: dict[str, ast.expr] = {"start": first, **({"stop": others[0]} if others else {})}
            else:
                given = self.arguments(form, call)
                kind = _KINDS[form.name]
            stop_node = given.get("stop")
            if kind is Kind.THREAD:
                if "thread" not in given and stop_node is not None and isinstance(stop_node, ast.Constant) and isinstance(stop_node.value, str):
                    given["thread"], stop_node = stop_node, None
                if "thread" not in given:
                    raise self.error("T.thread_binding needs the axis", call, 'T.thread_binding(128, thread="threadIdx.x")')
                thread = self.string(given["thread"])
            if isinstance(stop_node, ast.Constant) and stop_node.value is None:
                stop_node = None
            start = Const(0) if stop_node is None else self.index(given["start"])
            stop = self.index(given["start"] if stop_node is None else stop_node)
            spans = [(start, stop)]
            if "annotations" in given and not (isinstance(given["annotations"], ast.Constant) and given["annotations"].value is None):
                notes = self.mapping(given["annotations"])
            if "dtype" in given:
                dtype = self.dtype(given["dtype"])
        if len(targets) != len(spans):
            raise self.error(f"{len(targets)} loop variable{'s' * (len(targets) != 1)}, but {len(spans)} extent{'s' * (len(spans) != 1)}", node)
        loops: list[tuple[Var, Expr]] = []
        names: dict[str, Any] = {}
        variables: set[str] = set()
        for target, (start, stop) in zip(targets, spans, strict=True):
            name = self.identifier(target)
            extent = self.between(start, stop)
            if step != 1:
                extent = simplify(binary("//", binary("+", extent, step - 1), step))
            var = Var(self.names.loop(name), dtype or extent.dtype)
            variables.add(var.name)
            value: Expr = var if step == 1 else binary("*", var, step)
            if start != Const(0, start.dtype):
                value = binary("+", value, start)
            if step == 1:
                self.domains[value] = Domain(start, extent, var)
            self.extent_range(var.name, extent)
            names[name] = value
            loops.append((var, extent))
        body = self.inside(node.body, names, variables) or Evaluate(Const(0))
        annotations = tuple(sorted(notes.items()))
        for var, extent in reversed(loops):
            body = For(var, extent, body, kind, annotations, thread)
        return body

    def launch(self, name: str, node: ast.Call, rest: list[ast.stmt] | None = None) -> Any:
        """A thread axis around the statements that follow, or around those of a `with`."""
        arguments = self.arguments(namespace_tir.launch_thread, node)
        thread = self.value(arguments["thread"])
        tag = thread.tag if isinstance(thread, Thread) else thread
        if not isinstance(tag, str):
            raise self.error(f"`{self.text(arguments['thread'])}` is no thread axis", arguments["thread"], '"threadIdx.x"')
        extent = self.index(arguments["extent"])
        var = Var(self.names.loop(name), extent.dtype)
        self.domains[var] = Domain(Const(0), extent, var)
        self.extent_range(var.name, extent)
        if rest is not None:
            bound = {name: var}
            if isinstance(thread, Thread) and isinstance(arguments["thread"], ast.Name):
                bound[arguments["thread"].id] = var
            body = self.inside(rest, bound, {var.name})
            return For(var, extent, body or Evaluate(Const(0)), Kind.THREAD, (), tag)
        self.bind(name, var)
        return lambda body: For(var, extent, body, Kind.THREAD, (), tag)

    # --- with ----------------------------------------------------------------------------------------------------------

    def with_(self, node: ast.With, items: list[ast.withitem]) -> Stmt | None:
        item, *more = items
        body = node.body
        if more:
            inner = ast.copy_location(ast.With(more, node.body), node)
            body = [inner]
        call = item.context_expr
        form = self.form(call)
        if not isinstance(call, ast.Call) or not isinstance(form, namespace_tir.Form):
            raise self.error(f"`{self.text(call)}` has no meaning in a `with`", call, 'with T.block("C"):')
        bound = item.optional_vars
        name = self.identifier(bound) if bound is not None else None
        if name is None and form.name in ("LetStmt", "allocate", "decl_buffer", "launch_thread"):
            thread = self.arguments(form, call).get("thread")
            if isinstance(thread, ast.Name):
                name = thread.id
            else:
                raise self.error(f"`{self.text(call.func)}` needs a name", call, f"with {self.text(call)} as x:")
        if name is not None and form.name in ("block", "init", "let", "attr"):
            raise self.error(f"`{self.text(call.func)}` binds no name", bound or call)
        match form.name:
            case "block":
                return self.block(call, body, node)
            case "init":
                frame = self.frame(call)
                if "init" in frame.has:
                    raise self.error("T.init is stated twice in this block", call)
                frame.has.add("init")
                frame.init = self.inside(body)
                if frame.lets and frame.init is not None:
                    used = variables(frame.init)
                    for name_, value in frame.lets.items():
                        if name_ in used:
                            frame.init = Let(Var(name_, value.dtype), value, frame.init)
                return None
            case "attr":
                self.remark(call)
                return self.inside(body)
            case "launch_thread":
                return self.launch(str(name), call, body)
            case "let" | "LetStmt" | "allocate" | "decl_buffer":
                outer = self.enter()
                arguments = self.arguments(form, call)
                wrap: Wrapper | None
                match form.name:
                    case "let":
                        wrap = self.let(self.identifier(arguments["var"]), self.expr(arguments["value"]), call)
                    case "LetStmt":
                        wrap = self.let(str(name), self.expr(arguments["value"]), call)
                    case "allocate":
                        wrap = self.allocate(str(name), call)
                    case _:
                        wrap = self.declare_buffer(str(name), call, form)
                result = self.statements(body)
                self.leave(outer)
                return wrap(result or Evaluate(Const(0))) if wrap is not None else result
        raise self.error(f"`{self.text(call.func)}` {form.place}", call)

    def block(self, call: ast.Call, body: list[ast.stmt], node: ast.With) -> Stmt:
        arguments = self.arguments(namespace_tir.block, call)
        name = self.string(arguments["name"]) if "name" in arguments else ""
        outer = self.enter()
        frame = Frame(node, self.scope, block=True)
        self.frames.append(frame)
        label = self.names.block(name)
        result = self.statements(body)
        self.frames.pop()
        self.leave(outer)
        return Block(
            label,
            tuple(frame.iters),
            result or Evaluate(Const(0)),
            frame.init,
            TRUE if frame.predicate is None else frame.predicate,
            frame.reads,
            frame.writes,
            tuple(frame.allocs),
            tuple(sorted(frame.annotations.items())),
        )

    def axes(self, target: ast.expr, node: ast.Call, form: Any) -> None:
        frame = self.frame(node)
        if "statements" in frame.has:
            raise self.error("the axes of a block stand before its statements", node)
        arguments = self.arguments(form, node)
        dtype = self.dtype(arguments["dtype"]) if "dtype" in arguments else None
        if form.name != "remap":
            name = self.identifier(target)
            dom = self.value(arguments["dom"])
            start: Expr = Const(0)
            if isinstance(dom, (tuple, list)) and len(dom) == 2:
                start, stop = (self.integer(v, arguments["dom"]) for v in dom)
                extent = self.between(start, stop)
            else:
                extent = self.integer(dom, arguments["dom"])
            binding = self.index(arguments["binding"])
            if start != Const(0, start.dtype):
                binding = simplify(binary("-", binding, start))
            self.iteration(frame, name, _ITERS[form.name], start, extent, binding, dtype)
            return
        targets = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        kinds = self.string(arguments["kinds"])
        bindings = arguments["bindings"]
        if not isinstance(bindings, (ast.List, ast.Tuple)):
            raise self.error("T.axis.remap takes a list of loop variables", bindings, 'T.axis.remap("SR", [i, k])')
        if not len(kinds) == len(bindings.elts) == len(targets):
            raise self.error(f"{len(targets)} names, {len(kinds)} kinds and {len(bindings.elts)} loops; they must be as many", node)
        for t, letter, n in zip(targets, kinds, bindings.elts, strict=True):
            if letter not in "SRO":
                raise self.error(f"{letter!r} is no kind of axis", arguments["kinds"], '"S" is spatial, "R" reduce, "O" opaque')
            found = self.value(n)
            domain = self.domains.get(found) if isinstance(found, Expr) else None
            if domain is None:
                raise self.error(f"`{self.text(n)}` is no loop variable", n, f"{self.text(t)} = T.axis.spatial(extent, {self.text(n)})")
            self.iteration(frame, self.identifier(t), Axis(letter), domain.start, domain.extent, domain.variable, dtype)

    def iteration(
        self, frame: Frame, name: str, axis: Axis, start: Expr, extent: Expr, binding: Expr, dtype: str | None = None
    ) -> None:
        """An iteration variable; one that starts elsewhere than at 0 is shifted."""
        var = Var(self.names.local(name, self.scope), dtype or extent.dtype)
        value: Expr = var if start == Const(0, start.dtype) else binary("+", var, start)
        frame.iters.append(Iter(var, frame.closed(extent), axis, frame.closed(binding)))
        self.domains[value] = Domain(start, extent, var)
        self.lets.pop(var.name, None)
        self.extent_range(var.name, extent)
        self.bind(name, value)
        self.scope.variables.add(var.name)


class Names:
    """The names that a source binds, and those given so far."""

    def __init__(self, node: ast.FunctionDef):
        self.source: set[str] = set()
        self.taken: set[str] = set()  # parameters and buffers
        self.loops: set[str] = set()
        self.blocks: set[str] = set()
        self._reserved = {p.arg for p in node.args.args}  # of things other than loops
        self._iters: set[str] = set()
        self._views: dict[str, set[str]] = {}
        for n in ast.walk(node):
            match n:
                case ast.arg(arg=name):
                    self.source.add(name)
                case ast.Name(id=name, ctx=ast.Store()):
                    self.source.add(name)
                case ast.Assign(targets=[target], value=ast.Call(func=ast.Attribute(attr=attr) as func) as call):
                    bound = [t.id for t in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]) if isinstance(t, ast.Name)]
                    if isinstance(func.value, ast.Attribute) and func.value.attr == "axis":
                        self._iters.update(bound)
                    elif attr in _BUFFERS:
                        self._reserved.update(bound)
                        self._view(call)
                case ast.withitem(context_expr=ast.Call(func=ast.Attribute(attr=attr)) as call, optional_vars=bound_):
                    if attr in ("block", "sblock"):
                        self._reserved.update(a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
                    elif attr in _BUFFERS and isinstance(bound_, ast.Name):
                        self._reserved.add(bound_.id)
                        self._view(call)
        self._reserved |= self._iters
        self.source |= self._reserved

    def _view(self, call: ast.Call) -> None:
        """Note the shape under which memory is seen."""
        data = next((k.value for k in call.keywords if k.arg == "data"), None)
        if isinstance(data, ast.Name) and call.args:
            self._views.setdefault(data.id, set()).add(ast.dump(call.args[0]))

    def one_shape(self, pointer: str) -> bool:
        """Whether all views of an allocation are of one shape."""
        return len(self._views.get(pointer, ())) <= 1

    def _fresh(self, wanted: str, also: set[str] | None = None) -> str:
        return fresh(self.source.union(self.taken, self.loops, self.blocks, also or ()), wanted)

    def loop(self, wanted: str) -> str:
        """The name of a loop, which nothing else may have."""
        clash = wanted in self._reserved or wanted in self.taken or wanted in self.loops or wanted in self.blocks
        name = self._fresh(wanted) if clash else wanted
        self.loops.add(name)
        return name

    def buffer(self, wanted: str) -> str:
        """The name of a buffer or a size."""
        name = self._fresh(wanted) if wanted in self.taken or wanted in self._iters else wanted
        self.taken.add(name)
        return name

    def block(self, wanted: str) -> str:
        """The name of a block, which a buffer may have too."""
        wanted = wanted or "block"
        name = self._fresh(wanted) if wanted in self.blocks or wanted in self.loops else wanted
        self.blocks.add(name)
        return name

    def local(self, wanted: str, scope: Scope) -> str:
        """The name of an iteration variable or a let: other scopes may use it again."""
        if wanted not in self.taken and not scope.binds(wanted):
            return wanted
        return self._fresh(wanted, scope.variables_around())


def _nested(wrappers: list[Wrapper]) -> Wrapper | None:
    def wrap(rest: Stmt) -> Stmt:
        for w in reversed(wrappers):
            rest = w(rest)
        return rest

    return wrap if wrappers else None


def _placed(tree: ast.expr, at: ast.AST) -> ast.expr:
    """A tree whose nodes all stand where `at` stands."""
    for n in ast.walk(tree):
        ast.copy_location(n, at)
    return tree


__all__ = ["ScriptError", "View", "parse", "parse_function"]
