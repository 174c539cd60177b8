"""Matrix times vector: which streams are read, and that a constant matrix is packed once."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen.constants import split_constants
from schedule.templates import gemv
from tests.codegen.harness import ONE, TWO
from tests.schedule.templates.patterns import check_estimates
from tir import te


def one_row(rows, columns, constant=True):
    """max(x W + b, 0) for one row x."""
    x, W, b = te.placeholder((1, rows), name="x"), te.placeholder((rows, columns), name="W"), te.placeholder((columns,), name="b")
    k = te.reduce_axis((0, rows), name="k")
    y = te.compute((1, columns), lambda i, j: te.sum(x[i, k] * W[k, j], axis=k), name="y")
    z = te.compute((1, columns), lambda i, j: te.maximum(y[i, j] + b[j], 0), name="z")
    return te.create_prim_func([x, W, b, z], constants=[W, b] if constant else [])


@pytest.mark.parametrize(("rows", "columns"), [(13, 7), (109, 300), (77, 130)])
@pytest.mark.parametrize("target", [ONE, TWO])
@pytest.mark.parametrize("constant", [True, False])
def test_products(rows, columns, target, constant):
    rng = np.random.default_rng(rows)
    x, W, b = (rng.integers(-4, 5, shape).astype("float32") for shape in ((1, rows), (rows, columns), (columns,)))
    z = np.full((1, columns), np.nan, "float32")
    tir.build(tir.default_schedule(one_row(rows, columns, constant), target).func, target)(x, W, b, z)
    np.testing.assert_array_equal(z, np.maximum(x @ W + b, 0))


def test_panels_of_constants_are_packed_once():
    s = tir.default_schedule(one_row(109, 300), f"{ONE} -mcpu znver4")
    prepare, main = split_constants(s.func)
    assert prepare is not None and [p.name for p in main.params] == ["x", "b", "W_global", "z"]
    assert prepare.params[-1].shape == main.params[2].shape
    assert main.outline().split("\n", 1)[1] == (
        "    allocates y[1, 300]\n"
        "    for ax0_0 in 5:\n"
        "        for ax1 in 109, ax0_1 in vectorized(64) where ax0_0 * 64 + ax0_1 < 300:\n"
        "            y[0, ax0_0 * 64 + ax0_1] += x[0, ax1] * W_global[ax0_0, ax1, ax0_1]  # from 0\n"
        "        for ax1_1 in vectorized(64) where ax0_0 * 64 + ax1_1 < 300:\n"
        "            z[0, ax0_0 * 64 + ax1_1] = max(y[0, ax0_0 * 64 + ax1_1] + b[ax0_0 * 64 + ax1_1], 0)\n"
    )


@pytest.mark.parametrize("target", [ONE, TWO])
@pytest.mark.parametrize(("columns", "vectors"), [(50257, 16), (300, 10)])
def test_rows_of_other_matrices_are_added_to_half_of_the_registers(target, columns, vectors):
    """Eight at a time; tiles are as equal as can be: 19 vectors are not 16 and 3."""
    outline = tir.default_schedule(one_row(3072, columns, constant=False), f"{target} -mcpu x86-64-v4").func.outline()
    assert f", ax1_1 in 8, ax0_2 in vectorized({16 * vectors})" in outline


@pytest.mark.parametrize(
    ("mcpu", "rows", "vectors"),
    [("x86-64-v2", 8, 1), ("znver3", 4, 2), ("znver4", 4, 4), ("znver5", 2, 8), ("sapphirerapids", 8, 2)],
)
def test_rows_that_are_read_at_once_have_sums_in_half_of_the_registers(mcpu, rows, vectors):
    A, x = te.placeholder((520, 1024), name="A"), te.placeholder((1024,), name="x")
    k = te.reduce_axis((0, 1024), name="k")
    func = te.create_prim_func([A, x, te.compute((520,), lambda i: te.sum(A[i, k] * x[k], axis=k), name="y")])
    target = tir.Target(f"{ONE} -mcpu {mcpu}")
    outline = tir.default_schedule(func, target).func.outline()
    assert f" in unroll({rows}), k_1 in vectorized({vectors * target.lanes(32)})" in outline, outline


# Programs, and on which targets the template suits them.
SUITED = [
    ("jk k -> j", {"j": 13, "k": 100}, (), [True, True, True]),
    ("kj k -> j", {"j": 1300, "k": 100}, (), [True, True, True]),
    ("jk k -> j", {"j": 300, "k": 800}, (), [True, True, True]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "suits"), SUITED)
def test_estimated_cycles(rule, about, constants, suits):
    check_estimates(gemv, rule, about, constants, suits)
