"""The common base of the parser's parts: the source, the names in scope, and checks of values where they are used."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .. import dtypes
from ..arith.bounds import bounds, extent_range
from ..arith.intervals import Interval
from ..arith.prove import provably_equal
from ..arith.simplify import simplify
from ..ir import Address, Buffer, Const, Expr, Foreign, Region, Var, as_expr, as_index, binary
from ..traverse import loads, substitute
from . import namespace
from .error import ScriptError
from .source import Source
from .values import Handle, Pointer, Scope, Thread
from .views import ArrayView

NUMBER = (bool, int, float)


# Texts may come from files of others: these limits bound the time and the memory of Python's computations in them.
MAX_BITS = 1024  # of a number: the largest float has as many
MAX_ITEMS = 100_000  # of a tuple, a list or a string


@dataclass
class Lane:
    """The number of an element within the vectors of a statement; `count` is their length, once that is known."""

    var: Var
    count: Expr | None = None


class FunctionContext(ABC):
    """Reads one function.

    `captured` are the names from outside the function. Where they come from running Python (`live`), attributes of captured
    objects may be read and captured functions called; in a text nothing is executed.
    """

    def __init__(self, source: Source, captured: Mapping[str, Any], live: bool):
        self.source, self.captured, self.live = source, captured, live
        self.scope = Scope()
        self.ended: dict[str, int] = {}  # names whose scope has ended, and the line where they were bound
        self.ranges: dict[str, Interval] = {}
        self.lets: dict[str, Expr] = {}  # lets whose value is index arithmetic
        self.lane: Lane | None = None  # in a statement on vectors

    @abstractmethod
    def value(self, node: ast.expr) -> Any:
        """The value of a node."""

    def error(self, reason: str, node: ast.AST, hint: str | None = None) -> ScriptError:
        return self.source.error(reason, node, hint)

    def text(self, node: ast.AST) -> str:
        """The source of a node, on one line."""
        return self.source.segment(node) or ast.unparse(node)

    def guard(self, function: Any, node: ast.AST, *args: Any, **kwargs: Any) -> Any:
        """`function(*args)`, its TypeError or ValueError reported at `node`."""
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError, ArithmeticError, LookupError) as e:
            raise self.error(str(e) if not isinstance(e, KeyError) else f"there is no {e}", node) from None

    def items(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """The values of several nodes; `*tuple` is spread."""
        result: list[Any] = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                spread = self.value(n.value)
                if not isinstance(spread, (tuple, list, range)):
                    raise self.error(f"`*` spreads tuples and lists, `{self.text(n.value)}` is neither", n)
                if isinstance(spread, range) and spread[MAX_ITEMS:]:
                    raise self.error(f"more than {MAX_ITEMS} items", n)
                result.extend(spread)
            else:
                result.append(self.value(n))
        return result

    def scalar(self, node: ast.expr) -> Any:
        """The value of a node that must be an expression or a number."""
        return self.checked(self.value(node), node)

    def expr(self, node: ast.expr) -> Expr:
        """The value of a node, as an expression of the IR."""
        return self.as_expr(self.value(node), node)

    def as_expr(self, value: Any, node: ast.expr) -> Expr:
        """A value as an expression of the IR."""
        return self.guard(as_expr, node, self.checked(value, node))

    def index(self, node: ast.expr) -> Expr:
        """The value of a node, as an integer expression."""
        return self.integer(self.value(node), node)

    def indices(self, nodes: Sequence[ast.expr]) -> list[Expr]:
        """The values of several nodes, as integer expressions; `*tuple` is spread."""
        result = []
        for n in nodes:
            if isinstance(n, ast.Slice) and self.lane is not None:
                if n.lower is None or n.upper is None or n.step is not None:
                    raise self.error("the elements of a vector are stated with their bounds", n, "A[i * 4:i * 4 + 4]")
                start = self.index(n.lower)
                count = simplify(binary("-", self.index(n.upper), start))
                result.append(self.lanes(start, Const(1), count, n))
            else:
                result += [self.integer(value, n) for value in self.items([n])]
        return result

    def lanes(self, start: Expr, step: Expr, count: Expr, node: ast.AST) -> Expr:
        """An element of the vector `start`, `start + step`, ...: number `lane`."""
        assert self.lane is not None
        if self.lane.count is None:
            self.lane.count = count
            self.extent_range(self.lane.var.name, count)
        elif not provably_equal(self.lane.count, count):
            raise self.error(f"a vector of {count} elements beside one of {self.lane.count}", node)
        return simplify(binary("+", start, binary("*", self.lane.var, step)), self.ranges)

    def integer(self, value: Any, node: ast.AST) -> Expr:
        """A value as an integer expression."""
        return self.guard(as_index, node, self.checked(value, node))

    def condition(self, value: Any, node: ast.expr) -> Expr:
        """A value, as a condition."""
        result = self.as_expr(value, node)
        if result.dtype != "bool":
            raise self.error(f"a condition must be bool, `{self.text(node)}` is {result.dtype}", node, "compare it: x != 0")
        return result

    def checked(self, value: Any, node: ast.AST) -> Any:
        """A value that must be an expression or a number."""
        if isinstance(value, (Expr, *NUMBER)):
            return value
        hint = None
        match value:
            case Buffer() | ArrayView():
                rank = len(value.shape)
                what = f"a buffer of {rank} dimension{'s' * (rank != 1)}"
                hint = f"index it: {self.text(node)}[{', '.join('ijklmnopq'[:rank]) if rank else '()'}]"
            case Region():
                what, hint = "a region", "slices stand only in T.reads, T.writes and T.match_buffer; use a loop"
            case Handle():
                what, hint = "a handle", f"give it a shape: A = T.match_buffer({value.name}, (128,))"
            case Pointer() | Address():
                what, hint = "memory", "give it a shape: V = T.Buffer((128,), data=...)"
            case Foreign():
                what, hint = "a foreign call", "foreign calls are statements: T.evaluate(T.call_extern(...))"
            case namespace.Form():
                what, hint = "a form", f"it {value.place}"
            case namespace.Type():
                what, hint = "a type", f"{self.text(node)}(x) converts to it"
            case Thread():
                what, hint = "a thread axis", "T.launch_thread gives it an extent"
            case ModuleType():
                what = "a module"
            case _:
                what = f"{type(value).__name__!r}, not a number"
        raise self.error(f"`{self.text(node)}` is {what}; a value is needed here", node, hint)

    def string(self, node: ast.expr) -> str:
        value = self.value(node)
        if isinstance(value, (namespace.Annotation, namespace.Type)):
            return value.name
        if not isinstance(value, str):
            raise self.error(f"a string is needed here, not `{self.text(node)}`", node)
        return value

    def identifier(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            raise self.error(f"a name is needed here, not `{self.text(node)}`", node)
        return node.id

    def arguments(self, form: Any, node: ast.Call) -> dict[str, ast.expr]:
        """The nodes of a call's arguments by parameter; a variadic one's are in a Tuple."""
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
        self.ranges[name] = extent_range(extent, self.ranges)
