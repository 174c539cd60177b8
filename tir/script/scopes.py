"""The names in scope at a place of a script, and the facts known of the variables among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .. import dtypes
from ..arith.bounds import bounds, extent_range
from ..arith.intervals import Interval
from ..ir import Expr, Var, binary
from ..traverse import loads, substitute, variables


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

    def variables_around(self) -> set[str]:
        """The names of all variables of the IR that are visible."""
        return set().union(*(s.variables for s in self.chain()))


class Scopes:
    """The scopes of a function that is read: the names bound `here` and around it, and those `captured` from outside."""

    def __init__(self, captured: Mapping[str, Any]):
        self.captured = captured
        self.here = self.root = Scope()
        self.ended: dict[str, int] = {}  # names whose scope has ended, and the line where they were bound
        self.line = 0  # of the statement being read
        self._lines: dict[str, int] = {}  # where a name was last bound

    def bind(self, name: str, value: Any) -> Any:
        self.here.names[name] = value
        self._lines[name] = self.line
        if isinstance(value, Expr):
            self.here.variables |= variables(value)
        return value

    def rebind(self, old: Any, value: Any) -> None:
        """Bind the names of a value to another one."""
        for name in [n for s in self.here.chain() for n, bound in s.names.items() if bound is old]:
            self.bind(name, value)

    @contextmanager
    def inner(self, names: Mapping[str, Any] | None = None) -> Iterator[Scope]:
        """A scope within this one, with names bound in it. Where they were bound is remembered for messages."""
        outer, self.here = self.here, Scope(self.here)
        for name, value in (names or {}).items():
            self.bind(name, value)
        yield self.here
        self.ended |= {name: self._lines[name] for name in self.here.names}
        self.here = outer

    def local(self, name: str) -> Any:
        """The value that the function binds a name to, or None."""
        return next((s.names[name] for s in self.here.chain() if name in s.names), None)

    def find(self, name: str) -> Any:
        """The value of a name, or None."""
        value = self.local(name)
        return self.captured.get(name) if value is None else value

    def visible(self) -> list[str]:
        """All names that the function binds, inner ones first."""
        return list(dict.fromkeys(name for s in self.here.chain() for name in s.names))


@dataclass(frozen=True)
class Domain:
    """The range of a loop or iteration variable in the source: its `start` and its extent."""

    start: Expr
    extent: Expr
    variable: Var


class Facts:
    """Ranges of variables, values of lets, and by its value in the source the domain of each loop and iteration variable."""

    def __init__(self) -> None:
        self.ranges: dict[str, Interval] = {}
        self.lets: dict[str, Expr] = {}  # lets whose value is index arithmetic
        self.domains: dict[Expr, Domain] = {}

    def let(self, name: str, value: Expr) -> None:
        """Note the values that an integer let can take."""
        self.lets.pop(name, None)
        self.ranges.pop(name, None)
        if dtypes.is_int(value.dtype) and not loads(value):
            closed = substitute(value, self.lets) if self.lets else value
            self.lets[name] = closed
            self.ranges[name] = bounds(closed, self.ranges)

    def counter(self, name: str, extent: Expr) -> None:
        """Note that a variable runs from 0 to extent - 1."""
        self.lets.pop(name, None)
        self.ranges[name] = extent_range(extent, self.ranges)

    def running(self, var: Var, start: Expr, extent: Expr, step: int = 1) -> Expr:
        """The value in the source of a variable that counts from 0 in the IR; its range is noted."""
        value: Expr = var if step == 1 else binary("*", var, step)
        if not start.is_zero:
            value = binary("+", value, start)
        if step == 1:
            self.domains[value] = Domain(start, extent, var)
        self.counter(var.name, extent)
        return value
