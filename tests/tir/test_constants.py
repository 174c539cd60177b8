"""Constant parameters: how functions say so, and refusals."""

from __future__ import annotations

import re

import pytest

from search.keys import key
from tir import te
from tir.constants import constants, with_constants
from tir.script import ScriptError, parse


def scaled(marked: bool):
    A, W = te.placeholder((7, 13), name="A"), te.placeholder((13,), name="W")
    B = te.compute((7, 13), lambda i, j: A[i, j] * W[j], name="B")
    return te.create_prim_func([A, W, B], constants=[W] if marked else [])


def test_the_script_says_it():
    func = scaled(True)
    assert '"constants": ["W"]' in func.script() and parse(func.script()) == func
    assert [b.name for b in constants(func)] == ["W"] and constants(scaled(False)) == ()
    assert key(func) != key(scaled(False))


def test_the_order_is_that_of_the_parameters():
    func = with_constants(scaled(False), ["W", "A"])
    assert [b.name for b in constants(func)] == ["A", "W"] and '["A", "W"]' in func.script()
    assert with_constants(func, []) == scaled(False)


def test_refused_names():
    func = scaled(False)
    with pytest.raises(ValueError, match=re.escape("main: constant `V` is no parameter that is a buffer; there are A, W, B")):
        with_constants(func, ["V"])
    with pytest.raises(ValueError, match=re.escape("main: `B` cannot be constant, since the function writes it")):
        with_constants(func, ["B"])
    wrong = func.with_(attrs=(("constants", "W"),))
    with pytest.raises(ValueError, match=re.escape("main: the attribute 'constants' is a list of names of parameters, got 'W'")):
        constants(wrong)


def test_refused_in_te():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    W = te.placeholder((7,), name="W")
    with pytest.raises(ValueError, match="create_prim_func: the constant W is not in the argument list"):
        te.create_prim_func([A, B], constants=[W])
    with pytest.raises(ValueError, match="`B` cannot be constant, since the function writes it"):
        te.create_prim_func([A, B], constants=[B])


def test_refused_in_scripts():
    text = scaled(True).script().replace('["W"]', '["B"]')
    with pytest.raises(ScriptError, match="`B` cannot be constant, since the function writes it"):
        parse(text)
