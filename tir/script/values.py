"""Values of names in a script, besides expressions, buffers and Python values; and conversions of values where they are used."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ..ir import Address, Buffer, Const, Expr, Foreign, Load, Range, Region, as_expr, as_index
from ..traverse import variables
from . import namespace
from .source import Source
from .views import ArrayView, element_count

NUMBER = (bool, int, float)


@dataclass
class Handle:
    """A parameter without a shape, until `T.match_buffer` or a view of its data gives it one."""

    name: str
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

    def viewed_as(self, shape: tuple[Expr, ...], flat: Expr) -> Buffer:
        """The buffer behind this memory: of `shape` where that is its first view and all are alike, else flat."""
        if self.buffer is None:
            known = {n for extent in self.extents for n in variables(extent)}
            same = self.reshape and all(variables(extent) <= known for extent in shape)
            self.buffer = Buffer(self.name, shape if same else (flat,), self.dtype, self.scope)
        return self.buffer

    @property
    def array(self) -> Buffer:
        """The buffer behind this memory, viewed as it was allocated."""
        return self.viewed_as(self.extents, element_count(self.extents))


@dataclass(frozen=True)
class Thread:
    """The name of a GPU thread axis."""

    tag: str


# Values with a meaning in the dialect, on which Python does not compute. A name may be bound to a NAMEABLE one or an expression.
NAMEABLE = (Buffer, ArrayView, Pointer, Address, Foreign, namespace.Form, namespace.Type)
_DIALECT_VALUES = (Expr, Region, Handle, Thread, ModuleType, *NAMEABLE)


def is_python_value(value: Any) -> bool:
    """True for a value of Python's own, on which the parser computes."""
    return not isinstance(value, _DIALECT_VALUES) and value is not namespace.axis


def as_region(value: Any) -> Any:
    """An element or a whole buffer as a region; any other value as it is."""
    match value:
        case Load(buffer, indices):
            return Region(buffer, tuple(Range(i, Const(1, i.dtype)) for i in indices))
        case Buffer(shape=shape):
            return Region(value, tuple(Range(Const(0, d.dtype), d) for d in shape))
        case _:
            return value


@dataclass(frozen=True, slots=True)
class Conversions:
    """Conversions of values to what their use needs. An error shows the text of the node that has the value."""

    source: Source

    def number(self, value: Any, node: ast.AST) -> Any:
        """A value that must be an expression or a number."""
        if isinstance(value, (Expr, *NUMBER)):
            return value
        text, hint = self.source.text(node), None
        match value:
            case Buffer() | ArrayView():
                rank = len(value.shape)
                what = f"a buffer of {rank} dimension{'s' * (rank != 1)}"
                hint = f"index it: {text}[{', '.join('ijklmnopq'[:rank]) if rank else '()'}]"
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
                what, hint = "a type", f"{text}(x) converts to it"
            case Thread():
                what, hint = "a thread axis", "T.launch_thread gives it an extent"
            case ModuleType():
                what = "a module"
            case _:
                what = f"{type(value).__name__!r}, not a number"
        raise self.source.error(f"`{text}` is {what}; a value is needed here", node, hint)

    def expr(self, value: Any, node: ast.AST, dtype: str | None = None) -> Expr:
        """A value as an expression of the IR."""
        return self.source.guard(as_expr, node, self.number(value, node), dtype)

    def integer(self, value: Any, node: ast.AST) -> Expr:
        """A value as an integer expression."""
        return self.source.guard(as_index, node, self.number(value, node))

    def condition(self, value: Any, node: ast.AST) -> Expr:
        """A value as a condition."""
        result = self.expr(value, node)
        if result.dtype != "bool":
            text = self.source.text(node)
            raise self.source.error(f"a condition must be bool, `{text}` is {result.dtype}", node, "compare it: x != 0")
        return result

    def string(self, value: Any, node: ast.AST) -> str:
        """A value that must be a string, or a type, which stands for its name."""
        if isinstance(value, (namespace.Annotation, namespace.Type)):
            return value.name
        if not isinstance(value, str):
            raise self.source.error(f"a string is needed here, not `{self.source.text(node)}`", node)
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
        reason = f"attributes hold plain data, not {type(value).__name__}"
        raise self.source.error(reason, node, "numbers, strings, lists and dictionaries")

    def attributes(self, value: Any, node: ast.AST) -> dict[str, Any]:
        """A value as a dictionary of plain data by name."""
        found = self.data(value, node)
        if not isinstance(found, dict) or not all(isinstance(k, str) for k in found):
            raise self.source.error("attributes are a dictionary with strings as keys", node, '{"pragma_unroll": 16}')
        return found
