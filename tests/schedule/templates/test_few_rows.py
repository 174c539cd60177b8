"""Few rows times a matrix: parts of the matrix are streams, and results are those of any other schedule."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tir
from schedule import templates
from schedule.primitive import find_block
from schedule.templates import few_rows, gemm
from tests.codegen.harness import ONE, TWO
from tests.schedule.templates.patterns import check_estimates
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


# Programs, and on which targets the template suits them.
SUITED = [
    ("ik kj -> ij", {"i": 3, "j": 577, "k": 576}, (), [True, True, True]),
    ("ik kj -> ij", {"i": 2, "j": 200, "k": 64}, (), [True, True, True]),
    ("ik kj -> ij", {"i": 5, "j": 300, "k": 1024}, (), [True, True, True]),
    ("ki kj -> ij", {"i": 5, "j": 300, "k": 1024}, (), [True, True, True]),
    ("ik kj -> ij", {"i": 3, "j": 577, "k": 577}, ("B",), [False, False, False]),
    ("ik kj -> ij", {"i": 3, "j": 577, "k": 7}, (), [False, False, False]),
    ("ik kj -> ij", {"i": 3, "j": 577, "k": 8}, (), [True, True, False]),
    ("ik kj -> ij", {"i": 3, "j": 577, "k": 12}, (), [True, True, False]),
    ("ik kj -> ij", {"i": 3, "j": 64, "k": 64}, (), [True, False, False]),
    ("bik bkj -> bij", {"b": 3, "i": 2, "j": 400, "k": 100}, (), [True, True, True]),
    ("ik kj -> ij", {"i": 6, "j": 577, "k": 100}, (), [True, True, True]),
    ("ik kj -> ij", {"i": 40, "j": 577, "k": 100}, (), [False, False, False]),
    ("ik kj -> ij", {"i": 17, "j": 300, "k": 1024}, (), [False, False, True]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "suits"), SUITED)
def test_estimated_cycles(rule, about, constants, suits):
    check_estimates(few_rows, rule, about, constants, suits)
