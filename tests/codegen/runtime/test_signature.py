"""Calls by name, with outputs and sizes left out, and with arrays of other libraries."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import tir
from codegen import ArgumentError
from codegen.runtime.signature import Signature
from tests.codegen.harness import ONE
from tir import te
from tir.script import tir as T

ROWS, COLUMNS = 7, 13


def build(func: tir.PrimFunc) -> tir.Kernel:
    kernel = tir.build(func, ONE)
    assert isinstance(kernel, tir.Kernel)
    return kernel


def two_results(rows: Any = ROWS, sizes: tuple[Any, ...] = (), dtype: str = "float32") -> tir.PrimFunc:
    """sum and difference of two arrays, the sum between them in the list of parameters"""
    A, B = te.placeholder((rows, COLUMNS), dtype, name="A"), te.placeholder((rows, COLUMNS), dtype, name="B")
    S = te.compute((rows, COLUMNS), lambda i, j: A[i, j] + B[i, j], name="S")
    D = te.compute((rows, COLUMNS), lambda i, j: A[i, j] - B[i, j], name="D")
    return te.create_prim_func([*sizes, A, S, B, D], name="both")


@pytest.fixture(scope="module")
def both() -> tir.Kernel:
    return build(two_results())


@pytest.fixture(scope="module")
def sized() -> tir.Kernel:
    n = te.var("n")
    return build(two_results(2 * n + 1, (n,)))


@pytest.fixture
def ab() -> tuple[np.ndarray, np.ndarray]:
    return np.full((ROWS, COLUMNS), 5, "float32"), np.full((ROWS, COLUMNS), 3, "float32")


def test_outputs_left_out_are_made_and_returned(both, ab) -> None:
    a, b = ab
    s, d = both(a, b)
    assert (s == 8).all() and (d == 2).all() and s.dtype == np.float32 and s.shape == (ROWS, COLUMNS)
    assert both(a, b)[0] is not s
    s, d = both(B=a, A=b)
    assert (s == 8).all() and (d == -2).all()
    s, d = both(a, B=b)
    assert (s == 8).all() and (d == 2).all()


def test_out(both, ab) -> None:
    a, b = ab
    s, d = np.zeros_like(a), np.zeros_like(a)
    assert all(x is y for x, y in zip(both(a, b, out=[s, d]), (s, d), strict=True))
    assert (s == 8).all() and (d == 2).all()
    s[:] = 0
    made = both(a, b, S=s)
    assert made[0] is s and (s == 8).all() and (made[1] == 2).all()
    assert both(A=a, B=b, S=s, D=d) is None and both(a, s, b, d) is None
    assert (both(a, b, out=None)[0] == 8).all()


def test_sizes_follow_from_shapes(sized, ab) -> None:
    a, b = ab
    for s, d in (sized(a, b), sized(3, a, b), sized(a, b, n=3), sized(B=b, A=a)):
        assert s.shape == d.shape == (ROWS, COLUMNS) and (s == 8).all() and (d == 2).all()
    s, d = np.zeros_like(a), np.zeros_like(a)
    assert sized(a, s, b, d) is None
    assert (s == 8).all() and (d == 2).all()


@pytest.mark.parametrize(("call", "message"), [
    (lambda k, a: k(A=a), "both takes 4 argument(s) (A, S, B, D), of which S, D may be left out, got 1"),
    (lambda k, a: k(a, a, a), "both takes 4 argument(s) (A, S, B, D), of which S, D may be left out, got 3"),
    (lambda k, a: k(a, a, d=a),
     "both takes 4 argument(s) (A, S, B, D), of which S, D may be left out; 'd' is not one of them; did you mean `D`?"),
    (lambda k, a: k(a, a, out=a), "both: out takes the outputs (S, D), got 1"),
    (lambda k, a: k(a, A=a), "both: A is given by name, so B, which comes after it, cannot be given by position"),
    (lambda k, a: k(a, a, D=a, out=(a, a)), "both: D is given twice, by name and by out"),
    (lambda k, a: k(a, [1.0]), "both: B must be an array, got list; np.asarray makes one"),
    (lambda k, a: k(a, a, S=a), "both: A and S overlap in memory, and S is written; pass a copy"),
])  # fmt: skip
def test_refusals(both, ab, call, message) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(both, ab[0])
    assert str(caught.value) == message


@pytest.mark.parametrize(("shapes", "message"), [
    (((6, 13), (6, 13)), "both: n does not follow from the shapes of the arrays; pass it"),
    (((7, 13), (9, 13)), "both: B must have shape (7, 13), got (9, 13)"),
    (((7,), (7,)), "both: n does not follow from the shapes of the arrays; pass it"),
])  # fmt: skip
def test_refusals_of_sizes(sized, shapes, message) -> None:
    with pytest.raises(ArgumentError) as caught:
        sized(*(np.ones(s, "float32") for s in shapes))
    assert str(caught.value) == message
    with pytest.raises(ArgumentError) as caught:
        sized(-4, *(np.ones((7, 13), "float32") for _ in range(2)))
    assert str(caught.value) == "both: there is no array S for n = -4; pass S"


def test_what_is_updated_is_no_output() -> None:
    @T.prim_func
    def add(A: T.Buffer((7,), "float32"), B: T.Buffer((7,), "float32")):
        for i in range(7):
            with T.block("B"):
                v = T.axis.spatial(7, i)
                B[v] = B[v] + A[v]

    kernel, a, b = build(add), np.ones(7, "float32"), np.ones(7, "float32")
    with pytest.raises(ArgumentError, match=r"^add takes 2 argument\(s\) \(A, B\), got 1$"):
        kernel(a)
    kernel(a, b)
    assert (b == 2).all()


def test_what_is_not_written_whole_is_made_of_zeros() -> None:
    @T.prim_func
    def some(A: T.Buffer((7,), "float32"), B: T.Buffer((7,), "float32")):
        for i in range(5):
            with T.block("B"):
                v = T.axis.spatial(7, i)
                B[v] = A[v]

    assert Signature(some, {"B"}).whole == frozenset() and Signature(two_results(), {"S", "D"}).whole == {"S", "D"}
    assert build(some)(np.ones(7, "float32")).tolist() == [1] * 5 + [0] * 2


class DLPack:
    """An array with DLPack alone."""

    def __init__(self, array: np.ndarray, device: int = 1):
        self.array, self.device = array, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **options: Any) -> Any:
        if self.device != 1:
            raise BufferError("elsewhere")
        return self.array.__dlpack__(**options)


class Interface:
    """An array with numpy's interface alone."""

    def __init__(self, array: np.ndarray):
        self.__array_interface__ = array.__array_interface__
        self.array = array


@pytest.mark.parametrize("library", [DLPack, Interface])
def test_arrays_of_other_libraries_are_not_copied(both, ab, library) -> None:
    a, b = ab
    s, d = np.zeros_like(a), np.zeros_like(a)
    both(library(a), library(s), library(b), library(d))
    assert (s == 8).all() and (d == 2).all()
    call = both.bind(library(a), b, S=library(s))
    a[:] = 1
    call()
    assert (s == 4).all()
    a.flags.writeable = False
    with pytest.raises(ArgumentError, match=r"^both: S is written but the array is read-only$"):
        both(b, library(a), b, d)


def test_an_array_that_is_elsewhere(both, ab) -> None:
    with pytest.raises(ArgumentError) as caught:
        both(DLPack(ab[0], 2), ab[1])
    assert str(caught.value) == "both: A must be in the host's memory, got a DLPack on a device"


def test_bfloat16_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kernel = build(two_results(dtype="bfloat16"))
    a = np.full((ROWS, COLUMNS), 1.5, ml_dtypes.bfloat16)
    s, _ = kernel(a, a)
    assert (s.view(ml_dtypes.bfloat16) == 3).all()
    s, d = np.zeros_like(a), np.zeros_like(a)
    kernel(a, s, a, d)
    assert (s == 3).all()


def test_kernels_pickle(both, sized, ab) -> None:
    for kernel in (both, sized):
        kernel(*ab)
        again = pickle.loads(pickle.dumps(kernel))
        assert again.func == kernel.func and again.code == kernel.code and again.llvm_ir() == kernel.llvm_ir()
        assert all(np.array_equal(x, y) for x, y in zip(again(*ab), kernel(*ab), strict=True))


def test_a_kernel_with_constants() -> None:
    A, W = te.placeholder((ROWS, COLUMNS), name="A"), te.placeholder((COLUMNS,), name="W")
    P = te.compute((COLUMNS,), lambda j: W[j] * 2.0, name="P")
    C = te.compute((ROWS, COLUMNS), lambda i, j: A[i, j] + P[j], name="C")
    kernel = build(te.create_prim_func([A, W, C], constants=[W]))
    assert kernel.preparation is not None
    a, w = np.ones((ROWS, COLUMNS), "float32"), np.ones(COLUMNS, "float32")
    assert (kernel(a, w) == 3).all() and (kernel(W=w, A=a) == 3).all() and (kernel.bind(a, w)() == 3).all()
    assert (pickle.loads(pickle.dumps(kernel))(a, w) == 3).all()
