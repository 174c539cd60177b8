"""Several steps of a loop in one iteration."""

import numpy as np
import pytest

import tir
from schedule import Schedule
from tests.codegen.harness import after, same
from tests.programs import matmul
from tir import te
from tir.ir import PrimFunc

ONE = "llvm -num-cores 1 -mcpu x86-64-v4"


def tile(K: int, limit: int, M: int = 4) -> PrimFunc:
    """A register tile of four rows by a vector, over a sum of K steps that carries the limit."""
    s = Schedule(matmul(M, K, 8))
    i, j, k = s.get_loops("C")
    outer, inner = s.split(i, [None, 4])
    s.reorder(outer, k, inner, j)
    s.unroll(inner)
    s.vectorize(j)
    s.decompose_reduction("C", k)
    s.annotate(k, "pragma_auto_unroll_max_step", limit)
    return s.func


def test_an_iteration_has_as_many_steps_as_the_limit_says():
    """Three steps of four statements; one is left of 13, and written out."""
    after(tile(13, 12), "unroll_steps").becomes("""
        C_reg = T.decl_buffer((4, 8), scope="register")
        for i_1_1 in T.unroll(4):
            for j_1 in T.vectorized(8):
                C_reg[i_1_1, j_1] = T.float32(0.0)
        for k in T.serial(4, annotations={"pragma_auto_unroll_max_step": 12}):
            for k_step in T.unroll(3, annotations={"in_order": T.bool(True)}):
                for i_1_3 in T.unroll(4):
                    for j_3 in T.vectorized(8):
                        C_reg[i_1_3, j_3] = C_reg[i_1_3, j_3] + A[i_1_3, k * 3 + k_step] * B[k * 3 + k_step, j_3]
        for i_1_4 in T.unroll(4):
            for j_4 in T.vectorized(8):
                C_reg[i_1_4, j_4] = C_reg[i_1_4, j_4] + A[i_1_4, 12] * B[12, j_4]
        for i_1_2 in T.unroll(4):
            for j_2 in T.vectorized(8):
                C[i_1_2, j_2] = C_reg[i_1_2, j_2]
    """)


def steps(func: PrimFunc, target: str = ONE) -> list[tuple[int, int]]:
    """The multiply-adds and the spills in an iteration of each innermost loop."""
    return [(loop.fma, loop.spills) for loop in tir.build(func, target).report().loops]


@pytest.mark.parametrize(("K", "limit", "multiply_adds"), [
    (12, 20, [16]),  # five steps fit; four divide 12
    (13, 20, [20]),  # none of five to three divides 13
    (13, 7, [4]),  # not two steps
    (100, 400, []),  # all of it, by `unroll`
    (100, 399, [200]),  # fifty steps divide 100
])  # fmt: skip
def test_how_many_steps(K, limit, multiply_adds):
    assert [n for n, _ in steps(tile(K, limit))] == multiply_adds
    same(tile(K, limit), reference=matmul(4, K, 8))


def test_a_partial_tile_has_steps_too():
    """The last tile has three rows of four, and loops of its own."""
    func = tile(13, 12, M=11)
    assert sorted(n for n, spills in steps(func) if n and not spills) == [12, 12]  # of three steps, and of four
    same(func, reference=matmul(11, 13, 8))


def test_loops_with_jumps_stay():
    """A loop around another has its jumps."""
    s = Schedule(matmul(7, 50, 13))
    s.annotate("i", "pragma_auto_unroll_max_step", 8)
    text = tir.dump(s.func, ONE, after="unroll_steps")
    assert "for j in range(13)" in text and "for k in range(10)" in text and "j_step" not in text


@pytest.mark.parametrize("kernel", [3, 6])
def test_steps_of_a_window_load_their_own_elements(kernel):
    """Two steps read five of the same six pixels. Registers hold six accumulators and those of a step, not all of a window. A
    short sum is written out, a long one has two steps in an iteration."""
    A, W = te.placeholder((13, kernel + 5), name="A"), te.placeholder((13, kernel, 8), name="W")
    r, k = te.reduce_axis((0, 13), name="r"), te.reduce_axis((0, kernel), name="k")
    f = te.compute((6, 8), lambda i, j: te.sum(A[r, i + k] * W[r, k, j], axis=[r, k]), name="C")
    s = Schedule(te.create_prim_func([A, W, f]))
    i, j, r, k = s.get_loops("C")
    s.reorder(r, k, i, j)
    s.unroll(i)
    s.vectorize(j)
    s.decompose_reduction("C", r)
    s.annotate(r, "pragma_auto_unroll_max_step", 18)
    s.annotate(k, "in_order", True)
    (found,) = [loop for loop in tir.build(s.func, ONE).report().loops if loop.fma]
    assert found.fma == 18 and found.spills == 0
    loaded = tir.build(s.func, ONE).llvm_ir().count("= load float, ptr")
    assert loaded == 18
    same(s.func)


def test_a_sum_of_unknown_length():
    """What is left is a loop."""
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, n), name="k")
    s = Schedule(te.create_prim_func([A, te.compute((1,), lambda i: te.sum(A[k] * A[k], axis=k), name="C")]))
    s.annotate(s.get_loops("C")[-1], "pragma_auto_unroll_max_step", 4)
    lowered = tir.dump(s.func, ONE, after="unroll_steps")
    assert "in T.serial(n // 4, " in lowered and "in range(n % 4)" in lowered
    for length in (1, 3, 4, 13):
        same(s.func, [np.arange(length, dtype="float32"), np.zeros(1, "float32"), length])


def test_prefetches_reach_as_far():
    s = Schedule(tile(64, 16))
    s.annotate("k", "prefetch", ["B", 32])
    lowered = tir.dump(s.func, ONE, after="unroll_steps")
    assert 'annotations={"pragma_auto_unroll_max_step": 16, "prefetch": [["B", 8]]}' in lowered
