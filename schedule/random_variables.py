"""Values that know where they are from: a step that drew them at random, or a function of a module.

A trace stores references to random variables. Where it is replayed with another decision, later steps get the new value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to a value that an earlier step has drawn, by its name in the trace."""

    name: str

    def __repr__(self) -> str:
        return self.name


class Known:
    """A value that a schedule returned: later steps know where it is from. The result of arithmetic with it is a plain number."""

    drawn: str = ""  # its name in the trace, where a step drew it at random
    function: str = ""  # of a module with several, the one whose loop or block it names


class KnownInt(Known, int):
    pass


class KnownFloat(Known, float):
    pass


class KnownStr(Known, str):
    pass


_KNOWN: dict[type, type] = {int: KnownInt, float: KnownFloat, str: KnownStr}
_PLAIN = {known: plain for plain, known in _KNOWN.items()}


def can_be_named(value: Any) -> bool:
    """True if later steps can refer to a value: to an integer, a number or a text, not to None, a bool, a list or an object."""
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
    """An argument with a reference in place of each random variable, and plain values for those that are not in `drawn`, the
    values by name: another trace drew them."""

    def reference(v: Any) -> Any:
        plain = without_variables(v)
        return Ref(v.drawn) if isinstance(v, Known) and v.drawn and drawn.get(v.drawn) == plain else plain

    return map_leaves(value, reference)


def without_variables(value: Any) -> Any:
    """An argument with a plain number or text in place of each value that knows where it is from."""
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
