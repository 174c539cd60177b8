"""Syntax trees of texts that are nested deeper than Python's own parser reads."""

from __future__ import annotations

import ast
import re
from typing import Any

PARSED_BRACKETS = 100  # brackets around a piece of text that Python parses at once; it takes up to 200
MAX_BRACKETS = 2_000  # brackets around any piece: readers of the tree recurse a few times for each

_TOKENS = re.compile(
    r'"""(?:\\.|[^\\])*?"""|'
    r"'''(?:\\.|[^\\])*?'''|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'(?:\\.|[^'\\\n])*'|"
    r"#[^\n]*|[()\[\]{}]",
    re.DOTALL,
)
_CUT = "_cut_{}"


def parse_nested(text: str, mode: str = "exec") -> Any:
    """The tree of a text, as of `ast.parse`, which fails within deep brackets. Pieces PARSED_BRACKETS deep are parsed alone."""
    cuts = _deep(text)
    if not cuts:
        return ast.parse(text, mode=mode)
    shallow, end, found = [], 0, {}
    for n, (first, last) in enumerate(cuts):
        name = _CUT.format(n)
        inner = text[first:last]
        found[name] = text, first, inner
        # The name stands for as many lines, the last of them as long, so that later positions stay.
        lines = inner.encode().split(b"\n")
        left = len(lines[-1]) if len(lines) > 1 else len(lines[0]) - len(name)
        shallow += [text[end:first], name, "\n" * (len(lines) - 1), " " * left]
        end = last
    tree = ast.parse("".join([*shallow, text[end:]]), mode=mode)
    return _Joining(found).visit(tree)


def _deep(text: str) -> list[tuple[int, int]]:
    """The spans inside parentheses PARSED_BRACKETS deep; [] where the brackets of the text do not match."""
    opened: list[tuple[str, int]] = []
    found: list[tuple[int, int]] = []
    deepest = 0
    for token in _TOKENS.finditer(text):
        char = token.group()
        if char in ("(", "[", "{"):
            opened.append((char, token.end()))
            deepest = max(deepest, len(opened))
            if deepest > MAX_BRACKETS:
                return []
        elif char in (")", "]", "}"):
            if not opened or opened[-1][0] + char not in ("()", "[]", "{}"):
                return []
            before, start = opened.pop()
            cut = before == "(" and len(opened) >= PARSED_BRACKETS and token.start() - start > len(_CUT) + 8
            # An outer cut takes the place of those in it.
            if cut:
                while found and found[-1][0] > start:
                    found.pop()
                found.append((start, token.start()))
    return found if not opened and _CUT.format("") not in text else []


def _parenthesised(function: str, text: str, first: int, inner: str) -> Any:
    """The tree of a piece of text in parentheses, after a `function` unless that is "", with positions in the whole text."""
    line, column = text.count("\n", 0, first), len(text[text.rfind("\n", 0, first) + 1 : first - 1].encode())
    # Inside of a parenthesis, line breaks and spaces have no meaning: here they put the piece where it is in the text.
    before = f"({function}" + ("\n" * line + " " * column if line else " " * (column - 1 - len(function)))
    return parse_nested(f"{before}({inner}))", mode="eval").body


class _Joining(ast.NodeTransformer):
    """Puts the pieces that were cut out back."""

    def __init__(self, found: dict[str, tuple[str, int, str]]):
        self._found = found

    def visit_Call(self, node: ast.Call) -> ast.Call:
        match node.args:
            case [ast.Name(name)] if name in self._found and not node.keywords:
                call = _parenthesised("_", *self._found[name])
                node.args, node.keywords = call.args, call.keywords
                node.func = self.visit(node.func)
                return node
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return _parenthesised("", *self._found[node.id]) if node.id in self._found else node
