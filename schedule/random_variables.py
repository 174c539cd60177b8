"""Random variables: values that `sample_*` steps have drawn, and references to them in the arguments of later steps.

A trace stores references. Where it is replayed with another decision, later steps get the new value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to a value that an earlier step has drawn, by its name in the trace."""

    name: str

    def __repr__(self) -> str:
        return self.name


class RandomInt(int):
    """An integer that was drawn; `drawn` is its name in the trace. The result of arithmetic with it is a plain number."""

    drawn: str


class RandomFloat(float):
    """A number that was drawn."""

    drawn: str


class RandomStr(str):
    """A text, as the name of a loop, that was drawn."""

    drawn: str


_KINDS: dict[type, type] = {int: RandomInt, float: RandomFloat, str: RandomStr}
_PLAIN = {variable: plain for plain, variable in _KINDS.items()}


def can_be_named(value: Any) -> bool:
    """True if later steps can refer to a value: to an integer, a number or a text, not to None, a bool, a list or an object."""
    return type(value) in _KINDS


def as_variable(value: Any, name: str) -> Any:
    """The value as a random variable of this name."""
    result = _KINDS[type(value)](value)
    result.drawn = name
    return result


def with_references(value: Any) -> Any:
    """An argument with a reference in place of each random variable."""
    return map_leaves(value, lambda v: Ref(v.drawn) if type(v) in _PLAIN else v)


def without_variables(value: Any) -> Any:
    """An argument with a plain number or text in place of each random variable."""
    return map_leaves(value, lambda v: _PLAIN[type(v)](v) if type(v) in _PLAIN else v)


def with_values(value: Any, known: dict[str, Any]) -> Any:
    """An argument with the value in place of each reference; KeyError for one that no step has drawn."""
    return map_leaves(value, lambda v: known[v.name] if isinstance(v, Ref) else v)


def references(value: Any) -> set[str]:
    """The names that an argument refers to."""
    return {v.name for v in leaves(value) if isinstance(v, Ref)}


def leaves(value: Any) -> list[Any]:
    """The values in an argument that are no list, tuple or dict, in order."""
    found: list[Any] = []
    map_leaves(value, found.append)
    return found


def map_leaves(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """An argument with `leaf(v)` in place of each value v that is no list, tuple or dict."""
    match value:
        case list():
            return [map_leaves(v, leaf) for v in value]
        case tuple():
            return tuple(map_leaves(v, leaf) for v in value)
        case dict():
            return {k: map_leaves(v, leaf) for k, v in value.items()}
        case _:
            return leaf(value)
