"""interleave_functions: several vectors at a time where each instruction waits for the one before."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen.passes.interleave_functions import interleave_functions
from schedule import Schedule
from tests.codegen.harness import ONE, after, same
from tests.sweeps import one_in
from tir import te
from tir.ir import Buffer, Call, Const, For, Kind, Load, PrimFunc, Store, Var


def mapped(formula, n: int, rows: int = 1, dtype: str = "float32") -> PrimFunc:
    """y = formula(x, i, j) with the rows as vectors."""
    x = te.placeholder((rows, n), dtype, name="x")
    s = Schedule(te.create_prim_func([x, te.compute((rows, n), lambda i, j: formula(x, i, j), name="y")]))
    s.vectorize(s.get_loops("y")[-1])
    return s.func


def exponential(n: int, rows: int = 1) -> PrimFunc:
    return mapped(lambda x, i, j: te.exp(x[i, j]), n, rows)


def test_four_vectors_then_single_ones():
    after(exponential(61, rows=3), "simplify_all_2", numbers=False).becomes("""
        for i in range(3):
            for j_lane_wide in T.vectorized(32):
                y[i, j_lane_wide] = T.exp(x[i, j_lane_wide])
            for j_chunk_1 in T.unroll(3):
                for j_lane_1 in T.vectorized(8):
                    y[i, j_chunk_1 * 8 + j_lane_1 + 32] = T.exp(x[i, j_chunk_1 * 8 + j_lane_1 + 32])
            for j_tail in T.vectorized(8):
                if j_tail < 5:
                    y[i, j_tail + 56] = T.exp(x[i, j_tail + 56])
    """)


def test_one_vector_stays():
    x, y = Buffer("x", (Const(8),)), Buffer("y", (Const(8),))
    c, v = Var("c"), Var("v")
    store = Store(y, (c * 8 + v,), Call("exp", (Load(x, (c * 8 + v,)),), "float32"))
    for n in (1, 2):
        func = PrimFunc("main", (x, y), For(c, Const(n), For(v, Const(8), store, Kind.VECTORIZED)))
        body = interleave_functions(func, ONE).body
        assert (body is func.body) == (n == 1) and isinstance(body, For)  # nothing is left over
    carried = For(c, Const(4), For(v, Const(8), store.with_(buffer=x, indices=(c * 8 + v + 8,)), Kind.VECTORIZED))
    assert interleave_functions(PrimFunc("main", (x,), carried), ONE).body is carried


@one_in(4)
@pytest.mark.parametrize("n", [13, 32, 61, 109, 8 * 7, 8 * 17, 8 * 19 + 5, 1019])
@pytest.mark.parametrize("op", ["exp", "tanh", "sigmoid", "erf", "log", "exp2"])
def test_each_element_is_computed_as_before(op, n):
    """The same bits as one element at a time."""
    x = np.random.default_rng(0).normal(0, 9, (2, n)).astype("float32")
    found = []
    vectors, single = mapped(lambda x, i, j: getattr(te, op)(x[i, j]), n, 2), te.placeholder((2, n), name="x")
    scalar = te.create_prim_func([single, te.compute((2, n), lambda i, j: getattr(te, op)(single[i, j]), name="y")])
    for func in (vectors, scalar):
        y = np.empty_like(x)
        tir.build(func, ONE)(np.abs(x) if op == "log" else x, y)
        found.append(y)
    assert found[0].tobytes() == found[1].tobytes()


def widest(func: PrimFunc, mcpu: str = "x86-64-v3") -> int:
    """The lanes of the widest vectorised loop."""
    text = tir.dump(func, f"{ONE} -mcpu {mcpu}", after="interleave_functions")
    return max(int(part.partition(")")[0]) for part in text.split("T.vectorized(")[1:])


def test_what_stays():
    """Single instructions, functions of the C library, vectors that lie apart or in registers, and what depends on the lane."""
    assert widest(exponential(64)) == 32 and widest(exponential(64), "x86-64-v2") == 16
    assert widest(mapped(lambda x, i, j: te.sqrt(x[i, j]), 64)) == 8
    assert widest(mapped(lambda x, i, j: te.sin(x[i, j]), 64)) == 8
    assert widest(mapped(lambda x, i, j: te.exp(x[i, 63 - j]), 64)) == 8
    assert widest(mapped(lambda x, i, j: te.exp(x[i, j] + j.astype("float32")), 64)) == 8
    assert widest(mapped(lambda x, i, j: te.exp(x[i, j]), 64, dtype="float64")) == 16
    assert widest(mapped(lambda x, i, j: te.exp(x[i, j]), 64, dtype="float64"), "x86-64-v2") == 2  # calls of fma


def test_a_prefetch_keeps_its_distance():
    s = Schedule(exponential(1024))
    s.annotate(s.get_loops("y")[-1], "prefetch", ["x", 1024])
    assert 'T.serial(32, annotations={"prefetch": [["x", 32]]})' in tir.dump(
        s.func, f"{ONE} -mcpu x86-64-v3", after="interleave_functions"
    )
    same(s.func, tolerance=lambda p, a: np.abs(a) * 2**-22)
