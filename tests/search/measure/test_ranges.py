"""Inputs that are drawn have a meaning: nothing is divided by zero, shifted too far, or read outside."""

import numpy as np
import pytest

import tir
from search.measure.ranges import MAX_DIVISOR, meaningful
from search.measure.reference import random_inputs
from tir import te

N = 200


def inputs(*names: str, dtype: str = "int32") -> list[te.Tensor]:
    return [te.placeholder((N,), dtype, name=name) for name in names]


def test_divisors_and_shifts_are_found_through_what_is_computed_of_them():
    A, B, C, D, E = inputs("A", "B", "C", "D", "E")
    (F,) = inputs("F", dtype="float32")
    (U,) = inputs("U", dtype="uint8")
    negated = te.compute((N,), lambda i: -C[i], name="negated")
    whole = te.compute((N,), lambda i: F[i].astype("int32"), name="whole")
    outputs = [
        te.compute((N,), lambda i: A[i] // B[i].astype("int64"), name="by_a_cast"),
        te.compute((N,), lambda i: A[i] % (negated[i] + 2), name="by_a_sum"),
        te.compute((N,), lambda i: A[i] // whole[i] + te.shift_left(A[i], D[i]), name="by_a_float"),
        te.compute((N,), lambda i: A[i] // te.maximum(E[i], 1) + A[i] // 3, name="by_what_is_above_0"),
        te.compute((N,), lambda i: U[i] % te.abs(U[i] * U[i]), name="by_a_product"),
    ]
    func = te.create_prim_func([A, B, C, D, E, F, U, *outputs])
    last = MAX_DIVISOR
    expected = {"B": (1, last), "C": (2 - last, 1), "D": (0, 31), "F": (1, last), "U": (1, last), "negated": (-1, last - 2)}
    assert {name: span for name, span in meaningful(func).items() if name != "whole"} == expected
    for integers in (None, 3):
        drawn = random_inputs(func, np.random.default_rng(0), 0, integers)
        tir.run(func, *[a.copy() for a in drawn])  # whose traps see a division by zero
        tir.build(func)(*drawn)
        assert len(set(drawn[5].tolist())) == last  # all of them


@pytest.mark.parametrize("index", [lambda x: x, lambda x: te.clip(x, 0, 49), lambda x: te.select(x < 0, x + 50, x)])
def test_what_a_program_brings_within_bounds_is_an_index(index):
    (X,) = inputs("X", dtype="int64")
    T = te.placeholder((50,), name="T")
    func = te.create_prim_func([T, X, te.compute((N,), lambda i: T[index(X[i])], name="Y")])
    assert meaningful(func) == {"X": (0, 49)}
