"""Conditions on sizes: assumed once, used by steps, and checked at each call."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen import ArgumentError
from codegen.constants import split_constants
from schedule import Schedule, Trace, replay
from tests.programs import symbolic
from tests.schedule.harness import Checked, round_trip, same_numbers, well_formed, without_header
from tests.tir.script.parsing import parsed, script
from tir import te
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
assume('n > 0'): expected a condition on sizes that neither always nor never holds, got 'n > 0'; sizes: `n`
""",
        """
assume('m % 4 == 0'): `m` in the condition is not visible here; variables are `n`
""",
        """
assume('n'): the condition 'n' cannot be read: a condition must be bool, `n` is int32
  hint: compare it: x != 0
""",
    ):
        Checked(symbolic()).refuses(message)


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
    ("if n > 100:\n    assert n % 16 == 0", "`assert n % 16 == 0` is under a condition"),
    ('T.func_attr({"assumed": ["n %"]})', "main: the assumption 'n %' cannot be read: it is not an expression: invalid syntax"),
    ('T.func_attr({"assumed": "n"})', "main: the attribute 'assumed' is a list of conditions as text, got 'n'"),
])  # fmt: skip
def test_what_cannot_be_checked(statement, reason):
    with pytest.raises(ScriptError) as refused:
        parse(script(statement, SIZED))
    assert refused.value.reason == reason


def test_a_stated_list_adds_to_what_is_asserted():
    func = parsed('assert n % 4 == 0\nT.func_attr({"assumed": ["n > 4"]})', SIZED)
    assert func.attrs == (("assumed", ["n > 4", "n % 4 == 0"]),)


def test_sizes_that_are_known(tiled):
    """A function for known sizes takes nothing for granted; one for others cannot be had."""
    special = tir.specialize(tiled.func, {"n": 24})
    assert dict(special.attrs).keys() == {"tir.noalias"}
    same_numbers(tir.specialize(symbolic(), {"n": 24}), special)
    with pytest.raises(ValueError, match=r"^main takes `n % 12 == 0` for granted, got n = 30$"):
        tir.specialize(tiled.func, {"n": 30})


def test_what_divides_by_zero_does_not_hold():
    s = Schedule(symbolic())
    s.assume("8 // (n - 4) > 0")
    with pytest.raises(ValueError, match=r"^main takes `8 // \(n - 4\) > 0` for granted, got n = 4$"):
        tir.run(s.func, np.ones(4, "float32"), np.zeros(4, "float32"), 4)


def test_constants_are_prepared_without_sizes():
    n = te.var("n")
    A, W = te.placeholder((n, 8), name="A"), te.placeholder((8, 8), name="W")
    V, k = te.compute((8, 8), lambda i, j: W[j, i] * 2.0, name="V"), te.reduce_axis((0, 8), name="k")
    C = te.compute((n, 8), lambda i, j: te.sum(A[i, k] * V[k, j], axis=k), name="C")
    s = Schedule(te.create_prim_func([A, W, C, n], constants=[W]))
    s.assume("n % 4 == 0")
    prepare, main = split_constants(s.func)
    assert prepare is not None and "assumed" not in dict(prepare.attrs) and dict(main.attrs)["assumed"] == ["n % 4 == 0"]
    tir.build(s.func)
