"""Windows that stage_mem keeps from one iteration to the next."""

import pytest

import codegen
from schedule import Schedule
from tests.schedule.harness import (
    Checked,
    check,
    refuse,
    same_numbers,
    well_formed,
)
from tir import te
from tir.ir import Allocate
from tir.traverse import path_to, walk_stmts


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
