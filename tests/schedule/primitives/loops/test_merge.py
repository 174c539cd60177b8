import re
from pathlib import Path

import pytest

from schedule import Schedule, ScheduleError
from tests.programs import chain
from tests.schedule.harness import Checked, same_numbers, well_formed, without_header
from tir import te
from tir.ir import Axis, Block, Buffer, Const, For, Iter, PrimFunc, Store, Var, seq
from tir.script import parse


def mlp(m: int = 14, l: int = 9, k: int = 5, n: int = 6):
    """F = (2 A · B) · E."""
    A, B, E = te.placeholder((m, k), name="A"), te.placeholder((k, l), name="B"), te.placeholder((l, n), name="E")
    rk, rl = te.reduce_axis((0, k), name="rk"), te.reduce_axis((0, l), name="rl")
    C = te.compute((m, l), lambda i, j: te.sum(A[i, rk] * B[rk, j], axis=rk), name="C")
    D = te.compute((m, l), lambda i, j: C[i, j] * 2.0, name="D")
    F = te.compute((m, n), lambda i, j: te.sum(D[i, rl] * E[rl, j], axis=rl), name="F")
    return te.create_prim_func([A, B, E, F])


def shifted(distance: int, extent: int = 7):
    """B = A + 1; C = 2 B, read further back or ahead."""
    A, B, C = (Buffer(name, (Const(extent + 2),)) for name in "ABC")
    i, j, v = Var("i"), Var("j"), Var("v")
    first = Block("B", (Iter(v, Const(extent), Axis.SPATIAL, i),), Store(B, (v + 1,), A[v] + 1.0))
    second = Block("C", (Iter(v, Const(extent), Axis.SPATIAL, j),), Store(C, (v,), B[v + (1 + distance)] * 2.0))
    return PrimFunc("main", (A, B, C), seq(For(i, Const(extent), first), For(j, Const(extent), second)))


def row_tiled(s: Schedule):
    """The schedule of the mlp up to its last merge; the loops to be merged."""
    for block, n in (("C", 2), ("D", 2), ("F", 1)):
        for loop, factor in zip(s.get_loops(block)[:n], (7, 3), strict=False):
            s.split(loop, [None, factor])
    i0, i1, j0, j1, k = s.get_loops("C")
    s.reorder(i0, j0, k, i1, j1)
    d0, d1, e0, e1 = s.get_loops("D")
    s.reorder(d0, e0, d1, e1)
    f0, f1, n, rl = s.get_loops("F")
    s.reorder(f0, n, rl, f1)
    s.merge(j0, e0)
    return s.get_loops("C")[0], f0


def between():
    """Two loops over B with one over something else between them."""
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")
    D = te.compute((7, 13), lambda i, j: A[i, j] * 5.0, name="D")
    C = te.compute((7, 13), lambda i, j: B[i, j] * 3.0, name="C")
    return te.create_prim_func([A, D, C])


def transposed():
    """C = the transpose of A + 1."""
    A = te.placeholder((7, 7), name="A")
    B = te.compute((7, 7), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((7, 7), lambda i, j: B[j, i] * 3.0, name="C")
    return te.create_prim_func([A, C])


def test_elementwise_siblings():
    s = Checked(chain())
    assert s.merge("i", "i_1") == "i_m"
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i_m in range(7):
            for j in range(13):
                with T.block("B"):
                    v_i, v_j = T.axis.remap("SS", [i_m, j])
                    B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
            for j_1 in range(13):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i_m, j_1])
                    C[v_i, v_j] = B[v_i, v_j] * T.float32(3.0)
    """)


def test_all_loops_down_to_the_given_ones():
    s = Checked(chain())
    assert s.merge("j", "j_1") == "j_m"
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i_m, j_m in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i_m, j_m])
                B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_m, j_m])
                C[v_i, v_j] = B[v_i, v_j] * T.float32(3.0)
    """)


def test_rows_of_two_chained_matmuls():
    """The second matmul reads all columns of the first one's row tile; rows are independent all the same."""
    s = Checked(mlp())
    i, f = row_tiled(s)
    assert s.merge(i, f) == "i_0_m"
    s.becomes("""
        C = T.alloc_buffer((14, 9))
        D = T.alloc_buffer((14, 9))
        for i_0_m in range(2):
            for j_0_m in range(3):
                for rk, i_1_1, j_1_1 in T.grid(5, 7, 3):
                ...
            for j_2, rl, i_2_1 in T.grid(6, 9, 7):
                with T.block("F"):
                    v_i = T.axis.spatial(14, i_0_m * 7 + i_2_1)
                    v_j = T.axis.spatial(6, j_2)
                    ...
    """)


def test_three_at_once():
    s = Checked(mlp(7, 3, 1, 5))
    s.merge("i", "i_1", "i_2")
    s.becomes("""
        C = T.alloc_buffer((7, 3))
        D = T.alloc_buffer((7, 3))
        for i_m in range(7):
            for j, rk in T.grid(3, 1):
                with T.block("C"):
                    v_i, v_j, v_rk = T.axis.remap("SSR", [i_m, j, rk])
                    with T.init():
                    ...
            for j_1 in range(3):
                with T.block("D"):
                    v_i, v_j = T.axis.remap("SS", [i_m, j_1])
                    D[v_i, v_j] = C[v_i, v_j] * T.float32(2.0)
            for j_2, rl in T.grid(5, 3):
                with T.block("F"):
                    v_i, v_j, v_rl = T.axis.remap("SSR", [i_m, j_2, rl])
                    with T.init():
                    ...
    """)


def test_a_dependence_may_go_forward():
    s = Checked(shifted(-1))
    s.merge("i", "j")
    s.becomes("""
        for i_m in range(7):
            with T.block("B"):
                v = T.axis.spatial(7, i_m)
                B[v + 1] = A[v] + T.float32(1.0)
            with T.block("C"):
                v = T.axis.spatial(7, i_m)
                C[v] = B[v + 0] * T.float32(2.0)
    """)


def test_what_stands_between_and_is_independent_stays():
    s = Checked(between())
    s.merge("i", "i_2")
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i_1, j_1 in T.grid(7, 13):
            ...
        for i_m in range(7):
            for j in range(13):
                with T.block("D"):
                    v_i, v_j = T.axis.remap("SS", [i_m, j])
                    D[v_i, v_j] = A[v_i, v_j] * T.float32(5.0)
            for j_2 in range(13):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i_m, j_2])
                    C[v_i, v_j] = B[v_i, v_j] * T.float32(3.0)
    """)


def test_a_dependence_may_not_go_backward():
    s = Checked(shifted(1))
    s.refuses("""
        merge('i', 'j'): cannot prove that no dependence through `B` goes from a later iteration of `i` to an earlier one of `j`
            7 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ first nest
            8 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes `B`
            9 |             v = T.axis.spatial(7, i)
           10 |             B[v + 1] = A[v] + T.float32(1.0)
           11 |     for j in range(7):
              |     ^^^^^^^^^^^^^^^^^^ second nest
           12 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads `B`
          witness: i = 1 writes B[2], j = 0 reads it: merged, the second would come first
          hint: merge loops further outside, or leave the nests one after the other
    """)
    s = Checked(transposed())
    s.refuses("""
        merge('i', 'i_1'): cannot prove that no dependence through `B` goes from a later iteration of `i` to an earlier one of `i_1`
            9 |     for i, j in T.grid(7, 7):
              |         ^ first nest
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes `B`
           11 |             v_i, v_j = T.axis.remap("SS", [i, j])
           12 |             B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
           13 |     for i_1, j_1 in T.grid(7, 7):
              |         ^^^ second nest
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads `B`
          witness: i = 1 writes B[1, 0], i_1 = 0 reads it: merged, the second would come first
          hint: merge loops further outside, or leave the nests one after the other
    """)
    s = Checked(transposed())
    s.refuses("""
        merge('j', 'j_1'): cannot prove that no dependence through `B` goes from a later iteration of `i` to an earlier one of `i_1`
            9 |     for i, j in T.grid(7, 7):
              |         ^ first nest
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes `B`
           11 |             v_i, v_j = T.axis.remap("SS", [i, j])
           12 |             B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
           13 |     for i_1, j_1 in T.grid(7, 7):
              |         ^^^ second nest
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads `B`
          witness: i = 1, j = 0 writes B[1, 0], i_1 = 0, j_1 = 1 reads it: merged, the second would come first
          hint: merge loops further outside, or leave the nests one after the other
    """)


def test_refusals():
    s = Checked(chain())
    s.refuses("""
        merge(): at least one loop is needed
          hint: merge('i', 'i_1')
    """)
    s = Checked(chain())
    s.refuses("""
        merge('i', 'i'): `i` is given twice
    """)
    s = Checked(chain())
    s.refuses("""
        merge('i', 'j'): `i` and `j` are not in different nests under one common statement
            9 |     for i, j in T.grid(7, 13):
              |         ^ one of them
              |            ^ one of them
          hint: merge takes sibling loops; fuse takes loops inside one another
    """)
    s = Checked(chain())
    s.refuses("""
        merge('i', 'j_1'): `i` and `j_1` are not at the same depth below their common ancestor
            9 |     for i, j in T.grid(7, 13):
              |         ^ loop number 1 of its nest
           10 |         with T.block("B"):
           11 |             v_i, v_j = T.axis.remap("SS", [i, j])
           12 |             B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
           13 |     for i_1, j_1 in T.grid(7, 13):
              |              ^^^ loop number 2 of its nest
          hint: add_unit_loop makes a nest deeper, fuse makes one flatter
    """)
    s = Checked(mlp())
    s.refuses("""
        merge('j', 'j_2'): `j` and `j_2` have different extents
           10 |     for i, j, rk in T.grid(14, 9, 5):
              |            ^ runs over 9
              ...
           20 |     for i_2, j_2, rl in T.grid(14, 6, 9):
              |              ^^^ runs over 6
          hint: loop_partition cuts off what one of them has more
    """)
    s = Checked(mlp())
    s.refuses("""
        merge('i', 'i_2'): what stands between the nests depends on them through `D`, and cannot come before or after both
           16 |     for i_1, j_1 in T.grid(14, 9):
              |         ^^^ in between
           17 |         with T.block("D"):
           18 |             v_i, v_j = T.axis.remap("SS", [i_1, j_1])
           19 |             D[v_i, v_j] = C[v_i, v_j] * T.float32(2.0)
           20 |     for i_2, j_2, rl in T.grid(14, 6, 9):
              |         ^^^ would move past it
          hint: move it before or behind the nests first (compute_at, reverse_compute_at)
    """)
    s = Checked(chain())
    s.parallel("i_1")
    s.refuses("""
        merge('i', 'i_1'): `i_1` is parallel, and only serial loops can be merged
           13 |     for i_1 in T.parallel(7):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^ parallel
          hint: loops are merged first and marked afterwards; serial('i_1') takes the mark away
    """)
    s = Checked(mlp())
    s.merge("i", "i_1")
    s.refuses("""
        merge('j_1', 'i_2'): `j_1` is not the only statement of `i_m`
           10 |     for i_m in range(14):
              |     ^^^^^^^^^^^^^^^^^^^^^ outer loop
              ...
           17 |         for j_1 in range(9):
              |         ^^^^^^^^^^^^^^^^^^^^ must be its whole body
          hint: merge loops further outside, or move what else `i_m` holds out of it
    """)


PUBLISHED = Path(__file__).resolve().parents[5] / "shared" / "published"


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published programs are not here")
def test_the_published_program_at_full_size():
    """Row loops of two chained matmuls, which TensorIR refuses to merge: the program becomes the published one, merged by hand."""
    before, merged = (parse((PUBLISHED / n).read_text())["main"] for n in ("12_blocks_merge_exp.py", "13_blocks_merge_rows.py"))
    s = Schedule(before)
    s.merge("m_0_m", "m_0")
    found, wanted = (re.sub(r"\b([a-z]+_[01])_\d\b", r"\1", without_header(f.script())) for f in (s.func, merged))
    assert found == wanted


def rows_through(later: int = 13):
    """B = 2 (A + 1) and C = 3 (A + 2), row by row through one temporary row."""
    return parse(
        f"""
@T.prim_func
def main(A: T.Buffer((7, 13), "float32"), B: T.Buffer((7, 13), "float32"), C: T.Buffer((7, 13), "float32")):
    row = T.alloc_buffer((13,))
    for i in range(7):
        for j in range(13):
            with T.block("row"):
                v_i, v_j = T.axis.remap("OS", [i, j])
                row[v_j] = A[v_i, v_j] + T.float32(1.0)
        for j_1 in range(13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j_1])
                B[v_i, v_j] = row[12 - v_j] * T.float32(2.0)
    for i_1 in range(7):
        for j_2 in range({later}):
            with T.block("row_1"):
                v_i, v_j = T.axis.remap("OS", [i_1, j_2])
                row[v_j] = A[v_i, v_j] + T.float32(2.0)
        for j_3 in range(13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_3])
                C[v_i, v_j] = row[v_j] * T.float32(3.0)
"""
    )


def test_a_temporary_that_each_iteration_writes_anew():
    before = rows_through()
    s = Schedule(before)
    s.merge("i", "i_1")
    assert s.get_child_blocks("i_m") == ["row", "B", "row_1", "C"]
    well_formed(s.func)
    same_numbers(before, s.func)
    # The second nest reads a place that only the first has written.
    with pytest.raises(ScheduleError, match="no dependence through `row` goes from a later iteration of `i`"):
        Schedule(rows_through(12)).merge("i", "i_1")
