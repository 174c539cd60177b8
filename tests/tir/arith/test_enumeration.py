"""Enumeration: the distinct rows of matrices, dense and sparse, of any integer dtype."""

import numpy as np
import pytest

from tir.arith.enumeration import MAX_SPARSITY, UnknownValue, distinct_rows, evaluate
from tir.ir import Cast, Const, Var


@pytest.mark.parametrize("dtype", ["int64", "int32", "bool"])
@pytest.mark.parametrize(("low", "high"), [(-1, 2), (-7, 109), (0, 1), (-(2**30), 2**30), (-(2**62), 2**62)])
@pytest.mark.parametrize("shape", [(0, 2), (1, 1), (13, 0), (300, 3), (7 * 109, 2)])
def test_distinct_rows_are_those_of_numpy(shape: tuple[int, int], low: int, high: int, dtype: str) -> None:
    rows = np.random.default_rng(0).integers(low, high, shape).astype(dtype)
    found, place = distinct_rows(rows)
    if shape[1] == 0:
        assert found.shape == (1, 0) and place.tolist() == [0] * shape[0]
        return
    expected, inverse = np.unique(rows, axis=0, return_inverse=True)
    assert found.dtype == rows.dtype
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(place, inverse.reshape(-1))


@pytest.mark.parametrize("span", [5 * MAX_SPARSITY, 5 * MAX_SPARSITY + 1])
def test_distinct_rows_on_both_sides_of_the_limit(span: int) -> None:
    rows = np.array([[span - 1], [0], [3], [0], [span - 1]])
    found, place = distinct_rows(rows)
    assert found.ravel().tolist() == [0, 3, span - 1] and place.tolist() == [2, 0, 1, 0, 2]


def test_casts_to_narrow_integers_wrap() -> None:
    x = np.arange(-300, 301)
    for dtype in ("int8", "int16", "uint8", "uint16", "uint32"):
        assert (evaluate(Cast(dtype, Var("x")) * 2, {"x": x}) == x.astype(dtype).astype(np.int64) * 2).all()
    with pytest.raises(UnknownValue):
        evaluate(Cast("int32", Cast("float32", Var("x")) + Const(0.5, "float32")), {"x": x})
