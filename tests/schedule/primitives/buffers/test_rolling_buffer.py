import re

import pytest

from schedule import Schedule, ScheduleError
from tests.programs import chain, stencil
from tests.schedule.harness import Checked, same_numbers, well_formed
from tir import te
from tir.script import parse


def windows(m: int = 7, n: int = 13):
    """C = sums of windows of 3x3 elements of B = 2 A."""
    A = te.placeholder((m + 2, n + 2), name="A")
    k, l = te.reduce_axis((0, 3), name="k"), te.reduce_axis((0, 3), name="l")
    B = te.compute((m + 2, n + 2), lambda i, j: A[i, j] * 2.0, name="B")
    return te.create_prim_func([A, te.compute((m, n), lambda i, j: te.sum(B[i + k, j + l], axis=[k, l]), name="C")])


def test_a_row_of_three_elements():
    s = Checked(stencil())
    s.compute_at("P", "i_2")
    s.rolling_buffer("P", 0)
    s.becomes("""
        B = T.alloc_buffer((13,))
        P = T.alloc_buffer((3,))
        for i in range(13):
            ...
        for i_2 in range(13):
            for ax0 in range(3):
                with T.block("P"):
                    v_i = T.axis.opaque(15, i_2 + ax0)
                    T.where(i_2 == 0 or ax0 >= 2)
                    P[v_i % 3] = T.if_then_else(v_i >= 1 and v_i < 14, B[v_i - 1], T.float32(0.0))
            with T.block("C"):
                v_i = T.axis.spatial(13, i_2)
                C[v_i] = P[v_i % 3] + P[(v_i + 1) % 3] + P[(v_i + 2) % 3]
    """)
    with s.refusal("""
        parallel('i_2'): `i_2` drives the opaque axis `v_i` of `P`, so its iterations depend on each other
           14 |     for i_2 in range(13):
              |     ^^^^^^^^^^^^^^^^^^^^^ cannot be parallel
           15 |         for ax0 in range(3):
           16 |             with T.block("P"):
              |             ^^^^^^^^^^^^^^^^^^ needs the order of its iterations
          hint: if the order does not matter, declare `v_i` as T.axis.spatial, or T.axis.reduce if it adds up
    """):
        s.parallel("i_2")


def test_tiles_with_a_guard():
    s = Checked(windows())
    i, _, _, _ = s.get_loops("C")
    s.compute_at("B", s.split(i, [None, 4])[0])
    s.rolling_buffer("B", "B")
    s.becomes("""
        B = T.alloc_buffer((6, 15))
        for i_1_0 in range(2):
            for ax0, ax1 in T.grid(6, 15):
                with T.block("B"):
                    v_i = T.axis.opaque(9, i_1_0 * 4 + ax0)
                    v_j = T.axis.spatial(15, ax1)
                    T.where(i_1_0 * 4 + ax0 < 9 and (i_1_0 == 0 or ax0 >= 2))
                    B[v_i % 6, v_j] = A[v_i, v_j] * T.float32(2.0)
            for i_1_1, j_1, k, l in T.grid(4, 13, 3, 3):
                with T.block("C"):
                    ...
                    with T.init():
                        C[v_i, v_j] = T.float32(0.0)
                    C[v_i, v_j] = C[v_i, v_j] + B[(v_i + v_k) % 6, v_j + v_l]
    """)


def test_the_innermost_of_two_tile_loops_rolls():
    s = Checked(windows())
    i, j, _, _ = s.get_loops("C")
    outer, inner = s.split(i, [None, 3])
    columns, within = s.split(j, [None, 5])
    s.reorder(outer, columns, inner, within)
    s.compute_at("B", columns)
    s.rolling_buffer("B", 0)
    s.becomes("""
        B = T.alloc_buffer((9, 7))
        for i_1_0, j_1_0 in T.grid(3, 3):
            for ax0, ax1 in T.grid(5, 7):
                with T.block("B"):
                    v_i = T.axis.spatial(9, i_1_0 * 3 + ax0)
                    v_j = T.axis.opaque(15, j_1_0 * 5 + ax1)
                    T.where(i_1_0 * 3 + ax0 < 9 and j_1_0 * 5 + ax1 < 15 and (j_1_0 == 0 or ax1 >= 2))
                    B[v_i, v_j % 7] = A[v_i, v_j] * T.float32(2.0)
            for i_1_1, j_1_1, k, l in T.grid(3, 5, 3, 3):
                with T.block("C"):
                    ...
                    with T.init():
                        C[v_i, v_j] = T.float32(0.0)
                    C[v_i, v_j] = C[v_i, v_j] + B[v_i + v_k, (v_j + v_l) % 7]
    """)


def test_rows_of_rows():
    """`P` is computed from what `B` computes again: the reader rolls first, then what it reads."""
    s = Checked(stencil())
    s.compute_at("P", "i_2")
    s.compute_at("B", "i_2")
    other = Checked(s.func)
    s.rolling_buffer("P", 0)
    s.rolling_buffer("B", 0)
    s.becomes("""
        B = T.alloc_buffer((3,))
        P = T.alloc_buffer((3,))
        for i_2 in range(13):
            for ax0_1 in range(3):
                with T.block("B"):
                    v_i = T.axis.opaque(13, i_2 + ax0_1 - 1)
                    T.where(i_2 + ax0_1 - 1 >= 0 and i_2 + ax0_1 - 1 < 13 and (i_2 == 0 or ax0_1 >= 2))
                    B[v_i % 3] = A[v_i] * T.float32(2.0)
            for ax0 in range(3):
                with T.block("P"):
                    v_i = T.axis.opaque(15, i_2 + ax0)
                    T.where(i_2 == 0 or ax0 >= 2)
                    P[v_i % 3] = T.if_then_else(v_i >= 1 and v_i < 14, B[(v_i + 2) % 3], T.float32(0.0))
            with T.block("C"):
                v_i = T.axis.spatial(13, i_2)
                C[v_i] = P[v_i % 3] + P[(v_i + 1) % 3] + P[(v_i + 2) % 3]
    """)
    other.rolling_buffer("B", 0)
    other.refuses("""
        rolling_buffer('P', 0): `P` may read `B` before `B` has finished it
           10 |     for i_2 in range(13):
              |     ^^^^^^^^^^^^^^^^^^^^^ the loop around both
           11 |         for ax0_1 in range(3):
           12 |             with T.block("B"):
              |             ^^^^^^^^^^^^^^^^^^ writes B
              ...
           17 |             with T.block("P"):
              |             ^^^^^^^^^^^^^^^^^^ reads B
          hint: roll `P` before what it reads, or compute `B` before the loop
    """)


def test_an_input_written_behind():
    Checked(parse(BEHIND)).refuses("""
        rolling_buffer('X', 0): `D` writes `A`, from which `X` computes, behind it in `i`
           10 |             with T.block("X"):
              |             ^^^^^^^^^^^^^^^^^^ reads A
              ...
           16 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ writes A
          hint: what the iteration before computed would no longer be right
    """)


BEHIND = """
@T.prim_func
def main(A: T.Buffer((15,), "float32"), C: T.Buffer((13,), "float32")):
    X = T.alloc_buffer((15,))
    for i in range(13):
        for x in range(3):
            with T.block("X"):
                v = T.axis.spatial(15, i + x)
                X[v] = A[v] * T.float32(2.0)
        with T.block("C"):
            v = T.axis.spatial(13, i)
            C[v] = X[v] + X[v + 2]
        with T.block("D"):
            v = T.axis.spatial(13, i)
            A[v] = T.float32(0.0)
"""


def test_refusals():
    s = Checked(chain())
    s.refuses("""
        rolling_buffer('B', 0): `B` is in no loop that holds its readers, too
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: compute_at('B', ...) moves it into one
    """)
    s.compute_at("B", "i_1")
    s.refuses("""
        rolling_buffer('B', 0): the window of 1 element(s) that `B` computes in an iteration of `i_1` moves by 1 element(s), so nothing of it is computed again
            9 |     for i_1 in range(7):
              |     ^^^^^^^^^^^^^^^^^^^^ the loop
           10 |         for ax0 in range(13):
           11 |             with T.block("B"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: there is nothing to keep
    """)
    s = Checked(stencil())
    s.compute_at("P", "i_2")
    s.parallel("i_2")
    s.refuses("""
        rolling_buffer('P', 0): `i_2` is parallel, and its iterations would share the window
           14 |     for i_2 in T.parallel(13):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^ parallel
          hint: do this before loops are marked, or blockize the inner loops first
    """)
    s = Checked(stencil())
    rows, row = s.split("i_2", [None, 4])
    s.compute_at("P", row)
    s.parallel(rows)
    with pytest.raises(ScheduleError, match=f"`{rows}` is parallel, and its iterations would share the window"):
        s.rolling_buffer("P", 0)


def test_copies_of_an_unrolled_loop_roll_in_turn():
    s = Checked(stencil())
    s.compute_at("P", "i_2")
    s.unroll("i_2")
    s.rolling_buffer("P", 0)
    well_formed(s.func)
    same_numbers(s.before, s.func)


POOLS = """
@T.prim_func
def main(A: T.Buffer((11, 9), "int8"), C: T.Buffer((7, 5), "int8")):
    B = T.alloc_buffer((9, 7), "int8")
    for i, j, k, l in T.grid(9, 7, 3, 3):
        with T.block("B"):
            v_i, v_j, v_k, v_l = T.axis.remap("SSRR", [i, j, k, l])
            with T.init():
                B[v_i, v_j] = T.int8(-128)
            B[v_i, v_j] = T.max(B[v_i, v_j], A[v_i + v_k, v_j + v_l])
    for i, j, k, l in T.grid(7, 5, 3, 3):
        with T.block("C"):
            v_i, v_j, v_k, v_l = T.axis.remap("SSRR", [i, j, k, l])
            with T.init():
                C[v_i, v_j] = T.int8(-128)
            C[v_i, v_j] = T.max(C[v_i, v_j], B[v_i + v_k, v_j + v_l])
"""


def pools_in_tiles(rows: int, columns: int) -> Checked:
    """A max pool of a max pool, which is computed for tiles of that."""
    s = Checked(parse(POOLS))
    outer, inner = s.split("i_1", [None, rows])
    side, along = s.split("j_1", [None, columns])
    s.reorder(outer, side, inner, along)
    s.compute_at("B", side)
    return s


def test_maxima_of_windows():
    """Elements that are reduced are kept, too, once their whole reduction is done."""
    s = pools_in_tiles(3, 2)
    s.rolling_buffer("B", 0)
    s.becomes("""
        B = T.alloc_buffer((9, 4), "int8")
        for i_1_0, j_1_0 in T.grid(3, 3):
            for ax0, ax1, ax2, ax3 in T.grid(5, 4, 3, 3):
                with T.block("B"):
                    v_i = T.axis.spatial(9, i_1_0 * 3 + ax0)
                    v_j = T.axis.opaque(7, j_1_0 * 2 + ax1)
                    v_k = T.axis.reduce(3, ax2)
                    v_l = T.axis.reduce(3, ax3)
                    T.where(i_1_0 * 3 + ax0 < 9 and j_1_0 * 2 + ax1 < 7 and (j_1_0 == 0 or ax1 >= 2))
                    with T.init():
                        B[v_i, v_j % 4] = T.int8(-128)
                    B[v_i, v_j % 4] = T.max(B[v_i, v_j % 4], A[v_i + v_k, v_j + v_l])
            for i_1_1, j_1_1, k_1, l_1 in T.grid(3, 2, 3, 3):
                with T.block("C"):
                    ...
                    with T.init():
                        C[v_i, v_j] = T.int8(-128)
                    C[v_i, v_j] = T.max(C[v_i, v_j], B[v_i + v_k, (v_j + v_l) % 4])
    """)


def test_a_loop_inside_of_which_nothing_moves_does_not_roll():
    """Where a tile has all columns, or columns of its own, the rows roll."""
    s = pools_in_tiles(3, 5)
    s.rolling_buffer("B", 0)
    assert (
        'B = T.alloc_buffer((5, 7), "int8")' in s.script
        and "T.where(i_1_0 * 3 + ax0 < 9 and (i_1_0 == 0 or ax0 >= 2))" in s.script
    )
    same_numbers(s.before, s.func)
    alone = Checked(parse(POOLS.replace("B[v_i + v_k, v_j + v_l]", "B[v_i + v_k, v_j]")))
    outer, inner = alone.split("i_1", [None, 3])
    side, along = alone.split("j_1", [None, 2])
    alone.reorder(outer, side, inner, along)
    alone.compute_at("B", side)
    alone.rolling_buffer("B", 0)
    assert 'B = T.alloc_buffer((5, 7), "int8")' in alone.script and "(i_1_0 == 0 or ax0 >= 2)" in alone.script
    same_numbers(alone.before, alone.func)


def test_the_step_may_change():
    """Rows of an image that grows by one half: windows that start 1 or 2 rows after the one before."""
    grown = """
    @T.prim_func
    def main(A: T.Buffer((12,), "float32"), C: T.Buffer((7, 3), "float32")):
        B = T.alloc_buffer((12,))
        for r in range(7):
            for x in range(3):
                with T.block("B"):
                    v = T.axis.spatial(12, r * 3 // 2 + x)
                    B[v] = A[v] * T.float32(2.0)
            for y in range(3):
                with T.block("C"):
                    u, w = T.axis.remap("SS", [r, y])
                    C[u, w] = B[u * 3 // 2 + w]
    """
    s = Checked(parse(grown))
    s.rolling_buffer("B", 0)
    assert "T.where(r == 0 or " in s.script
    same_numbers(s.before, s.func)
    Checked(parse(grown.replace("r * 3 // 2", "r * 3 % 7").replace("u * 3 // 2", "u * 3 % 7"))).refuses("""
        rolling_buffer('B', 0): the window of 3 element(s) that `B` computes in an iteration of `r` moves by a changing number of elements, so nothing of it is computed again
            8 |     for r in range(7):
              |     ^^^^^^^^^^^^^^^^^^ the loop
            9 |         for x in range(3):
           10 |             with T.block("B"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: there is nothing to keep
    """)


def test_reductions_that_are_not_kept():
    outside = """
    @T.prim_func
    def main(A: T.Buffer((10, 3), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((10,))
        for k, r in T.grid(3, 8):
            for x in range(3):
                with T.block("B"):
                    v = T.axis.spatial(10, r + x)
                    v_k = T.axis.reduce(3, k)
                    with T.init():
                        B[v] = T.float32(0)
                    B[v] = B[v] + A[v, v_k]
            with T.block("C"):
                u = T.axis.spatial(8, r)
                C[u] = B[u] + B[u + 2]
    """
    init = "            with T.init():\n                B[v_i, v_j] = T.int8(-128)\n"
    for text, message in (
        (
            outside,
            """
rolling_buffer('B', 0): `k` drives the reduction of `B`, whose elements are not final in an iteration of it
    8 |     for k, r in T.grid(3, 8):
      |            ^ the loop
    9 |         for x in range(3):
   10 |             with T.block("B"):
      |             ^^^^^^^^^^^^^^^^^^ reduces
  hint: only a reduction that is whole in an iteration can be kept
""",
        ),
        (
            POOLS.replace(init, "", 1),
            """
rolling_buffer('B', 0): `B` updates `B` without an init, so it cannot be kept
    9 |         with T.block("B"):
      |         ^^^^^^^^^^^^^^^^^^ reads and writes B
  hint: say with T.init() what `B` starts from
""",
        ),
        (
            POOLS.replace('remap("SSRR"', 'remap("SORR"', 1),
            """
rolling_buffer('B', 0): the axis `v_j` of `B` is opaque, so what an iteration computes may change
    9 |         with T.block("B"):
      |         ^^^^^^^^^^^^^^^^^^ the block
""",
        ),
        (
            POOLS.replace(init, init.replace("v_j]", "0]"), 1),
            """
rolling_buffer('B', 0): `B` is more than a store to `B`, and its init
    9 |         with T.block("B"):
      |         ^^^^^^^^^^^^^^^^^^ the block
  hint: only what is reduced by one store can be kept
""",
        ),
    ):
        Checked(text).refuses(message)


TRIANGLE = """
@T.prim_func
def main(A: T.Buffer((12, 9), "float32"), C: T.Buffer((8, 9), "float32")):
    X = T.alloc_buffer((12, 9))
    for r in range(8):
        for x, y in T.grid(3, 9):
            with T.block("X"):
                v = T.axis.spatial(12, r + x)
                w = T.axis.spatial(9, y)
                T.where(y <= r)
                X[v, w] = A[v, w] * T.float32(2.0)
        for q in range(9):
            with T.block("C"):
                u, w = T.axis.remap("SS", [r, q])
                T.where(q <= r)
                C[u, w] = X[u, w] + X[u + 1, w] + X[u + 2, w]
"""


def test_windows_in_tiles_that_do_not_fill_them():
    """Loops of which a condition limits the sum visit all places below the limit."""
    s = Schedule(windows())
    s.compute_at("B", s.split("i_1", [None, 4])[0])
    for loop in s.get_loops("B")[1:]:
        s.split(loop, [None, 4])
    before = s.func
    s.rolling_buffer("B", 0)
    assert "B = T.alloc_buffer((6, 15))" in s.script
    assert "i_1_0 == 0 or ax0_0 * 4 + ax0_1 >= 2" in s.script
    well_formed(s.func)
    same_numbers(before, s.func)


@pytest.mark.parametrize(("columns", "where", "condition"), [("9", "T.where(y <= r)", "y <= r"), ("r + 1", "", "y < r + 1")])
def test_rows_that_grow_are_not_kept(columns, where, condition):
    """The rows of an iteration lack the columns that only the next one computes."""
    Checked(parse(TRIANGLE.replace("T.grid(3, 9)", f"T.grid(3, {columns})").replace("T.where(y <= r)", where))).refuses(f"""
        rolling_buffer('X', 0): it cannot be shown which part of `X` an iteration of `r` computes: it is left out unless `{condition}`
            8 |     for r in range(8):
              |     ^^^^^^^^^^^^^^^^^^ the loop
            9 |         for x, y in T.grid(3, {columns}):
           10 |             with T.block("X"):
              |             ^^^^^^^^^^^^^^^^^^ computes
    """)


@pytest.mark.parametrize("terms", ["r + 1", "i + 1"])
def test_sums_that_grow_are_not_kept(terms):
    """In another iteration, or at another place, an element is a sum of other terms."""
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((9,), "float32"), C: T.Buffer((5,), "float32")):
    X = T.alloc_buffer((7,))
    for r in range(5):
        for i in range(3):
            for k in range({terms}):
                with T.block("X"):
                    v = T.axis.spatial(7, r + i)
                    w = T.axis.reduce(9, k)
                    with T.init():
                        X[v] = T.float32(0)
                    X[v] = X[v] + A[w]
        with T.block("C"):
            v = T.axis.spatial(5, r)
            C[v] = X[v] + X[v + 1] + X[v + 2]
""")
    with pytest.raises(ScheduleError, match=rf"it is left out unless `k < {re.escape(terms)}`"):
        Schedule(func).rolling_buffer("X", 0)


@pytest.mark.parametrize("rows", [0, 1])
def test_refuses_a_loop_that_takes_no_step(rows):
    A, k = te.placeholder((9,), name="A"), te.reduce_axis((0, 3), name="k")
    B = te.compute((9,), lambda i: A[i] + 1.0, name="B")
    s = Schedule(te.create_prim_func([A, te.compute((rows,), lambda i: te.sum(B[i // 2 + k], axis=k), name="C")]))
    s.compute_at("B", "i_1")
    with pytest.raises(ScheduleError, match=r"so nothing of it is computed again|moves in no dimension"):
        s.rolling_buffer("B", 0)
