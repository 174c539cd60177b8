"""Conditions leave the loops on which they don't depend, and no others do."""

from __future__ import annotations

import re

import numpy as np
import pytest

import codegen
import tir
from codegen.target import Target
from tir import interpreter, te
from tir.script import parse

TARGET = Target("llvm", num_cores=1)


def summed(where, dtype: str = "float32"):
    """y[i] = the sum of x[i + r, k] where a condition of (i, r, k, x) holds."""
    x = te.placeholder((9, 7), dtype, name="x")
    r, k = te.reduce_axis((0, 4), name="r"), te.reduce_axis((0, 7), name="k")
    y = te.compute((5,), lambda i: te.sum(x[i + r, k], axis=[r, k], where=where(i, r, k, x)), name="y")
    return te.create_prim_func([x, y])


CASES = {
    "of r": (lambda i, r, k, x: te.equal((i + r) % 3, 1), "if (i + r) % 3 == 1:", None),
    "of i": (lambda i, r, k, x: i < 3, "if i < 3:", None),
    "of r, in part": (lambda i, r, k, x: te.all(r < 2, k > r), "if r < 2:", "T.if_then_else(k > r"),
    "of k": (lambda i, r, k, x: (i + k) % 2 < r, None, "T.if_then_else((i + k) % 2 < r"),
    "of what is loaded": (lambda i, r, k, x: x[i + r, 0] > 0.0, None, "T.if_then_else(x[i + r, 0] > T.float32(0.0)"),
}


@pytest.mark.parametrize("case", CASES)
def test_conditions_leave_loops(case: str) -> None:
    where, outside, inside = CASES[case]
    func = summed(where)
    script = tir.dump(func, TARGET, after="unswitch")
    assert (outside is None and "if (" not in script and "if i" not in script) or f"{outside}\n" in script
    assert "if_then_else" not in script if inside is None else inside in script
    x, expected, found = np.random.default_rng(0).integers(-4, 5, (9, 7)).astype("float32"), *np.zeros((2, 5), "float32")
    interpreter.run(func, x, expected)
    codegen.build(func, TARGET)(x, found)
    assert np.array_equal(expected, found) and expected.any()


def test_a_start_in_the_loop_stays_there() -> None:
    """Where the sum begins within the loop, it begins whether the condition holds or not."""
    func = summed(lambda i, r, k, x: te.equal((i + r) % 3, 1))
    s = tir.Schedule(func)
    i, r, k = s.get_loops("y")
    s.reorder(r, i, k)
    script = tir.dump(s.func, TARGET, after="unswitch")
    assert "T.float32(0.0)" in script
    x, expected, found = np.random.default_rng(0).integers(-4, 5, (9, 7)).astype("float32"), *np.full((2, 5), np.nan, "float32")
    interpreter.run(func, x, expected)
    codegen.build(s.func, TARGET)(x, found)
    assert np.array_equal(expected, found)


def test_conditions_of_all_statements_leave_loops() -> None:
    def common(first: str, second: str) -> list[str]:
        func = parse(f"""
@T.prim_func
def main(x: T.Buffer((7, 5), "float32"), y: T.Buffer((7,), "float32"), z: T.Buffer((7,), "float32")):
    for i, k in T.grid(7, 5):
        y[i] = T.if_then_else({first}, y[i] + x[i, k], y[i])
        z[i] = T.if_then_else({second}, z[i] + x[i, k], z[i])
""")
        return re.findall(r"if (.*):", tir.dump(func, TARGET, after="unswitch"))

    assert common("i < 3", "i < 3") == ["i < 3"] and common("i < 3", "i < 4") == common("i < 3", "k < 3") == []


def test_nothing_else_is_changed() -> None:
    """A selection whose other side is not what was there is no update."""
    x = te.placeholder((7, 13), name="x")
    y = te.compute((7, 13), lambda i, j: te.if_then_else(i < 3, x[i, j], te.const(1.0, "float32")), name="y")
    func = te.create_prim_func([x, y])
    assert tir.dump(func, TARGET, after="unswitch") == tir.dump(func, TARGET, after="compact_buffers")
