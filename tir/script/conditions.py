"""Conditions as text."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import Expr, Var
from . import ir, tir
from .error import ScriptError
from .expressions import Expressions
from .source import Source, python_tree


def read_condition(text: str, visible: Mapping[str, Var]) -> Expr:
    """The condition in a text, over the visible variables. Raises ScriptError."""
    try:
        node = python_tree(text.strip(), mode="eval").body
    except SyntaxError as e:
        raise ScriptError(f"it is not an expression: {e.msg}", "<condition>") from None
    reader = Expressions(Source("<condition>", (text.strip(),)), {"T": tir, "I": ir, **visible}, live=False)
    return reader.condition(node)
