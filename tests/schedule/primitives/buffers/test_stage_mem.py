import pytest

from schedule import Schedule, ScheduleError
from tests.programs import chain, elementwise, relu_of_matmul
from tests.schedule.harness import Checked, chain_in_a_block, same_numbers, tiled_matmul
from tir import te
from tir.ir import Var
from tir.script import parse
from tir.traverse import blocks, replace_stmt


def stencil(n: int = 13):
    """C = sums of three neighbours of A."""
    A = te.placeholder((7, n + 2), name="A")
    C = te.compute((7, n), lambda i, j: A[i, j] + A[i, j + 1] + A[i, j + 2], name="C")
    return te.create_prim_func([A, C])


def test_a_tile_that_starts_from_its_init_is_only_copied_back():
    s = tiled_matmul("i_0", "j_0", "i_1", "j_1", "k")
    assert s.stage_mem("i_1", "C", "tile", "local") == ["tile_back"]
    s.becomes("""
        tile = T.alloc_buffer((7, 13), scope="local")
        for i_0, j_0 in T.grid(2, 3):
            for i_1, j_1, k in T.grid(4, 5, 5):
                with T.block("C"):
                    ...
                    with T.init():
                        tile[v_i, v_j] = T.float32(0.0)
                    tile[v_i, v_j] = tile[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            for ax0, ax1 in T.grid(4, 5):
                with T.block("tile_back"):
                    v0 = T.axis.spatial(7, i_0 * 4 + ax0)
                    v1 = T.axis.spatial(13, j_0 * 5 + ax1)
                    T.where(i_0 * 4 + ax0 < 7 and j_0 * 5 + ax1 < 13)
                    C[v0, v1] = tile[v0, v1]
    """)


def test_the_rows_that_a_tile_reads():
    s = tiled_matmul("i_0", "j_0", "i_1", "j_1", "k")
    assert s.stage_mem("j_0", "A", "rows") == ["rows"]
    s.becomes("""
        rows = T.alloc_buffer((7, 5))
        for i_0 in range(2):
            for ax0, ax1 in T.grid(4, 5):
                with T.block("rows"):
                    v0 = T.axis.spatial(7, i_0 * 4 + ax0)
                    v1 = T.axis.spatial(5, ax1)
                    T.where(i_0 * 4 + ax0 < 7)
                    rows[v0, v1] = A[v0, v1]
            for j_0, i_1, j_1, k in T.grid(3, 4, 5, 5):
                with T.block("C"):
                    ...
                    with T.init():
                        C[v_i, v_j] = T.float32(0.0)
                    C[v_i, v_j] = C[v_i, v_j] + rows[v_i, v_k] * B[v_k, v_j]
    """)


def test_a_tile_that_is_updated_is_copied_both_ways():
    s = tiled_matmul("i_0", "j_0", "k", "i_1", "j_1")
    s.decompose_reduction("C", "k")
    assert s.stage_mem("k", "C", "tile") == ["tile", "tile_back"]
    s.becomes("""
        tile = T.alloc_buffer((7, 13))
        for i_0, j_0 in T.grid(2, 3):
            for i_1_init, j_1_init in T.grid(4, 5):
                ...
            for ax0, ax1 in T.grid(4, 5):
                with T.block("tile"):
                    v0 = T.axis.spatial(7, i_0 * 4 + ax0)
                    v1 = T.axis.spatial(13, j_0 * 5 + ax1)
                    T.where(i_0 * 4 + ax0 < 7 and j_0 * 5 + ax1 < 13)
                    tile[v0, v1] = C[v0, v1]
            for k, i_1, j_1 in T.grid(5, 4, 5):
                with T.block("C_update"):
                    ...
                    T.where(i_0 * 4 + i_1 < 7 and j_0 * 5 + j_1 < 13)
                    tile[v_i, v_j] = tile[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            for ax0_1, ax1_1 in T.grid(4, 5):
                with T.block("tile_back"):
                    v0 = T.axis.spatial(7, i_0 * 4 + ax0_1)
                    v1 = T.axis.spatial(13, j_0 * 5 + ax1_1)
                    T.where(i_0 * 4 + ax0_1 < 7 and j_0 * 5 + ax1_1 < 13)
                    C[v0, v1] = tile[v0, v1]
    """)


def test_init_and_update_share_the_window():
    s = tiled_matmul("i_0", "j_0", "k", "i_1", "j_1")
    s.decompose_reduction("C", "k")
    assert s.stage_mem("j_0", "C", "tile") == ["tile_back"]
    s.becomes("""
        tile = T.alloc_buffer((7, 13))
        for i_0 in range(2):
            for j_0 in range(3):
                for i_1_init, j_1_init in T.grid(4, 5):
                    with T.block("C_init"):
                        ...
                        T.where(i_0 * 4 + i_1_init < 7 and j_0 * 5 + j_1_init < 13)
                        tile[v_i, v_j] = T.float32(0.0)
                for k, i_1, j_1 in T.grid(5, 4, 5):
                    with T.block("C_update"):
                        ...
                        T.where(i_0 * 4 + i_1 < 7 and j_0 * 5 + j_1 < 13)
                        tile[v_i, v_j] = tile[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            for ax0, ax1 in T.grid(4, 13):
                with T.block("tile_back"):
                    v0 = T.axis.spatial(7, i_0 * 4 + ax0)
                    v1 = T.axis.spatial(13, ax1)
                    T.where(i_0 * 4 + ax0 < 7)
                    C[v0, v1] = tile[v0, v1]
    """)


def test_a_block_alone():
    s = Checked(chain())
    s.stage_mem("C", "B", "element", "local")
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        element = T.alloc_buffer((7, 13), scope="local")
        for i, j in T.grid(7, 13):
            ...
        for i_1, j_1 in T.grid(7, 13):
            with T.block("element"):
                v0, v1 = T.axis.remap("SS", [i_1, j_1])
                element[v0, v1] = B[v0, v1]
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = element[v_i, v_j] * T.float32(3.0)
    """)


def test_a_whole_nest():
    s = Checked(chain())
    s.stage_mem("i", "B", "whole")
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        whole = T.alloc_buffer((7, 13))
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                whole[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
        for ax0, ax1 in T.grid(7, 13):
            with T.block("whole_back"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B[v0, v1] = whole[v0, v1]
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B[v_i, v_j] * T.float32(3.0)
    """)


def test_a_window_with_its_neighbours():
    s = Checked(stencil())
    s.split("j", [None, 4])
    s.stage_mem("j_1", "A", "window")
    s.becomes("""
        window = T.alloc_buffer((7, 15))
        for i, j_0 in T.grid(7, 4):
            for ax0 in range(6):
                with T.block("window"):
                    v0 = T.axis.spatial(7, i)
                    v1 = T.axis.spatial(15, j_0 * 4 + ax0)
                    T.where(j_0 * 4 + ax0 < 15)
                    window[v0, v1] = A[v0, v1]
            for j_1 in range(4):
                with T.block("C"):
                    v_i = T.axis.spatial(7, i)
                    v_j = T.axis.spatial(13, j_0 * 4 + j_1)
                    T.where(j_0 * 4 + j_1 < 13)
                    C[v_i, v_j] = window[v_i, v_j] + window[v_i, v_j + 1] + window[v_i, v_j + 2]
    """)


def test_what_is_written_under_conditions_is_copied_back_under_them():
    func = elementwise()
    (B,) = blocks(func)
    s = Checked(replace_stmt(func, B, B.with_(predicate=Var("i0") >= 2)))
    s.stage_mem("i0", "B", "whole")
    s.becomes("""
        whole = T.alloc_buffer((7, 13))
        for i0, i1 in T.grid(7, 13):
            with T.block("B"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.where(i0 >= 2)
                whole[v_i0, v_i1] = A[v_i0, v_i1] + T.float32(1.0)
        for ax0, ax1 in T.grid(7, 13):
            with T.block("whole_back"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                T.where(ax0 >= 2)
                B[v0, v1] = whole[v0, v1]
    """)


def test_a_temporary_that_the_block_itself_writes_first():
    s = chain_in_a_block()
    s.stage_mem("outer_B_C_", "B", "staged", "local")
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        staged = T.alloc_buffer((7, 13), scope="local")
        for i, j in T.grid(7, 13):
            with T.block("outer_B_C_"):
                v_i_1, v_j_1 = T.axis.remap("SS", [i, j])
                with T.block("B"):
                    v_i = T.axis.spatial(7, v_i_1)
                    v_j = T.axis.spatial(13, v_j_1)
                    staged[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
                with T.block("C"):
                    v_i = T.axis.spatial(7, v_i_1)
                    v_j = T.axis.spatial(13, v_j_1)
                    C[v_i, v_j] = staged[v_i, v_j] * T.float32(3.0)
            with T.block("staged_back"):
                v0, v1 = T.axis.remap("SS", [i, j])
                B[v0, v1] = staged[v0, v1]
    """)


def test_what_an_iteration_of_a_block_reads():
    s = chain_in_a_block()
    s.stage_mem("C", "B", "staged", "local")
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i, j in T.grid(7, 13):
            with T.block("outer_B_C_"):
                v_i_1, v_j_1 = T.axis.remap("SS", [i, j])
                staged = T.alloc_buffer((7, 13), scope="local")
                with T.block("B"):
                    ...
                with T.block("staged"):
                    v0 = T.axis.spatial(7, v_i_1)
                    v1 = T.axis.spatial(13, v_j_1)
                    staged[v0, v1] = B[v0, v1]
                with T.block("C"):
                    v_i = T.axis.spatial(7, v_i_1)
                    v_j = T.axis.spatial(13, v_j_1)
                    C[v_i, v_j] = staged[v_i, v_j] * T.float32(3.0)
    """)


def test_no_condition_where_it_is_known_to_hold():
    """`i < n`, as the loop says."""
    n = te.var("n")
    A = te.placeholder((n, 5), name="A")
    before = te.create_prim_func([A, te.compute((n, 5), lambda i, j: A[i, j] * 2.0, name="C"), n])
    s = Schedule(before)
    s.stage_mem("j", "C", "staged", "local")
    assert s.func.outline().splitlines()[2:] == [
        "    for i in n:",
        "        for j in 5:",
        "            staged[i, j] = A[i, j] * 2",
        "        for ax0 in 5:",
        "            C[i, ax0] = staged[i, ax0]",
    ]
    for size in (1, 7):
        same_numbers(before, s.func, {"n": size})


def test_a_window_as_long_as_its_buffer_has_nothing_that_moves():
    s = Checked("""
        from tir.script import tir as T

        @T.prim_func
        def main(A: T.Buffer((5,), "float32"), C: T.Buffer((5, 7), "float32")):
            for i, j in T.grid(5, 7):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    C[v_i, v_j] = T.if_then_else(v_i - v_j >= 0, A[v_i - v_j], T.float32(0.0))
    """)
    s.split("i", [None, 2])
    with pytest.raises(ScheduleError, match="moves in no dimension of `window`"):
        s.stage_mem("i_1", "A", "window", keep="i_0")


def test_what_nothing_was_written_to_is_not_copied_before():
    """Though the block, in which another one starts from its init, does not show that it writes what it reads first."""
    s = Checked(relu_of_matmul())
    s.blockize(["C"])
    assert s.stage_mem("k", "C", "staged", "local") == ["staged_back"]
    s.becomes("""
        C = T.alloc_buffer((7, 13))
        staged = T.alloc_buffer((7, 13), scope="local")
        for i, j in T.grid(7, 13):
            for k in range(5):
                with T.block("outer_C_"):
                    v_i_1, v_j_1, v_k_1 = T.axis.remap("SSO", [i, j, k])
                    with T.block("C"):
                        ...
                        with T.init():
                            staged[v_i, v_j] = T.float32(0.0)
                        staged[v_i, v_j] = staged[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            with T.block("staged_back"):
                v0, v1 = T.axis.remap("SS", [i, j])
                C[v0, v1] = staged[v0, v1]
        for i_1, j_1 in T.grid(7, 13):
            with T.block("D"):
                ...
    """)


def test_a_window_whose_place_is_loaded():
    """Where there is something to copy is asked of the place in the buffer, not of where that is loaded from."""
    func = parse(
        """
        @T.prim_func
        def main(A: T.Buffer((2,), "float32"), I: T.Buffer((4,), "int32"), C: T.Buffer((4,), "float32")):
            B = T.alloc_buffer((2,))
            for i in range(2):
                with T.block("B"):
                    v = T.axis.spatial(2, i)
                    B[v] = A[v] + T.float32(1.0)
            for j in range(4):
                with T.block("C"):
                    v = T.axis.spatial(4, j)
                    C[v] = B[I[v] % 2]
        """
    )
    s = Checked(func)
    s.stage_mem("C", "B", "window")
    assert "j < 2" not in s.script
