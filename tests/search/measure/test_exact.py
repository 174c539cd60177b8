"""Functions that are exact on small integers, whose results are compared bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from search.measure.exact import MAGNITUDES, largest_integers
from search.measure.reference import Arrays, make_reference, outputs, random_inputs
from tests import programs
from tir import te

N = 1 << 20


def reduced(reducer, term, n: int = N, dtype: str = "float32"):
    A, k = te.placeholder((3, n), dtype, name="A"), te.reduce_axis((0, n), name="k")
    return te.create_prim_func([A, te.compute((3,), lambda i: reducer(term(A[i, k]), axis=k), name="B")])


def scaled(factor: float):
    A = te.placeholder((7,), name="A")
    return te.create_prim_func([A, te.compute((7,), lambda i: A[i] * factor, name="B")])


def chosen(compared: float):
    A = te.placeholder((7,), name="A")
    return te.create_prim_func([A, te.compute((7,), lambda i: te.select(A[i] * compared > 1.0, A[i], 0.0), name="B")])


@pytest.mark.parametrize(("func", "expected"), [
    (reduced(te.sum, lambda x: x), 8),
    (reduced(te.sum, lambda x: x * x), 3),  # 9 * 2**20 <= 2**24 < 64 * 2**20
    (reduced(te.sum, lambda x: x * x - 2.0 * x, 4 * N), 1),
    (reduced(te.sum, lambda x: x * x - 2.0 * x, 8 * N), None),
    (reduced(te.sum, lambda x: x, 1024, "float16"), 1),  # 2048
    (reduced(te.sum, lambda x: x, 64, "bfloat16"), 3),
    (reduced(te.sum, lambda x: x * x, N, "float64"), 8),
    (reduced(te.max, lambda x: te.abs(x)), 8),
    (reduced(te.sum, lambda x: te.exp(x), 7), None),
    (reduced(te.prod, lambda x: x, 7), None),
    (scaled(3.0), 8),
    (scaled(0.5), None),
    (chosen(2.0), 8),
    (chosen(0.3), None),
    (programs.matmul(), 8),
    (programs.relu_of_matmul(), 8),
    (programs.widening_matmul("int8", "int32"), None),
    (programs.without_blocks(), None),
])  # fmt: skip
def test_which_are(func, expected):
    assert largest_integers(func) == expected


@pytest.mark.parametrize("make", [programs.matmul, programs.relu_of_matmul, programs.two_outputs])
def test_no_schedule_changes_a_bit(make):
    func = make()
    n = largest_integers(func)
    assert n in MAGNITUDES
    scheduled = tir.default_schedule(func, "llvm -num-cores 1").func
    arrays = [random_inputs(func, np.random.default_rng(0), integers=n) for _ in range(2)]
    for f, own in zip((func, scheduled), arrays, strict=True):
        tir.build(f, "llvm -num-cores 1")(*own)
    assert all(np.array_equal(a, b) for a, b in zip(*arrays, strict=True))


def test_one_term_of_a_million_is_missed(tmp_path):
    func = reduced(te.sum, lambda x: x * x)
    (output,) = outputs(func)
    make_reference(func, None, 0, 0, tmp_path)
    data = Arrays(func, tmp_path)
    squares = np.square(data.working[0])
    data.working[output][:] = squares.sum(axis=1)
    assert data.accept()["good"] and data.verdict() == {"outcome": "ok", "max_error": 0.0, "tolerance": 0.0}
    last = N - 1 - int(np.argmax(squares[0, ::-1] != 0))
    data.working[output][0] -= squares[0, last]
    assert data.verdict()["outcome"] == "wrong_result"


def test_floats_of_the_users_are_no_integers(tmp_path):
    func = scaled(3.0)
    np.save(tmp_path / "0.given.npy", np.linspace(0, 1, 7, dtype="float32"))
    make_reference(func, None, 0, 0, tmp_path)
    data = Arrays(func, tmp_path)
    data.working[1][:] = 3 * data.working[0]
    assert data.accept()["good"] and data.verdict()["tolerance"] > 0
