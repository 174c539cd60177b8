"""What is substituted keeps its surroundings well typed, whatever the dtypes of a variable and of its value are."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from tir import te
from tir.ir import Binary, Buffer, Call, Cast, Const, Let, Load, Select, Store, Var
from tir.traverse import substitute

I, W = Var("i"), Var("w", "int64")
A = Buffer("A", (Const(13),), "int32")
LARGE = Buffer("P", (Const(13),), "int64")


def test_index_arithmetic_becomes_the_wider():
    assert substitute(I * 2 + 1, {I: W}) == W * 2 + 1
    assert substitute(I < 5, {I: W + 1}) == (W + 1 < 5)
    assert substitute(Select(I < 5, I, Const(0)), {I: W}) == Select(W < 5, W, Const(0, "int64"))
    assert substitute(I + Var("j"), {I: W}) == W + Cast("int64", Var("j"))
    assert substitute(W + 3, {W: I}) == Binary("+", Cast("int64", I), Const(3, "int64"))
    assert substitute(Load(A, (I,)), {I: W}) == Load(A, (W,))


def test_values_keep_their_dtype():
    assert substitute(Store(A, (I,), I + 1), {I: W}) == Store(A, (W,), Cast("int32", W + 1))
    assert substitute(Let(Var("x"), I * 2, Store(A, (I,), Var("x"))), {I: W}).value == Cast("int32", W * 2)
    assert substitute(Call("shift_left", (I, Const(1)), "int32"), {I: W}).args[0] == Cast("int32", W)
    assert substitute(Call("f", (Load(A, (I,)), Const(8)), "float32"), {I: W}).args == (Load(A, (W,)), Const(8))


def test_what_is_loaded_is_converted():
    """It may be any number: arithmetic on it in another width is another."""
    loaded = Load(LARGE, (Const(2),))
    assert substitute(I + 1, {I: loaded}) == Cast("int32", loaded) + 1


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint64"])
def test_inlined_where_indices_are_loaded(dtype):
    P, X = te.placeholder((7,), dtype, name="P"), te.placeholder((24, 5), name="X")
    B = te.compute((24, 5), lambda i, j: X[te.maximum(i - 2, 0), j] * 2.0 + i.astype("float32"), name="B")
    func = te.create_prim_func([X, P, te.compute((7, 5), lambda k, j: B[P[k], j] + 1.0, name="C")])
    s = tir.Schedule(func)
    s.compute_inline("B")
    assert tir.verify(s.func).ok
    x, p = np.random.default_rng(0).integers(-9, 9, (24, 5)).astype("float32"), np.array([3, 0, 23, 1, 7, 2, 2], dtype)
    out = np.empty((7, 5), "float32")
    tir.build(s.func, "llvm -num-cores 1")(x, p, out)
    rows = p.astype("int64")
    assert (out == x[np.maximum(rows - 2, 0)] * 2 + rows[:, None] + 1).all()
