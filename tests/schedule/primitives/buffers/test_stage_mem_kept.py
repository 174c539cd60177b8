"""Windows that stage_mem keeps from one iteration to the next."""

import pytest

import codegen
from schedule import Schedule
from tests.schedule.harness import Checked, same_numbers, well_formed
from tir import te
from tir.ir import Allocate
from tir.traverse import path_to, walk_stmts


# --- windows that are kept -------------------------------------------------------------------------------------------------
def diagonal(m: int = 7, n: int = 13, step: int = 1):
    """C = sums of three neighbours of A, down and to the right, from each `step`-th column on."""
    A = te.placeholder((m + 2, n * step + 2), name="A")

    def formula(i, j):
        x = j if step == 1 else j * step
        return A[i, x] + A[i + 1, x + 1] + A[i + 2, x + 2]

    C = te.compute((m, n), formula, name="C")
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
    assert s.stage_mem("j", "A", "rows", keep="i") == ["rows"]
    s.becomes("""
        rows = T.alloc_buffer((3, 15))
        for i in range(7):
            for ax0, ax1 in T.grid(3, 15):
                with T.block("rows"):
                    v0 = T.axis.opaque(9, i + ax0)
                    v1 = T.axis.spatial(15, ax1)
                    T.where(i == 0 or ax0 >= 2)
                    rows[v0 % 3, v1] = A[v0, v1]
            for j in range(13):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    C[v_i, v_j] = rows[v_i % 3, v_j] + rows[(v_i + 1) % 3, v_j + 1] + rows[(v_i + 2) % 3, v_j + 2]
    """)


def test_a_window_of_a_row_in_tiles_that_do_not_divide():
    s = Checked(convolution())
    s.split("j", [None, 4])
    s.stage_mem("j_1", "A", "w", "local", keep="j_0")
    s.becomes("""
        w = T.alloc_buffer((5, 6), scope="local")
        for i, j_0 in T.grid(5, 4):
            for ax0 in range(6):
                with T.block("w"):
                    v0 = T.axis.spatial(5, i)
                    v1 = T.axis.opaque(13, j_0 * 4 + ax0 - 1)
                    T.where(j_0 * 4 + ax0 - 1 >= 0 and j_0 * 4 + ax0 - 1 < 13 and (j_0 == 0 or ax0 >= 2))
                    w[v0, v1 % 6] = A[v0, v1]
            for j_1, r in T.grid(4, 3):
                with T.block("C"):
                    ...
                    with T.init():
                        C[v_i, v_j] = T.float32(0.0)
                    C[v_i, v_j] = C[v_i, v_j] + T.if_then_else(v_j + v_r >= 1 and v_j + v_r < 14, w[v_i, (v_j + v_r + 5) % 6], T.float32(0.0)) * W[v_r]
    """)


def test_a_step_that_changes():
    s = Checked(by_twos())
    s.stage_mem("C", "A", "w", keep="i")
    well_formed(s.func)
    same_numbers(s.before, s.func)


@pytest.mark.parametrize(("m", "n", "tile"), [(2, 2, 2), (7, 2, 3), (3, 13, 5), (13, 7, 2)])
def test_windows_of_any_size(m, n, tile):
    before = diagonal(m, n)
    s = Schedule(before)
    _, row = s.split("i", [None, tile])
    s.stage_mem("j", "A", "rows", keep=row)
    well_formed(s.func)
    same_numbers(before, s.func)
    before = convolution(m, n + 2)
    s = Schedule(before)
    s.stage_mem("r", "A", "places", keep="j")
    well_formed(s.func)
    same_numbers(before, s.func)


def test_windows_that_inner_loops_move():
    """Rows are kept in which each place copies its window, the columns of which overlap."""
    before = diagonal()
    s = Schedule(before)
    s.stage_mem("C", "A", "w", keep="i")
    assert "w = T.alloc_buffer((3, 15))" in s.script
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
    """They are shown in the program with the copy that nothing is kept of."""
    Checked(diagonal()).refuses("""
        stage_mem('j', 'A', 'w', keep='k'): `k` is no loop around `w` and its readers; these are `i`
           11 |             with T.block("w"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: stage_mem without keep='k' copies the window each time
    """)
    Checked(diagonal(step=4)).refuses("""
        stage_mem('C', 'A', 'w', keep='i'): it cannot be shown which part of `w` an iteration of `i` computes: `v1` = `j * 4 + ax1` skips values
            9 |     for i, j in T.grid(7, 13):
              |         ^ the loop
           10 |         for ax0, ax1 in T.grid(3, 3):
           11 |             with T.block("w"):
              |             ^^^^^^^^^^^^^^^^^^ computes
          hint: stage_mem without keep='i' copies the window each time
    """)
    Checked(diagonal()).refuses("""
        stage_mem('j', 'C', 'w', keep='i'): `j` writes `C`, so that what was kept of it would be old
            8 |     for i, j in T.grid(7, 13):
              |            ^ writes C
          hint: stage_mem without keep='i'
    """)
    Checked(parallel_rows()).refuses("""
        stage_mem('j', 'A', 'w', keep='i'): `i` is parallel, and its iterations would share the window
            9 |     for i in T.parallel(7):
              |     ^^^^^^^^^^^^^^^^^^^^^^^ parallel
          hint: stage_mem without keep='i' copies the window each time
    """)
    Checked(convolution()).refuses("""
        stage_mem('r', 'W', 'w', keep='j'): what `w` computes in an iteration of `j` moves in no dimension of `w`
            9 |     for i, j in T.grid(5, 13):
              |            ^ the loop
           10 |         for ax0 in range(3):
           11 |             with T.block("w"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: stage_mem without keep='j' copies the window each time
    """)
    Checked(apart()).refuses("""
        stage_mem('C', 'A', 'w', keep='i'): the window of 2 element(s) that `w` computes in an iteration of `i` moves by 2 element(s), so nothing of it is computed again
            9 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ the loop
           10 |         for ax0 in range(2):
           11 |             with T.block("w"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: stage_mem without keep='i' copies the window each time
    """)
    Checked(trace_of()).refuses("""
        stage_mem('C', 'A', 'w', keep='i'): what `w` computes in an iteration of `i` moves in 2 dimensions of `w`
            9 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ the loop
           10 |         for ax0, ax1 in T.grid(2, 2):
           11 |             with T.block("w"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: stage_mem without keep='i' copies the window each time
    """)
