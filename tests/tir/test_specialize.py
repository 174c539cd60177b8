"""Functions of open sizes, for sizes that are known."""

from __future__ import annotations

import pytest

import tir
from tir import te


def padded(n, m=5) -> list[te.Tensor]:
    A = te.placeholder((n, m), name="A")
    return [A, te.compute((n + 1, 2 * m), lambda i, j: te.if_then_else(te.all(i < n, j < m), A[i, j], 0.0), name="B")]


def test_it_is_the_function_written_with_these_sizes() -> None:
    n, m = te.var("n"), te.var("m")
    func = te.create_prim_func([n, *padded(n, m), m])
    assert [v.name for v in func.sizes] == ["n", "m"]
    assert tir.specialize(func, {"n": 7, "m": 13}).script() == te.create_prim_func(padded(7, 13)).script()
    assert tir.specialize(func, {"m": 13}).script() == te.create_prim_func([n, *padded(n, 13)]).script()


def test_integers_that_follow_from_sizes_are_constants() -> None:
    n = te.var("n")

    def reversed_rows(n) -> list[te.Tensor]:
        A, at = te.placeholder((n,), name="A"), te.placeholder((3,), "int64", name="at")
        last = n - 1 if isinstance(n, int) else (n - 1).astype("int64")
        return [A, at, te.compute((3,), lambda i: A[te.minimum(at[i], last)], name="B")]

    func = te.create_prim_func([n, *reversed_rows(n)])
    assert tir.specialize(func, {"n": 7}).script() == te.create_prim_func(reversed_rows(7)).script()


@pytest.mark.parametrize(("values", "message"), [
    ({"N": 7}, "no size of main is named 'N'; did you mean n? there are: n"),
    ({"n": 0}, "the size n of main must be a positive integer, got 0"),
    ({"n": 7.0}, "the size n of main must be a positive integer, got 7.0"),
])  # fmt: skip
def test_refusals(values, message) -> None:
    n = te.var("n")
    with pytest.raises(ValueError) as caught:
        tir.specialize(te.create_prim_func([n, *padded(n)]), values)
    assert str(caught.value) == message


def test_sizes_by_themselves() -> None:
    n = te.var("n")
    func = te.create_prim_func([n, *padded(n)])
    assert func.specialize({n: 7}).script() == tir.specialize(func, {"n": 7}).script()
