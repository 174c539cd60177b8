"""Nodes: what holds of all expressions, however deep, and sizes of buffers."""

import numpy as np
import pytest

import tir
from tir import te
from tir.interpreter import InterpreterError
from tir.ir import NOT_SPATIAL, Axis, Buffer, Const, PrimFunc, Var, buffer_nbytes, const
from tir.script import parse
from tir.traverse import axis_loops, blocks


def folded(n: int, step) -> PrimFunc:
    """B = `step` applied n times to A."""
    A = te.placeholder((7,), name="A")

    def value(i):
        result = A[i]
        for k in range(n):
            result = step(result, A[i], k)
        return result

    return te.create_prim_func([A, te.compute((7,), value, name="B")])


def test_sums_of_hundreds_of_terms():
    func = folded(500, lambda total, a, k: total + a * float(k % 3))
    assert parse(func.script()) == func and tir.verify(func).ok
    a, expected, built = np.arange(7, dtype="float32"), np.empty(7, "float32"), np.empty(7, "float32")
    tir.run(func, a, expected)
    tir.build(func, "llvm -num-cores 1")(a, built)
    assert (expected == a * (1 + sum(k % 3 for k in range(500)))).all() and (built == expected).all()


def test_what_python_cannot_read_is_an_error():
    func = folded(300, lambda chosen, a, k: te.select(a > float(k), chosen, a))
    assert tir.verify(func).ok
    tir.build(func, "llvm -num-cores 1")
    with pytest.raises(InterpreterError, match=r"main: an expression is nested too deeply for Python .*; compute parts of it"):
        tir.run(func, np.zeros(7, "float32"), np.zeros(7, "float32"))


def test_the_bytes_of_buffers():
    rows, bits = Buffer("A", (const(7), const(13)), "float64"), Buffer("B", (), "int8")
    assert buffer_nbytes(rows, bits) == 7 * 13 * 8 + 1 and buffer_nbytes() == 0
    with pytest.raises(ValueError, match=r"^a dimension of C is symbolic: `n`"):
        buffer_nbytes(Buffer("C", (Var("n"),)))


def test_the_loops_that_drive_the_axes_of_a_block():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((7, 12), "float32"), B: T.Buffer((7,), "float32")):
    for i, k_0, k_1 in T.grid(7, 3, 4):
        with T.block("B"):
            v_i, v_k, v_o = T.axis.remap("SRO", [i, k_0, k_1])
            with T.init():
                B[v_i] = T.float32(0)
            B[v_i] = B[v_i] + A[v_i, v_k * 4 + v_o]
""")
    (block,) = blocks(func)
    assert axis_loops(block, Axis.SPATIAL) == {"i"} and axis_loops(block, Axis.REDUCE) == {"k_0"}
    assert axis_loops(block, *NOT_SPATIAL) == {"k_0", "k_1"} and axis_loops(block) == set()


def test_equality_of_constants():
    """Zeros of different signs are different programs; values of other types are equal where Python says so."""
    zero, negative = Const(0.0, "float32"), Const(-0.0, "float32")
    assert zero == Const(0, "float32") == Const(0.0, "float32") and negative == Const(-0.0, "float32")
    assert zero != negative and Const(0, "float32") != negative and len({zero, negative}) == 2
    assert Const(0.0, "float64") != zero and Const(0) != Var("x") and Const(1) != Const(True, "bool") and Const(7) != Const(13)
