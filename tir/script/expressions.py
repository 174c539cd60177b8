"""Expressions of a script: what each node of Python's syntax tree stands for.

The value of a node is an expression of the IR, a buffer (or a view of one), a form of the namespace `T`, or plain Python:
numbers, strings, tuples and captured objects stay Python's own until they meet an expression.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

from .. import dtypes, te
from ..affine import Interval
from ..ir import Binary, Buffer, Const, Expr, Load, Range, Region, Unary, as_expr, as_index, binary, true_divide
from ..simplify import bounds, prove, simplify
from ..traverse import loads, substitute, variables
from . import ir as namespace_ir
from . import tir as namespace_tir
from .error import ScriptError, nearest
from .source import Source
from .views import Reshaped, View, Window, size

NAMESPACES: dict[ModuleType, str] = {namespace_tir: "T", namespace_ir: "I"}

# What every script may use of Python itself; values only.
BUILTINS = ("abs", "bool", "divmod", "float", "int", "len", "list", "max", "min", "range", "round", "sum", "tuple")

_BINARY: dict[type[ast.operator], tuple[str, Any]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.MatMult: ("@", operator.matmul),
}
_COMPARE: dict[type[ast.cmpop], tuple[str, Any]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_BITS = {
    "<<": namespace_tir.shift_left,
    ">>": namespace_tir.shift_right,
    "&": namespace_tir.bitwise_and,
    "|": namespace_tir.bitwise_or,
}
_NUMBER = (bool, int, float)


@dataclass
class Handle:
    """A parameter without a shape, until `T.match_buffer` or a view of its data says one."""

    name: str
    node: ast.AST
    buffer: Buffer | None = None


@dataclass
class Pointer:
    """Memory of `T.allocate`: its shape is that of its views where they agree, else flat."""

    name: str
    extents: tuple[Expr, ...]
    dtype: str
    scope: str
    reshape: bool  # all views are of one shape
    buffer: Buffer | None = None

    def seen_as(self, shape: tuple[Expr, ...], flat: Expr) -> Buffer:
        """The buffer behind this memory, first seen with `shape`; it has `flat` elements."""
        if self.buffer is None:
            known = {n for extent in self.extents for n in variables(extent)}
            same = self.reshape and all(variables(extent) <= known for extent in shape)
            self.buffer = Buffer(self.name, shape if same else (flat,), self.dtype, self.scope)
        return self.buffer


@dataclass(frozen=True)
class Data:
    """`A.data`: the memory of a buffer."""

    buffer: Buffer


@dataclass(frozen=True)
class Thread:
    """The name of a GPU thread axis."""

    tag: str


@dataclass
class Scope:
    """Names bound in a list of statements, and around it."""

    parent: Scope | None = None
    names: dict[str, Any] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)  # names of the variables of the IR bound here

    def find(self, name: str) -> Any:
        """The value of a name, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def binds(self, variable: str) -> bool:
        """Whether a variable of the IR of this name is visible."""
        scope: Scope | None = self
        while scope is not None:
            if variable in scope.variables:
                return True
            scope = scope.parent
        return False

    def variables_around(self) -> set[str]:
        """The names of all variables of the IR that are visible."""
        return self.variables | (self.parent.variables_around() if self.parent is not None else set())

    def visible(self) -> list[str]:
        """All names, inner ones first."""
        scope: Scope | None = self
        result: dict[str, None] = {}
        while scope is not None:
            result.update(dict.fromkeys(scope.names))
            scope = scope.parent
        return list(result)


# Values with a meaning in the dialect, not to be computed with by Python.
_OURS = (
    Expr,
    Buffer,
    Reshaped,
    Window,
    Region,
    Handle,
    Pointer,
    Data,
    Thread,
    namespace_tir.Form,
    namespace_tir.Type,
    ModuleType,
)

_OUR_MODULES = (namespace_tir.__name__, te.__name__, true_divide.__module__)


class Expressions:
    """Evaluates the expressions of one function.

    `captured` are the names from outside the function. Where they come from running Python (`live`), attributes of captured
    objects may be read and captured functions called; in a text nothing is executed.
    """

    def __init__(self, source: Source, captured: Mapping[str, Any], live: bool):
        self.source, self.captured, self.live = source, captured, live
        self.scope = Scope()
        self.left: dict[str, int] = {}  # names whose scope has ended, and the line where they were bound
        self.ranges: dict[str, Interval] = {}
        self.lets: dict[str, Expr] = {}  # lets whose value is index arithmetic

    def error(self, reason: str, node: ast.AST, hint: str | None = None) -> ScriptError:
        return self.source.error(reason, node, hint)

    def text(self, node: ast.AST) -> str:
        """The source of a node, on one line."""
        return self.source.segment(node) or ast.unparse(node)

    # --- values --------------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        """What a node stands for."""
        match node:
            case ast.Constant(value=value):
                if isinstance(value, (complex, bytes)):
                    raise self.error(f"{self.text(node)} is no value of the dialect", node)
                return value
            case ast.Name(id=name):
                return self.name(name, node)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript():
                return self.subscript(node)
            case ast.Call():
                return self.call(node)
            case ast.BinOp(left=left, op=op, right=right):
                text, python = _BINARY[type(op)]
                return self.operate(text, python, self.value(left), self.value(right), node)
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(op, self.value(operand), node)
            case ast.BoolOp(op=op, values=values):
                return self.logic("and" if isinstance(op, ast.And) else "or", values)
            case ast.Compare():
                return self.compare(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition = self.value(test)
                if not isinstance(condition, Expr):
                    return self.value(body if condition else orelse)
                return self.guard(te.if_then_else, node, condition, self.scalar(body), self.scalar(orelse))
            case ast.Tuple(elts=items):
                return tuple(self.items(items))
            case ast.List(elts=items):
                return self.items(items)
            case ast.Dict(keys=keys, values=values):
                if any(k is None for k in keys):
                    raise self.error("** does not belong into a dictionary here", node)
                pairs = [(self.value(k), self.value(v)) for k, v in zip(keys, values, strict=True) if k is not None]
                return self.guard(dict, node, pairs)
            case ast.JoinedStr():
                return self.formatted(node)
            case _:
                raise self.error(
                    f"{_called(node)} is not in the dialect", node, "write it out, or compute it before the function"
                )

    def items(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """The values of several nodes; `*tuple` is spread."""
        result: list[Any] = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                spread = self.value(n.value)
                if not isinstance(spread, (tuple, list, range)):
                    raise self.error(f"`*` spreads tuples and lists, `{self.text(n.value)}` is neither", n)
                result.extend(spread)
            else:
                result.append(self.value(n))
        return result

    def scalar(self, node: ast.expr) -> Any:
        """The value of a node that must be an expression or a number."""
        return self.checked(self.value(node), node)

    def expr(self, node: ast.expr) -> Expr:
        """The value of a node, as an expression of the IR."""
        return self.guard(as_expr, node, self.scalar(node))

    def index(self, node: ast.expr) -> Expr:
        """The value of a node, as an integer expression."""
        return self.integer(self.value(node), node)

    def integer(self, value: Any, node: ast.AST) -> Expr:
        """A value as an integer expression."""
        return self.guard(as_index, node, self.checked(value, node))

    def condition(self, value: Any, node: ast.expr) -> Expr:
        """A value, as a condition."""
        result = self.guard(as_expr, node, self.checked(value, node))
        if result.dtype != "bool":
            raise self.error(f"a condition must be bool, `{self.text(node)}` is {result.dtype}", node, "compare it: x != 0")
        return result

    def checked(self, value: Any, node: ast.AST) -> Any:
        """A value that must be an expression or a number."""
        if isinstance(value, (Expr, *_NUMBER)):
            return value
        hint = None
        match value:
            case Buffer() | Reshaped() | Window():
                rank = len(value.shape)
                what = f"a buffer of {rank} dimension{'s' * (rank != 1)}"
                hint = f"index it: {self.text(node)}[{', '.join('ijklmnopq'[:rank]) if rank else '()'}]"
            case Region():
                what, hint = "a region", "slices stand only in T.reads, T.writes and T.match_buffer; use a loop"
            case Handle():
                what, hint = "a handle", f"give it a shape: A = T.match_buffer({value.name}, (128,))"
            case Pointer() | Data():
                what, hint = "memory", "give it a shape: V = T.Buffer((128,), data=...)"
            case namespace_tir.Form():
                what, hint = "a form", f"it {value.place}"
            case namespace_tir.Type():
                what, hint = "a type", f"{self.text(node)}(x) converts to it"
            case Thread():
                what, hint = "a thread axis", "T.launch_thread gives it an extent"
            case ModuleType():
                what = "a module"
            case _:
                what = f"{type(value).__name__!r}, not a number"
        raise self.error(f"`{self.text(node)}` is {what}; a value is needed here", node, hint)

    def guard(self, function: Any, node: ast.AST, *args: Any, **kwargs: Any) -> Any:
        """`function(*args)`, its TypeError or ValueError reported at `node`."""
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError, ArithmeticError, LookupError) as e:
            raise self.error(str(e) if not isinstance(e, KeyError) else f"there is no {e}", node) from None

    # --- names ---------------------------------------------------------------------------------------------------------

    def name(self, name: str, node: ast.AST) -> Any:
        value = self.scope.find(name)
        if value is not None:
            return value
        if name in self.captured:
            value = self.captured[name]
            if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", None) == 0:
                return value.item()  # numpy's scalars do not wait for their neighbour's dtype
            return value
        if name in BUILTINS:
            return getattr(builtins, name)
        if name in self.left:
            raise self.error(
                f"`{name}` is not visible here",
                node,
                f"line {self.left[name]} binds it only within the statement that it stands in",
            )
        captured = [n for n, v in self.captured.items() if not n.startswith("__") and not isinstance(v, ModuleType)]
        known = (*self.scope.visible(), *captured, *BUILTINS)
        raise self.error(f"`{name}` is not defined", node, nearest(name, known))

    def namespace(self, node: ast.expr) -> ModuleType | None:
        """The namespace that a name stands for, T or I, even where a buffer goes by the same name."""
        if isinstance(node, ast.Name):
            value = self.captured.get(node.id)
            if isinstance(value, ModuleType) and value in NAMESPACES:
                return value
        return None

    def form(self, node: ast.AST) -> Any:
        """The form or type that a call is of, or None."""
        if not isinstance(node, ast.Call):
            return None
        root: ast.expr = node.func
        while isinstance(root, ast.Attribute):
            root = root.value
        if self.namespace(root) is None:
            return None
        called = self.value(node.func)
        return called if isinstance(called, (namespace_tir.Form, namespace_tir.Type)) else None

    def attribute(self, node: ast.Attribute) -> Any:
        name = node.attr
        space = self.namespace(node.value)
        if space is not None:
            local = self.scope.find(node.value.id)  # type: ignore[attr-defined]
            if local is None or name not in ("data", "shape", "dtype", "astype"):
                return self.member(space, name, node)
        base = self.value(node.value)
        match base, name:
            case (Buffer(), "data"):
                return Data(base)
            case (Buffer() | Reshaped() | Window(), "shape"):
                return tuple(d.value if isinstance(d, Const) else d for d in base.shape)
            case (Buffer(), "dtype" | "name" | "scope") | (Expr(), "dtype" | "astype"):
                return getattr(base, name)
            case (Reshaped() | Window(), "dtype"):
                return base.buffer.dtype
            case (namespace_tir.axis, _):
                return self.member(namespace_tir.axis, name, node)
            case (Buffer() | Reshaped() | Window(), _):
                raise self.error(
                    f"a buffer has no `{name}`", node, nearest(name, ("data", "shape", "dtype")) or "index it: A[i, j]"
                )
            case (Expr(), _):
                raise self.error(f"an expression has no `{name}`", node, nearest(name, ("dtype", "astype")))
        if not self.live:
            raise self.error(f"`{self.text(node)}` cannot be read: nothing is executed in a text", node)
        try:
            return getattr(base, name)
        except AttributeError as e:
            raise self.error(str(e), node) from None

    def member(self, space: Any, name: str, node: ast.Attribute) -> Any:
        """A name of T, I or T.axis."""
        known = _members(space)
        if name not in known:
            refused = namespace_tir.REFUSED.get(name) if space is namespace_tir else None
            hint = refused or nearest(name, known, f"{self.text(node.value)}.")
            raise self.error(f"`{self.text(node)}` is not in the dialect", node, hint)
        return known[name]

    # --- operators -----------------------------------------------------------------------------------------------------

    def operate(self, op: str, python: Any, a: Any, b: Any, node: ast.BinOp) -> Any:
        """A binary operator: on numbers alone Python's, else a node."""
        if not isinstance(a, Expr) and not isinstance(b, Expr) and self.plain(a) and self.plain(b):
            return self.guard(python, node, a, b)
        a, b = self.checked(a, node.left), self.checked(b, node.right)
        match op:
            case "/":
                return self.guard(true_divide, node, a, b)
            case "**":
                raise self.error("`**` is not in the dialect", node, "write T.pow(x, y), or multiply")
            case "@" | "^":
                raise self.error(f"`{op}` is not in the dialect", node)
            case "<<" | ">>" | "&" | "|":
                return self.guard(_BITS[op], node, a, b)
            case "+" | "-" | "*" | "//" | "%":
                result = self.guard(binary, node, op, a, b)
                if result.a.dtype == "bool":
                    raise self.error(f"`{op}` does not take bool", node, 'convert it: T.Cast("int32", x)')
                return result
        raise AssertionError(op)

    def unary(self, op: ast.unaryop, value: Any, node: ast.UnaryOp) -> Any:
        if not isinstance(value, Expr) and self.plain(value):
            python = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert}[
                type(op)
            ]
            return self.guard(python, node, value)
        value = self.checked(value, node.operand)
        match op:
            case ast.UAdd():
                return value
            case ast.USub():
                if isinstance(value, Const) and value.dtype != "bool":
                    return self.guard(namespace_tir.Type(value.dtype), node, -value.value)
                if value.dtype == "bool":
                    raise self.error("`-` does not take bool", node)
                return Unary("neg", value)
            case ast.Not():
                return self.guard(te.logical_not, node, value)
            case _:
                if value.dtype == "bool":
                    return Unary("not", value)
                raise self.error("`~` is only for conditions: there are no operations on bits", node)

    def logic(self, op: str, nodes: list[ast.expr]) -> Any:
        """`and` and `or`, to the left; conditions known to Python are decided as Python does."""
        result = self.value(nodes[0])
        for n in nodes[1:]:
            if not isinstance(result, Expr):
                if bool(result) != (op == "and"):
                    return result
                result = self.value(n)
                continue
            other = self.checked(self.value(n), n)
            result = self.guard(binary, n, op, result, other)
        return result

    def compare(self, node: ast.Compare) -> Any:
        """Comparisons; a chain `a < b < c` means `a < b and b < c`."""
        result: Any = None
        left_node: ast.expr = node.left
        left = self.value(left_node)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            if type(op) not in _COMPARE:
                if isinstance(left, Expr) or isinstance(right, Expr):
                    raise self.error(f"`{_called(op)}` does not compare expressions", node)
                part: Any = {
                    ast.In: lambda a, b: a in b,
                    ast.NotIn: lambda a, b: a not in b,
                    ast.Is: lambda a, b: a is b,
                    ast.IsNot: lambda a, b: a is not b,
                }[type(op)](left, right)
            else:
                text, python = _COMPARE[type(op)]
                if not isinstance(left, Expr) and not isinstance(right, Expr) and self.plain(left) and self.plain(right):
                    part = self.guard(python, node, left, right)
                else:
                    left, right = self.checked(left, left_node), self.checked(right, right_node)
                    part = self.guard(binary, node, text, left, right)
            if result is None or (not isinstance(result, Expr) and result):
                result = part
            elif isinstance(result, Expr):
                result = self.guard(binary, node, "and", result, part)
            left, left_node = right, right_node
        return result

    def plain(self, value: Any) -> bool:
        """Whether a value is Python's own, to be computed with now."""
        return not isinstance(value, _OURS) and value is not namespace_tir.axis

    def formatted(self, node: ast.JoinedStr) -> str:
        """An f-string of Python values, for names."""
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.value(part.value)
                if not isinstance(value, (str, *_NUMBER)):
                    raise self.error(f"`{self.text(part.value)}` is not known before the program runs", node)
                parts.append(str(value))
            else:
                parts.append(str(self.value(part)))
        return "".join(parts)

    # --- elements ------------------------------------------------------------------------------------------------------

    def subscript(self, node: ast.Subscript) -> Any:
        base = self.value(node.value)
        if isinstance(base, (Buffer, Reshaped, Window)):
            nodes = self.index_nodes(node)
            if any(isinstance(n, ast.Slice) for n in nodes):
                return self.region(base, nodes, node)
            buffer, indices = self.element(base, node)
            return Load(buffer, indices)
        if isinstance(base, Pointer):
            buffer, indices = self.element(self.memory(base), node)
            return Load(buffer, indices)
        if isinstance(base, (tuple, list, dict, str, range)):
            key = self.value(node.slice) if not isinstance(node.slice, ast.Slice) else self.python_slice(node.slice)
            return self.guard(operator.getitem, node, base, key)
        if isinstance(base, namespace_tir.Annotation):
            raise self.error(f"`{self.text(node)}` {base.place}", node)
        if isinstance(base, Expr):
            raise self.error(f"`{self.text(node.value)}` is a scalar and has no elements", node)
        if isinstance(base, Handle):
            raise self.error(
                f"`{base.name}` is a handle and has no elements", node, f"A = T.match_buffer({base.name}, (128,)) first"
            )
        if not self.live:
            raise self.error(f"`{self.text(node)}` cannot be read: nothing is executed in a text", node)
        return self.guard(operator.getitem, node, base, self.value(node.slice))

    def python_slice(self, node: ast.Slice) -> slice:
        return slice(*(None if n is None else self.value(n) for n in (node.lower, node.upper, node.step)))

    def index_nodes(self, node: ast.Subscript) -> list[ast.expr]:
        return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]

    def memory(self, pointer: Pointer) -> Buffer:
        """The buffer of memory that is indexed directly."""
        return pointer.seen_as(pointer.extents, size(pointer.extents))

    def element(self, base: Buffer | View, node: ast.Subscript) -> tuple[Buffer, tuple[Expr, ...]]:
        """The buffer and the indices that a subscript means."""
        nodes = self.index_nodes(node)
        indices: list[Expr] = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                indices.extend(self.integer(v, n) for v in self.items([n]))
            else:
                indices.append(self.index(n))
        self.rank(base, len(indices), node)
        if isinstance(base, Buffer):
            return base, tuple(indices)
        return base.buffer, base.indices(indices, self.ranges, self.lets)

    def rank(self, base: Buffer | View, found: int, node: ast.Subscript) -> None:
        wanted = len(base.shape)
        if found != wanted:
            name, shape = self.text(node.value), ", ".join(map(str, base.shape))
            rank = f"{wanted} dimension{'s' * (wanted != 1)}"
            given = "1 index is" if found == 1 else f"{found} indices are"
            hint = f"its shape is ({shape}{',' * (wanted == 1)})" + (f"; write {name}[()]" if wanted == 0 else "")
            raise self.error(f"`{name}` has {rank}, but {given} given", node, hint)

    def region(self, base: Buffer | View, nodes: list[ast.expr], node: ast.Subscript) -> Region:
        """A subscript with slices."""
        if isinstance(base, Reshaped) and base.shape != base.buffer.shape:
            raise self.error(
                f"a region of `{self.text(node.value)}`, which is another view of `{base.buffer.name}`, cannot be kept",
                node,
                f"state the region of `{base.buffer.name}`",
            )
        self.rank(base, len(nodes), node)
        ranges: list[Range] = []
        for n, extent in zip(nodes, base.shape, strict=True):
            if isinstance(n, ast.Slice):
                if n.step is not None:
                    raise self.error("a region has no steps", n, "state the whole range")
                start = Const(0) if n.lower is None else self.index(n.lower)
                stop = extent if n.upper is None else self.index(n.upper)
                ranges.append(Range(start, self.between(start, stop)))
            else:
                at = self.index(n)
                ranges.append(Range(at, Const(1, at.dtype)))
        if isinstance(base, Window):
            starts = base.indices([r.min for r in ranges], self.ranges, self.lets)
            extents: list[Expr] = [Const(1)] * len(starts)
            for d, r in zip(base.dims, ranges, strict=True):
                extents[d] = r.extent
            ranges = [Range(s, e) for s, e in zip(starts, extents, strict=True)]
        return Region(base.buffer if isinstance(base, (Reshaped, Window)) else base, tuple(ranges))

    def between(self, start: Expr, stop: Expr) -> Expr:
        """stop - start."""
        if start == Const(0, start.dtype):
            return stop
        return simplify(binary("-", stop, start))

    # --- calls ---------------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Any:
        called = self.value(node.func)
        match called:
            case namespace_tir.Form():
                return self.form_value(called, node)
            case namespace_tir.Type() if not node.args and not node.keywords:
                raise self.error(f"`{self.text(node)}` makes a size, and {namespace_tir.var.place}", node, "n = T.int32()")
        args = self.items(node.args)
        keywords = {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}
        if len(keywords) != len(node.keywords):
            raise self.error("** does not belong into a call here", node)
        if getattr(called, "__module__", None) in _OUR_MODULES or isinstance(called, namespace_tir.Type):
            for a, n in zip(args, node.args, strict=False):
                if not isinstance(a, Expr) and not self.plain(a):
                    self.checked(a, n)
            return self.guard(called, node, *args, **keywords)
        if any(called is getattr(builtins, name) for name in BUILTINS):
            return self.builtin(called, args, keywords, node)
        if isinstance(getattr(called, "__self__", None), Expr):  # x.astype(dtype)
            return self.guard(called, node, *args, **keywords)
        if not callable(called):
            raise self.error(f"`{self.text(node.func)}` cannot be called", node)
        if not self.live:
            raise self.error(f"`{self.text(node.func)}` cannot be called: nothing is executed in a text", node)
        return self.guard(called, node, *args, **keywords)

    def builtin(self, called: Any, args: list[Any], keywords: dict[str, Any], node: ast.Call) -> Any:
        """Python's own functions, on numbers; `max`, `min` and `abs` also on expressions."""
        if not any(isinstance(a, Expr) for a in args):
            return self.guard(called, node, *args, **keywords)
        ours = {max: te.maximum, min: te.minimum, abs: te.abs}.get(called)
        if ours is None:
            hint = {int: 'T.Cast("int32", x)', float: 'T.Cast("float32", x)', bool: 'T.Cast("bool", x)'}.get(called)
            raise self.error(f"`{self.text(node.func)}` does not take expressions", node, hint)
        if ours is te.abs:
            return self.guard(ours, node, *args)
        result = args[0]
        for a in args[1:]:
            result = self.guard(ours, node, result, a)
        return result

    def form_value(self, form: Any, node: ast.Call) -> Any:
        """The few forms that stand within expressions."""
        match form.name:
            case "truncdiv" | "truncmod":
                a, b = (self.scalar(n) for n in self.arguments(form, node).values())
                if not isinstance(a, Expr) and not isinstance(b, Expr):
                    a = as_expr(a)
                op = "//" if form.name == "truncdiv" else "%"
                result: Binary = self.guard(binary, node, op, a, b)
                positive = Binary("and", binary(">=", result.a, 0), binary(">", result.b, 0))
                if not dtypes.is_int(result.dtype) or not prove(positive, self.ranges):
                    why = f"`{result.a}` is not provably at least 0 and `{result.b}` above 0"
                    hint = f"T.floor{form.name[5:]} rounds down"
                    raise self.error(f"`{self.text(node.func)}` rounds toward zero, and {why}", node, hint)
                return result
            case "let":
                return self.let_value(node)
            case "Let":
                arguments = self.arguments(form, node)
                names = arguments["where"]
                if not isinstance(names, ast.Dict) or not all(isinstance(k, ast.Name) for k in names.keys):
                    raise self.error("the names of T.Let stand in a dictionary: where={x: value}", node)
                pairs = [(k.id, self.expr(v)) for k, v in zip(names.keys, names.values, strict=True)]  # type: ignore[union-attr]
                return self.within(pairs, arguments["body"])
        raise self.error(f"`{self.text(node.func)}` {form.place}", node)

    def let_value(self, node: ast.Call) -> Expr:
        arguments = self.arguments(namespace_tir.let, node)
        if "body" not in arguments:
            raise self.error("T.let without a body stands in a `with`", node, "with T.let(x, value):")
        return self.within([(self.identifier(arguments["var"]), self.expr(arguments["value"]))], arguments["body"])

    def within(self, pairs: list[tuple[str, Expr]], body: ast.expr) -> Expr:
        """`body` where the names stand for the values: expressions have no lets, so the values are put in."""
        outer, self.scope = self.scope, Scope(self.scope, dict(pairs))
        result = self.expr(body)
        self.scope = outer
        return result

    def identifier(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            raise self.error(f"a name is needed here, not `{self.text(node)}`", node)
        return node.id

    def arguments(self, form: Any, node: ast.Call) -> dict[str, ast.expr]:
        """The nodes of a call's arguments by parameter; a variadic one's are in a Tuple."""
        if not node.keywords and form.required <= len(node.args) <= len(form.positional):  # what most calls are like
            return dict(zip(form.positional, node.args, strict=False))
        if any(k.arg is None for k in node.keywords):
            raise self.error("** does not belong into a call here", node)
        try:
            bound = form.signature.bind(*node.args, **{k.arg: k.value for k in node.keywords if k.arg})
        except TypeError as e:
            shown = str(form.signature).replace("'", "")
            raise self.error(f"`{self.text(node.func)}`: {e}", node, f"{self.text(node.func)}{shown}") from None
        return {
            name: ast.copy_location(ast.Tuple(list(value), ast.Load()), node) if isinstance(value, tuple) else value
            for name, value in bound.arguments.items()
        }

    def let_range(self, name: str, value: Expr) -> None:
        """Note the values that an integer let can take."""
        self.lets.pop(name, None)
        self.ranges.pop(name, None)
        if dtypes.is_int(value.dtype) and not loads(value):
            closed = substitute(value, self.lets) if self.lets else value
            self.lets[name] = closed
            self.ranges[name] = bounds(closed, self.ranges)

    def extent_range(self, name: str, extent: Expr) -> None:
        """Note that a variable runs from 0 to extent - 1."""
        _, high = bounds(extent, self.ranges) if not isinstance(extent, Const) else (0, extent.value)
        self.ranges[name] = (0, None if high is None else high - 1)


@cache
def _members(space: Any) -> dict[str, Any]:
    """The public names of a namespace."""
    if space is namespace_ir:
        return {name: getattr(namespace_ir, name) for name in namespace_ir.__all__}
    hidden = {"Any", "Callable", "Binary", "CastNode", "Const", "Expr", "Unary", "REFUSED", "Form", "Annotation", "Type"}
    hidden |= {
        "annotations",
        "builtins",
        "inspect",
        "sys",
        "dtypes",
        "te",
        "as_expr",
        "binary",
        "cast_expr",
        "const",
        "true_divide",
    }
    return {name: value for name, value in vars(space).items() if not name.startswith("_") and name not in hidden}


def _called(node: ast.AST) -> str:
    """What Python calls a piece of syntax."""
    known = {
        ast.Lambda: "a lambda", ast.ListComp: "a comprehension", ast.SetComp: "a comprehension", ast.DictComp: "a comprehension",
        ast.GeneratorExp: "a generator", ast.Set: "a set", ast.Await: "await", ast.Yield: "yield", ast.YieldFrom: "yield",
        ast.NamedExpr: "`:=`", ast.Starred: "`*`", ast.Slice: "a slice", ast.In: "in", ast.NotIn: "not in", ast.Is: "is",
        ast.IsNot: "is not",
    }  # fmt: skip
    return known.get(type(node), f"`{type(node).__name__}`")
