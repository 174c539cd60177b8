"""What `verify` says of a function as a whole."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests.programs import matmul
from tests.tir.verify.functions import ITERS, A, C, buffer, func, grid, messages, vi, vj
from tir import te
from tir.interpreter import InterpreterError, run
from tir.ir import Binary, Block, Select, Store, const
from tir.verify import VerifyError, check, verify


def test_something_else_than_a_function():
    with pytest.raises(TypeError, match=r"^verify takes a PrimFunc, got Tensor \(te.create_prim_func makes one of tensors\)$"):
        verify(te.placeholder((7,)))


def test_report_marks_the_statement_with_the_line_of_the_script():
    bad = func(grid(Block("C", ITERS, Store(C, (vi, vj + 1), A[vi, vj]))))
    report = verify(bad)
    assert not report.ok
    assert bad.script().splitlines()[10 - 1].strip() == "C[v_i, v_j + 1] = A[v_i, v_j]"
    assert str(report) == "\n".join(
        (
            "main: 1 error(s), 0 unproved",
            "error: index `v_j + 1` of dimension 1 of `C` is 13, outside 0 .. 12, where j=12",
            "   10 |             C[v_i, v_j + 1] = A[v_i, v_j]",
            "      |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        )
    )
    with pytest.raises(VerifyError) as caught:
        check(bad)
    assert str(caught.value) == str(report)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(report)


def test_well_formed():
    good = matmul()
    report = verify(good)
    assert report.ok
    assert list(report) == []
    assert str(report) == "main: well formed"
    check(good)


@pytest.mark.parametrize("shape", [(7, 13, 109), (1, 1, 1), (1, 13, 1), (1024, 1024, 1024)])
def test_matmul_of_any_shape(shape):
    assert messages(matmul(*shape)) == []


def test_errors_are_what_the_interpreter_meets():
    """Where `verify` has a witness out of bounds, the interpreter traps; where it has no finding, it does not."""
    rng = np.random.default_rng(1)
    X, Y = buffer("X", 20), buffer("Y", 7, 13)
    for _ in range(60):
        p, q, r, d = (int(rng.integers(lo, hi)) for lo, hi in ((-2, 3), (-1, 2), (-2, 6), (1, 4)))
        index = (vi * p + vj * q + r) // d
        guard = Binary("<", vi * 2 + vj, const(int(rng.integers(1, 26))))
        value = Select(guard, X[index], const(0.0), lazy=True)
        f = func(grid(Block("Y", ITERS, Store(Y, (vi, vj), value))), X, Y)
        report = verify(f)
        try:
            run(f, np.zeros(20, np.float32), np.zeros((7, 13), np.float32))
            assert report.ok, (str(report), f.script())
        except InterpreterError:
            assert not report.ok, f.script()
        assert not report.unproved
