"""What a result is compared with: errors, their scale, and their tolerance."""

from __future__ import annotations

import numpy as np
import pytest

from search.measure.reference import (
    CHUNK_ELEMENTS,
    DISTRIBUTIONS,
    Arrays,
    index_bounds,
    make_reference,
    max_error,
    random_inputs,
    stored_error,
)
from search.measure.rounding import scale_of
from tir import te


def test_errors_are_relative_to_the_size_of_the_result():
    expected = np.array([3.0, -4.0, 0.0])
    scale = scale_of(expected)
    assert max_error(expected + np.array([0.0, 0.0, 1e-3]), expected, scale) == pytest.approx(1e-3 / np.sqrt(25 / 3))
    assert max_error(expected, expected, scale) == 0.0
    assert max_error(np.array([3.0, np.nan, 0.0]), expected, scale) == float("inf")
    odd = np.array([np.inf, np.nan, 1.0])
    assert max_error(odd, odd, scale_of(odd)) == 0.0
    assert max_error(np.array([-np.inf, np.nan, 1.0]), odd, scale_of(odd)) == float("inf")
    zeros = np.zeros(3)
    assert max_error(zeros + np.array([0, 0, 1e-30]), zeros, scale_of(zeros)) == float("inf")
    assert max_error(zeros, zeros, scale_of(zeros)) == 0.0


@pytest.mark.parametrize("size", [0, 1, CHUNK_ELEMENTS - 1, CHUNK_ELEMENTS, 2 * CHUNK_ELEMENTS + 7])
def test_large_arrays_are_compared_piece_by_piece(size):
    rng = np.random.default_rng(0)
    expected = rng.uniform(-1, 1, (1, size)) if size else np.empty((1, 0))
    stored = expected.astype("float32")
    scale = scale_of(expected)
    assert stored_error(stored, "float32", expected, scale) == max_error(stored.astype("float64"), expected, scale) <= 2.0**-24
    for place in {0, size // 2, size - 1} if size else ():
        for value in (np.nan, np.inf, 7.0):
            wrong = stored.copy()
            wrong[0, place] = value
            error = stored_error(wrong, "float32", expected, scale)
            assert error == (float("inf") if value != 7.0 else pytest.approx(abs(7.0 - expected[0, place]) / scale[0, place]))


def test_what_overflows_or_vanishes_is_no_reference(tmp_path):
    k, a = te.reduce_axis((0, 109), name="k"), te.placeholder((3, 109), name="A")
    func = te.create_prim_func([a, te.compute((3,), lambda i: te.prod(a[i, k], axis=k), name="B")])

    def good(distribution: int, power: float = 1.0) -> bool:
        make_reference(func, None, 0, distribution, tmp_path)
        arrays = Arrays(func, tmp_path)
        inputs, outputs = arrays.working
        with np.errstate(all="ignore"):
            outputs[:] = np.prod(inputs, axis=1) ** np.float32(power)
        return arrays.accept()["good"]

    assert [good(n) for n in range(len(DISTRIBUTIONS))] == [d.low in (0.1, 0.9) for d in DISTRIBUTIONS]
    assert not good(0, -1.0)


def test_indices_lie_within_what_they_index():
    """Whatever is added to them and by whatever they are multiplied; others are small."""
    D, E = te.placeholder((1000, 8), name="D"), te.placeholder((50,), name="E")
    I, J, K, L = (
        te.placeholder((64,), dtype, name=n) for n, dtype in zip("IJKL", ("int64", "int32", "int32", "int32"), strict=True)
    )
    j = te.reduce_axis((0, 8), name="j")
    gathered = te.compute((64,), lambda i: te.sum(D[I[i], j] + E[49 - J[i] * 3 - j], axis=j), name="G")
    shifted = te.compute((64,), lambda i: E[K[i] + 20] + E[I[i]] + L[i].astype("float32"), name="H")
    func = te.create_prim_func([D, E, I, J, K, L, gathered, shifted])
    assert index_bounds(func) == {"I": (0, 49), "J": (0, 14), "K": (-20, 29)}
    inputs = dict(zip((b.name for b in func.buffers), random_inputs(func, np.random.default_rng(0)), strict=True))
    assert (inputs["I"].min() >= 0) and (8 < inputs["I"].max() <= 49) and inputs["K"].min() < -8 and inputs["J"].max() <= 14
    assert set(inputs["L"].tolist()) <= set(range(-8, 9)) and [a.dtype.name for a in inputs.values()][2:5] == [
        "int64",
        "int32",
        "int32",
    ]
