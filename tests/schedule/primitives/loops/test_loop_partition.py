import re

import pytest

from schedule import Schedule, ScheduleError
from tests.programs import matmul, symbolic, vector, window_sums
from tests.schedule.harness import Checked, same_numbers
from tir.traverse import path_to


def test_two_parts():
    s = Checked(vector(13))
    assert s.loop_partition("i", [5, None]) == ["i_0", "i_1"]
    s.becomes("""
        for i_0 in range(5):
            with T.block("B_i_0"):
                v_i = T.axis.spatial(13, i_0)
                B[v_i] = A[v_i] * T.float32(2.0)
        for i_1 in range(8):
            with T.block("B_i_1"):
                v_i = T.axis.spatial(13, i_1 + 5)
                B[v_i] = A[v_i] * T.float32(2.0)
    """)


def test_what_is_left_becomes_a_loop():
    s = Checked(vector(13))
    assert s.loop_partition("i", [1, 4]) == ["i_0", "i_1", "i_2"]
    s.becomes("""
        for i_0 in range(1):
            with T.block("B_i_0"):
                v_i = T.axis.spatial(13, i_0)
                B[v_i] = A[v_i] * T.float32(2.0)
        for i_1 in range(4):
            with T.block("B_i_1"):
                v_i = T.axis.spatial(13, i_1 + 1)
                B[v_i] = A[v_i] * T.float32(2.0)
        for i_2 in range(8):
            with T.block("B_i_2"):
                v_i = T.axis.spatial(13, i_2 + 5)
                B[v_i] = A[v_i] * T.float32(2.0)
    """)


def test_a_reduction_starts_in_its_first_part():
    s = Checked(matmul())
    assert s.loop_partition("k", [2, None]) == ["k_0", "k_1"]
    s.becomes("""
        for i, j in T.grid(7, 13):
            for k_0 in range(2):
                with T.block("C_k_0"):
                    v_i = T.axis.spatial(7, i)
                    v_j = T.axis.spatial(13, j)
                    v_k = T.axis.reduce(5, k_0)
                    with T.init():
                        C[v_i, v_j] = T.float32(0.0)
                    C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            for k_1 in range(3):
                with T.block("C_k_1"):
                    v_i = T.axis.spatial(7, i)
                    v_j = T.axis.spatial(13, j)
                    v_k = T.axis.reduce(5, k_1 + 2)
                    C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_conditions_are_dropped_where_they_hold():
    s = Checked(vector(13))
    s.split("i", [None, 4])
    s.loop_partition("i_0", [3, 1])
    s.becomes("""
        for i_0_0, i_1 in T.grid(3, 4):
            with T.block("B_i_0_0"):
                v_i = T.axis.spatial(13, i_0_0 * 4 + i_1)
                B[v_i] = A[v_i] * T.float32(2.0)
        for i_0_1, i_1_1 in T.grid(1, 4):
            with T.block("B_i_0_1"):
                v_i = T.axis.spatial(13, i_0_1 * 4 + i_1_1 + 12)
                T.where(i_0_1 * 4 + i_1_1 + 12 < 13)
                B[v_i] = A[v_i] * T.float32(2.0)
    """)


def test_inner_loops_are_copied():
    s = Checked(matmul(7, 1, 13))
    s.loop_partition("i", [None, 3], preserve_unit_iters=False)
    s.becomes("""
        for i_0, j, k in T.grid(4, 13, 1):
            with T.block("C_i_0"):
                v_i = T.axis.spatial(7, i_0)
                v_j = T.axis.spatial(13, j)
                v_k = T.axis.reduce(1, k)
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        for i_1, j_1, k_1 in T.grid(3, 13, 1):
            with T.block("C_i_1"):
                v_i = T.axis.spatial(7, i_1 + 4)
                v_j = T.axis.spatial(13, j_1)
                v_k = T.axis.reduce(1, k_1)
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


@pytest.mark.parametrize("extent", [1, 7, 13, 109])
@pytest.mark.parametrize("factors", [[None], [1], [1, None], [None, 3], [2, None, 4], [7], [100, 9]])
def test_any_factors(extent, factors):
    before = vector(extent)
    s = Schedule(before)
    known = sum(f for f in factors if f is not None)
    if known > extent or (known == extent and None in factors):
        reason = "leave no iteration for None" if known == extent else f"make {known} iterations, but `i` has {extent}"
        with pytest.raises(ScheduleError, match=re.escape(reason)):
            s.loop_partition("i", factors)
        return
    names = s.loop_partition("i", factors)
    sizes = [path_to(s.func, n)[-1].extent.value for n in names]
    assert sum(sizes) == extent and all(f in (None, size) for f, size in zip(factors, sizes, strict=False))
    same_numbers(before, s.func)


def test_refusals():
    s = Checked(vector(13))
    s.refuses("""
        loop_partition('i', []): at least one factor is needed
          hint: loop_partition('i', [1, None])
    """)
    s = Checked(vector(13))
    s.refuses("""
        loop_partition('i', [None, None]): at most one factor may be None, got [None, None]
          hint: loop_partition('i', [1, None])
    """)
    s = Checked(vector(13))
    s.refuses("""
        loop_partition('i', [0, None]): factors must be at least 1, got 0
          hint: loop_partition('i', [1, None])
    """)
    s = Checked(vector(13))
    s.refuses("""
        loop_partition('i', [7, 7]): the factors make 14 iterations, but `i` has 13
            8 |     for i in range(13):
              |     ^^^^^^^^^^^^^^^^^^^ 13 iterations
          hint: factors are numbers of iterations, one part after the other; a factor None becomes what is left
    """)
    s = Checked(vector(13))
    s.refuses("""
        loop_partition('i', [13, None]): the factors leave no iteration for None: `i` has 13
            8 |     for i in range(13):
              |     ^^^^^^^^^^^^^^^^^^^ 13 iterations
          hint: leave None out, or make the others smaller
    """)
    s = Checked(symbolic())
    s.refuses("""
        loop_partition('i', [4, None]): the extent of `i` is not a constant
            8 |     for i in range(n):
              |     ^^^^^^^^^^^^^^^^^^ runs over n
          hint: split('i', [None, 4]) makes an inner loop whose extent is one
    """)
    s = Checked(vector(13))
    s.parallel("i")
    s.refuses("""
        loop_partition('i', [4, None]): `i` is parallel, and only serial loops can be partitioned
            8 |     for i in T.parallel(13):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^ parallel
          hint: loops are partitioned first and marked afterwards; serial('i') takes the mark away
    """)
    s = Checked(matmul())
    s.fuse("j", "k")
    s.refuses("""
        loop_partition('j_k_fused', [3, None]): it cannot be shown in which part the reduction `C` starts with its init
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ a reduction
          hint: decompose_reduction first
    """)


def test_a_reduction_inside_of_a_block():
    """Only the first part starts it."""
    s = Checked(window_sums())
    s.compute_at("B", "k")
    s.blockize(["B", "C"])
    s.loop_partition("k", [1, 2])
    s.becomes("""
        B = T.alloc_buffer((9,))
        for i_1 in range(7):
            for k_0 in range(1):
                with T.block("outer_B_C__k_0"):
                    v_i_1 = T.axis.opaque(7, i_1)
                    v_k_1 = T.axis.opaque(3, k_0)
                    with T.block("B_k_0"):
                        v_i = T.axis.spatial(9, v_i_1 + v_k_1)
                        B[v_i] = A[v_i % 7] * T.float32(2.0)
                    with T.block("C_k_0"):
                        v_i = T.axis.spatial(7, v_i_1)
                        v_k = T.axis.reduce(3, v_k_1)
                        with T.init():
                            C[v_i] = T.float32(0.0)
                        C[v_i] = C[v_i] + B[v_i + v_k]
            for k_1 in range(2):
                with T.block("outer_B_C__k_1"):
                    v_i_1 = T.axis.opaque(7, i_1)
                    v_k_1 = T.axis.opaque(3, k_1 + 1)
                    with T.block("B_k_1"):
                        v_i = T.axis.spatial(9, v_i_1 + v_k_1)
                        B[v_i] = A[v_i % 7] * T.float32(2.0)
                    with T.block("C_k_1"):
                        v_i = T.axis.spatial(7, v_i_1)
                        v_k = T.axis.reduce(3, v_k_1)
                        C[v_i] = C[v_i] + B[v_i + v_k]
    """)
