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


class DrawnInt(int):
    """An integer that was drawn; `drawn` is its name in the trace. What is computed from it is a plain number."""

    drawn: str


class DrawnFloat(float):
    """A number that was drawn."""

    drawn: str


class DrawnStr(str):
    """A text, as the name of a loop, that was drawn."""

    drawn: str


_KINDS: dict[type, type] = {int: DrawnInt, float: DrawnFloat, str: DrawnStr}


def can_be_named(value: Any) -> bool:
    """Whether later steps can refer to a value: to an integer, a number or a text, not to None, a bool, a list or an object."""
    return type(value) in _KINDS


def named(value: Any, name: str) -> Any:
    """The value, remembering its name."""
    result = _KINDS[type(value)](value)
    result.drawn = name
    return result


def referring(value: Any) -> Any:
    """An argument with references in the place of drawn values."""
    return mapped(value, lambda v: Ref(v.drawn) if isinstance(v, (DrawnInt, DrawnFloat, DrawnStr)) else v)


def plain(value: Any) -> Any:
    """An argument with plain numbers and texts in the place of drawn values."""
    kinds = {drawn: kind for kind, drawn in _KINDS.items()}
    return mapped(value, lambda v: kinds[type(v)](v) if type(v) in kinds else v)


def resolved(value: Any, known: dict[str, Any]) -> Any:
    """An argument with the values of its references; KeyError for one that nothing has drawn."""
    return mapped(value, lambda v: known[v.name] if isinstance(v, Ref) else v)


def references(value: Any) -> set[str]:
    """The names that an argument refers to."""
    return {v.name for v in leaves(value) if isinstance(v, Ref)}


def leaves(value: Any) -> list[Any]:
    """What is in an argument and no list, tuple or dict."""
    found: list[Any] = []
    mapped(value, found.append)
    return found


def mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """An argument with `leaf(v)` in the place of each v that is no list, tuple or dict."""
    match value:
        case list():
            return [mapped(v, leaf) for v in value]
        case tuple():
            return tuple(mapped(v, leaf) for v in value)
        case dict():
            return {k: mapped(v, leaf) for k, v in value.items()}
        case _:
            return leaf(value)
