"""Values of names in a script, besides expressions, buffers and Python values; and the scopes that bind names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from ..ir import Address, Buffer, Expr, Foreign, Region
from ..traverse import variables
from . import namespace
from .views import ArrayView, element_count


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


@dataclass
class Scope:
    """Names bound in a list of statements, and around it."""

    parent: Scope | None = None
    names: dict[str, Any] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)  # names of the variables of the IR bound here

    def chain(self) -> Iterator[Scope]:
        """This scope and those around it, inner ones first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def find(self, name: str) -> Any:
        """The value of a name, or None."""
        return next((s.names[name] for s in self.chain() if name in s.names), None)

    def variables_around(self) -> set[str]:
        """The names of all variables of the IR that are visible."""
        return set().union(*(s.variables for s in self.chain()))

    def visible(self) -> list[str]:
        """All names, inner ones first."""
        return list(dict.fromkeys(name for s in self.chain() for name in s.names))


# Values with a meaning in the dialect, on which Python does not compute. A name may be bound to a NAMEABLE one or an expression.
NAMEABLE = (Buffer, ArrayView, Pointer, Address, Foreign, namespace.Form, namespace.Type)
_DIALECT_VALUES = (Expr, Region, Handle, Thread, ModuleType, *NAMEABLE)


def is_python_value(value: Any) -> bool:
    """True for a value of Python's own, on which the parser computes."""
    return not isinstance(value, _DIALECT_VALUES) and value is not namespace.axis
