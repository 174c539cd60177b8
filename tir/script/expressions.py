"""Expressions of a script: the value of each node of Python's syntax tree.

The value of a node is an expression of the IR, a buffer or view, a form of the namespace `T`, or plain Python.
Numbers, strings, tuples and captured objects stay Python's own until they meet an expression.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from types import ModuleType
from typing import Any

import numpy as np

from .. import dtypes
from ..arith.prove import provably_equal, prove
from ..arith.simplify import simplify
from ..intrinsics import INTRINSICS
from ..ir import Address, Binary, Buffer, Const, Expr, Foreign, Node, Text, Var, as_expr, binary, cast
from ..memory import check_scope
from ..nearest import did_you_mean
from ..te import elementwise
from . import ir as namespace_ir
from . import namespace, operators
from .elements import subscript
from .error import ScriptError
from .operators import MAX_BITS, MAX_ITEMS
from .scopes import Facts, Scopes
from .source import Source, python_tree, syntax
from .values import NUMBER, Conversions, Pointer, is_python_value
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


@dataclass
class Lane:
    """The number of an element within the vectors of a statement; `count` is their length, once that is known."""

    var: Var
    count: Expr | None = None


class Expressions:
    """Evaluates the expressions of a function: the value of each node, among the names of `scopes` and by the `facts` on them.

    Where captured names come from running Python (`live`), attributes of their values may be read and functions called; in a text
    nothing is executed.
    """

    def __init__(self, source: Source, captured: Mapping[str, Any], live: bool):
        self.source, self.live = source, live
        self.error, self.text, self.guard = source.error, source.text, source.guard
        self.scopes, self.facts, self.convert = Scopes(captured), Facts(), Conversions(source)
        self.lane: Lane | None = None  # in a statement on vectors

    def value(self, node: ast.expr) -> Any:
        """The value of a node."""
        match node:
            case ast.Constant(value=value):
                if isinstance(value, (complex, bytes)):
                    raise self.error(f"{self.text(node)} is no value of the dialect", node)
                return value
            case ast.Name(id=name):
                return self._name(name, node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return subscript(self, node)
            case ast.Call():
                return self._call(node)
            case ast.BinOp():
                return operators.operate(self, node)
            case ast.UnaryOp():
                return operators.unary(self, node)
            case ast.BoolOp():
                return operators.logic(self, node)
            case ast.Compare():
                return operators.compare(self, node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition = self.value(test)
                if not isinstance(condition, Expr):
                    return self.value(body if condition else orelse)
                return self.guard(elementwise.if_then_else, node, condition, self.number(body), self.number(orelse))
            case ast.Tuple(elts=items):
                return tuple(self.items(items))
            case ast.List(elts=items):
                return self.items(items)
            case ast.Dict(keys=keys, values=values):
                if any(k is None for k in keys):
                    raise self.error("** does not belong into a dictionary here", node)
                pairs = [(self.value(k), self.value(v)) for k, v in zip(keys, values, strict=True) if k is not None]
                return self.guard(dict, node, pairs)
            case ast.JoinedStr(values=parts):  # of Python values, for names
                return "".join(map(self._formatted, parts))
        raise self.error(f"{syntax(node)} is not in the dialect", node, "write it out, or compute it before the function")

    def _formatted(self, part: ast.expr) -> str:
        """A part of an f-string."""
        node = part.value if isinstance(part, ast.FormattedValue) else part
        value = self.value(node)
        if not isinstance(value, (str, *NUMBER)):
            raise self.error(f"`{self.text(node)}` is not known before the program runs", part)
        return str(value)

    def items(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """The values of several nodes; `*tuple` is spread."""
        result: list[Any] = []
        for n in nodes:
            if not isinstance(n, ast.Starred):
                result.append(self.value(n))
                continue
            spread = self.value(n.value)
            if not isinstance(spread, (tuple, list, range)):
                raise self.error(f"`*` spreads tuples and lists, `{self.text(n.value)}` is neither", n)
            if isinstance(spread, range) and spread[MAX_ITEMS:]:
                raise self.error(f"more than {MAX_ITEMS} items", n)
            result.extend(spread)
        return result

    def number(self, node: ast.expr) -> Any:
        """The value of a node that must be an expression or a number."""
        return self.convert.number(self.value(node), node)

    def expr(self, node: ast.expr) -> Expr:
        """The value of a node, as an expression of the IR."""
        return self.convert.expr(self.value(node), node)

    def condition(self, node: ast.expr) -> Expr:
        """The value of a node, as a condition."""
        return self.convert.condition(self.value(node), node)

    def index(self, node: ast.expr) -> Expr:
        """The value of a node, as an integer expression."""
        return self.convert.integer(self.value(node), node)

    def string(self, node: ast.expr) -> str:
        """The value of a node that must be a string."""
        return self.convert.string(self.value(node), node)

    def annotation(self, node: ast.expr) -> ast.expr:
        """An annotation, parsed if it is a string."""
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            return node
        try:
            tree = python_tree(node.value.strip(), mode="eval").body
        except SyntaxError:
            raise self.error(f"the annotation {node.value!r} is not an expression", node) from None
        for n in ast.walk(tree):
            ast.copy_location(n, node)
        return tree

    def identifier(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            raise self.error(f"a name is needed here, not `{self.text(node)}`", node)
        return node.id

    def indices(self, nodes: Sequence[ast.expr]) -> list[Expr]:
        """The values of several nodes, as integer expressions; `*tuple` is spread."""
        result = []
        for n in nodes:
            if isinstance(n, ast.Slice) and self.lane is not None:
                if n.lower is None or n.upper is None or n.step is not None:
                    raise self.error("the elements of a vector are stated with their bounds", n, "A[i * 4:i * 4 + 4]")
                start = self.index(n.lower)
                result.append(self._lanes(start, Const(1), simplify(binary("-", self.index(n.upper), start)), n))
            else:
                result += [self.convert.integer(value, n) for value in self.items([n])]
        return result

    def _lanes(self, start: Expr, step: Expr, count: Expr, node: ast.AST) -> Expr:
        """An element of the vector `start`, `start + step`, ...: number `lane`."""
        assert self.lane is not None
        if self.lane.count is None:
            self.lane.count = count
            self.facts.counter(self.lane.var.name, count)
        elif not provably_equal(self.lane.count, count):
            raise self.error(f"a vector of {count} elements beside one of {self.lane.count}", node)
        return simplify(binary("+", start, binary("*", self.lane.var, step)), self.facts.ranges)

    # --- names ---------------------------------------------------------------------------------------------------------

    def _name(self, name: str, node: ast.AST) -> Any:
        scopes = self.scopes
        value = scopes.local(name)
        if value is not None:
            return value
        if name in scopes.captured:
            value = scopes.captured[name]
            # A Python number takes the dtype of the operand beside it, a numpy scalar would not.
            return value.item() if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0) else value
        if name in BUILTINS:
            return getattr(builtins, name)
        if name in scopes.ended:
            hint = f"line {scopes.ended[name]} binds it only within the statement that it stands in"
            raise self.error(f"`{name}` is not visible here", node, hint)
        captured = [n for n, v in scopes.captured.items() if not n.startswith("__") and not isinstance(v, ModuleType)]
        raise self.error(f"`{name}` is not defined", node, did_you_mean(name, (*scopes.visible(), *captured, *BUILTINS)))

    def _namespace(self, node: ast.expr) -> ModuleType | None:
        """The namespace that a name stands for, T or I, even where a buffer goes by the same name."""
        value = self.scopes.captured.get(node.id) if isinstance(node, ast.Name) else None
        return _NAMESPACES.get(value.__name__) if isinstance(value, ModuleType) else None

    def form(self, node: ast.AST) -> Any:
        """The form or type that a call names, by itself (`T.grid`) or by a name bound to it; or None."""
        if not isinstance(node, ast.Call):
            return None
        root: ast.expr = node.func
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name):
            return None
        if self._namespace(root) is None and not isinstance(self.scopes.find(root.id), (namespace.Form, namespace.Type)):
            return None
        called = self.value(node.func)
        return called if isinstance(called, (namespace.Form, namespace.Type)) else None

    def _attribute(self, node: ast.Attribute) -> Any:
        name, space = node.attr, self._namespace(node.value)
        if space is not None:
            local = self.scopes.local(node.value.id)  # type: ignore[attr-defined]
            if local is None or name not in ("data", "shape", "dtype", "astype"):
                return self._member(space, name, node)
        base = self.value(node.value)
        if (view := as_view(base)) is not None:
            if name not in _OF_VIEWS:
                hint = did_you_mean(name, _OF_VIEWS) or "index it: A[i, j]"
                raise self.error(f"a buffer has no `{name}`", node, hint)
            return _OF_VIEWS[name](view)
        if base is namespace.axis:
            return self._member(namespace.axis, name, node)
        if isinstance(base, Expr) and name not in ("dtype", "astype"):
            raise self.error(f"an expression has no `{name}`", node, did_you_mean(name, ("dtype", "astype")))
        if not self.live and not isinstance(base, Expr):
            raise self.error(f"`{self.text(node)}` cannot be read: nothing is executed in a text", node)
        try:
            return getattr(base, name)
        except AttributeError as e:
            raise self.error(str(e), node) from None

    def _member(self, space: Any, name: str, node: ast.Attribute) -> Any:
        """A name of T, I or T.axis."""
        known = _members(space)
        if name not in known:
            refused = namespace.REFUSED.get(name) if space is namespace else None
            hint = refused or did_you_mean(name, known, f"{self.text(node.value)}.")
            raise self.error(f"`{self.text(node)}` is not in the dialect", node, hint)
        return known[name]

    # --- calls ---------------------------------------------------------------------------------------------------------

    def arguments(self, form: namespace.Form, node: ast.Call) -> Arguments:
        """The arguments of a call of a form by parameter; the nodes of a variadic one are in a Tuple."""
        if any(k.arg is None for k in node.keywords):
            raise self.error("** does not belong into a call here", node)
        try:
            bound = form.signature.bind(*node.args, **{k.arg: k.value for k in node.keywords if k.arg})
        except TypeError as e:
            shown = str(form.signature).replace("'", "")
            raise self.error(f"`{self.text(node.func)}`: {e}", node, f"{self.text(node.func)}{shown}") from None
        given = bound.arguments.items()
        spread = {k: ast.copy_location(ast.Tuple(list(v), ast.Load()), node) for k, v in given if isinstance(v, tuple)}
        return Arguments(self, form, node, {**bound.arguments, **spread})

    def _call(self, node: ast.Call) -> Any:
        called = self.value(node.func)
        match called:
            case namespace.ForeignForm():
                return self._foreign(called, node)
            case namespace.Form():
                if called.name not in _FORMS or (called.name in _ON_VECTORS and self.lane is None):
                    hint = "write a loop: for i in T.vectorized(16):" if called.name in _ON_VECTORS else None
                    raise self.error(f"`{self.text(node.func)}` {called.place}", node, hint)
                return _FORMS[called.name](self, self.arguments(called, node))
            case namespace.Type() if not node.args and not node.keywords:
                raise self.error(f"`{self.text(node)}` makes a size, and {namespace.var.place}", node, "n = T.int32()")
        args = self.items(node.args)
        keywords = {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}
        if len(keywords) != len(node.keywords):
            raise self.error("** does not belong into a call here", node)
        if getattr(called, "__module__", None) in _OUR_MODULES or isinstance(called, namespace.Type):
            for a, n in zip(args, node.args, strict=False):
                if not isinstance(a, Expr) and not is_python_value(a):
                    self.convert.number(a, n)
            return self._of_dtype(called, args, keywords, node)
        if any(called is getattr(builtins, name) for name in BUILTINS):
            return self._builtin(called, args, keywords, node)
        if isinstance(getattr(called, "__self__", None), (Expr, ArrayView)):  # x.astype(dtype), A.access_ptr("r")
            return self.guard(called, node, *args, **keywords)
        if not callable(called):
            raise self.error(f"`{self.text(node.func)}` cannot be called", node)
        if not self.live:
            raise self.error(f"`{self.text(node.func)}` cannot be called: nothing is executed in a text", node)
        return self.guard(called, node, *args, **keywords)

    def _foreign(self, form: namespace.Form, node: ast.Call) -> Foreign | Expr:
        """A foreign call; for a pure function of a library or of LLVM that T has, the value of that."""
        given = self.arguments(form, node)
        args = [self._foreign_argument(n) for n in given["args"].elts] if "args" in given else []  # type: ignore[attr-defined]
        dtype = given.string("dtype")
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

    def _foreign_argument(self, node: ast.expr) -> Node:
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
                return self.convert.expr(value, node)

    def _of_dtype(self, called: Any, args: list[Any], keywords: dict[str, Any], node: ast.Call) -> Any:
        """A call of a function of T; `dtype`, unless it is a parameter, states the dtype of the result."""
        stated = None if "dtype" in _parameters(called) else keywords.pop("dtype", None)
        result = self.guard(called, node, *args, **keywords)
        if stated is not None and result.dtype != stated:
            reason = f"dtype is {stated!r}, and `{result}` is {result.dtype}"
            raise self.error(reason, node, "convert what it is applied to: T.Cast(dtype, x)")
        return result

    def _builtin(self, called: Any, args: list[Any], keywords: dict[str, Any], node: ast.Call) -> Any:
        """Python's own functions, on numbers; `max`, `min` and `abs` also on expressions."""
        if not any(isinstance(a, Expr) for a in args):
            if called is not len and any(isinstance(a, range) and a[MAX_ITEMS:] for a in args):
                raise self.error(f"more than {MAX_ITEMS} items", node)
            if called is round and any(isinstance(a, int) and abs(a) > MAX_BITS for a in args[1:]):
                raise self.error(f"a number of more than {MAX_BITS} digits", node)
            return self.guard(called, node, *args, **keywords)
        if called is abs:
            return self.guard(elementwise.abs, node, *args)
        if called not in (max, min):
            hint = {int: 'T.Cast("int32", x)', float: 'T.Cast("float32", x)', bool: 'T.Cast("bool", x)'}.get(called)
            raise self.error(f"`{self.text(node.func)}` does not take expressions", node, hint)
        ours = elementwise.maximum if called is max else elementwise.minimum
        return reduce(lambda a, b: self.guard(ours, node, a, b), args)

    # --- forms that are expressions ------------------------------------------------------------------------------------

    def _truncated(self, given: Arguments) -> Expr:
        """Division toward zero, or its remainder: `//` or `%` where both operands are provably not negative."""
        op = "//" if given.form is namespace.truncdiv else "%"
        a, b = map(self.number, (given["a"], given["b"]))
        if not isinstance(a, Expr) and not isinstance(b, Expr):
            a = as_expr(a)
        result: Binary = self.guard(binary, given.call, op, a, b)
        a, b = result.a, result.b
        if not dtypes.is_int(result.dtype):
            raise given.error(f"`{given.function}` divides integers, got {result.dtype}")
        if prove(Binary("and", binary(">=", a, 0), binary(">", b, 0)), self.facts.ranges):
            return result
        return elementwise.toward_zero(op, a, b, prove(binary(">", b, 0), self.facts.ranges))

    def _ramp(self, given: Arguments) -> Expr:
        base, stride, lanes = (self.index(given[name]) for name in ("base", "stride", "lanes"))
        return self._lanes(base, stride, lanes, given.call)

    def _broadcast(self, given: Arguments) -> Any:
        self._lanes(Const(0), Const(1), self.index(given["lanes"]), given.call)
        return self.number(given["value"])

    def _let(self, given: Arguments) -> Expr:
        """The body of T.let or T.Let with values substituted for names: expressions have no lets."""
        if given.form is namespace.let and "body" not in given:
            raise given.error("T.let without a body stands in a `with`", "with T.let(x, value):")
        names = given["where"] if "where" in given else ast.Dict([given["var"]], [given["value"]])
        if "where" in given and not (isinstance(names, ast.Dict) and all(isinstance(k, ast.Name) for k in names.keys)):
            raise given.error("the names of T.Let stand in a dictionary: where={x: value}")
        pairs = {self.identifier(k): self.expr(v) for k, v in zip(names.keys, names.values, strict=True)}  # type: ignore
        with self.scopes.inner(pairs):
            return self.expr(given["body"])


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call of a form: their nodes, and their values as the form needs them."""

    read: Expressions
    form: Any
    call: ast.Call
    nodes: dict[str, ast.expr]

    def __contains__(self, name: str) -> bool:
        return name in self.nodes

    def __getitem__(self, name: str) -> ast.expr:
        return self.nodes[name]

    @property
    def function(self) -> str:
        """The form as it is written."""
        return self.read.text(self.call.func)

    def error(self, reason: str, hint: str | None = None, at: str | None = None) -> ScriptError:
        """The error of the argument `at`, or of the whole call."""
        return self.read.error(reason, self.call if at is None else self.nodes[at], hint)

    def value(self, name: str) -> Any:
        """The value of an argument; None without it."""
        return self.read.value(self.nodes[name]) if name in self.nodes else None

    def string(self, name: str, default: str = "") -> str:
        return self.read.string(self.nodes[name]) if name in self.nodes else default

    def integer(self, name: str) -> Expr:
        return self.read.index(self.nodes[name])

    def data(self, name: str) -> Any:
        """Plain data; None without the argument."""
        return self.read.convert.data(self.value(name), self.nodes.get(name, self.call))

    def attributes(self, name: str) -> dict[str, Any]:
        """Plain data by name; {} without the argument."""
        return self.read.convert.attributes(self.value(name), self.nodes[name]) if name in self.nodes else {}

    def dtype(self) -> str:
        """The dtype of a declaration."""
        return self.read.guard(dtypes.check, self.nodes["dtype"], self.string("dtype")) if "dtype" in self.nodes else "float32"

    def scope(self) -> str:
        """The storage scope of a declaration; "" stands for "global"."""
        given = self.string("scope") or "global"
        return self.read.guard(check_scope, self.nodes["scope"], given) if "scope" in self.nodes else given


# The forms that are expressions, by name.
_FORMS: dict[str, Callable[[Expressions, Arguments], Any]] = {
    "truncdiv": Expressions._truncated, "truncmod": Expressions._truncated, "ramp": Expressions._ramp,
    "broadcast": Expressions._broadcast, "let": Expressions._let, "Let": Expressions._let,
}  # fmt: skip
_ON_VECTORS = ("ramp", "broadcast")


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
