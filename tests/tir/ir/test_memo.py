"""Answers about nodes that are kept while these live."""

from __future__ import annotations

from tir.ir import Var
from tir.ir.memo import memoized


def test_each_node_is_asked_about_once_while_it_lives():
    asked = []

    @memoized
    def text(node) -> str:
        asked.append(str(node))
        return asked[-1]

    x = Var("x")
    one, other = x + 1, x + 1
    assert [text(one), text(one), text(other)] == 3 * [str(one)]
    assert len(asked) == 2  # nodes that are equal are not the same
    del one
    for n in range(100):  # of which some take the place in memory of the first
        assert text(x + n) == f"x + {n}"
    assert len(asked) == 102


def test_an_answer_keeps_no_node_alive():
    from weakref import ref

    kind = memoized(lambda node: type(node).__name__)
    node = Var("x") + 1
    life = ref(node)
    assert kind(node) == "Binary"
    del node
    assert life() is None
