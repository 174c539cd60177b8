"""The assertions for primitives fail where they should, and say which iteration goes wrong."""

from __future__ import annotations

import pytest

from tests.schedule.harness import Checked, same_numbers, well_formed
from tir.ir import PrimFunc
from tir.script import parse

BEFORE = """
@T.prim_func
def f(A: T.Buffer((7, 13), "float32"), B: T.Buffer((7, 13), "float32")):
    for i, j in T.grid(7, 13):
        with T.block("B"):
            v_i = T.axis.spatial(7, i)
            v_j = T.axis.spatial(13, j)
            B[v_i, v_j] = A[v_i, v_j] + T.float32(1)
"""


def program(*changes: tuple[str, str]) -> PrimFunc:
    text = BEFORE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse(text)  # type: ignore[return-value]


def failure(call, *args) -> str:
    with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
        call(*args)
    return str(caught.value)


def test_a_wrong_iteration_is_named():
    wrong = program(("+ T.float32(1)", "+ T.if_then_else(v_i * 13 + v_j < 57, T.float32(1), T.float32(2))"))
    message = failure(same_numbers, program(), wrong)
    assert message.startswith("interpreter, seed 0: B differs in 34 of 91 elements, first at (4, 5): ")
    assert "; last written by block `B` where i=4, j=5\n" in message and "def f(" in message


def test_an_iteration_left_out_is_named():
    message = failure(same_numbers, program(), program(("T.grid(7, 13)", "T.grid(7, 12)")))
    assert "first at (0, 12): " in message and "; no iteration writes it\n" in message


def test_an_unguarded_axis_is_named():
    wrong = program(("T.grid(7, 13)", "T.grid(7, 14)"))
    assert "`v_j` of block `B` = `j` is 13, outside its domain, where j=13" in failure(well_formed, wrong)


def test_what_is_accepted_but_should_not_be_shows_what_it_does():
    s = Checked(program())

    def break_it() -> None:
        with s.refusal("nothing(): `i` is holy"):
            s._func = program(("+ T.float32(1)", "* T.float32(0.5)"))

    message = failure(break_it)
    assert message.startswith("accepted, but expected\nnothing(): `i` is holy\nWhat it made:\n  B differs in ")
    assert "; last written by block `B` where i=0, j=0\n" in message


def test_another_message_is_shown():
    message = failure(Checked(program()).refuses, "split('x', [None, 4]): no")
    assert message.startswith("the message was\nsplit('x', [None, 4]): ")


def test_a_changed_header_is_seen():
    s = Checked(program().with_(attrs=(("note", 1),)))
    body = program().script().partition('with T.block("root"):\n')[2]
    s.becomes(body)
    s.before = program()
    assert 'T.func_attr({"note": 1})' in failure(s.becomes, body)
