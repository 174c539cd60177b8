"""Declarations of a script: buffers, views, sizes and lets."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import dtypes
from ..arith.prove import provably_equal
from ..arith.simplify import simplify
from ..ir import (
    TRUE,
    Address,
    Allocate,
    Block,
    Buffer,
    Const,
    Expr,
    Iter,
    Let,
    Region,
    Stmt,
    Store,
    Var,
    are_axis_separators,
    as_expr,
    binary,
    const,
    const_shape,
    seq,
)
from ..memory import check_scope
from ..traverse import N, substitute
from . import namespace
from .expressions import ExpressionReader
from .names import SourceNames
from .source import Source, python_tree
from .values import NAMEABLE, Handle, Pointer, Scope, Thread, is_python_value
from .views import ArrayView, Reshaped, Subview, element_count

Wrapper = Callable[[Stmt], Stmt]  # a statement around all that follow it


@dataclass
class BlockHeader:
    """The header of a block or of the function, collected while its statements are parsed."""

    scope: Scope
    block: bool
    iters: list[Iter] = field(default_factory=list)
    allocs: list[Buffer] = field(default_factory=list)
    annotations: dict[str, Any] = field(default_factory=dict)
    stated: dict[str, Any] = field(default_factory=dict)  # the other fields of the block
    begun: bool = False  # True once a statement has been read
    lets: dict[str, Expr] = field(default_factory=dict)  # bound directly in it; its header may use them

    def closed(self, node: N) -> N:
        """The node without the lets of this block, which start only after its header."""
        return substitute(node, self.lets) if self.lets else node


@dataclass(frozen=True)
class Domain:
    """The range of a loop or iteration variable in the source: its `start` and its extent."""

    start: Expr
    extent: Expr
    variable: Var


class Declarations(ExpressionReader):
    """Evaluates the declarations of one function."""

    def __init__(self, source: Source, captured: Mapping[str, Any], live: bool):
        super().__init__(source, captured, live)
        self.names: SourceNames
        self.headers: list[BlockHeader] = []
        self.sizes: list[Var] = []  # symbolic sizes that the body declares
        self.domains: dict[Expr, Domain] = {}
        self.root = self.scope
        self.line = 0  # of the statement being read
        self.branches = 0  # conditions around it
        self.asserted: list[Expr] = []  # conditions on sizes, of the function
        self.lines: dict[str, int] = {}  # where a name was last bound

    # --- scopes --------------------------------------------------------------------------------------------------------

    def bind(self, name: str, value: Any) -> Any:
        self.scope.names[name] = value
        self.lines[name] = self.line
        if isinstance(value, Var):
            self.scope.variables.add(value.name)
        return value

    def enter(self) -> Scope:
        """Start a scope; returns the one around it, for `leave`."""
        outer, self.scope = self.scope, Scope(self.scope)
        return outer

    def leave(self, outer: Scope) -> None:
        """End a scope, and remember where its names were bound, for messages."""
        for name in self.scope.names:
            self.ended[name] = self.lines[name]
        self.scope = outer

    def inside(
        self, nodes: list[ast.stmt], names: Mapping[str, Any] | None = None, variables: set[str] | None = None
    ) -> Stmt | None:
        """Statements in a scope of their own."""
        outer = self.enter()
        for name, value in (names or {}).items():
            self.bind(name, value)
        self.scope.variables |= variables or set()
        result = self.statements(nodes)
        self.leave(outer)
        return result

    @abstractmethod
    def statements(self, nodes: list[ast.stmt]) -> Stmt | None:
        """The statements in order; None where they only declare."""

    def running(self, var: Var, start: Expr, extent: Expr, step: int = 1) -> Expr:
        """The value in the source of a variable that counts from 0 in the IR; its range is noted."""
        value: Expr = var if step == 1 else binary("*", var, step)
        if not start.is_zero:
            value = binary("+", value, start)
        if step == 1:
            self.domains[value] = Domain(start, extent, var)
        self.lets.pop(var.name, None)
        self.extent_range(var.name, extent)
        return value

    # --- values that bind names ----------------------------------------------------------------------------------------

    def annotation(self, node: ast.expr) -> ast.expr:
        """An annotation, parsed if it is a string."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                inner = python_tree(node.value.strip(), mode="eval").body
            except SyntaxError:
                raise self.error(f"the annotation {node.value!r} is not an expression", node) from None
            return _placed(inner, node)
        return node

    def var(self, target: ast.expr, node: ast.Call, form: Any) -> None:
        """`n = T.var("int32")`."""
        arguments = self.arguments(form, node)
        self.declare_size(target, self.string(arguments["dtype"]) if "dtype" in arguments else "int32", node)

    def env_thread(self, target: ast.expr, node: ast.Call, form: Any) -> None:
        self.bind(self.identifier(target), Thread(self.string(self.arguments(form, node)["thread_tag"])))

    def declare_size(self, target: ast.expr, dtype: str, node: ast.AST) -> None:
        """A symbolic size: a parameter after all the others."""
        name = self.identifier(target)
        if dtype not in dtypes.TABLE or not dtypes.is_int(dtype):
            raise self.error(f"a size must be an integer, not {dtype}", node)
        var = Var(self.names.buffer(name), dtype)
        self.sizes.append(var)
        self.root.variables.add(var.name)
        self.bind(name, var)

    def let_statement(self, target: ast.expr, node: ast.Call, form: Any) -> Wrapper | None:
        """`with T.let(x, value):` or `with T.LetStmt(value) as x:`."""
        arguments = self.arguments(form, node)
        name = self.identifier(arguments["var"] if form is namespace.let else target)
        return self.let(name, self.expr(arguments["value"]), node)

    def let(self, name: str, value: Any, node: ast.AST, dtype: str | None = None) -> Wrapper | None:
        """Bind a name for the statements that follow; a Python value is substituted for the name."""
        if dtype is None and not isinstance(value, Expr):
            if not is_python_value(value) and not isinstance(value, NAMEABLE):
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
        if self.headers[-1].scope is self.scope:
            self.headers[-1].lets[var.name] = self.headers[-1].closed(value)
        self.bind(name, var)
        return lambda rest: Let(var, value, rest)

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
        raise self.error(
            f"attributes hold plain data, not {type(value).__name__}", node, "numbers, strings, lists and dictionaries"
        )

    def mapping(self, node: ast.expr) -> dict[str, Any]:
        value = self.data(self.value(node), node)
        if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
            raise self.error("attributes are a dictionary with strings as keys", node, '{"pragma_unroll": 16}')
        return value

    # --- buffers -------------------------------------------------------------------------------------------------------

    def dtype(self, arguments: dict[str, ast.expr]) -> str:
        """The dtype among the arguments of a declaration."""
        given = arguments.get("dtype")
        return "float32" if given is None else self.guard(dtypes.check, given, self.string(given))

    def storage_scope(self, arguments: dict[str, ast.expr]) -> str:
        """The storage scope among the arguments of a declaration; "" stands for "global"."""
        if "scope" not in arguments:
            return "global"
        return self.guard(check_scope, arguments["scope"], self.string(arguments["scope"]) or "global")

    def shape(self, node: ast.expr) -> tuple[Expr, ...]:
        if isinstance(node, (ast.Tuple, ast.List)):
            result: list[Expr] = []
            for n in node.elts:
                quoted = isinstance(n, ast.Constant) and isinstance(n.value, str)
                result += [self.symbolic(n)] if quoted else self.indices([n])  # type: ignore[arg-type]
            return tuple(result)
        value = self.value(node)
        items = value if isinstance(value, (tuple, list)) else (value,)
        return tuple(self.integer(v, node) for v in items)

    def symbolic(self, node: ast.Constant) -> Expr:
        """A dimension in quotation marks, whose names Python need not know; a new name becomes a size."""
        inner = self.annotation(node)
        if isinstance(inner, ast.Name) and self.scope.find(inner.id) is None and inner.id not in self.captured:
            self.declare_size(inner, "int32", node)
        return self.index(inner)

    def declaration(self, form: Any, node: ast.Call, region: Region | None = None) -> tuple[ArrayView, dict[str, ast.expr]]:
        """A declared buffer, still without a name, or a window on `region`; and all arguments of the call. Sizes in place of
        strides or offset take their values. Declarations that the IR cannot express are errors."""
        arguments = self.arguments(form, node)
        shape = self.shape(arguments["shape"]) if "shape" in arguments else ()
        for extent in shape:
            if isinstance(extent, Const) and extent.value < 0:
                raise self.error(f"an extent cannot be negative, got {extent}", arguments["shape"])
        buffer = Buffer("", shape, self.dtype(arguments), self.storage_scope(arguments), self.separators(arguments, len(shape)))
        view = Reshaped(buffer, shape) if region is None else self.window(region, buffer, arguments, node)
        if "strides" in arguments:
            given = arguments["strides"]
            steps = () if isinstance(given, ast.Constant) and given.value is None else self.shape(given)
            if steps and (len(steps) != len(shape) or not all(map(self.stands_for, steps, view.strides))):
                raise self.error("buffers are dense and row-major; strides are not in the dialect", given)
        if "elem_offset" in arguments and "data" not in arguments:
            given = arguments["elem_offset"]
            offset = self.value(given)
            if offset is not None and not self.stands_for(self.integer(offset, given), view.first):
                raise self.error("buffers start at their first element; elem_offset is not in the dialect", given)
        if "buffer_type" in arguments and self.value(arguments["buffer_type"]) not in ("", "default"):
            raise self.error("broadcasting buffers are not in the dialect", arguments["buffer_type"])
        return view, arguments

    def declare(self, name: str, buffer: Buffer) -> Buffer:
        """Bind a name to a declared buffer, which gets a name like it."""
        return self.bind(name, buffer.with_(name=self.names.buffer(name)))

    def separators(self, arguments: dict[str, ast.expr], rank: int) -> tuple[int, ...]:
        if "axis_separators" not in arguments:
            return ()
        given = self.data(self.value(arguments["axis_separators"]), arguments["axis_separators"]) or []
        if not are_axis_separators(given, rank):
            reason = f"axis separators are ascending numbers of dimensions, from 1 to {rank - 1}, got {given!r}"
            raise self.error(reason, arguments["axis_separators"])
        return tuple(given)

    def stands_for(self, given: Expr, value: Expr) -> bool:
        """True where `given` equals `value`, or is a declared size, which becomes a name of it."""
        if isinstance(given, Var) and any(given is size for size in self.sizes):
            self.sizes = [size for size in self.sizes if size is not given]
            for name in [n for s in self.scope.chain() for n, bound in s.names.items() if bound is given]:
                self.bind(name, value)
            return True
        return provably_equal(given, value)

    def match_buffer(self, target: ast.expr, node: ast.Call, form: Any) -> None:
        name = self.identifier(target)
        param = self.as_region(self.value(self.arguments(form, node)["param"]))
        if isinstance(param, Region):
            self.bind(name, self.declaration(form, node, param)[0])
            return
        view, arguments = self.declaration(form, node)
        if not isinstance(param, Handle):
            raise self.error(f"`{self.text(arguments['param'])}` is neither a handle nor a region", arguments["param"])
        if param.buffer is not None:
            raise self.error(f"`{param.name}` has a shape already", node, "another view is T.Buffer(shape, data=A.data)")
        if "shape" not in arguments:
            raise self.error(f"`{self.text(node.func)}`: the shape is missing", node, f"T.match_buffer({param.name}, (128, 128))")
        param.buffer = self.declare(name, view.buffer)

    def window(self, region: Region, stated: Buffer, arguments: dict[str, ast.expr], node: ast.Call) -> Subview:
        """A part of a buffer under a name of its own: dimensions of extent 1 may be left out."""
        buffer = region.buffer
        if stated.dtype != buffer.dtype:
            raise self.error(f"`{buffer.name}` holds {buffer.dtype}, not {stated.dtype}", node, f'dtype="{buffer.dtype}"')
        if "scope" in arguments and stated.scope != buffer.scope:
            raise self.error(f"`{buffer.name}` is in {buffer.scope}, not {stated.scope}", node)
        extents = tuple(r.extent for r in region.ranges)
        shape = stated.shape if "shape" in arguments else extents
        dims: list[int] = []  # for each dimension of the shape, the next of the region that is as long
        for d, extent in enumerate(extents):
            if len(dims) < len(shape) and provably_equal(extent, shape[len(dims)], self.ranges):
                dims.append(d)
        if len(dims) < len(shape) or any(not e.is_one for d, e in enumerate(extents) if d not in dims):
            given, wanted = (f"({', '.join(map(str, s))})" for s in (extents, shape))
            raise self.error(
                f"a region of extents {given} is not of shape {wanted}", node, "only dimensions of extent 1 may be left out"
            )
        return Subview(buffer, shape, tuple(r.min for r in region.ranges), tuple(dims))

    def alloc_buffer(self, target: ast.expr, node: ast.Call, form: Any) -> None:
        view, arguments = self.declaration(form, node)
        if "data" in arguments:
            raise self.error("T.alloc_buffer makes memory of its own", arguments["data"], "T.Buffer(shape, data=...) is a view")
        header = self.headers[-1]
        buffer = view.buffer.with_(shape=tuple(header.closed(d) for d in view.shape))
        header.allocs.append(self.declare(self.identifier(target), buffer))

    def allocate(self, target: ast.expr, node: ast.Call, form: Any) -> Wrapper:
        arguments = self.arguments(form, node)
        extents = self.shape(arguments["extents"])
        if "condition" in arguments and self.value(arguments["condition"]) not in (True, TRUE):
            raise self.error("memory is allocated always, not under a condition", arguments["condition"])
        pointer = self.memory(target, arguments, extents)
        return lambda rest: Allocate(pointer.array, rest)

    def allocate_const(self, target: ast.expr, node: ast.Call, form: Any) -> Wrapper:
        arguments = self.arguments(form, node)
        given = self.value(arguments["data"])
        values = np.asarray(given, object).reshape(-1).tolist()
        extents = self.shape(arguments["extents"]) if "extents" in arguments else (Const(len(values)),)
        if element_count(extents) != Const(len(values)):
            raise self.error(f"{len(values)} number(s) for the extents ({', '.join(map(str, extents))})", node)
        pointer = self.memory(target, arguments, extents)
        buffer, label = pointer.array, self.names.block(self.identifier(target))
        self.headers[-1].allocs.append(buffer)
        stores = [
            Store(buffer, tuple(map(Const, map(int, place))), self.guard(const, node, value, buffer.dtype))
            for place, value in zip(np.ndindex(*const_shape(buffer)), values, strict=True)
        ]
        return lambda rest: seq(Block(label, (), seq(*stores)), rest)

    def memory(self, target: ast.expr, arguments: dict[str, ast.expr], extents: tuple[Expr, ...]) -> Pointer:
        """Bind a name to memory, which views give a shape."""
        name, dtype, scope = self.identifier(target), self.dtype(arguments), self.storage_scope(arguments)
        return self.bind(name, Pointer(self.names.buffer(name), extents, dtype, scope, self.names.one_shape(name)))

    def declare_buffer(self, target: ast.expr, node: ast.Call, form: Any) -> Wrapper | None:
        """A view of memory, or without `data` a buffer for the statements that follow."""
        name = self.identifier(target)
        view, arguments = self.declaration(form, node)
        shape, stated = view.shape, view.buffer
        allocated: Wrapper | None = None
        data = arguments.get("data")
        if isinstance(data, ast.Call) and self.form(data) is namespace.allocate:
            allocated = self.allocate(target, data, namespace.allocate)
            memory = self.scope.find(name)
        else:
            memory = None if data is None else self.value(data)
        if data is None or memory is None:
            if form is namespace.Buffer:
                hint = f"{name} = T.Buffer(shape, data=A.data), or T.alloc_buffer(shape)"
                raise self.error("a view says whose elements it shows", node, hint)
            buffer = self.declare(name, stated)
            return lambda rest: Allocate(buffer, rest)
        offset: Expr = self.index(arguments["elem_offset"]) if "elem_offset" in arguments else Const(0)
        match memory:
            case Pointer():
                if "scope" in arguments and stated.scope != memory.scope:
                    raise self.error(f"`{memory.name}` is in {memory.scope}, not {stated.scope}", arguments["scope"])
                base = memory.viewed_as(shape, element_count(memory.extents))
            case Handle():
                if memory.buffer is None:
                    memory.buffer = stated.with_(name=self.names.buffer(name))
                base = memory.buffer
            case Address(buffer=base):
                pass
            case _:
                raise self.error(f"`{self.text(data)}` is no memory", data, "A.data of a buffer, or what T.allocate made")
        self.same_dtype(stated.dtype, base, node)
        room, needed = element_count(base.shape), simplify(binary("+", element_count(shape), offset))
        if isinstance(room, Const) and isinstance(needed, Const) and needed.value > room.value:
            raise self.error(f"a view up to element {needed.value} of `{base.name}`, which has {room.value}", node)
        self.bind(name, base if shape == base.shape and offset == Const(0) else Reshaped(base, shape, offset))
        return allocated

    def same_dtype(self, dtype: str, base: Buffer, node: ast.AST) -> None:
        if dtype != base.dtype:
            raise self.error(
                f"a view of `{base.name}` as {dtype}, but it holds {base.dtype}", node, "bits cannot be reinterpreted"
            )


def _placed(tree: ast.expr, at: ast.AST) -> ast.expr:
    """A tree whose nodes all have the position of `at`."""
    for n in ast.walk(tree):
        ast.copy_location(n, at)
    return tree
