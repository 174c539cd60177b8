"""Kernels bound to their arguments."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from tir import te


@pytest.fixture
def kernel() -> tir.Kernel:
    A = te.placeholder((7, 13), "float32", name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] + te.const(1, "float32"), name="B")
    return tir.build(te.create_prim_func([A, B], name="increment"), "llvm -num-cores 1")


def test_a_bound_call_reads_what_the_arrays_hold_then(kernel: tir.Kernel) -> None:
    a, b = np.zeros((7, 13), "float32"), np.zeros((7, 13), "float32")
    call = kernel.bind(a, b)
    np.testing.assert_array_equal(b, 0)
    for n in range(3):
        a[...] = n
        assert call() is None
        np.testing.assert_array_equal(b, n + 1)


def test_a_bound_call_keeps_its_arrays(kernel: tir.Kernel) -> None:
    b = np.zeros((7, 13), "float32")
    call = kernel.bind(np.ones((7, 13), "float32"), b)
    others = [np.full((7, 13), 5, "float32") for _ in range(20)]  # would take the place of an array that was freed
    call()
    np.testing.assert_array_equal(b, 2)
    assert len(others) == 20


def test_arguments_are_checked_when_bound(kernel: tir.Kernel) -> None:
    with pytest.raises(TypeError, match=r"B must have shape \(7, 13\), got \(13, 7\)"):
        kernel.bind(np.zeros((7, 13), "float32"), np.zeros((13, 7), "float32"))
