"""Scripts that are nested deeper than Python reads them."""

from __future__ import annotations

import ast

import pytest

from tir import te
from tir.script import ScriptError, parse
from tir.script.nesting import MAX_BRACKETS, PARSED_BRACKETS
from tir.script.nesting import parse_nested as tree

WAYS = {
    "last argument": lambda e, a, i, n: te.select(i < n % 7, a + float(n), e),
    "middle argument": lambda e, a, i, n: te.if_then_else(i < n % 7, e, a + float(n)),
    "parentheses": lambda e, a, i, n: 1.0 - (2.0 * (e + float(n))),
    "calls in calls": lambda e, a, i, n: te.exp(te.maximum(e, a)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [PARSED_BRACKETS // 2, 109, 600])
def test_what_is_printed_is_read(way, count):
    A = te.placeholder((7,), name="A")

    def value(i):
        e = A[i]
        for n in range(count):
            e = WAYS[way](e, A[i], i, n)
        return e

    func = te.create_prim_func([A, te.compute((7,), value, name="B")])
    assert parse(func.script()) == func


def nested(inner: str, depth: int = 3 * PARSED_BRACKETS, around: str = "f(x, {})") -> str:
    for _ in range(depth):
        inner = around.format(inner)
    return inner


@pytest.mark.parametrize("around", ["f(x, {})", "({})", "({},)", "(x, {} , )", "f(g({}), h=y)"])
@pytest.mark.parametrize(
    "inner", ["g(\")\", '(', y)", "[1, (2, 3), {4: 5}]", "(\n  a +  # ) here\n  b\n)", "g(*p, q=(r), **s)", "é + ü"]
)
def test_the_tree_is_that_of_python(inner, around):
    """With the places of all its nodes. Python reads up to 200 parentheses itself."""
    text = f"v = {nested(inner, 180 // around.count('('), around)} + w[0]"
    assert ast.dump(tree(text), include_attributes=True) == ast.dump(ast.parse(text), include_attributes=True)


def test_errors_are_marked_where_they_are():
    line = f"        A[0] = {nested('A[0] + nothing', around='T.exp({})')}"
    script = f"@T.prim_func\ndef f(A: T.Buffer((7,))):\n    for i in range(7):\n{line}\n"
    with pytest.raises(ScriptError) as raised:
        parse(script)
    assert (raised.value.lineno, raised.value.offset) == (4, line.index("nothing") + 1)


@pytest.mark.parametrize(("text", "message"), [
    (nested("x", MAX_BRACKETS + 1), "too many nested parentheses"),
    (nested("x") + ")", "too many nested parentheses"),
    (nested("_cut_0"), "too many nested parentheses"),
    (nested("x +"), "invalid syntax"),
    (nested("x =", around="({})"), "invalid syntax"),
])  # fmt: skip
def test_what_is_refused(text, message):
    with pytest.raises(SyntaxError) as raised:
        tree(text)
    assert message in str(raised.value)
