"""The text of graphs: names, types and attributes as words of a line, written and read."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

NAME = r"[\w./$#@-]+(?:::?[\w./$#@-]+)*"  # of a value; others are quoted
SCALAR = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[-+.\w]+"  # a string or a number, as an attribute
NOT_FINITE = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def name_text(name: str) -> str:
    """A name as it is written: in quotes where it could be taken for something else."""
    return name if re.fullmatch(NAME, name) and name != "none" else json.dumps(name)


def attribute_text(value: int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]) -> str:
    """A number, a string or a tuple of one kind, as it is written."""
    return repr(list(value) if isinstance(value, tuple) else value)


class Line:
    """A line that is read from left to right. Methods raise ValueError with the expected and the found text."""

    def __init__(self, text: str):
        self.text, self.position = text, 0

    def accept(self, pattern: str) -> str | None:
        """The text that matches a pattern here, without spaces before it; None, and nothing is read, where none does."""
        found = re.compile(rf"\s*({pattern})").match(self.text, self.position)
        if found is None:
            return None
        self.position = found.end()
        return found[1]

    def expect(self, pattern: str, what: str) -> str:
        found = self.accept(pattern)
        if found is None:
            rest = self.text[self.position :].strip()
            raise ValueError(f"expected {what}, got {rest!r}" if rest else f"expected {what}, got the end of the line")
        return found

    def name(self) -> str:
        found = self.expect(rf"\"(?:[^\"\\]|\\.)*\"|{NAME}", "a name")
        return json.loads(found) if found[0] == '"' else found

    def typed(self) -> tuple[str, tuple[int, ...], str]:
        """A name, a shape, and the name of an element type."""
        name = self.name()
        self.expect(":", "a colon")
        dtype = self.expect(r"\w+", "an element type")
        shape = self.expect(r"\[[\d, ]*\]", "a shape")
        return name, tuple(map(int, re.findall(r"\d+", shape))), dtype

    def attribute(self) -> Any:
        text = self.expect(rf"\[(?:{SCALAR}|,\s*)*\]|{SCALAR}", "an attribute")
        try:
            return tuple(map(_literal, re.findall(SCALAR, text[1:-1]))) if text[0] == "[" else _literal(text)
        except (SyntaxError, ValueError):
            raise ValueError(f"expected a number, a string or a list of numbers, got {text!r}") from None

    def several(self, item: Callable[[], T]) -> list[T]:
        """One item, or more, separated by commas."""
        found = [item()]
        while self.accept(","):
            found.append(item())
        return found

    def end(self) -> None:
        self.expect(r"$", "the end of the line")


def _literal(text: str) -> Any:
    return NOT_FINITE[text] if text in NOT_FINITE else ast.literal_eval(text)
