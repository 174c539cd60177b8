"""Conditions on sizes: assumed once, used by steps, and checked at each call."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen import ArgumentError
from schedule import Schedule, Trace, replay
from tests.programs import symbolic
from tests.schedule.harness import refuse, round_trip, same_numbers, well_formed, without_header
from tests.tir.script.parsing import parsed, script
from tir.script import ScriptError, parse

TILED = """
@T.prim_func
def main(A: T.Buffer(("n",), "float32"), B: T.Buffer(("n",), "float32"), n: T.int32):
    T.func_attr({"assumed": ["n % 12 == 0"], "tir.noalias": T.bool(True)})
    # with T.block("root"):
    for i_0, i_1 in T.grid(n // 4, 4):
        with T.block("B"):
            v_i = T.axis.spatial(n, i_0 * 4 + i_1)
            B[v_i] = A[v_i] * T.float32(2.0)
"""


@pytest.fixture(scope="module")
def tiled() -> Schedule:
    s = Schedule(symbolic())
    s.assume("n % 12 == 0")
    s.split("i", [None, 4], tail="perfect")
    return s


def test_tiles_that_divide(tiled):
    assert without_header(tiled.script) == TILED.strip()
    assert replay(symbolic(), Trace.from_json(tiled.trace.to_json())).script == tiled.script
    well_formed(tiled.func)
    round_trip(tiled.func)
    same_numbers(symbolic(), tiled.func, {"n": 24})


def test_a_factor_that_need_not_divide_has_a_condition():
    s = Schedule(symbolic())
    s.assume("n % 12 == 0")
    s.split("i", [None, 8])
    assert "T.where(i_0 * 8 + i_1 < n)" in s.script


def test_each_call_is_checked(tiled):
    kernel, a, b = tir.build(tiled.func), np.ones(30, "float32"), np.zeros(30, "float32")
    calls = (lambda: kernel(a, b, 30), lambda: kernel(a, b), lambda: kernel(a), lambda: kernel.bind(a, b))
    for call in calls:
        with pytest.raises(ArgumentError, match=r"^main takes `n % 12 == 0` for granted, got n = 30$"):
            call()
    with pytest.raises(ValueError, match=r"^main takes `n % 12 == 0` for granted, got n = 30$"):
        tir.run(tiled.func, a, b, 30)
    assert not b.any()


def test_refusals():
    for message in (
        """
assume('n > 0'): 'n > 0' says nothing that may or may not hold of the sizes, `n`
""",
        """
assume('m % 4 == 0'): `m` in the condition is not visible here; variables are `n`
""",
        """
assume('n'): the condition 'n' cannot be read: a condition must be bool, `n` is int32
  hint: compare it: x != 0
""",
    ):
        refuse(Schedule(symbolic()), message)


SIZED = 'A: T.Buffer(("n",), "float32"), B: T.Buffer(("n",), "float32"), n: T.int32'


def test_assert_and_assume_in_scripts():
    """What is known of elements is read over."""
    func = parsed(
        """
        assert n % 4 == 0, "in vectors of four"
        T.evaluate(T.assume(n >= 8))
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                T.assume(A[vi] > T.float32(0))
                B[vi] = A[vi]
        """,
        SIZED,
    )
    assert func.attrs == (("assumed", ["n % 4 == 0", "n >= 8"]),)
    assert "assume" not in str(func.body)


@pytest.mark.parametrize(("statement", "reason"), [
    ("assert A[0] > T.float32(0)", "`assert A[0] > T.float32(0.0)` cannot be checked at the call"),
    ('T.func_attr({"assumed": ["n %"]})', "main: the assumption 'n %' cannot be read: it is not an expression: invalid syntax"),
    ('T.func_attr({"assumed": "n"})', "main: the attribute 'assumed' is a list of conditions as text, got 'n'"),
])  # fmt: skip
def test_what_cannot_be_checked(statement, reason):
    with pytest.raises(ScriptError) as refused:
        parse(script(statement, SIZED))
    assert refused.value.reason == reason
