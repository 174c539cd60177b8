"""combine_lanes: reductions across the lanes of a vector."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from tests.arrays import integers
from tests.codegen.harness import ONE, after, same
from tests.sweeps import one_in
from tir import te
from tir.interpreter import run
from tir.script import parse
from tir.traverse import loops


def reduction(reducer, rows: int, columns: int, dtype: str):
    A = te.placeholder((rows, columns), dtype, name="A")
    k = te.reduce_axis((0, columns), name="k")
    C = te.compute((rows,), lambda i: reducer(A[i, k], axis=k), name="C")
    return te.create_prim_func([A, C])


def annotated(func):
    s = tir.Schedule(func)
    s.annotate(s.get_loops("C")[-1], "combine_lanes", True)
    return s.func


def test_marks_the_loop_of_an_update():
    after(annotated(reduction(te.sum, 3, 16, "float32")), "combine_lanes", lanes=16).becomes("""
        for i in range(3):
            C[i] = T.float32(0.0)
            for k in T.vectorized(16, annotations={"combine_lanes": T.bool(True)}):
                C[i] = C[i] + A[i, k]
    """)


def test_combines_registers_before_lanes():
    after(annotated(reduction(te.sum, 3, 27, "float32")), "combine_lanes").becomes("""
        for i in range(3):
            C[i] = T.float32(0.0)
            for k in T.vectorized(8, annotations={"combine_lanes": T.bool(True)}):
                C[i] = C[i] + (A[i, k] + A[i, k + 8] + A[i, k + 16])
            for k_1 in T.vectorized(3, annotations={"combine_lanes": T.bool(True)}):
                C[i] = C[i] + A[i, k_1 + 24]
    """)


def test_leaves_what_is_no_update():
    A = te.placeholder((7, 16), name="A")
    C = te.compute((7, 16), lambda i, k: A[i, k] + 1.0, name="C")
    lowered = tir.dump(annotated(te.create_prim_func([A, C])), "llvm -num-cores 1", after="combine_lanes")
    assert "vectorized" not in lowered
    func = reduction(te.sum, 3, 16, "float32")
    assert "vectorized" not in tir.dump(func, "llvm -num-cores 1", after="combine_lanes")


@pytest.mark.parametrize(("update", "combined"), [
    ("C[0] = C[0] + A[k]", True),
    ("C[0] = A[k] + C[0]", True),
    ("C[0] = C[0] - A[k]", False),
    ("C[0] = A[k] - C[0]", False),
    ("C[0] = C[1] + A[k]", False),
    ("C[0] = A[k] + C[1]", False),
    ("C[0] = A[k] + B[0]", False),
    ("C[0] = B[0] + A[k]", False),
    ("C[0] = C[0] + C[0] * A[k]", False),
    ("if C[0] < A[k]:\n            C[0] = C[0] + A[k]", False),
])  # fmt: skip
def test_what_is_an_update(update, combined):
    """Of one element, either way round, that reads nothing else of its buffer; any other stays in order."""
    func = parse(
        f"""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((2,), "float32"), C: T.Buffer((2,), "float32")):
    for k in T.serial(16, annotations={{"combine_lanes": T.bool(True)}}):
        {update}
"""
    )
    assert ("vectorized" in tir.dump(func, "llvm -num-cores 1", after="combine_lanes")) == combined


@one_in(4)
@pytest.mark.parametrize("columns", [1, 2, 7, 13, 16, 32, 109])
@pytest.mark.parametrize("reducer", [te.sum, te.max, te.min, te.prod], ids=lambda r: r.name)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "float16"])
def test_equals_the_interpreter(reducer, dtype, columns):
    func = reduction(reducer, 5, columns, dtype)
    rng = np.random.default_rng(columns)
    a = rng.choice([-1, 1, 2] if reducer is te.prod and columns < 8 else [-1, 1], size=(5, columns)).astype(dtype)
    expected, found = np.zeros(5, dtype), np.zeros(5, dtype)
    run(func, a, expected)
    tir.build(annotated(func), "llvm -num-cores 1")(a, found)
    assert found.tobytes() == expected.tobytes()


@one_in(3)
@pytest.mark.parametrize("columns", [2, 7, 16, 33, 109, 300])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_maximum_passes_over_nan(dtype, columns):
    """Also under a guard, as the interpreter does; of nothing but NaN it is the identity."""
    rng = np.random.default_rng(columns)
    for reducer in (te.max, te.min):
        func = reduction(reducer, 40, columns, dtype)
        s = tir.Schedule(func)
        s.annotate(s.split(s.get_loops("C")[-1], [None, 5])[-1], "combine_lanes", True)
        a = rng.uniform(-1, 1, (40, columns)).astype(dtype)
        a[rng.random(a.shape) < rng.random((40, 1))] = np.nan
        a[0] = np.nan
        worst = np.inf if reducer is te.min else -np.inf
        expected = (np.min if reducer is te.min else np.max)(np.where(np.isnan(a), worst, a), axis=1).astype(dtype)
        for run_it in (run, tir.build(annotated(func), "llvm -num-cores 1"), tir.build(s.func, "llvm -num-cores 1")):
            found = np.zeros(40, dtype)
            run_it(*([func] if run_it is run else []), a, found)
            np.testing.assert_array_equal(found, expected)


# What a sum adds in each step: some of it, or all, is the same in all lanes of some vector.
UNIFORM = (
    lambda A, i, k: A[i, 0],
    lambda A, i, k: te.const(2, A.dtype),
    lambda A, i, k: te.if_then_else(k < 3, A[i, k], te.const(2, A.dtype)),
    lambda A, i, k: A[i, te.minimum(k, 2)],
    lambda A, i, k: te.select(i < 2, A[i, 0], te.const(1, A.dtype)),
)


def sums_of_uniform(reducer, rows, columns, dtype: str) -> tir.Schedule:
    A = te.placeholder((rows, columns), dtype, name="A")
    k = te.reduce_axis((0, columns), name="k")
    sums = [
        te.compute((rows,), lambda i, term=term: reducer(term(A, i, k), axis=k), name=f"C{n}") for n, term in enumerate(UNIFORM)
    ]
    return tir.Schedule(te.create_prim_func([A, *sums]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8"])
@pytest.mark.parametrize("reducer", [te.sum, te.max, te.min, te.prod], ids=lambda r: r.name)
def test_what_is_the_same_in_all_lanes_counts_in_each(reducer, dtype):
    s = sums_of_uniform(reducer, 3, 21, dtype)
    for n in range(len(UNIFORM)):
        s.annotate(s.get_loops(f"C{n}")[-1], "combine_lanes", True)
    same(s.func, integers(s.func, 0, low=-1, high=2), targets=[ONE])


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("rows, columns", [("n", 24), (17, "n"), ("n", "n")])
def test_default_schedules_of_open_sizes(rows, columns, bits):
    """Of as many rows or columns as a call says, in loops of 32 and of 64 bits."""
    rows, columns = (te.var("n", f"int{bits}") if size == "n" else size for size in (rows, columns))
    s = tir.default_schedule(sums_of_uniform(te.sum, rows, columns, "float32").func, ONE)
    same(s.func, integers(s.func, 0, {"n": 21}), targets=[ONE])


def test_masked_lanes_count_nothing():
    """A guard on lanes: those beyond the end must be neutral, also for max of negative numbers and for products."""
    for reducer in (te.sum, te.max, te.min, te.prod):
        func = reduction(reducer, 3, 13, "float32")
        s = tir.Schedule(func)
        _, inner = s.split(s.get_loops("C")[-1], [None, 8])
        s.annotate(inner, "combine_lanes", True)
        assert "T.vectorized(8" in tir.dump(s.func, "llvm -num-cores 1", after="combine_lanes")
        a = np.where(np.arange(39).reshape(3, 13) % 3, -1, -2).astype("float32")
        expected, found = np.zeros(3, "float32"), np.zeros(3, "float32")
        run(func, a, expected)
        tir.build(s.func, "llvm -num-cores 1")(a, found)
        assert found.tobytes() == expected.tobytes(), reducer.name


def test_the_annotation_survives_a_trace():
    func = reduction(te.sum, 3, 16, "float32")
    s = tir.Schedule(func)
    s.annotate(s.get_loops("C")[-1], "combine_lanes", True)
    again = tir.replay(func, s.trace)
    assert again.script == s.script
    assert any(loop.annotations for loop in loops(again.func))
