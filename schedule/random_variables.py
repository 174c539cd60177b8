"""Values that know their origin: the step that drew them at random, or the function of a module.

A trace stores references to random variables, so that a replay with another decision passes the new value to later steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to the value drawn by an earlier step, by its name in the trace."""

    name: str

    def __repr__(self) -> str:
        return self.name


class Known:
    """A value that a schedule returned, with its origin. Arithmetic with it gives a plain number."""

    drawn: str = ""  # its name in the trace, if a step drew it at random
    function: str = ""  # the function whose loop or block it names, in a module with several


class KnownInt(Known, int):
    pass


class KnownFloat(Known, float):
    pass


class KnownStr(Known, str):
    pass


_KNOWN: dict[type, type] = {int: KnownInt, float: KnownFloat, str: KnownStr}
_PLAIN = {known: plain for plain, known in _KNOWN.items()}


def can_be_named(value: Any) -> bool:
    """True for a value that later steps can refer to: an int, a float or a str, not a bool."""
    return type(value) in _KNOWN


def as_variable(value: Any, name: str) -> Any:
    """The value as a random variable of this name."""
    result = _KNOWN[type(value)](value)
    result.drawn = name
    return result


def of_function(value: str, function: str) -> KnownStr:
    """The name of a loop or block of a function; a random variable stays one."""
    result = KnownStr(value)
    result.drawn, result.function = getattr(value, "drawn", ""), function
    return result


def with_references(value: Any, drawn: Mapping[str, Any]) -> Any:
    """An argument with a `Ref` in place of each random variable in `drawn` (values by name), and plain values for the others.

    Variables that are missing from `drawn`, or have another value there, were drawn by another trace.
    """

    def reference(v: Any) -> Any:
        plain = without_variables(v)
        return Ref(v.drawn) if isinstance(v, Known) and v.drawn and drawn.get(v.drawn) == plain else plain

    return map_leaves(value, reference)


def without_variables(value: Any) -> Any:
    """An argument with a plain number or text in place of each `Known` value."""
    return map_leaves(value, lambda v: _PLAIN[type(v)](v) if type(v) in _PLAIN else v)


def with_values(value: Any, known: dict[str, Any]) -> Any:
    """An argument with the value in place of each `Ref`; KeyError for an unknown name."""
    return map_leaves(value, lambda v: known[v.name] if isinstance(v, Ref) else v)


def references(value: Any) -> set[str]:
    """The names that an argument refers to."""
    return {v.name for v in leaves(value) if isinstance(v, Ref)}


def leaves(value: Any) -> list[Any]:
    """The values in nested lists, tuples and dicts, in order."""
    found: list[Any] = []
    map_leaves(value, found.append)
    return found


def map_leaves(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """An argument with `leaf(v)` in place of each value v in its nested lists, tuples and dicts."""
    match value:
        case list():
            return [map_leaves(v, leaf) for v in value]
        case tuple():
            return tuple(map_leaves(v, leaf) for v in value)
        case dict():
            return {k: map_leaves(v, leaf) for k, v in value.items()}
        case _:
            return leaf(value)
