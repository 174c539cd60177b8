"""Expressions of a script: the value of each node of Python's syntax tree.

The value of a node is an expression of the IR, a buffer or view, a form of the namespace `T`, or plain Python.
Numbers, strings, tuples and captured objects stay Python's own until they meet an expression.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Iterable
from functools import cache
from types import ModuleType
from typing import Any

from .. import dtypes
from ..arith.prove import prove
from ..intrinsics import INTRINSICS
from ..ir import Address, Binary, Buffer, Const, Expr, Foreign, Node, Text, as_expr, binary, cast
from ..nearest import did_you_mean
from ..te import elementwise
from . import ir as namespace_ir
from . import namespace
from .context import MAX_BITS, MAX_ITEMS, NUMBER
from .elements import Elements
from .operators import OperatorReader
from .source import syntax
from .values import Pointer, Scope, is_python_value
from .views import ArrayView, as_view

# The attributes of buffers and views, by name.
_OF_VIEWS: dict[str, Callable[[ArrayView], Any]] = {
    "data": lambda v: Address(v.buffer),
    "shape": lambda v: _plain(v.shape),
    "strides": lambda v: _plain(v.strides),
    "elem_offset": lambda v: v.first,
    "dtype": lambda v: v.buffer.dtype,
    "name": lambda v: v.buffer.name,
    "scope": lambda v: v.buffer.scope,
    "access_ptr": lambda v: v.access_ptr,
}

# The namespaces by module name: `tir.script.tir` adds only `prim_func`, which needs the parser, to `namespace`.
_NAMESPACES = {namespace.__name__: namespace, f"{__package__}.tir": namespace, namespace_ir.__name__: namespace_ir}

# The functions and types of Python that every script may use.
BUILTINS = ("abs", "bool", "divmod", "float", "int", "len", "list", "max", "min", "range", "round", "sum", "tuple")

# The foreign calls that may call a pure function of T.
_PURE = ("call_pure_extern", "call_extern", "call_llvm_pure_intrin", "call_llvm_intrin")

_OUR_MODULES = (namespace.__name__, elementwise.__name__)


class ExpressionReader(OperatorReader, Elements):
    """Evaluates the expressions of one function."""

    def value(self, node: ast.expr) -> Any:
        """The value of a node."""
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
            case ast.BinOp(left=left, right=right):
                return self.operate(self.value(left), self.value(right), node)
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
                return self.guard(elementwise.if_then_else, node, condition, self.scalar(body), self.scalar(orelse))
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
                raise self.error(f"{syntax(node)} is not in the dialect", node, "write it out, or compute it before the function")

    def formatted(self, node: ast.JoinedStr) -> str:
        """An f-string of Python values, for names."""
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.value(part.value)
                if not isinstance(value, (str, *NUMBER)):
                    raise self.error(f"`{self.text(part.value)}` is not known before the program runs", node)
                parts.append(str(value))
            else:
                parts.append(str(self.value(part)))
        return "".join(parts)

    # --- names ---------------------------------------------------------------------------------------------------------

    def name(self, name: str, node: ast.AST) -> Any:
        value = self.scope.find(name)
        if value is not None:
            return value
        if name in self.captured:
            value = self.captured[name]
            if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", None) == 0:
                return value.item()  # a Python number takes the dtype of the operand beside it, a numpy scalar would not
            return value
        if name in BUILTINS:
            return getattr(builtins, name)
        if name in self.ended:
            raise self.error(
                f"`{name}` is not visible here",
                node,
                f"line {self.ended[name]} binds it only within the statement that it stands in",
            )
        captured = [n for n, v in self.captured.items() if not n.startswith("__") and not isinstance(v, ModuleType)]
        known = (*self.scope.visible(), *captured, *BUILTINS)
        raise self.error(f"`{name}` is not defined", node, did_you_mean(name, known))

    def namespace(self, node: ast.expr) -> ModuleType | None:
        """The namespace that a name stands for, T or I, even where a buffer goes by the same name."""
        if isinstance(node, ast.Name):
            value = self.captured.get(node.id)
            return _NAMESPACES.get(value.__name__) if isinstance(value, ModuleType) else None
        return None

    def form(self, node: ast.AST) -> Any:
        """The form or type that a call names, or None."""
        if not isinstance(node, ast.Call):
            return None
        root: ast.expr = node.func
        while isinstance(root, ast.Attribute):
            root = root.value
        if self.namespace(root) is None and not self.alias(root):
            return None
        called = self.value(node.func)
        return called if isinstance(called, (namespace.Form, namespace.Type)) else None

    def alias(self, node: ast.expr) -> bool:
        """True where a node is a name that is bound to a form or type: `f = T.alloc_buffer`."""
        if not isinstance(node, ast.Name):
            return False
        bound = self.scope.find(node.id)
        return isinstance(self.captured.get(node.id) if bound is None else bound, (namespace.Form, namespace.Type))

    def attribute(self, node: ast.Attribute) -> Any:
        name = node.attr
        space = self.namespace(node.value)
        if space is not None:
            local = self.scope.find(node.value.id)  # type: ignore[attr-defined]
            if local is None or name not in ("data", "shape", "dtype", "astype"):
                return self.member(space, name, node)
        base = self.value(node.value)
        if (view := as_view(base)) is not None:
            if name not in _OF_VIEWS:
                hint = did_you_mean(name, _OF_VIEWS) or "index it: A[i, j]"
                raise self.error(f"a buffer has no `{name}`", node, hint)
            return _OF_VIEWS[name](view)
        if base is namespace.axis:
            return self.member(namespace.axis, name, node)
        if isinstance(base, Expr):
            if name not in ("dtype", "astype"):
                raise self.error(f"an expression has no `{name}`", node, did_you_mean(name, ("dtype", "astype")))
            return getattr(base, name)
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
            refused = namespace.REFUSED.get(name) if space is namespace else None
            hint = refused or did_you_mean(name, known, f"{self.text(node.value)}.")
            raise self.error(f"`{self.text(node)}` is not in the dialect", node, hint)
        return known[name]

    # --- calls ---------------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Any:
        called = self.value(node.func)
        match called:
            case namespace.ForeignForm():
                return self.foreign(called, node)
            case namespace.Form():
                return self.form_value(called, node)
            case namespace.Type() if not node.args and not node.keywords:
                raise self.error(f"`{self.text(node)}` makes a size, and {namespace.var.place}", node, "n = T.int32()")
        args = self.items(node.args)
        keywords = {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}
        if len(keywords) != len(node.keywords):
            raise self.error("** does not belong into a call here", node)
        if getattr(called, "__module__", None) in _OUR_MODULES or isinstance(called, namespace.Type):
            for a, n in zip(args, node.args, strict=False):
                if not isinstance(a, Expr) and not is_python_value(a):
                    self.checked(a, n)
            return self.of_dtype(called, args, keywords, node)
        if any(called is getattr(builtins, name) for name in BUILTINS):
            return self.builtin(called, args, keywords, node)
        if isinstance(getattr(called, "__self__", None), (Expr, ArrayView)):  # x.astype(dtype), A.access_ptr("r")
            return self.guard(called, node, *args, **keywords)
        if not callable(called):
            raise self.error(f"`{self.text(node.func)}` cannot be called", node)
        if not self.live:
            raise self.error(f"`{self.text(node.func)}` cannot be called: nothing is executed in a text", node)
        return self.guard(called, node, *args, **keywords)

    def foreign(self, form: Any, node: ast.Call) -> Foreign | Expr:
        """A foreign call; for a pure function of a library or of LLVM that T has, the value of that."""
        given = self.arguments(form, node)
        args = [self.foreign_argument(n) for n in given["args"].elts] if "args" in given else []  # type: ignore[attr-defined]
        dtype = self.string(given["dtype"]) if "dtype" in given else ""
        if form.name in _PURE and args:
            texts = [a.value for a in args if isinstance(a, Text)]
            values = [a for a in args if isinstance(a, Expr)]
            values = values[1:] if "llvm" in form.name else values  # the first is their number
            plain = texts[-1].removeprefix("llvm.").split(".")[0] if texts else ""
            for known in (plain, plain.removesuffix("f")):
                known = namespace.OF_LIBRARIES.get(known, known)
                if known in (*INTRINSICS, "min", "max") and values:
                    result = self.guard(_members(namespace)[known], node, *values)
                    stated = dtype or (texts[0] if isinstance(args[0], Text) else "")
                    return self.guard(cast, node, result, stated) if stated else result
        return Foreign(form.name, tuple(args), dtype)

    def foreign_argument(self, node: ast.expr) -> Node:
        """An argument of a foreign call."""
        match self.value(node):
            case Foreign() | Address() as known:
                return known
            case str() as text:
                return Text(text)
            case Buffer() as buffer:
                return Address(buffer)
            case Pointer() as memory:
                return Address(memory.array)
            case value:
                return self.as_expr(value, node)

    def of_dtype(self, called: Any, args: list[Any], keywords: dict[str, Any], node: ast.Call) -> Any:
        """A call of a function of T; `dtype`, unless it is a parameter, states the dtype of the result."""
        stated = None if "dtype" in _parameters(called) else keywords.pop("dtype", None)
        result = self.guard(called, node, *args, **keywords)
        if stated is not None and result.dtype != stated:
            reason = f"dtype is {stated!r}, and `{result}` is {result.dtype}"
            raise self.error(reason, node, "convert what it is applied to: T.Cast(dtype, x)")
        return result

    def builtin(self, called: Any, args: list[Any], keywords: dict[str, Any], node: ast.Call) -> Any:
        """Python's own functions, on numbers; `max`, `min` and `abs` also on expressions."""
        if not any(isinstance(a, Expr) for a in args):
            if called is not len and any(isinstance(a, range) and a[MAX_ITEMS:] for a in args):
                raise self.error(f"more than {MAX_ITEMS} items", node)
            if called is round and any(isinstance(a, int) and abs(a) > MAX_BITS for a in args[1:]):
                raise self.error(f"a number of more than {MAX_BITS} digits", node)
            return self.guard(called, node, *args, **keywords)
        ours = {max: elementwise.maximum, min: elementwise.minimum, abs: elementwise.abs}.get(called)
        if ours is None:
            hint = {int: 'T.Cast("int32", x)', float: 'T.Cast("float32", x)', bool: 'T.Cast("bool", x)'}.get(called)
            raise self.error(f"`{self.text(node.func)}` does not take expressions", node, hint)
        if ours is elementwise.abs:
            return self.guard(ours, node, *args)
        result = args[0]
        for a in args[1:]:
            result = self.guard(ours, node, result, a)
        return result

    def form_value(self, form: Any, node: ast.Call) -> Any:
        """The value of a form within an expression."""
        match form.name:
            case "truncdiv" | "truncmod":
                a, b = (self.scalar(n) for n in self.arguments(form, node).values())
                if not isinstance(a, Expr) and not isinstance(b, Expr):
                    a = as_expr(a)
                op = "//" if form.name == "truncdiv" else "%"
                result: Binary = self.guard(binary, node, op, a, b)
                a, b = result.a, result.b
                if not dtypes.is_int(result.dtype):
                    raise self.error(f"`{self.text(node.func)}` divides integers, got {result.dtype}", node)
                if prove(Binary("and", binary(">=", a, 0), binary(">", b, 0)), self.ranges):
                    return result
                return elementwise.toward_zero(op, a, b, prove(binary(">", b, 0), self.ranges))
            case "ramp" | "broadcast" if self.lane is None:
                raise self.error(f"`{self.text(node.func)}` {form.place}", node, "write a loop: for i in T.vectorized(16):")
            case "ramp":
                base, stride, lanes = (self.index(n) for n in self.arguments(form, node).values())
                return self.lanes(base, stride, lanes, node)
            case "broadcast":
                arguments = self.arguments(form, node)
                self.lanes(Const(0), Const(1), self.index(arguments["lanes"]), node)
                return self.scalar(arguments["value"])
            case "let":
                arguments = self.arguments(form, node)
                if "body" not in arguments:
                    raise self.error("T.let without a body stands in a `with`", node, "with T.let(x, value):")
                pairs = [(self.identifier(arguments["var"]), self.expr(arguments["value"]))]
                return self.within(pairs, arguments["body"])
            case "Let":
                arguments = self.arguments(form, node)
                names = arguments["where"]
                if not isinstance(names, ast.Dict) or not all(isinstance(k, ast.Name) for k in names.keys):
                    raise self.error("the names of T.Let stand in a dictionary: where={x: value}", node)
                pairs = [(k.id, self.expr(v)) for k, v in zip(names.keys, names.values, strict=True)]  # type: ignore[union-attr]
                return self.within(pairs, arguments["body"])
        raise self.error(f"`{self.text(node.func)}` {form.place}", node)

    def within(self, pairs: list[tuple[str, Expr]], body: ast.expr) -> Expr:
        """`body` with values substituted for names: expressions have no lets."""
        outer, self.scope = self.scope, Scope(self.scope, dict(pairs))
        result = self.expr(body)
        self.scope = outer
        return result


def _plain(dims: Iterable[Expr]) -> tuple[Any, ...]:
    """Extents or strides, constant ones as numbers of Python."""
    return tuple(d.value if isinstance(d, Const) else d for d in dims)


@cache
def _parameters(called: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(called).parameters)


@cache
def _members(space: Any) -> dict[str, Any]:
    """The public names of a namespace."""
    names = [name for name in vars(space) if not name.startswith("_")] if space is namespace.axis else space.__all__
    return {name: getattr(space, name) for name in names}
