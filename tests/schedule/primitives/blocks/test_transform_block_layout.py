import pytest

from schedule import Schedule, ScheduleError
from tests.programs import chain, matmul
from tests.schedule.harness import Checked
from tir import te


def test_reordered():
    s = Checked(matmul())
    s.transform_block_layout("C", lambda i, j, k: (j, i, k))
    s.becomes("""
        for ax0, ax1, ax2 in T.grid(13, 7, 5):
            with T.block("C"):
                v0, v1, v2 = T.axis.remap("SSR", [ax0, ax1, ax2])
                with T.init():
                    C[v1, v0] = T.float32(0.0)
                C[v1, v0] = C[v1, v0] + A[v1, v2] * B[v2, v0]
    """)


def test_spatial_axes_fused():
    s = Checked(matmul())
    s.transform_block_layout("C", lambda i, j, k: (i * 13 + j, k))
    s.becomes("""
        for ax0, ax1 in T.grid(91, 5):
            with T.block("C"):
                v0, v1 = T.axis.remap("SR", [ax0, ax1])
                with T.init():
                    C[v0 // 13, v0 % 13] = T.float32(0.0)
                C[v0 // 13, v0 % 13] = C[v0 // 13, v0 % 13] + A[v0 // 13, v1] * B[v1, v0 % 13]
    """)


def test_tiles_that_do_not_divide():
    s = Checked(matmul())
    s.transform_block_layout("C", lambda i, j, k: (i // 2, k // 2, j, i % 2, k % 2))
    s.becomes("""
        for ax0, ax1, ax2, ax3, ax4 in T.grid(4, 3, 13, 2, 2):
            with T.block("C"):
                v0, v1, v2, v3, v4 = T.axis.remap("SRSSR", [ax0, ax1, ax2, ax3, ax4])
                T.where(ax0 * 2 + ax3 < 7 and ax1 * 2 + ax4 < 5)
                with T.init():
                    C[v0 * 2 + v3, v2] = T.float32(0.0)
                C[v0 * 2 + v3, v2] = C[v0 * 2 + v3, v2] + A[v0 * 2 + v3, v1 * 2 + v4] * B[v1 * 2 + v4, v2]
    """)


def test_a_unit_axis():
    s = Checked(chain())
    s.transform_block_layout("B", lambda i, j: (0, j, i))
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for ax0, ax1, ax2 in T.grid(1, 13, 7):
            with T.block("B"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                B[v2, v1] = A[v2, v1] + T.float32(1.0)
        for i_1, j_1 in T.grid(7, 13):
            ...
    """)


def test_axes_of_blocks_inside_are_not_hidden():
    s = Checked(chain())
    s.blockize("j")
    s.cache_read("B", 0, "local")
    s.transform_block_layout("B_o", lambda i, j: (i // 2, j, i % 2))
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for ax0_1, ax1, ax2 in T.grid(4, 1, 2):
            with T.block("B_o"):
                v0_1, v1_1, v2 = T.axis.remap("SSS", [ax0_1, ax1, ax2])
                T.where(ax0_1 * 2 + ax2 < 7)
                A_local = T.alloc_buffer((7, 13), scope="local")
                for ax0 in range(13):
                    with T.block("A_local"):
                        v0 = T.axis.spatial(7, v0_1 * 2 + v2)
                        v1 = T.axis.spatial(13, ax0)
                        A_local[v0, v1] = A[v0, v1]
                for j in range(13):
                    with T.block("B"):
                        v_i_i = T.axis.spatial(1, 0)
                        v_j_i = T.axis.spatial(13, j)
                        B[v0_1 * 2 + v2, v_j_i] = A_local[v0_1 * 2 + v2, v_j_i] + T.float32(1.0)
        for i_1, j_1 in T.grid(7, 13):
            ...
    """)


def test_a_variable_of_both_kinds_is_refused():
    s = Checked(matmul())
    with s.refusal("""
        transform_block_layout('C', 'lambda i, j, k: (i, k * 13 + j)'): the index map mixes `v_j` and `v_k`, which are spatial and of the reduction
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: keep the axes of the reduction apart: each result of the index map has axes of one kind
    """):
        s.transform_block_layout("C", lambda i, j, k: (i, k * 13 + j))


def test_a_split_loop_is_refused():
    s = Checked(matmul())
    s.split("i", [None, 2])
    with s.refusal("""
        transform_block_layout('C', 'lambda i, j, k: (j, i, k)'): `i_0` is not the loop of one iteration variable of `C` over its whole extent
            8 |     for i_0, i_1, j, k in T.grid(4, 2, 13, 5):
              |         ^^^ the loop
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: do this before split, fuse and tile
    """):
        s.transform_block_layout("C", lambda i, j, k: (j, i, k))


def test_a_shared_loop_is_refused():
    s = Checked(chain())
    s.compute_at("B", s.get_loops("C")[0])
    with s.refusal("""
        transform_block_layout('B', 'lambda i, j: (j, i)'): `B` is not alone in `i_1`
            9 |     for i_1 in range(7):
              |     ^^^^^^^^^^^^^^^^^^^^ the loop
           10 |         for ax0 in range(13):
           11 |             with T.block("B"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: do this before anything is moved there (compute_at, reverse_compute_at)
    """):
        s.transform_block_layout("B", lambda i, j: (j, i))


def test_a_marked_loop_is_refused():
    s = Checked(matmul())
    s.parallel("i")
    with s.refusal("""
        transform_block_layout('C', 'lambda i, j, k: (j, i, k)'): `i` is parallel, which would be lost
            8 |     for i in T.parallel(7):
              |     ^^^^^^^^^^^^^^^^^^^^^^^ parallel
          hint: mark the new loops instead
    """):
        s.transform_block_layout("C", lambda i, j, k: (j, i, k))


def test_an_annotated_loop_is_refused():
    s = Checked(matmul())
    s.annotate("j", "key", 1)
    with s.refusal("""
        transform_block_layout('C', 'lambda i, j, k: (j, i, k)'): `j` is annotated, which would be lost
            9 |         for j in T.serial(13, annotations={"key": 1}):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ annotated
          hint: mark the new loops instead
    """):
        s.transform_block_layout("C", lambda i, j, k: (j, i, k))


def test_a_map_that_is_not_one_to_one_is_refused():
    s = Checked(matmul())
    with s.refusal("""
        transform_block_layout('C', 'lambda i, j, k: (j, i)'): the index map is not one to one: `k`, or a part of it, is missing from the result
          hint: each index, or each part of it, occurs once
    """):
        s.transform_block_layout("C", lambda i, j, k: (j, i))


def test_an_axis_backwards():
    s = Checked(matmul())
    s.transform_block_layout("C", lambda i, j, k: (6 - i, j * 1, 4 - k))
    s.becomes("""
        for ax0, ax1, ax2 in T.grid(7, 13, 5):
            with T.block("C"):
                v0, v1, v2 = T.axis.remap("SSR", [ax0, ax1, ax2])
                with T.init():
                    C[6 - v0, v1] = T.float32(0.0)
                C[6 - v0, v1] = C[6 - v0, v1] + A[6 - v0, 4 - v2] * B[4 - v2, v1]
    """)


def test_refuses_to_count_backwards_from_elsewhere():
    with pytest.raises(ScheduleError, match="cannot be shown to be one to one"):
        Schedule(matmul()).transform_block_layout("C", lambda i, j, k: (7 - i, j, k))


def test_axes_of_one_value_may_stay():
    A = te.placeholder((1, 12), name="A")
    s = Checked(te.create_prim_func([A, te.compute((1, 12), lambda n, i: A[n, i] + 1.0, name="B")]))
    s.transform_block_layout("B", lambda n, i: (n, i // 4, i % 4), preserve_unit_iters=True)
    s.becomes("""
        for ax0, ax1, ax2 in T.grid(1, 3, 4):
            with T.block("B"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                B[v0, v1 * 4 + v2] = A[v0, v1 * 4 + v2] + T.float32(1.0)
    """)


def test_an_index_map_may_use_symbolic_sizes():
    n = te.var("n")
    A = te.placeholder((n, 7), name="A")
    s = Checked(te.create_prim_func([A, te.compute((n, 7), lambda i, j: A[i, j] * 2.0, name="B"), n]))
    s.transform_block_layout("B", lambda i, j: (j * n + i,))
    s.becomes(
        """
        for ax0 in range(n * 7):
            with T.block("B"):
                v0 = T.axis.spatial(n * 7, ax0)
                B[v0 % n, v0 // n] = A[v0 % n, v0 // n] * T.float32(2.0)
        """,
        {"n": 5},
    )
    s = Checked(s.before)
    s.transform_block_layout("B", "lambda i, j: (n - 1 - i, j)")
    assert "B[n - v0 - 1, v1]" in s.script


def test_extents_of_int64():
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((7, 13), "float32"), B: T.Buffer((7, 13), "float32")):
            for i, j in T.grid(T.int64(7), T.int64(13)):
                with T.block("B"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    B[v_i, v_j] = A[v_i, v_j]
    """)
    s.transform_block_layout("B", lambda i, j: (i * 13 + j,))
    s.becomes("""
        for ax0 in range(T.int64(91)):
            with T.block("B"):
                v0 = T.axis.spatial(T.int64(91), ax0)
                B[v0 // T.int64(13), v0 % T.int64(13)] = A[v0 // T.int64(13), v0 % T.int64(13)]
    """)
