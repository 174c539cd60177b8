import pytest

from schedule import Schedule, ScheduleError
from tests.programs import chain, fork, relu_of_matmul, slice_of, sums_of_chain, wide_loops
from tests.schedule.harness import Checked, same_numbers, well_formed
from tests.schedule.primitives.placement.programs import tiled_relu_of_matmul
from tir import te
from tir.script import parse


def test_epilogue_under_a_tile_loop():
    s = tiled_relu_of_matmul()
    assert s.reverse_compute_at("D", "j_0") is None
    s.becomes("""
        C = T.alloc_buffer((7, 13))
        for i_0, j_0 in T.grid(2, 3):
            for k_0, i_1_1, k_1, j_1_1 in T.grid(3, 4, 2, 5):
                with T.block("C"):
                    ...
            for ax0, ax1 in T.grid(4, 5):
                with T.block("D"):
                    v_i = T.axis.spatial(7, i_0 * 4 + ax0)
                    v_j = T.axis.spatial(13, j_0 * 5 + ax1)
                    T.where(i_0 * 4 + ax0 < 7 and j_0 * 5 + ax1 < 13)
                    D[v_i, v_j] = T.max(C[v_i, v_j], T.float32(0.0))
    """)


@pytest.mark.parametrize("left", ["j <= i", "i + j < 13", "j > 2 and j <= i and i < 10"])
def test_elements_that_a_condition_leaves_out_are_finished(left):
    func = parse(f"""
@T.prim_func
def causal(Q: T.Buffer((13, 5)), K: T.Buffer((13, 5)), M: T.Buffer((13, 13))):
    S = T.alloc_buffer((13, 13))
    for i, j, k in T.grid(13, 13, 5):
        with T.block("S"):
            v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
            T.where({left})
            with T.init():
                S[v_i, v_j] = 0.0
            S[v_i, v_j] += Q[v_i, v_k] * K[v_j, v_k]
    for i, j in T.grid(13, 13):
        with T.block("M"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            M[v_i, v_j] = T.if_then_else({left.replace("i", "v_i").replace("j", "v_j")}, S[v_i, v_j], T.float32(-1000))
""")
    for place in range(4):
        s = Schedule(func)
        i, j, _ = s.get_loops("S")
        tiles = [*s.split(i, [None, 4]), *s.split(j, [None, 5])]
        s.reorder(*tiles[::2], *tiles[1::2])
        s.reverse_compute_at("M", s.get_loops("S")[place])
        well_formed(s.func)
        same_numbers(func, s.func)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("columns, inner", [(24, 8), (13, 5)])
def test_a_fused_loop_over_rows_of_which_the_number_is_open(dtype, columns, inner):
    n = te.var("n", dtype)
    A, B = te.placeholder((n, 5), name="A"), te.placeholder((5, columns), name="B")
    k = te.reduce_axis((0, 5), name="k")
    C = te.compute((n, columns), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    before = te.create_prim_func([A, B, te.compute((n, columns), lambda i, j: te.maximum(C[i, j], 0.0), name="D")])
    s = Schedule(before)
    i, j, _ = s.get_loops("C")
    tiles = [*s.split(i, [None, 4]), *s.split(j, [None, inner])]
    s.reorder(*tiles[::2], *tiles[1::2])
    fused = s.fuse(*tiles[::2])
    s.reverse_compute_at("D", fused)
    s.parallel(fused)
    well_formed(s.func)
    for rows in (1, 7, 13):
        same_numbers(before, s.func, {"n": rows})


def test_a_fused_loop_of_open_extent_below_the_place():
    n = te.var("n")
    A = te.placeholder((3, n, 24), name="A")
    B = te.compute((3, n, 24), lambda b, i, j: A[b, i, j] + 1.0, name="B")
    before = te.create_prim_func([A, te.compute((3, n, 24), lambda b, i, j: B[b, i, j] * 2.0, name="C")])
    s = Schedule(before)
    b, i, j = s.get_loops("B")
    tiles = [*s.split(i, [None, 4]), *s.split(j, [None, 8])]
    s.reorder(*tiles[::2], *tiles[1::2])
    s.fuse(*tiles[::2])
    s.reverse_compute_at("C", b)
    well_formed(s.func)
    for rows in (1, 7, 13):
        same_numbers(before, s.func, {"n": rows})


def test_a_dimension_with_one_element_is_finished():
    """Whichever way the producer indexes it: here by a constant, as its axis of extent 1 has gone."""
    A = te.placeholder((1, 7, 13), name="A")
    B = te.compute((1, 7, 13), lambda n, i, j: A[n, i, j] + 1.0, name="B")
    C = te.compute((1, 7, 13), lambda n, i, j: B[n, i, j] * 2.0, name="C")
    before = te.create_prim_func([A, C])
    s = Schedule(before)
    s.transform_block_layout("B", "lambda n, i, j: (n, i * 13 + j)")
    s.transform_layout("B", ("write", 0), "lambda n, i, j: (n, i * 13 + j)")
    s.transform_block_layout("C", "lambda n, i, j: (n, i * 13 + j)")
    outer, _ = s.split(s.get_loops("B")[-1], [None, 16])
    s.reverse_compute_at("C", outer)
    assert s.get_loops("C")[-2] == outer
    well_formed(s.func)
    same_numbers(before, s.func)


def test_epilogue_under_the_outermost_loop():
    s = tiled_relu_of_matmul()
    s.reverse_compute_at("D", "i_0", preserve_unit_loops=True)
    s.becomes("""
        C = T.alloc_buffer((7, 13))
        for i_0 in range(2):
            for j_0, k_0, i_1_1, k_1, j_1_1 in T.grid(3, 3, 4, 2, 5):
                with T.block("C"):
                    ...
            for ax0, ax1 in T.grid(4, 13):
                with T.block("D"):
                    v_i = T.axis.spatial(7, i_0 * 4 + ax0)
                    v_j = T.axis.spatial(13, ax1)
                    T.where(i_0 * 4 + ax0 < 7)
                    D[v_i, v_j] = T.max(C[v_i, v_j], T.float32(0.0))
    """)


def test_under_a_fused_loop():
    s = tiled_relu_of_matmul()
    s.fuse("i_0", "j_0")
    s.reverse_compute_at("D", "i_0_j_0_fused")
    s.becomes("""
        C = T.alloc_buffer((7, 13))
        for i_0_j_0_fused in range(6):
            for k_0, i_1_1, k_1, j_1_1 in T.grid(3, 4, 2, 5):
                with T.block("C"):
                    ...
            for ax0, ax1 in T.grid(4, 5):
                with T.block("D"):
                    v_i = T.axis.spatial(7, i_0_j_0_fused // 3 * 4 + ax0)
                    v_j = T.axis.spatial(13, i_0_j_0_fused % 3 * 5 + ax1)
                    T.where(i_0_j_0_fused // 3 * 4 + ax0 < 7 and i_0_j_0_fused % 3 * 5 + ax1 < 13)
                    D[v_i, v_j] = T.max(C[v_i, v_j], T.float32(0.0))
    """)


def test_split_of_a_split():
    s = Checked(relu_of_matmul())
    _, j, _ = s.get_loops("C")
    _, ji = s.split(j, [None, 5])
    j1, _ = s.split(ji, [None, 3])
    s.reverse_compute_at("D", j1)
    s.becomes("""
        C = T.alloc_buffer((7, 13))
        for i, j_0, j_1_1_0 in T.grid(7, 3, 2):
            for j_1_1_1, k in T.grid(3, 5):
                with T.block("C"):
                    ...
            for ax0 in range(3):
                with T.block("D"):
                    v_i = T.axis.spatial(7, i)
                    v_j = T.axis.spatial(13, j_0 * 5 + j_1_1_0 * 3 + ax0)
                    T.where(j_0 * 5 + j_1_1_0 * 3 + ax0 < 13 and j_1_1_0 * 3 + ax0 < 5)
                    D[v_i, v_j] = T.max(C[v_i, v_j], T.float32(0.0))
    """)


def test_reduction_after_its_rows_are_made():
    s = Checked(sums_of_chain())
    s.reverse_compute_at("C", "i")
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i in range(7):
            for j in range(13):
                with T.block("B"):
                    ...
            for ax0 in range(13):
                with T.block("C"):
                    v_i, v_k = T.axis.remap("SR", [i, ax0])
                    with T.init():
                    ...
    """)


def test_consumer_of_a_part_of_the_producer():
    s = Checked(slice_of(13, start=6))
    io, _ = s.split("i", [None, 8])
    s.reverse_compute_at("C", io)
    s.becomes("""
        B = T.alloc_buffer((13,))
        for i_0 in range(2):
            for i_1_1 in range(8):
                with T.block("B"):
                    ...
            for ax0 in range(8):
                with T.block("C"):
                    v_i = T.axis.spatial(5, i_0 * 8 + ax0 - 6)
                    T.where(i_0 * 8 + ax0 - 6 >= 0 and i_0 * 8 + ax0 - 6 < 5)
                    C[v_i] = B[v_i + 6] * T.float32(2.0)
    """)


def test_window_larger_than_the_consumer():
    s = Checked(slice_of(12, start=4))
    io, _ = s.split("i", [2, 6])
    s.reverse_compute_at("C", io)
    s.becomes("""
        B = T.alloc_buffer((12,))
        for i_0 in range(2):
            for i_1_1 in range(6):
                with T.block("B"):
                    v_i = T.axis.spatial(12, i_0 * 6 + i_1_1)
                    B[v_i] = A[v_i] + T.float32(1.0)
            for ax0 in range(6):
                with T.block("C"):
                    v_i = T.axis.spatial(5, i_0 * 6 + ax0 - 4)
                    T.where(i_0 * 6 + ax0 - 4 >= 0 and i_0 * 6 + ax0 - 4 < 5)
                    C[v_i] = B[v_i + 4] * T.float32(2.0)
    """)


def test_two_producers_in_one_loop():
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((7, 13), lambda i, j: B[i, j] * 3.0, name="C")
    D = te.compute((7, 13), lambda i, j: B[i, j] - C[i, j], name="D")
    s = Checked(te.create_prim_func([A, D]))
    s.reverse_compute_at("C", "i")
    s.reverse_compute_at("D", "i")
    s.becomes("""
        ...
        for i in range(7):
            ...
            for ax0_1 in range(13):
                with T.block("D"):
                    v_i, v_j = T.axis.remap("SS", [i, ax0_1])
                    D[v_i, v_j] = B[v_i, v_j] - C[v_i, v_j]
    """)


def test_index_chooses_the_place():
    for index, order in ((-1, ["B", "C", "D"]), (-2, ["B", "D", "C"]), (1, ["B", "D", "C"]), (2, ["B", "C", "D"])):
        before = fork()
        s = Schedule(before)
        s.reverse_compute_at("C", "i")
        s.reverse_compute_at("D", "i", index=index)
        assert s.get_child_blocks("i") == order
        same_numbers(before, s.func)


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 13, 109), (13, 7, 4)])
@pytest.mark.parametrize("cached", [True, False])
def test_the_sketch_of_a_search(shape, cached):
    """SSRSRS tiling with factors that don't divide, a write cache or a fused epilogue, a packed operand, and all marks."""
    before = relu_of_matmul(*shape)
    s = Schedule(before)
    follow = s.cache_write("C", 0, "local") if cached else "D"
    i, j, k = s.get_loops("C")
    i0, i1, i2, i3 = s.split(i, [None, 2, 1, 3])
    j0, j1, j2, j3 = s.split(j, [None, 2, 2, 3])
    k0, k1 = s.split(k, [None, 16])
    s.reorder(i0, j0, i1, j1, k0, i2, j2, k1, i3, j3)
    s.reverse_compute_at(follow, j1)
    packed = s.cache_read("C", "B", "local")
    s.compute_at(packed, k0)
    s.decompose_reduction("C", k0)
    s.vectorize(j3)
    s.unroll(i3)
    s.parallel(s.fuse(i0, j0))
    same_numbers(before, s.func)
    well_formed(s.func)


# --- reads that are no plain axes, and producers in blocks of their own ---------------------------------------------------
def flat(rows: int, columns: int, apart: bool):
    """D = B + 1, where D is flat and B = 2 A has rows (`apart`), or the other way round."""
    two, one = (rows, columns), (rows * columns,)
    A = te.placeholder(two if apart else one, name="A")
    B = te.compute(A.shape, lambda *i: A[i] * 2.0, name="B")
    index = (lambda i: (i // columns, i % columns)) if apart else (lambda i, j: i * columns + j)
    return te.create_prim_func([A, te.compute(one if apart else two, lambda *i: B[index(*i)] + 1.0, name="D")])


def test_a_consumer_that_reads_at_quotients_and_remainders():
    s = Checked(flat(7, 13, apart=True))
    s.reverse_compute_at("D", "i0")
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i0 in range(7):
            for i1 in range(13):
                with T.block("B"):
                    v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                    B[v_i0, v_i1] = A[v_i0, v_i1] * T.float32(2.0)
            for ax0 in range(13):
                with T.block("D"):
                    v0, v1 = T.axis.remap("SS", [i0, ax0])
                    D[v0 * 13 + v1] = B[v0, v1] + T.float32(1.0)
    """)


def test_a_consumer_that_reads_at_a_sum():
    s = Checked(flat(7, 13, apart=False))
    s.split("i0", [None, 26])
    s.reverse_compute_at("D", "i0_0")
    s.becomes("""
        B = T.alloc_buffer((91,))
        for i0_0 in range(4):
            for i0_1_1 in range(26):
                with T.block("B"):
                    ...
            for ax0 in range(26):
                with T.block("D"):
                    v0 = T.axis.spatial(91, i0_0 * 26 + ax0)
                    T.where(i0_0 * 26 + ax0 < 91)
                    D[v0 // 13, v0 % 13] = B[v0] + T.float32(1.0)
    """)


def test_a_consumer_of_a_blockized_producer():
    s = Checked(relu_of_matmul(9, 5, 8))
    i, j, k = s.get_loops("C")
    rows, row = s.split(i, [None, 3])
    columns, column = s.split(j, [None, 4])
    s.reorder(rows, columns, row, column, k)
    s.blockize(row)
    s.reverse_compute_at("D", columns)
    s.becomes("""
        C = T.alloc_buffer((9, 8))
        for i_0, j_0 in T.grid(3, 2):
            ...
            for ax0, ax1 in T.grid(3, 4):
                with T.block("D"):
                    v_i = T.axis.spatial(9, i_0 * 3 + ax0)
                    v_j = T.axis.spatial(8, j_0 * 4 + ax1)
                    D[v_i, v_j] = T.max(C[v_i, v_j], T.float32(0.0))
    """)


@pytest.mark.parametrize("assumed", [False, True])
def test_tiles_of_a_size_that_the_call_gives(assumed):
    n = te.var("n")
    A = te.placeholder((n, 7), name="A")
    B = te.compute((n, 7), lambda i, j: A[i, j] * 2.0, name="B")
    s = Schedule(te.create_prim_func([A, te.compute((n, 7), lambda i, j: B[i, j] + 1.0, name="C"), n]))
    before = s.func
    if assumed:
        s.assume("n % 4 == 0")
    io, _ = s.split("i", [None, 4])
    s.reverse_compute_at("C", io)
    assert s.func.outline().splitlines()[2:] == [
        f"    for i_0 in {'n // 4' if assumed else '(n + 3) // 4'}:",
        f"        for i_1_1 in 4, j in 7{'' if assumed else ' where i_0 * 4 + i_1_1 < n'}:",
        "            B[i_0 * 4 + i_1_1, j] = A[i_0 * 4 + i_1_1, j] * 2",
        f"        for ax0 in 4, ax1 in 7{'' if assumed else ' where i_0 * 4 + ax0 < n'}:",
        "            C[i_0 * 4 + ax0, ax1] = B[i_0 * 4 + ax0, ax1] + 1",
    ]
    for size in (4, 12) if assumed else (1, 4, 13):
        same_numbers(before, s.func, {"n": size})


NEVER = """
@T.prim_func
def main(A: T.Buffer((7,), "float32"), C: T.Buffer((7,), "float32")):
    S = T.alloc_buffer((7,))
    for i in range(7):
        with T.block("S"):
            v = T.axis.spatial(7, i)
            S[v] = A[v]
    for j in range(7):
        with T.block("C"):
            v = T.axis.spatial(7, j)
            T.where({condition})
            C[v] = S[v]
"""


@pytest.mark.parametrize("condition", ["A[0] > T.float32(0.0)", "T.bool(False)"])
def test_a_condition_on_no_loop_stays(condition):
    Checked(parse(NEVER.format(condition=condition))).refuses(f"""
        reverse_compute_at('C', 'i'): it cannot be shown that `C` runs over its whole domain, once: the condition `{condition}` is not an upper bound
           13 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
    """)


SUM = """
@T.prim_func
def main(A: T.Buffer((5, 7), "float32"), C: T.Buffer((5,), "float32")):
    B = T.alloc_buffer((5, 7))
    for i, k in T.grid(5, 7):
        with T.block("B"):
            v_i, v_k = T.axis.remap("SS", [i, k])
            B[v_i, v_k] = A[v_i, v_k] + 1.0
    for i, k in T.grid(5, {terms}):
        with T.block("C"):
            v_i = T.axis.spatial(5, i)
            v_k = T.axis.reduce(7, k)
            T.where({condition})
            with T.init():
                C[v_i] = 0.0
            C[v_i] = C[v_i] + B[v_i, v_k]
"""


@pytest.mark.parametrize(("terms", "condition"), [(4, "T.bool(True)"), (7, "k < 4")])
def test_terms_that_are_left_out_stay_out(terms, condition):
    s = Checked(parse(SUM.format(terms=terms, condition=condition)))
    s.reverse_compute_at("C", "i")
    s.becomes("""
        B = T.alloc_buffer((5, 7))
        for i in range(5):
            for k in range(7):
                with T.block("B"):
                    ...
            for ax0 in range(4):
                with T.block("C"):
                    v_i = T.axis.spatial(5, i)
                    v_k = T.axis.reduce(7, ax0)
                    with T.init():
                    ...
    """)


def test_reads_at_parts_of_one_value():
    """Of an axis of 3 values, `v // 8` is 0, and no part of an index map."""
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((1, 4, 8, 5), "float32"), C: T.Buffer((3, 20), "float32")):
            B = T.alloc_buffer((1, 4, 8, 5))
            for n, i, j, k in T.grid(1, 4, 8, 5):
                with T.block("B"):
                    v_n, v_i, v_j, v_k = T.axis.remap("SSSS", [n, i, j, k])
                    B[v_n, v_i, v_j, v_k] = A[v_n, v_i, v_j, v_k] + T.float32(1)
            for j, i in T.grid(3, 20):
                with T.block("C"):
                    v_j, v_i = T.axis.remap("SS", [j, i])
                    C[v_j, v_i] = B[v_j // 8, v_i // 5, v_j, v_i % 5] * T.float32(3)
    """)
    s.reverse_compute_at("C", "i")
    s.becomes("""
        B = T.alloc_buffer((1, 4, 8, 5))
        for n, i in T.grid(1, 4):
            for j, k in T.grid(8, 5):
                with T.block("B"):
                    v_n, v_i, v_j, v_k = T.axis.remap("SSSS", [n, i, j, k])
                    B[v_n, v_i, v_j, v_k] = A[v_n, v_i, v_j, v_k] + T.float32(1.0)
            for ax0, ax1 in T.grid(3, 5):
                with T.block("C"):
                    v0 = T.axis.spatial(1, 0)
                    v1 = T.axis.spatial(4, i)
                    v2 = T.axis.spatial(3, ax0)
                    v3 = T.axis.spatial(5, ax1)
                    C[v2, v1 * 5 + v3] = B[0, v1, v2, v3] * T.float32(3.0)
    """)


def test_reads_that_vanish():
    """Over other axes the condition never holds, so that nothing is read at them."""
    A = te.placeholder((7, 13), name="A")
    B = te.compute((91,), lambda x: A[x // 13, x % 13] * 2.0, name="B")
    C = te.compute((7, 13), lambda i, j: te.if_then_else(i * 13 + j >= 91, B[i * 13 + j], 1.0), name="C")
    with pytest.raises(ScheduleError, match="is not one of its spatial axes, but only a part of it is finished"):
        Schedule(te.create_prim_func([A, C])).reverse_compute_at("C", "x")


@pytest.mark.parametrize("program", [chain(), wide_loops(chain())], ids=["int32", "int64"])
def test_fused_loops_of_any_width_are_taken_apart(program):
    s = Schedule(program)
    fused = s.fuse(*s.get_loops("B"))
    s.reverse_compute_at("C", fused)
    same_numbers(program, s.func)
    assert s.script.count("for ") == 1
