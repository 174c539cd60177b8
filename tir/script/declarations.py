"""Declarations of a script: buffers, views, sizes and lets."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, cast

import numpy as np

from .. import dtypes
from ..arith.prove import equal
from ..arith.simplify import simplify
from ..ir import (
    TRUE,
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
    as_expr,
    binary,
    const,
    const_shape,
    separate,
    seq,
)
from ..memory import check_scope
from ..traverse import N, substitute
from . import namespace
from .expressions import Expressions
from .names import Names
from .source import Source, python_tree
from .values import NAMEABLE, Data, Handle, Pointer, Scope, Thread, is_python_value
from .views import Reshaped, Subview, element_count, strides

Wrapper = Callable[[Stmt], Stmt]  # a statement around all that follow it


# Arguments that must have their default value, and what another value would mean.
_NOT_KEPT: dict[str, tuple[tuple[Any, ...], str]] = {"buffer_type": (("", "default"), "broadcasting buffers")}


@dataclass
class Frame:
    """The header of a block or of the function, collected while its statements are parsed."""

    scope: Scope
    block: bool
    iters: list[Iter] = field(default_factory=list)
    allocs: list[Buffer] = field(default_factory=list)
    annotations: dict[str, Any] = field(default_factory=dict)
    stated: dict[str, Any] = field(default_factory=dict)  # the other fields of the block
    begun: bool = False  # whether a statement has been read
    lets: dict[str, Expr] = field(default_factory=dict)  # bound directly in it: what it states may use them

    def closed(self, node: N) -> N:
        """Without the lets of this block, which start only after its header."""
        return substitute(node, self.lets) if self.lets else node


@dataclass(frozen=True)
class Domain:
    """The range of a loop or iteration variable in the source: its `start` and its extent."""

    start: Expr
    extent: Expr
    variable: Var


class Declarations(Expressions):
    """Evaluates the declarations of one function."""

    def __init__(self, source: Source, captured: Mapping[str, Any], live: bool):
        super().__init__(source, captured, live)
        self.names: Names
        self.frames: list[Frame] = []
        self.sizes: list[Var] = []  # symbolic sizes that the body declares
        self.passed: dict[str, Buffer] = {}  # parameters, by name, in the shape in which they are passed, where it is another
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
            self.left[name] = self.lines[name]
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

    # --- values that bind names ----------------------------------------------------------------------------------------

    def annotation(self, node: ast.expr) -> ast.expr:
        """An annotation, taken out of the string that it may be."""
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
        if self.frames[-1].scope is self.scope:
            self.frames[-1].lets[var.name] = self.frames[-1].closed(value)
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

    def string(self, node: ast.expr) -> str:
        value = self.value(node)
        if isinstance(value, namespace.Type):
            return value.name
        if not isinstance(value, str):
            raise self.error(f"a string is needed here, not `{self.text(node)}`", node)
        return value

    def dtype(self, node: ast.expr) -> str:
        return self.guard(dtypes.check, node, self.string(node))

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
        """A dimension in quotation marks, so that Python need not know its names: one that is new becomes a size."""
        inner = self.annotation(node)
        if isinstance(inner, ast.Name) and self.scope.find(inner.id) is None and inner.id not in self.captured:
            self.declare_size(inner, "int32", node)
        return self.index(inner)

    def declaration(
        self, form: Any, node: ast.Call, region: Region | None = None
    ) -> tuple[tuple[Expr, ...], str, str, dict[str, ast.expr]]:
        """Shape, dtype and scope of a declared buffer, and the other arguments; what the IR cannot express is an error. Sizes
        that stand for strides or the offset get the values of these, in the part `region` of another buffer where that is one."""
        arguments = self.arguments(form, node)
        shape = self.shape(arguments["shape"]) if "shape" in arguments else ()
        for extent in shape:
            if isinstance(extent, Const) and extent.value < 0:
                raise self.error(f"an extent cannot be negative, got {extent}", arguments["shape"])
        dtype = self.dtype(arguments["dtype"]) if "dtype" in arguments else "float32"
        scope = self.storage_scope(arguments)
        if "strides" in arguments:
            given = arguments["strides"]
            steps = () if isinstance(given, ast.Constant) and given.value is None else self.shape(given)
            if steps:
                dense = strides(shape)
                if region is not None:
                    dense = [strides(region.buffer.shape)[d] for d in self.kept_dimensions(region, shape)]
                if len(steps) != len(dense) or not all(map(self.stands_for, steps, dense)):
                    raise self.error("buffers are dense and row-major; strides are not in the dialect", arguments["strides"])
        if "elem_offset" in arguments and "data" not in arguments:
            offset = self.value(arguments["elem_offset"])
            starts = zip(region.ranges, strides(region.buffer.shape), strict=True) if region is not None else ()
            first = reduce(lambda sum, part: sum + part[0].min * part[1], starts, cast(Expr, Const(0)))
            if offset is not None and not self.stands_for(self.integer(offset, arguments["elem_offset"]), simplify(first)):
                reason = "buffers start at their first element; elem_offset is not in the dialect"
                raise self.error(reason, arguments["elem_offset"])
        for name, (usual, reason) in _NOT_KEPT.items():
            if name in arguments and self.value(arguments[name]) not in usual:
                raise self.error(f"{reason} are not in the dialect", arguments[name])
        return shape, dtype, scope, arguments

    def separators(self, arguments: dict[str, ast.expr], rank: int) -> tuple[int, ...]:
        """The axis separators of a declared buffer."""
        if "axis_separators" not in arguments:
            return ()
        given = self.data(self.value(arguments["axis_separators"]), arguments["axis_separators"]) or []
        if not separate(given, rank):
            reason = f"axis separators are ascending numbers of dimensions, from 1 to {rank - 1}, got {given!r}"
            raise self.error(reason, arguments["axis_separators"])
        return tuple(given)

    def stands_for(self, given: Expr, value: Expr) -> bool:
        """Whether `given` is `value`, or a size that only names it: it is none any more."""
        if isinstance(given, Var) and any(given is size for size in self.sizes):
            self.sizes = [size for size in self.sizes if size is not given]
            for name in [n for s in self.scope.chain() for n, bound in s.names.items() if bound is given]:
                self.bind(name, value)
            return True
        return equal(given, value)

    def match_buffer(self, target: ast.expr, node: ast.Call, form: Any) -> None:
        name = self.identifier(target)
        param = self.as_region(self.value(self.arguments(form, node)["param"]))
        shape, dtype, scope, arguments = self.declaration(form, node, param if isinstance(param, Region) else None)
        if isinstance(param, Region):
            self.bind(name, self.window(param, shape if "shape" in arguments else None, dtype, scope, arguments, node))
            return
        if not isinstance(param, Handle):
            raise self.error(f"`{self.text(arguments['param'])}` is neither a handle nor a region", arguments["param"])
        if param.buffer is not None:
            raise self.error(f"`{param.name}` has a shape already", node, "another view is T.Buffer(shape, data=A.data)")
        if "shape" not in arguments:
            raise self.error(f"`{self.text(node.func)}`: the shape is missing", node, f"T.match_buffer({param.name}, (128, 128))")
        separators = self.separators(arguments, len(shape))
        param.buffer = self.bind(name, Buffer(self.names.buffer(name), shape, dtype, scope, separators))

    def window(
        self,
        region: Region,
        shape: tuple[Expr, ...] | None,
        dtype: str,
        scope: str,
        arguments: dict[str, ast.expr],
        node: ast.Call,
    ) -> Subview:
        """A part of a buffer under a name of its own: dimensions of extent 1 may be left out."""
        if dtype != region.buffer.dtype:
            raise self.error(
                f"`{region.buffer.name}` holds {region.buffer.dtype}, not {dtype}", node, f'dtype="{region.buffer.dtype}"'
            )
        if "scope" in arguments and scope != region.buffer.scope:
            raise self.error(f"`{region.buffer.name}` is in {region.buffer.scope}, not {scope}", node)
        extents = [r.extent for r in region.ranges]
        starts = tuple(r.min for r in region.ranges)
        if shape is None:
            return Subview(region.buffer, tuple(extents), starts, tuple(range(len(extents))))
        dims = self.kept_dimensions(region, shape)
        if len(dims) < len(shape) or any(not e.is_one for d, e in enumerate(extents) if d not in dims):
            given, wanted = (f"({', '.join(map(str, s))})" for s in (extents, shape))
            raise self.error(
                f"a region of extents {given} is not of shape {wanted}", node, "only dimensions of extent 1 may be left out"
            )
        return Subview(region.buffer, shape, starts, tuple(dims))

    def kept_dimensions(self, region: Region, shape: tuple[Expr, ...]) -> list[int]:
        """The dimensions of a region that are those of a shape: each of the shape takes the next that is as long."""
        dims: list[int] = []
        for d, r in enumerate(region.ranges):
            if len(dims) < len(shape) and equal(r.extent, shape[len(dims)], self.ranges):
                dims.append(d)
        return dims

    def alloc_buffer(self, target: ast.expr, node: ast.Call, form: Any) -> None:
        shape, dtype, scope, arguments = self.declaration(form, node)
        if "data" in arguments:
            raise self.error("T.alloc_buffer makes memory of its own", arguments["data"], "T.Buffer(shape, data=...) is a view")
        name = self.identifier(target)
        shape = tuple(self.frames[-1].closed(d) for d in shape)
        separators = self.separators(arguments, len(shape))
        self.frames[-1].allocs.append(self.bind(name, Buffer(self.names.buffer(name), shape, dtype, scope, separators)))

    def allocate(self, target: ast.expr, node: ast.Call, form: Any) -> Wrapper:
        name, arguments = self.identifier(target), self.arguments(form, node)
        extents = self.shape(arguments["extents"])
        dtype = self.dtype(arguments["dtype"]) if "dtype" in arguments else "float32"
        scope = self.storage_scope(arguments)
        if "condition" in arguments and self.value(arguments["condition"]) not in (True, TRUE):
            raise self.error("memory is allocated always, not under a condition", arguments["condition"])
        pointer = Pointer(self.names.buffer(name), extents, dtype, scope, self.names.one_shape(name))
        self.bind(name, pointer)
        return lambda rest: Allocate(pointer.viewed_as(extents, element_count(extents)), rest)

    def allocate_const(self, target: ast.expr, node: ast.Call, form: Any) -> Wrapper:
        name, arguments = self.identifier(target), self.arguments(form, node)
        given = self.value(arguments["data"])
        values = flat(given.tolist() if hasattr(given, "tolist") else given)
        extents = self.shape(arguments["extents"]) if "extents" in arguments else (Const(len(values)),)
        if element_count(extents) != Const(len(values)):
            raise self.error(f"{len(values)} number(s) for the extents ({', '.join(map(str, extents))})", node)
        dtype = self.dtype(arguments["dtype"]) if "dtype" in arguments else "float32"
        pointer = Pointer(self.names.buffer(name), extents, dtype, "global", self.names.one_shape(name))
        self.bind(name, pointer)
        buffer, label = pointer.viewed_as(extents, Const(len(values))), self.names.block(name)
        self.frames[-1].allocs.append(buffer)
        shape = const_shape(buffer)
        stores = [
            Store(buffer, tuple(map(Const, map(int, place))), self.guard(const, node, value, dtype))
            for place, value in zip(np.ndindex(*shape), values, strict=True)
        ]
        return lambda rest: seq(Block(label, (), seq(*stores)), rest)

    def preflattened_buffer(self, node: ast.Call, form: Any) -> None:
        """The parameter is passed in another shape: what the body calls by its name is a view of that."""
        shape, dtype, _, arguments = self.declaration(form, node)
        buffer = self.value(arguments["postflattened"])
        if not isinstance(buffer, Buffer) or not isinstance(arguments["postflattened"], ast.Name) or buffer.name in self.passed:
            raise self.error("the parameter to be passed in another shape is missing", node, "T.preflattened_buffer(A, [7, 5])")
        if self.frames[0].begun:
            raise self.error("T.preflattened_buffer stands before the statements of the function", node)
        self.same_dtype(dtype if "dtype" in arguments else buffer.dtype, buffer.dtype, buffer.name, node)
        if not equal(element_count(shape), element_count(buffer.shape)):
            counts = f"{element_count(shape)} elements, and `{buffer.name}` has {element_count(buffer.shape)}"
            raise self.error(f"a shape of {counts}", node)
        self.passed[buffer.name] = buffer.with_(shape=shape)
        self.bind(arguments["postflattened"].id, Reshaped(self.passed[buffer.name], buffer.shape))

    def declare_buffer(self, target: ast.expr, node: ast.Call, form: Any) -> Wrapper | None:
        """A view of memory, or without `data` a buffer for the statements that follow."""
        name = self.identifier(target)
        shape, dtype, scope, arguments = self.declaration(form, node)
        if "shape" not in arguments:
            raise self.error(f"`{self.text(node.func)}`: the shape is missing", node)
        allocated: Wrapper | None = None
        if self.form(data := arguments.get("data", node)) is namespace.allocate and isinstance(data, ast.Call):
            allocated = self.allocate(target, data, namespace.allocate)
            memory = self.scope.find(name)
        else:
            memory = self.value(data) if data is not node else None
        if memory is None:
            if form is namespace.Buffer:
                raise self.error(
                    "a view says whose elements it shows",
                    node,
                    f"{name} = T.Buffer(shape, data=A.data), or T.alloc_buffer(shape)",
                )
            separators = self.separators(arguments, len(shape))
            buffer = self.bind(name, Buffer(self.names.buffer(name), shape, dtype, scope, separators))
            return lambda rest: Allocate(buffer, rest)
        offset: Expr = self.index(arguments["elem_offset"]) if "elem_offset" in arguments else Const(0)
        match memory:
            case Pointer():
                if "scope" in arguments and scope != memory.scope:
                    raise self.error(f"`{memory.name}` is in {memory.scope}, not {scope}", arguments["scope"])
                base = memory.viewed_as(shape, element_count(memory.extents))
            case Handle():
                if memory.buffer is None:
                    memory.buffer = Buffer(self.names.buffer(name), shape, dtype, scope)
                base = memory.buffer
            case Data(buffer=base):
                pass
            case _:
                raise self.error(
                    f"`{self.text(arguments['data'])}` is no memory",
                    arguments["data"],
                    "A.data of a buffer, or what T.allocate made",
                )
        self.same_dtype(dtype, base.dtype, base.name, node)
        room, needed = element_count(base.shape), simplify(binary("+", element_count(shape), offset))
        if isinstance(room, Const) and isinstance(needed, Const) and needed.value > room.value:
            raise self.error(f"a view up to element {needed.value} of `{base.name}`, which has {room.value}", node)
        self.bind(name, base if shape == base.shape and offset == Const(0) else Reshaped(base, shape, offset))
        return allocated

    def same_dtype(self, dtype: str, wanted: str, name: str, node: ast.AST) -> None:
        if dtype != wanted:
            raise self.error(f"a view of `{name}` as {dtype}, but it holds {wanted}", node, "bits cannot be reinterpreted")


def flat(data: Any) -> list[Any]:
    """The numbers of nested lists in order."""
    return [x for part in data for x in flat(part)] if isinstance(data, (list, tuple)) else [data]


def _placed(tree: ast.expr, at: ast.AST) -> ast.expr:
    """A tree whose nodes all have the position of `at`."""
    for n in ast.walk(tree):
        ast.copy_location(n, at)
    return tree
