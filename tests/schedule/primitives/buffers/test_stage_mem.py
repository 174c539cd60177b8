import pytest

import codegen
from schedule import Schedule
from tests.programs import chain, elementwise, relu_of_matmul
from tests.schedule.harness import (
    Checked,
    chain_in_a_block,
    check,
    refuse,
    rows_of_their_own,
    same_numbers,
    tiled_matmul,
    well_formed,
)
from tir import te
from tir.ir import Allocate, Var
from tir.script import parse
from tir.traverse import blocks, path_to, replace_stmt, walk_stmts


def stencil(n: int = 13):
    """C = sums of three neighbours of A."""
    A = te.placeholder((7, n + 2), name="A")
    C = te.compute((7, n), lambda i, j: A[i, j] + A[i, j + 1] + A[i, j + 2], name="C")
    return te.create_prim_func([A, C])


def used_at_once():
    """B is read in the loop that writes it."""
    return parse(
        """
@T.prim_func
def main(A: T.Buffer((13,), "float32"), B: T.Buffer((13,), "float32"), C: T.Buffer((13,), "float32")):
    for i in range(13):
        with T.block("B"):
            v_i = T.axis.spatial(13, i)
            B[v_i] = A[v_i] * T.float32(2.0)
        with T.block("C"):
            v_i = T.axis.spatial(13, i)
            C[v_i] = B[v_i] + T.float32(1.0)
"""
    )


def halves():
    """Two blocks write a half of B each, in one loop."""
    return parse(
        """
@T.prim_func
def main(A: T.Buffer((14,), "float32"), B: T.Buffer((14,), "float32")):
    for i in range(7):
        with T.block("low"):
            v_i = T.axis.spatial(7, i)
            B[v_i] = A[v_i]
        with T.block("high"):
            v_i = T.axis.spatial(7, i)
            B[v_i + 7] = A[v_i + 7]
"""
    )


def scan():
    """B = A + the element before."""
    return parse(
        """
@T.prim_func
def main(B: T.Buffer((14,), "float32")):
    for i in range(13):
        with T.block("B"):
            v_i = T.axis.opaque(13, i)
            B[v_i + 1] = B[v_i + 1] + B[v_i]
"""
    )


def every_other():
    """X = A in every other element, -A in the others."""
    return parse(
        """
@T.prim_func
def main(A: T.Buffer((14,), "float32"), B: T.Buffer((14,), "float32")):
    X = T.alloc_buffer((14,))
    for i in range(7):
        with T.block("even"):
            v_i = T.axis.spatial(7, i)
            X[v_i * 2] = A[v_i * 2]
    for i_1 in range(7):
        with T.block("odd"):
            v_i = T.axis.spatial(7, i_1)
            X[v_i * 2 + 1] = -A[v_i * 2 + 1]
    for i_2 in range(14):
        with T.block("B"):
            v_i = T.axis.spatial(14, i_2)
            B[v_i] = X[v_i]
"""
    )


def test_a_tile_that_starts_from_its_init_is_only_copied_back():
    s = tiled_matmul("i_0", "j_0", "i_1", "j_1", "k")
    assert s.stage_mem("i_1", "C", "tile", "local") == ["tile_back"]
    check(
        s,
        """
        tile = T.alloc_buffer((7, 13), scope="local")
        for i_0, j_0 in T.grid(2, 3):
            for i_1, j_1, k in T.grid(4, 5, 5):
                with T.block("C"):
                    v_i = T.axis.spatial(7, i_0 * 4 + i_1)
                    v_j = T.axis.spatial(13, j_0 * 5 + j_1)
                    v_k = T.axis.reduce(5, k)
                    T.where(i_0 * 4 + i_1 < 7 and j_0 * 5 + j_1 < 13)
                    with T.init():
                        tile[v_i, v_j] = T.float32(0.0)
                    tile[v_i, v_j] = tile[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            for ax0, ax1 in T.grid(4, 5):
                with T.block("tile_back"):
                    v0 = T.axis.spatial(7, i_0 * 4 + ax0)
                    v1 = T.axis.spatial(13, j_0 * 5 + ax1)
                    T.where(i_0 * 4 + ax0 < 7 and j_0 * 5 + ax1 < 13)
                    C[v0, v1] = tile[v0, v1]
        """,
    )


def test_the_rows_that_a_tile_reads():
    s = tiled_matmul("i_0", "j_0", "i_1", "j_1", "k")
    assert s.stage_mem("j_0", "A", "rows") == ["rows"]
    check(
        s,
        """
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
                    v_i = T.axis.spatial(7, i_0 * 4 + i_1)
                    v_j = T.axis.spatial(13, j_0 * 5 + j_1)
                    v_k = T.axis.reduce(5, k)
                    T.where(i_0 * 4 + i_1 < 7 and j_0 * 5 + j_1 < 13)
                    with T.init():
                        C[v_i, v_j] = T.float32(0.0)
                    C[v_i, v_j] = C[v_i, v_j] + rows[v_i, v_k] * B[v_k, v_j]
        """,
    )


def test_a_tile_that_is_updated_is_copied_both_ways():
    s = tiled_matmul("i_0", "j_0", "k", "i_1", "j_1")
    s.decompose_reduction("C", "k")
    assert s.stage_mem("k", "C", "tile") == ["tile", "tile_back"]
    check(
        s,
        """
        tile = T.alloc_buffer((7, 13))
        for i_0, j_0 in T.grid(2, 3):
            for i_1_init, j_1_init in T.grid(4, 5):
                with T.block("C_init"):
                    v_i = T.axis.spatial(7, i_0 * 4 + i_1_init)
                    v_j = T.axis.spatial(13, j_0 * 5 + j_1_init)
                    T.where(i_0 * 4 + i_1_init < 7 and j_0 * 5 + j_1_init < 13)
                    C[v_i, v_j] = T.float32(0.0)
            for ax0, ax1 in T.grid(4, 5):
                with T.block("tile"):
                    v0 = T.axis.spatial(7, i_0 * 4 + ax0)
                    v1 = T.axis.spatial(13, j_0 * 5 + ax1)
                    T.where(i_0 * 4 + ax0 < 7 and j_0 * 5 + ax1 < 13)
                    tile[v0, v1] = C[v0, v1]
            for k, i_1, j_1 in T.grid(5, 4, 5):
                with T.block("C_update"):
                    v_i = T.axis.spatial(7, i_0 * 4 + i_1)
                    v_j = T.axis.spatial(13, j_0 * 5 + j_1)
                    v_k = T.axis.reduce(5, k)
                    T.where(i_0 * 4 + i_1 < 7 and j_0 * 5 + j_1 < 13)
                    tile[v_i, v_j] = tile[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            for ax0_1, ax1_1 in T.grid(4, 5):
                with T.block("tile_back"):
                    v0 = T.axis.spatial(7, i_0 * 4 + ax0_1)
                    v1 = T.axis.spatial(13, j_0 * 5 + ax1_1)
                    T.where(i_0 * 4 + ax0_1 < 7 and j_0 * 5 + ax1_1 < 13)
                    C[v0, v1] = tile[v0, v1]
        """,
    )


def test_init_and_update_share_the_window():
    s = tiled_matmul("i_0", "j_0", "k", "i_1", "j_1")
    s.decompose_reduction("C", "k")
    assert s.stage_mem("j_0", "C", "tile") == ["tile_back"]
    check(
        s,
        """
        tile = T.alloc_buffer((7, 13))
        for i_0 in range(2):
            for j_0 in range(3):
                for i_1_init, j_1_init in T.grid(4, 5):
                    with T.block("C_init"):
                        v_i = T.axis.spatial(7, i_0 * 4 + i_1_init)
                        v_j = T.axis.spatial(13, j_0 * 5 + j_1_init)
                        T.where(i_0 * 4 + i_1_init < 7 and j_0 * 5 + j_1_init < 13)
                        tile[v_i, v_j] = T.float32(0.0)
                for k, i_1, j_1 in T.grid(5, 4, 5):
                    with T.block("C_update"):
                        v_i = T.axis.spatial(7, i_0 * 4 + i_1)
                        v_j = T.axis.spatial(13, j_0 * 5 + j_1)
                        v_k = T.axis.reduce(5, k)
                        T.where(i_0 * 4 + i_1 < 7 and j_0 * 5 + j_1 < 13)
                        tile[v_i, v_j] = tile[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            for ax0, ax1 in T.grid(4, 13):
                with T.block("tile_back"):
                    v0 = T.axis.spatial(7, i_0 * 4 + ax0)
                    v1 = T.axis.spatial(13, ax1)
                    T.where(i_0 * 4 + ax0 < 7)
                    C[v0, v1] = tile[v0, v1]
        """,
    )


def test_a_block_alone():
    s = Checked(chain())
    s.stage_mem("C", "B", "element", "local")
    check(
        s,
        """
        B = T.alloc_buffer((7, 13))
        element = T.alloc_buffer((7, 13), scope="local")
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
        for i_1, j_1 in T.grid(7, 13):
            with T.block("element"):
                v0, v1 = T.axis.remap("SS", [i_1, j_1])
                element[v0, v1] = B[v0, v1]
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = element[v_i, v_j] * T.float32(3.0)
        """,
    )


def test_a_whole_nest():
    s = Checked(chain())
    s.stage_mem("i", "B", "whole")
    check(
        s,
        """
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
        """,
    )


def test_a_window_with_its_neighbours():
    s = Checked(stencil())
    s.split("j", [None, 4])
    s.stage_mem("j_1", "A", "window")
    check(
        s,
        """
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
        """,
    )


def test_a_loop_of_the_reduction_outside_is_refused():
    s = tiled_matmul("k", "i_0", "j_0", "i_1", "j_1")
    refuse(
        s,
        """
stage_mem('j_0', 'C', 'tile'): it cannot be shown which part of `C` is written by `C` in an iteration of `i_0`: `k` is a loop of the reduction
    8 |     for k, i_0, j_0, i_1, j_1 in T.grid(5, 2, 3, 4, 5):
      |            ^^^ the loop
    9 |         with T.block("C"):
      |         ^^^^^^^^^^^^^^^^^^ writes C
  hint: choose a place outside of `k`
""",
    )


def test_a_reader_beside_the_writer_is_refused():
    s = Schedule(used_at_once())
    refuse(
        s,
        """
stage_mem('i', 'B', 'b'): `C` reads `B`, which `B` writes, and may need more than what that writes
    8 |         with T.block("B"):
      |         ^^^^^^^^^^^^^^^^^^ writes B
    9 |             v_i = T.axis.spatial(13, i)
   10 |             B[v_i] = A[v_i] * T.float32(2.0)
   11 |         with T.block("C"):
      |         ^^^^^^^^^^^^^^^^^^ reads B
  hint: stage `B` alone, or cache_read what `C` reads first
""",
    )


def test_different_windows_are_refused():
    s = Schedule(halves())
    refuse(
        s,
        """
stage_mem('i', 'B', 'b'): `low` and `high` write different windows of `B`
    8 |         with T.block("low"):
      |         ^^^^^^^^^^^^^^^^^^^^ one
    9 |             v_i = T.axis.spatial(7, i)
   10 |             B[v_i] = A[v_i]
   11 |         with T.block("high"):
      |         ^^^^^^^^^^^^^^^^^^^^^ the other
  hint: stage `low` and `high` one by one
""",
    )


def test_an_update_from_its_neighbour_is_refused():
    s = Schedule(scan())
    refuse(
        s,
        """
stage_mem('i', 'B', 'b'): `B` uses `B` at 2 places
    8 |         with T.block("B"):
      |         ^^^^^^^^^^^^^^^^^^ writes B
  hint: cache_write('B', 'B', ...) gives it a copy of what it writes
""",
    )


def test_a_part_of_a_temporary_is_refused():
    s = Schedule(every_other())
    refuse(
        s,
        """
stage_mem('i_1', 'X', 'x'): it cannot be shown which part of `X` is written by `odd`: its axes are not those of the buffer
   13 |         with T.block("odd"):
      |         ^^^^^^^^^^^^^^^^^^^^ writes X
  hint: each spatial axis must index one dimension of `X`
""",
    )


def test_a_buffer_that_is_not_used_is_refused():
    s = Schedule(chain())
    refuse(
        s,
        """
stage_mem('i', 'C', 'c'): `i` uses no buffer called `C`, but `B` and `A`
    9 |     for i, j in T.grid(7, 13):
      |         ^ here
""",
    )


def test_a_name_that_is_taken_is_refused():
    s = Schedule(chain())
    refuse(
        s,
        """
stage_mem('i', 'A', 'B'): `B` is the name of something else in this function
  hint: 'B_1' is free
""",
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("lambda", "a name must be a Python identifier, got 'lambda'"),
        ("T.x", "a name must be a Python identifier, got 'T.x'"),
        ("x" * 20_000, "a name has at most 255 letters, got 20000: xxxxxxxxxxxxxxxxxxxx..."),
    ],
)
def test_a_name_that_a_script_cannot_say_is_refused(name, reason):
    refuse(Schedule(chain()), f"\nstage_mem('i', 'A', '{name}'): {reason}")


def test_lanes_are_refused():
    s = Schedule(chain())
    s.vectorize("j")
    refuse(
        s,
        """
stage_mem('B', 'A', 'a'): `j` is vectorized, and its lanes cannot copy
   10 |         for j in T.vectorized(13):
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^ vectorized
  hint: vectorize afterwards
""",
    )


# --- windows that are kept -------------------------------------------------------------------------------------------------


def diagonal(m: int = 7, n: int = 13):
    """C = sums of three neighbours of A, down and to the right."""
    A = te.placeholder((m + 2, n + 2), name="A")
    C = te.compute((m, n), lambda i, j: A[i, j] + A[i + 1, j + 1] + A[i + 2, j + 2], name="C")
    return te.create_prim_func([A, C])


def convolution(m: int = 5, n: int = 13):
    """C = rows of A, zero outside, with three weights."""
    A, W = te.placeholder((m, n), name="A"), te.placeholder((3,), name="W")
    r = te.reduce_axis((0, 3), name="r")

    def formula(i, j):
        return te.sum(te.if_then_else(te.all(j + r >= 1, j + r < n + 1), A[i, j + r - 1], 0.0) * W[r], axis=r)

    return te.create_prim_func([A, W, te.compute((m, n), formula, name="C")])


def parallel_rows():
    s = Schedule(diagonal())
    s.parallel("i")
    return s.func


def apart():
    """C = sums of pairs of neighbours in A."""
    A = te.placeholder((14,), name="A")
    return te.create_prim_func([A, te.compute((7,), lambda i: A[i * 2] + A[i * 2 + 1], name="C")])


def trace_of():
    """C = sums of neighbours on the diagonal of A."""
    A = te.placeholder((8, 8), name="A")
    return te.create_prim_func([A, te.compute((7,), lambda i: A[i, i] + A[i + 1, i + 1], name="C")])


def by_twos():
    """C = sums of neighbours in A, each twice."""
    A = te.placeholder((9,), name="A")
    return te.create_prim_func([A, te.compute((13,), lambda i: A[i // 2] + A[i // 2 + 1], name="C")])


def test_rows_are_kept():
    s = Checked(diagonal())
    assert s.stage_mem("j", "A", "rows", keep="i") == ["rows_first", "rows"]
    check(
        s,
        """
        rows = T.alloc_buffer((3, 15))
        for i in range(7):
            for ax0, ax1 in T.grid(2, 15):
                with T.block("rows_first"):
                    v0 = T.axis.opaque(9, ax0)
                    v1 = T.axis.spatial(15, ax1)
                    T.where(i == 0)
                    rows[v0 % 3, v1] = A[v0, v1]
            for ax0_1 in range(15):
                with T.block("rows"):
                    v0 = T.axis.opaque(9, i + 2)
                    v1 = T.axis.spatial(15, ax0_1)
                    rows[v0 % 3, v1] = A[v0, v1]
            for j in range(13):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    C[v_i, v_j] = rows[v_i % 3, v_j] + rows[(v_i + 1) % 3, v_j + 1] + rows[(v_i + 2) % 3, v_j + 2]
        """,
    )


def test_a_window_of_a_row_in_tiles_that_do_not_divide():
    s = Checked(convolution())
    s.split("j", [None, 4])
    s.stage_mem("j_1", "A", "w", "local", keep="j_0")
    check(
        s,
        """
        w = T.alloc_buffer((5, 6), scope="local")
        for i, j_0 in T.grid(5, 4):
            with T.block("w_first"):
                v0 = T.axis.spatial(5, i)
                v1 = T.axis.opaque(13, 0)
                T.where(j_0 == 0)
                w[v0, v1 % 6] = A[v0, v1]
            for ax0 in range(4):
                with T.block("w"):
                    v0 = T.axis.spatial(5, i)
                    v1 = T.axis.opaque(13, j_0 * 4 + ax0 + 1)
                    T.where(j_0 * 4 + ax0 + 1 < 13)
                    w[v0, v1 % 6] = A[v0, v1]
            for j_1, r in T.grid(4, 3):
                with T.block("C"):
                    v_i = T.axis.spatial(5, i)
                    v_j = T.axis.spatial(13, j_0 * 4 + j_1)
                    v_r = T.axis.reduce(3, r)
                    T.where(j_0 * 4 + j_1 < 13)
                    with T.init():
                        C[v_i, v_j] = T.float32(0.0)
                    C[v_i, v_j] = C[v_i, v_j] + T.if_then_else(v_j + v_r >= 1 and v_j + v_r < 14, w[v_i, (v_j + v_r + 5) % 6], T.float32(0.0)) * W[v_r]
        """,
    )


@pytest.mark.parametrize(("m", "n", "tile"), [(2, 2, 2), (7, 2, 3), (3, 13, 5), (13, 7, 2)])
def test_windows_of_any_size(m, n, tile):
    before = diagonal(m, n)
    s = Schedule(before)
    _, row = s.split("i", [None, tile])
    s.stage_mem("j", "A", "rows", keep=row)
    well_formed(s.func)
    same_numbers(before, s.func)
    before = convolution(m, n)
    s = Schedule(before)
    s.stage_mem("r", "A", "places", keep="j")
    well_formed(s.func)
    same_numbers(before, s.func)


def test_threads_have_windows_of_their_own():
    before = diagonal(13, 7)
    s = Schedule(before)
    tiles, row = s.split("i", [None, 5])
    s.blockize(row)
    s.stage_mem("j", "A", "rows", keep=row)
    s.parallel(tiles)
    well_formed(s.func)
    same_numbers(before, s.func)
    lowered = codegen.lower(s.func, codegen.Target("llvm"))
    inside = path_to(lowered.body, tiles)[-1]
    assert [x.buffer.name for x in walk_stmts(inside) if isinstance(x, Allocate)] == ["rows"]


def test_refusals_to_keep():
    s = Schedule(diagonal())
    refuse(
        s,
        """
stage_mem('j', 'A', 'w', keep='k'): `k` is not a loop around `j`; these are `i`
    8 |     for i, j in T.grid(7, 13):
      |            ^ to be staged
""",
    )
    s = Schedule(diagonal())
    refuse(
        s,
        """
stage_mem('C', 'A', 'w', keep='i'): `i` is not the innermost loop around `C`
    8 |     for i, j in T.grid(7, 13):
      |         ^ the loop
      |            ^ comes between
  hint: stage `j`
""",
    )
    s = Schedule(diagonal())
    refuse(
        s,
        """
stage_mem('j', 'C', 'w', keep='i'): `C` writes `C` in `i`, so that what was kept of it would be old
    8 |     for i, j in T.grid(7, 13):
      |         ^ the loop
    9 |         with T.block("C"):
      |         ^^^^^^^^^^^^^^^^^^ writes C
  hint: stage_mem without keep='i'
""",
    )
    s = Schedule(parallel_rows())
    refuse(
        s,
        """
stage_mem('j', 'A', 'w', keep='i'): `i` is parallel, and its iterations would share the window
    8 |     for i in T.parallel(7):
      |     ^^^^^^^^^^^^^^^^^^^^^^^ parallel
  hint: stage before loops are marked
""",
    )
    s = Schedule(convolution())
    refuse(
        s,
        """
stage_mem('r', 'W', 'w', keep='j'): the window of `W` does not move with `j`
    8 |     for i, j, r in T.grid(5, 13, 3):
      |            ^ the loop
      |               ^ reads W
  hint: stage it outside of the loop
""",
    )
    s = Schedule(apart())
    refuse(
        s,
        """
stage_mem('C', 'A', 'w', keep='i'): windows of `A` in different iterations of `i` have nothing in common: they are 2 long, and the step is 2
    8 |     for i in range(7):
      |     ^^^^^^^^^^^^^^^^^^ the loop
    9 |         with T.block("C"):
      |         ^^^^^^^^^^^^^^^^^^ reads A
  hint: stage_mem without keep='i'
""",
    )
    s = Schedule(by_twos())
    refuse(
        s,
        """
stage_mem('C', 'A', 'w', keep='i'): the window of `A` starts at `i // 2` and is `2` long: it does not move on by a constant step
    8 |     for i in range(13):
      |     ^^^^^^^^^^^^^^^^^^^ the loop
    9 |         with T.block("C"):
      |         ^^^^^^^^^^^^^^^^^^ reads A
  hint: stage_mem without keep='i'
""",
    )
    s = Schedule(trace_of())
    refuse(
        s,
        """
stage_mem('C', 'A', 'w', keep='i'): the window of `A` moves along several dimensions with `i`
    8 |     for i in range(7):
      |     ^^^^^^^^^^^^^^^^^^ the loop
    9 |         with T.block("C"):
      |         ^^^^^^^^^^^^^^^^^^ reads A
""",
    )


def test_what_is_written_under_conditions_is_copied_back_under_them():
    func = elementwise()
    (B,) = blocks(func)
    s = Checked(replace_stmt(func, B, B.with_(predicate=Var("i0") >= 2)))
    s.stage_mem("i0", "B", "whole")
    check(
        s,
        """
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
""",
    )


def test_a_temporary_that_the_block_itself_writes_first():
    s = chain_in_a_block()
    s.stage_mem("outer_B_C_", "B", "staged", "local")
    check(
        s,
        """
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
        """,
    )


def test_what_an_iteration_of_a_block_reads():
    s = chain_in_a_block()
    s.stage_mem("C", "B", "staged", "local")
    check(
        s,
        """
        B = T.alloc_buffer((7, 13))
        for i, j in T.grid(7, 13):
            with T.block("outer_B_C_"):
                v_i_1, v_j_1 = T.axis.remap("SS", [i, j])
                staged = T.alloc_buffer((7, 13), scope="local")
                with T.block("B"):
                    v_i = T.axis.spatial(7, v_i_1)
                    v_j = T.axis.spatial(13, v_j_1)
                    B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
                with T.block("staged"):
                    v0 = T.axis.spatial(7, v_i_1)
                    v1 = T.axis.spatial(13, v_j_1)
                    staged[v0, v1] = B[v0, v1]
                with T.block("C"):
                    v_i = T.axis.spatial(7, v_i_1)
                    v_j = T.axis.spatial(13, v_j_1)
                    C[v_i, v_j] = staged[v_i, v_j] * T.float32(3.0)
        """,
    )


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


def test_refuses_a_buffer_that_is_allocated_inside():
    refuse(
        Schedule(rows_of_their_own()),
        """
        stage_mem('rows', 'row', 'copy'): `row` is allocated inside of `rows`, and nothing outside has it
            8 |         with T.block("rows"):
              |         ^^^^^^^^^^^^^^^^^^^^^ allocates row
          hint: name a block or loop inside of `rows`
        """,
        call=lambda s: s.stage_mem("rows", "row", "copy"),
    )


def test_a_window_that_begins_before_its_buffer():
    """There is nothing to copy at first, and of the window only what there is of the buffer is kept."""
    s = Checked(
        parse(
            """
from tir.script import tir as T

@T.prim_func
def main(A: T.Buffer((5,), "float32"), C: T.Buffer((5, 7), "float32")):
    for i, j in T.grid(5, 7):
        with T.block("C"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            C[v_i, v_j] = T.if_then_else(v_i - v_j >= 0, A[v_i - v_j], T.float32(0.0))
"""
        )
    )
    s.split("i", [None, 2])
    assert s.stage_mem("i_1", "A", "window", keep="i_0") == ["window"]
    check(
        s,
        """
        window = T.alloc_buffer((5,))
        for i_0 in range(3):
            for ax0_1 in range(2):
                with T.block("window"):
                    v0 = T.axis.opaque(5, i_0 * 2 + ax0_1)
                    T.where(i_0 * 2 + ax0_1 < 5)
                    window[v0 % 5] = A[v0]
            for i_1, j in T.grid(2, 7):
                with T.block("C"):
                    v_i = T.axis.spatial(5, i_0 * 2 + i_1)
                    v_j = T.axis.spatial(7, j)
                    T.where(i_0 * 2 + i_1 < 5)
                    C[v_i, v_j] = T.if_then_else(v_i - v_j >= 0, window[(v_i - v_j) % 5], T.float32(0.0))
        """,
    )


def test_what_nothing_was_written_to_is_not_copied_before():
    """Though the block, in which another one starts from its init, does not show that it writes what it reads first."""
    s = Checked(relu_of_matmul())
    s.blockize(["C"])
    assert s.stage_mem("k", "C", "staged", "local") == ["staged_back"]
    check(
        s,
        """
        C = T.alloc_buffer((7, 13))
        staged = T.alloc_buffer((7, 13), scope="local")
        for i, j in T.grid(7, 13):
            for k in range(5):
                with T.block("outer_C_"):
                    v_i_1, v_j_1, v_k_1 = T.axis.remap("SSO", [i, j, k])
                    with T.block("C"):
                        v_i = T.axis.spatial(7, v_i_1)
                        v_j = T.axis.spatial(13, v_j_1)
                        v_k = T.axis.reduce(5, v_k_1)
                        with T.init():
                            staged[v_i, v_j] = T.float32(0.0)
                        staged[v_i, v_j] = staged[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            with T.block("staged_back"):
                v0, v1 = T.axis.remap("SS", [i, j])
                C[v0, v1] = staged[v0, v1]
        for i_1, j_1 in T.grid(7, 13):
            with T.block("D"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                D[v_i, v_j] = T.max(C[v_i, v_j], T.float32(0.0))
        """,
    )


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
