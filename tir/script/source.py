"""The text of a script, and places in it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import nesting
from .error import ScriptError


def python_tree(text: str, mode: str = "exec") -> Any:
    """Python's syntax tree of a text, as of `ast.parse`. Raises SyntaxError also where it is nested too deeply."""
    try:
        return nesting.parse_nested(text, mode)
    except (RecursionError, MemoryError):
        raise SyntaxError("nested too deeply") from None
    except ValueError as error:  # it holds a null character
        raise SyntaxError(str(error)) from None


@dataclass(frozen=True, slots=True)
class Source:
    """The lines of a script; `first` is the number of the first in its file. Positions of nodes are those of the file."""

    filename: str
    lines: tuple[str, ...]
    first: int = 1

    def error(self, reason: str, node: ast.AST, hint: str | None = None) -> ScriptError:
        """The error at `node`, marked from its start to its end, or to the end of its first line."""
        number: int = getattr(node, "lineno", self.first)
        text = self.lines[number - self.first] if 0 <= number - self.first < len(self.lines) else ""
        start = _characters(text, getattr(node, "col_offset", 0))
        last: int | None = getattr(node, "end_lineno", None)
        end = _characters(text, getattr(node, "end_col_offset", 0) or 0) if last == number else len(text)
        if isinstance(node, (ast.For, ast.With, ast.FunctionDef, ast.ClassDef, ast.If)):  # mark only the header
            end = len(text)
        return ScriptError(reason, self.filename, number, start, end, text, hint)

    def text(self, node: ast.AST) -> str:
        """The text of a node, on one line."""
        number, end = getattr(node, "lineno", None), getattr(node, "end_col_offset", None)
        if number is None or end is None or node.end_lineno != number or not 0 <= number - self.first < len(self.lines):  # type: ignore[attr-defined]
            return ast.unparse(node)
        return self.lines[number - self.first].encode()[node.col_offset : end].decode(errors="ignore") or ast.unparse(node)  # type: ignore[attr-defined]

    def guard(self, function: Callable[..., Any], node: ast.AST, *args: Any, **kwargs: Any) -> Any:
        """`function(*args)`, its TypeError or ValueError reported at `node`."""
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError, ArithmeticError, LookupError) as e:
            raise self.error(str(e) if not isinstance(e, KeyError) else f"there is no {e}", node) from None


def _characters(text: str, offset: int) -> int:
    """An offset in UTF-8 bytes, as ast counts, in characters."""
    return len(text.encode()[:offset].decode(errors="ignore"))


def syntax(node: ast.AST) -> str:
    """The name of a piece of Python's syntax, for messages."""
    known = {
        ast.Lambda: "a lambda", ast.ListComp: "a comprehension", ast.SetComp: "a comprehension", ast.DictComp: "a comprehension",
        ast.GeneratorExp: "a generator", ast.Set: "a set", ast.Await: "await", ast.Yield: "yield", ast.YieldFrom: "yield",
        ast.NamedExpr: "`:=`", ast.Starred: "`*`", ast.Slice: "a slice", ast.In: "in", ast.NotIn: "not in", ast.Is: "is",
        ast.IsNot: "is not",
    }  # fmt: skip
    return known.get(type(node), f"`{type(node).__name__}`")
