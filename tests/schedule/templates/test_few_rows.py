"""Few rows times a matrix: parts of the matrix are streams, and results are those of any other schedule."""

from __future__ import annotations

import re
from math import inf

import numpy as np
import pytest

import tir
from schedule import templates
from schedule.primitive import find_block
from schedule.templates import few_rows, gemm
from tests.codegen.harness import ONE, TWO
from tests.schedule.templates.patterns import TARGETS, estimate
from tir import te


def product(batch, rows, columns, steps, room=0, constant=False):
    """The products of rows (batch, rows, steps) by the first columns of matrices (batch, steps, columns + room), plus 1."""
    A, B = te.placeholder((batch, rows, steps), name="A"), te.placeholder((batch, steps, columns + room), name="B")
    part = te.compute((batch, steps, columns), lambda b, k, j: B[b, k, j], name="part")
    k = te.reduce_axis((0, steps), name="k")
    C = te.compute((batch, rows, columns), lambda b, i, j: te.sum(A[b, i, k] * part[b, k, j], axis=k), name="C")
    D = te.compute((batch, rows, columns), lambda b, i, j: C[b, i, j] + 1, name="D")
    return te.create_prim_func([A, B, D], constants=[B] if constant else [])


def chosen(func, target=ONE):
    """True where the default schedule reads parts of the matrix together."""
    return any("few rows" in rule for rule in templates.decided(func, tir.Target(target)).rules)


SHAPES = [
    (3, 3, 577, 576),
    (1, 2, 1021, 212),
    (7, 2, 700, 504),
    (3, 3, 577, 575),
    (1, 2, 1021, 213),
    (2, 3, 1300, 507),
    (1, 3, 1000, 109),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("target", [ONE, TWO])
def test_products(shape, target):
    batch, rows, columns, steps = shape
    rng = np.random.default_rng(rows)
    A, B = (rng.integers(-4, 5, s).astype("float32") for s in ((batch, rows, steps), (batch, steps, columns + 1)))
    D = np.full((batch, rows, columns), np.nan, "float32")
    func = product(*shape, room=1)
    tir.build(tir.default_schedule(func, target).func, target)(A, B, D)
    np.testing.assert_array_equal(D, A @ B[:, :, :columns] + 1)
    assert chosen(func, f"{target} -mcpu znver4") == (steps > 109)  # in parts, equal or not


def test_the_matrix_is_read_in_place_along_its_rows():
    """A part of a larger array is not copied, and a stream goes on from one row to the next."""
    s = tir.default_schedule(product(3, 3, 576, 576, room=1), f"{ONE} -mcpu znver4")
    assert "alloc_buffer((3, 576, 576))" not in s.script
    found = re.search(r"T\.axis\.reduce\(576, (\w+) \* 72 \+ (\w+)\)", s.script)
    assert found is not None and s.get_loops("C").index(found[2]) < s.get_loops("C").index(found[1])


def test_short_rows_constants_and_many_rows_have_other_schedules():
    target = f"{ONE} -mcpu znver4"
    assert chosen(product(3, 3, 576, 576), target)
    assert not chosen(product(3, 3, 64, 576), target)  # registers hold a row of results
    assert not chosen(product(3, 3, 576, 576, constant=True), target)
    assert not chosen(product(3, 30, 576, 576), target)


def cycles(rows, columns=576, steps=576):
    machine = tir.Target("llvm -mcpu znver4 -num-cores 1").machine
    return few_rows.cycles(gemm.matches(find_block(product(3, rows, columns, steps), "C")), machine)


def test_more_rows_are_never_faster():
    found = [cycles(rows) for rows in range(2, 9)]
    assert found == sorted(found)


def test_rows_in_one_set_of_l1_evict_each_other():
    """Elements of rows that are a page apart come from L2 where L1 has no ways for all of them."""
    assert cycles(3, 577, 1024) < 1.1 * cycles(3, 577, 1016)
    assert cycles(13, 577, 1024) > 1.5 * cycles(13, 577, 1016)
    assert not chosen(product(1, 13, 577, 1024), f"{ONE} -mcpu znver4")


# Worked examples of the formula, on each target: none where the template does not suit.
ESTIMATES = [
    ("ik kj -> ij", {"i": 3, "j": 577, "k": 576}, (), [176562.0, 139561.9, 64263.4]),
    ("ik kj -> ij", {"i": 2, "j": 200, "k": 64}, (), [3300.0, 3250.0, 1950.0]),
    ("ik kj -> ij", {"i": 5, "j": 300, "k": 1024}, (), [712800.0, 265600.0, 89600.0]),
    ("ki kj -> ij", {"i": 5, "j": 300, "k": 1024}, (), [328800.0, 201600.0, 89600.0]),
    ("ik kj -> ij", {"i": 3, "j": 577, "k": 577}, ("B",), [inf, inf, inf]),
    ("ik kj -> ij", {"i": 3, "j": 577, "k": 7}, (), [None, None, None]),
    ("ik kj -> ij", {"i": 3, "j": 577, "k": 8}, (), [4183.2, 2371.1, None]),
    ("ik kj -> ij", {"i": 3, "j": 577, "k": 12}, (), [8492.7, 4909.0, None]),
    ("ik kj -> ij", {"i": 3, "j": 64, "k": 64}, (), [1792.0, None, None]),
    ("bik bkj -> bij", {"b": 3, "i": 2, "j": 400, "k": 100}, (), [45937.5, 43593.8, 26718.8]),
    ("ik kj -> ij", {"i": 6, "j": 577, "k": 100}, (), [106384.4, 69871.1, 30202.3]),
    ("ik kj -> ij", {"i": 40, "j": 577, "k": 100}, (), [None, None, None]),
    ("ik kj -> ij", {"i": 17, "j": 300, "k": 1024}, (), [None, None, 1005600.0]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "expected"), ESTIMATES)
def test_estimated_cycles(rule, about, constants, expected):
    assert [estimate(few_rows, rule, about, name, constants) for name in TARGETS] == expected
