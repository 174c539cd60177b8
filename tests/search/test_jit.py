"""Functions of tensors that are called with arrays."""

from __future__ import annotations

import numpy as np
import pytest

import search.jit
import tir
from codegen import ObjectCache
from search.jit import Jit
from tests.codegen.harness import at_once
from tir import te

ONE = "llvm -num-cores 1"


def make(tmp_path) -> Jit:
    @tir.jit(target=ONE, cache=ObjectCache(tmp_path))
    def scaled(A, B, scale=1, difference=False):
        """Sums, and differences too."""
        total = te.compute(A.shape, lambda i, j: (A[i, j] + B[j]) * float(scale), name="total")
        return (total, te.compute(A.shape, lambda i, j: A[i, j] - B[j], name="less")) if difference else total

    return scaled


def test_calls(tmp_path) -> None:
    scaled = make(tmp_path)
    assert scaled.__name__ == "scaled" and scaled.__doc__ == "Sums, and differences too."
    assert repr(scaled).startswith("<tir.jit scaled(A, B, ") and repr(scaled).endswith(", 0 kernel(s)>")
    a, b = np.full((7, 13), 5, "float32"), np.full(13, 3, "float32")
    assert (scaled(a, b) == 8).all() and (scaled(B=b, A=a) == 8).all() and (scaled(a, b, scale=1) == 8).all()
    assert len(scaled.kernels) == 1
    assert (scaled(a, b, 2) == 16).all() and len(scaled.kernels) == 2
    total, less = scaled(a, b, difference=True)
    assert (total == 8).all() and (less == 2).all()
    out = np.zeros((7, 13), "float32")
    assert scaled(a, b, out=out) is out and (out == 8).all()
    assert (scaled(a[:3].copy(), b) == 8).all() and len(scaled.kernels) == 4
    wide = scaled(a.astype("float64"), b.astype("float64"))
    assert wide.dtype == np.float64 and (wide == 8).all() and len(scaled.kernels) == 5


def test_what_it_runs(tmp_path) -> None:
    scaled = make(tmp_path)
    a, b = np.ones((7, 13), "float32"), np.ones(13, "float32")
    func = scaled.func(a, b)
    assert func.name == "scaled" and [p.name for p in func.params] == ["A", "B", "total"]
    assert scaled.kernel(a, b) is scaled.kernels[next(iter(scaled.kernels))]
    again = make(tmp_path)
    assert again.kernel(a, b).code == scaled.kernel(a, b).code  # from the cache


@pytest.mark.parametrize(("function", "arguments", "message"), [
    (lambda A: A, [1], "<lambda>: A must be an array, or a value that a kernel can be made for, got list"),
    (lambda A, B: A, 1.0, "<lambda>(A, B): missing a required argument: 'B'"),
    (lambda A: A, np.ones(7), "<lambda> must return a tensor that it computes, or a tuple of them, got Tensor"),
    (lambda A: None, np.ones(7), "<lambda> must return a tensor that it computes, or a tuple of them, got NoneType"),
])  # fmt: skip
def test_refusals(function, arguments, message) -> None:
    with pytest.raises(TypeError) as caught:
        tir.jit(function)(arguments)
    assert str(caught.value) == message


def test_the_oldest_kernels_go(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("search.jit.MAX_KERNELS", 3)
    scaled = make(tmp_path)
    b = np.ones(13, "float32")
    for rows in (1, 2, 3, 1, 4, 5, 1):
        assert (scaled(np.ones((rows, 13), "float32"), b) == 2).all() and len(scaled.kernels) <= 3
    assert [key[0][0][0] for key in scaled.kernels] == [4, 5, 1]


def test_threads_compile_a_kernel_once(tmp_path, monkeypatch) -> None:
    scaled, made = make(tmp_path), []
    compiled = search.jit.compile_function
    monkeypatch.setattr("search.jit.compile_function", lambda *given: made.append(given) or compiled(*given))
    a, b = np.ones((7, 13), "float32"), np.ones(13, "float32")
    at_once(*[lambda: np.testing.assert_array_equal(scaled(a, b), np.full((7, 13), 2))] * 4)
    assert len(made) == 1
