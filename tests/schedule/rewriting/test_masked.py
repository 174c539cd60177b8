"""Loops end where a condition makes all that they would find -inf, and not where anything else is seen."""

import numpy as np
import pytest

from schedule.primitive import find_loop
from tests.arrays import copies
from tests.schedule.harness import Checked, well_formed
from tir import te
from tir.interpreter import run
from tir.ir import PrimFunc, const_shape

NONE = float("-inf")


def masked_sums(rows: int, keys: int, mask, through: bool = True, seen=(), exponent: str = "scores") -> PrimFunc:
    """Sums of exp(x - max x) of scores, or of `exponent`, that are -inf but where a mask lets them `through`, or holds back."""
    X, Z = te.placeholder((rows, keys), name="X"), te.placeholder((rows, keys), name="Z")
    k, r = te.reduce_axis((0, keys), name="k"), te.reduce_axis((0, keys), name="r")

    def value(i, n):
        x = X[i, n] * 0.5
        return te.if_then_else(mask(i, n), *((x, NONE) if through else (NONE, x)))

    scores = te.compute((rows, keys), value, name="scores")
    read = scores if exponent == "scores" else Z
    top = te.compute((rows,), lambda i: te.max(scores[i, k], axis=k), name="top")
    power = te.compute((rows, keys), lambda i, n: te.exp(read[i, n] - top[i]), name="power")
    total = te.compute((rows,), lambda i: te.sum(power[i, r], axis=r), name="total")
    return te.create_prim_func([X, Z, *({"scores": scores}[x] for x in seen), total])


def extent(func: PrimFunc, rows: int, keys: int) -> str:
    """The extent of the merged loop over tiles of so many rows and keys, as text; the numbers are those of `func`."""
    s, steps = Checked(func), []
    for block in ("scores", "top", "power", "total"):
        loops = s.get_loops(block)
        outer, inner = s.split(loops[0], [None, rows])
        step, key = s.split(loops[1], [None, keys])
        s.reorder(outer, step, inner, key)
        steps.append(step)
        if block in ("top", "total"):
            s.rfactor(step, 1)
            steps.append(s.get_loops(block)[1])
    merged = s.rolling_update(*steps)
    well_formed(s.func)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=const_shape(b)).astype("float32") for b in func.buffers]
    old, new = copies(arrays), copies(arrays)
    run(func, *old)
    run(s.func, *new)
    old[-1][np.isnan(old[-1])] = 0  # sums of a row without any key, which a rolling update finds
    np.testing.assert_allclose(new[-1], old[-1], rtol=8 * const_shape(func.buffers[0])[1] * np.finfo("float32").eps)
    return str(find_loop(s.func, merged).extent)


@pytest.mark.parametrize("past", [0, 5, -3])
@pytest.mark.parametrize("through", [True, False])
def test_keys_behind_the_last_visible_one(past: int, through: bool):
    """Query i of a block b of 4 sees keys up to 4 b + 3 + past, in tiles of 3."""

    def mask(i, n):
        return n <= i + past if through else n > i + past

    text = extent(masked_sums(13, 29, mask, through), 4, 3)
    for b in range(4):
        name = next(w for w in text.replace("(", " ").split() if w.startswith("i_"))
        ends = eval(text.replace("T.", ""), {"min": min, "max": max, name: b})
        assert ends == max(1, min(10, (4 * b + 3 + past) // 3 + 1)), text


def test_conditions_of_both_factors_are_met():
    """A second condition, on the first keys, ends no loop earlier, and does not hinder the first."""
    text = extent(masked_sums(13, 29, lambda i, n: te.all(n <= i, n >= i - 6)), 4, 3)
    assert text == extent(masked_sums(13, 29, lambda i, n: n <= i), 4, 3) != "10"


@pytest.mark.parametrize(
    "func",
    [
        masked_sums(13, 29, lambda i, n: n >= i),
        masked_sums(13, 29, lambda i, n: n <= i, seen=("scores",)),
        masked_sums(13, 29, lambda i, n: n <= i, exponent="Z"),
        masked_sums(13, 29, lambda i, n: n * n <= i),
    ],
    ids=["first keys", "scores are a result", "another exponent", "not linear"],
)
def test_whole_loops(func: PrimFunc):
    assert extent(func, 4, 3) == "10"


def rolled(func: PrimFunc, *steps: str) -> str:
    """The extent of the merged loop, as text; the numbers are those of `func`."""
    s = Checked(func)
    merged = s.rolling_update(*steps)
    arrays = [np.random.default_rng(0).normal(size=const_shape(b)).astype("float32") for b in func.buffers]
    old, new = copies(arrays), copies(arrays)
    run(func, *old)
    run(s.func, *new)
    np.testing.assert_allclose(new[-1], old[-1], rtol=1e-5)
    return str(find_loop(s.func, merged).extent)


def test_an_exponential_without_the_condition_of_the_maximum_is_kept():
    """Of a maximum without dimensions, too."""
    X = te.placeholder((13,), name="X")
    k, r = te.reduce_axis((0, 13), name="k"), te.reduce_axis((0, 13), name="r")
    top = te.compute((), lambda: te.max(te.if_then_else(k < 5, X[k], NONE), axis=k), name="top")
    power = te.compute((13,), lambda n: te.exp(X[n] - top[()]), name="power")
    total = te.compute((), lambda: te.sum(power[r], axis=r), name="total")
    assert rolled(te.create_prim_func([X, total]), "k", "n", "r") == "13"


@pytest.mark.parametrize(("back", "whole"), [(0, False), (1, True)])
def test_values_that_a_later_row_reads_are_made(back: int, whole: bool):
    X = te.placeholder((9, 9), name="X")
    k, r = te.reduce_axis((0, 9), name="k"), te.reduce_axis((0, 9), name="r")
    made = te.compute((9, 9), lambda a, b: X[a, b] * 2.0, name="made")

    def value(c, d):
        return te.if_then_else(d <= c, te.if_then_else(c >= back, made[c - back, d], te.const(0.0)), NONE)

    scores = te.compute((9, 9), value, name="scores")
    top = te.compute((9,), lambda e: te.max(scores[e, k], axis=k), name="top")
    power = te.compute((9, 9), lambda g, h: te.exp(scores[g, h] - top[g]), name="power")
    total = te.compute((9,), lambda p: te.sum(power[p, r], axis=r), name="total")
    assert (rolled(te.create_prim_func([X, total]), "b", "d", "k", "h", "r") == "9") == whole
