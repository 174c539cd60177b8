"""What stage_mem refuses, and what it says."""

import pytest

from tests.programs import chain
from tests.schedule.harness import Checked, rows_of_their_own, tiled_matmul
from tir.script import parse


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


def test_a_loop_of_the_reduction_outside_is_refused():
    s = tiled_matmul("k", "i_0", "j_0", "i_1", "j_1")
    s.refuses("""
        stage_mem('j_0', 'C', 'tile'): it cannot be shown which part of `C` is written by `C` in an iteration of `i_0`: `k` is a loop of the reduction
            8 |     for k, i_0, j_0, i_1, j_1 in T.grid(5, 2, 3, 4, 5):
              |            ^^^ the loop
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes C
          hint: choose a place outside of `k`
    """)


def test_a_reader_beside_the_writer_is_refused():
    s = Checked(used_at_once())
    s.refuses("""
        stage_mem('i', 'B', 'b'): `C` reads `B`, which `B` writes, and may need more than what that writes
            8 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes B
            9 |             v_i = T.axis.spatial(13, i)
           10 |             B[v_i] = A[v_i] * T.float32(2.0)
           11 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads B
          hint: stage `B` alone, or cache_read what `C` reads first
    """)


def test_different_windows_are_refused():
    s = Checked(halves())
    s.refuses("""
        stage_mem('i', 'B', 'b'): `low` and `high` write different windows of `B`
            8 |         with T.block("low"):
              |         ^^^^^^^^^^^^^^^^^^^^ one
            9 |             v_i = T.axis.spatial(7, i)
           10 |             B[v_i] = A[v_i]
           11 |         with T.block("high"):
              |         ^^^^^^^^^^^^^^^^^^^^^ the other
          hint: stage `low` and `high` one by one
    """)


def test_an_update_from_its_neighbour_is_refused():
    s = Checked(scan())
    s.refuses("""
        stage_mem('i', 'B', 'b'): `B` uses `B` at 2 places
            8 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes B
          hint: cache_write('B', 'B', ...) gives it a copy of what it writes
    """)


def test_a_part_of_a_temporary_is_refused():
    s = Checked(every_other())
    s.refuses("""
        stage_mem('i_1', 'X', 'x'): it cannot be shown which part of `X` is written by `odd`: its axes are not those of the buffer
           13 |         with T.block("odd"):
              |         ^^^^^^^^^^^^^^^^^^^^ writes X
          hint: each spatial axis must index one dimension of `X`
    """)


def test_a_buffer_that_is_not_used_is_refused():
    s = Checked(chain())
    s.refuses("""
        stage_mem('i', 'C', 'c'): `i` uses no buffer called `C`, but `B` and `A`
            9 |     for i, j in T.grid(7, 13):
              |         ^ here
    """)


def test_a_name_that_is_taken_is_refused():
    s = Checked(chain())
    s.refuses("""
        stage_mem('i', 'A', 'B'): `B` is the name of something else in this function
          hint: 'B_1' is free
    """)


@pytest.mark.parametrize(("name", "reason"), [
    ("lambda", "a name must be a Python identifier, got 'lambda'"),
    ("T.x", "a name must be a Python identifier, got 'T.x'"),
    ("x" * 20_000, "a name has at most 255 letters, got 20000: xxxxxxxxxxxxxxxxxxxx..."),
])  # fmt: skip
def test_a_name_that_a_script_cannot_say_is_refused(name, reason):
    Checked(chain()).refuses(f"\nstage_mem('i', 'A', '{name}'): {reason}")


def test_lanes_are_refused():
    s = Checked(chain())
    s.vectorize("j")
    s.refuses("""
        stage_mem('B', 'A', 'a'): `j` is vectorized, and its lanes cannot copy
           10 |         for j in T.vectorized(13):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^ vectorized
          hint: vectorize afterwards
    """)


def test_refuses_a_buffer_that_is_allocated_inside():
    s = Checked(rows_of_their_own())
    with s.refusal("""
        stage_mem('rows', 'row', 'copy'): `row` is allocated inside of `rows`, and nothing outside has it
            8 |         with T.block("rows"):
              |         ^^^^^^^^^^^^^^^^^^^^^ allocates row
          hint: name a block or loop inside of `rows`
    """):
        s.stage_mem("rows", "row", "copy")
