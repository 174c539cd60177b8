"""Values that steps have drawn, and arguments that refer to them: what a later step was given changes with the decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ref:
    """The value that a step before has drawn, by the name it has in the trace."""

    name: str

    def __repr__(self) -> str:
        return self.name


class RandomInt(int):
    """An integer that was drawn; `drawn` is its name in the trace. What is computed from it is a plain number."""

    drawn: str


class RandomFloat(float):
    """A number that was drawn."""

    drawn: str


class RandomStr(str):
    """A text, as the name of a loop, that was drawn."""

    drawn: str


_KINDS: dict[type, type] = {int: RandomInt, float: RandomFloat, str: RandomStr}


def can_be_named(value: Any) -> bool:
    """Whether later steps can refer to a value: to an integer, a number or a text, not to None, a bool, a list or an object."""
    return type(value) in _KINDS


def as_variable(value: Any, name: str) -> Any:
    """The value, remembering its name."""
    result = _KINDS[type(value)](value)
    result.drawn = name
    return result


def with_references(value: Any) -> Any:
    """An argument with references in the place of drawn values."""
    return map_leaves(value, lambda v: Ref(v.drawn) if isinstance(v, (RandomInt, RandomFloat, RandomStr)) else v)


def without_variables(value: Any) -> Any:
    """An argument with plain numbers and texts in the place of drawn values."""
    kinds = {drawn: kind for kind, drawn in _KINDS.items()}
    return map_leaves(value, lambda v: kinds[type(v)](v) if type(v) in kinds else v)


def with_values(value: Any, known: dict[str, Any]) -> Any:
    """An argument with the values of its references; KeyError for one that nothing has drawn."""
    return map_leaves(value, lambda v: known[v.name] if isinstance(v, Ref) else v)


def references(value: Any) -> set[str]:
    """The names that an argument refers to."""
    return {v.name for v in leaves(value) if isinstance(v, Ref)}


def leaves(value: Any) -> list[Any]:
    """What is in an argument and no list, tuple or dict."""
    found: list[Any] = []
    map_leaves(value, found.append)
    return found


def map_leaves(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """An argument with `leaf(v)` in the place of each v that is no list, tuple or dict."""
    match value:
        case list():
            return [map_leaves(v, leaf) for v in value]
        case tuple():
            return tuple(map_leaves(v, leaf) for v in value)
        case dict():
            return {k: map_leaves(v, leaf) for k, v in value.items()}
        case _:
            return leaf(value)
