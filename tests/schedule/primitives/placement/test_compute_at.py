import pytest

from schedule import Schedule
from tests.programs import chain, relu_of_matmul, stencil
from tests.schedule.harness import Checked, same_numbers, well_formed
from tests.schedule.primitives.placement.programs import PACKED_BESIDE_PADDING, SUM_OF_TERMS, differences_of_rows, partial_results
from tir import te
from tir.ir import Const
from tir.script import parse
from tir.traverse import loops


def test_elementwise_under_the_outer_loop():
    s = Checked(chain())
    i, _ = s.get_loops("C")
    assert s.compute_at("B", i) is None
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i_1 in range(7):
            for ax0 in range(13):
                with T.block("B"):
                    v_i, v_j = T.axis.remap("SS", [i_1, ax0])
                    B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
            for j_1 in range(13):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                    C[v_i, v_j] = B[v_i, v_j] * T.float32(3.0)
    """)


def test_under_the_innermost_loop_no_loops_remain():
    s = Checked(chain())
    _, j = s.get_loops("C")
    s.compute_at("B", j)
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i_1, j_1 in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B[v_i, v_j] * T.float32(3.0)
    """)


def test_unit_loops_are_preserved_when_asked():
    s = Checked(chain())
    _, j = s.get_loops("C")
    s.compute_at("B", j, preserve_unit_loops=True)
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i_1, j_1 in T.grid(7, 13):
            for ax0, ax1 in T.grid(1, 1):
                with T.block("B"):
                    v_i = T.axis.spatial(7, i_1 + ax0)
                    v_j = T.axis.spatial(13, j_1 + ax1)
                    B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B[v_i, v_j] * T.float32(3.0)
    """)


def test_consumer_that_does_not_divide_gives_a_predicate():
    s = Checked(chain())
    i, j = s.get_loops("C")
    io, _ = s.split(i, [None, 4])
    jo, _ = s.split(j, [None, 5])
    s.reorder(io, jo)
    s.compute_at("B", jo)
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i_1_0, i_1_1, j_1_0 in T.grid(2, 4, 3):
            for ax0 in range(5):
                with T.block("B"):
                    v_i = T.axis.spatial(7, i_1_0 * 4 + i_1_1)
                    v_j = T.axis.spatial(13, j_1_0 * 5 + ax0)
                    T.where(i_1_0 * 4 + i_1_1 < 7 and j_1_0 * 5 + ax0 < 13)
                    B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
            for j_1_1 in range(5):
                with T.block("C"):
                    ...
    """)


def test_reduction_is_done_completely():
    s = Checked(relu_of_matmul())
    _, j = s.get_loops("D")
    jo, _ = s.split(j, [None, 4])
    s.compute_at("C", jo)
    s.becomes("""
        C = T.alloc_buffer((7, 13))
        for i_1, j_1_0 in T.grid(7, 4):
            for ax0, ax1 in T.grid(4, 5):
                with T.block("C"):
                    v_i = T.axis.spatial(7, i_1)
                    v_j = T.axis.spatial(13, j_1_0 * 4 + ax0)
                    v_k = T.axis.reduce(5, ax1)
                    T.where(j_1_0 * 4 + ax0 < 13)
                    with T.init():
                    ...
            for j_1_1 in range(4):
                with T.block("D"):
                    ...
    """)


def test_overlapping_windows_and_both_ends_of_a_padding():
    s = Checked(stencil())
    io, _ = s.split(s.get_loops("C")[0], [None, 4])
    s.compute_at("P", io)
    s.compute_at("B", io)
    s.becomes("""
        B = T.alloc_buffer((13,))
        P = T.alloc_buffer((15,))
        for i_2_0 in range(4):
            for ax0_1 in range(6):
                with T.block("B"):
                    v_i = T.axis.spatial(13, i_2_0 * 4 + ax0_1 - 1)
                    T.where(i_2_0 * 4 + ax0_1 - 1 >= 0 and i_2_0 * 4 + ax0_1 - 1 < 13)
                    B[v_i] = A[v_i] * T.float32(2.0)
            for ax0 in range(6):
            ...
    """)


def test_window_that_is_constant_is_cut():
    s = Checked(stencil())
    io, _ = s.split(s.get_loops("C")[0], [1, 13])
    s.compute_at("P", io)
    s.compute_at("B", io)
    s.becomes("""
        B = T.alloc_buffer((13,))
        P = T.alloc_buffer((15,))
        for i_2_0 in range(1):
            for ax0_1 in range(13):
                with T.block("B"):
                    v_i = T.axis.spatial(13, ax0_1)
                    B[v_i] = A[v_i] * T.float32(2.0)
            for ax0 in range(15):
            ...
    """)


@pytest.mark.parametrize(
    ("index", "order"), [(-1, ["C", "B", "E"]), (-2, ["B", "C", "E"]), (0, ["B", "C", "E"]), (1, ["C", "B", "E"])]
)
def test_index_chooses_the_place(index, order):
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7,), lambda i: A[i] * 3.0, name="C")
    E = te.compute((7,), lambda i: B[i] + C[i], name="E")
    before = te.create_prim_func([A, E])
    s = Schedule(before)
    (i,) = s.get_loops("E")
    s.compute_at("C", i)
    s.compute_at("B", i, index=index)
    assert s.get_child_blocks(i) == order
    same_numbers(before, s.func)


def test_several_consumers_under_one_loop():
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((7, 13), lambda i, j: B[i, j] * 3.0, name="C")
    D = te.compute((7, 13), lambda i, j: B[i, 12 - j] * C[i, j], name="D")
    s = Checked(te.create_prim_func([A, D]))
    i, _ = s.get_loops("D")
    s.compute_at("C", i)
    s.compute_at("B", i)
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        C = T.alloc_buffer((7, 13))
        for i_2 in range(7):
            for ax0_1 in range(13):
                with T.block("B"):
                    v_i, v_j = T.axis.remap("SS", [i_2, ax0_1])
                    B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
            for ax0 in range(13):
            ...
    """)


def test_scalar():
    A = te.placeholder((), name="A")
    B = te.compute((), lambda: A[()] * 2.0, name="B")
    C = te.compute((7,), lambda i: B[()] + i.astype("float32"), name="C")
    s = Checked(te.create_prim_func([A, C]))
    s.compute_at("B", s.get_loops("C")[0])
    s.becomes("""
        B = T.alloc_buffer(())
        for i in range(7):
            with T.block("B"):
                B[()] = A[()] * T.float32(2.0)
            with T.block("C"):
                v_i = T.axis.spatial(7, i)
                C[v_i] = B[()] + T.Cast("float32", v_i)
    """)


def test_transposed_and_strided_reads():
    A = te.placeholder((13, 7), name="A")
    B = te.compute((13, 7), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((7, 6), lambda i, j: B[2 * j + 1, i], name="C")
    s = Checked(te.create_prim_func([A, C]))
    _, j = s.get_loops("C")
    jo, _ = s.split(j, [None, 4])
    s.compute_at("B", jo)
    s.becomes("""
        B = T.alloc_buffer((13, 7))
        for i_1, j_1_0 in T.grid(7, 2):
            for ax0 in range(7):
                with T.block("B"):
                    v_i = T.axis.spatial(13, j_1_0 * 8 + ax0 + 1)
                    v_j = T.axis.spatial(7, i_1)
                    T.where(j_1_0 * 8 + ax0 + 1 < 13)
                    B[v_i, v_j] = A[v_i, v_j] * T.float32(2.0)
            for j_1_1 in range(4):
                with T.block("C"):
                    ...
    """)


def test_packed_output_is_solved_for_the_quotient():
    A = te.placeholder((109,), name="A")
    B = te.compute((28, 4), lambda i, j: te.if_then_else(i * 4 + j < 109, A[i * 4 + j], 0.0), name="B")
    C = te.compute((109,), lambda i: B[i // 4, i % 4] + 1.0, name="C")
    before = te.create_prim_func([A, C])
    s = Schedule(before)
    io, _ = s.split(s.get_loops("C")[0], [None, 8])
    s.compute_at("B", io)
    same_numbers(before, s.func)
    well_formed(s.func)
    assert [loop.extent for loop in (x for x in loops(s.func) if x.name.startswith("ax"))] == [Const(2), Const(4)]


@pytest.mark.parametrize("n", [1, 7, 13, 109])
@pytest.mark.parametrize("factor", [1, 3, 4, 16])
def test_any_split_of_a_stencil(n, factor):
    before = stencil(n)
    s = Schedule(before)
    io, ii = s.split(s.get_loops("C")[0], [None, factor])
    s.compute_at("P", ii if factor == 3 else io)
    s.compute_at("B", io)
    same_numbers(before, s.func)
    well_formed(s.func)


def test_moved_again_from_a_loop_to_an_inner_one():
    s = Checked(chain())
    i, j = s.get_loops("C")
    io, _ = s.split(i, [None, 3])
    s.compute_at("B", io)
    s.compute_at("B", j)
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i_1_0, i_1_1, j_1 in T.grid(3, 3, 13):
            with T.block("B"):
                v_i = T.axis.spatial(7, i_1_0 * 3 + i_1_1)
                v_j = T.axis.spatial(13, j_1)
                T.where(i_1_0 * 3 + i_1_1 < 7)
                B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
            with T.block("C"):
                ...
    """)


def test_parts_of_a_buffer_that_different_blocks_write():
    s = Checked(chain())
    s.split("i", [None, 2], tail="cut")
    (i, _) = s.get_loops("C")
    s.compute_at("B_i_0", i)
    s.compute_at("B_i_1_1", i)
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i_1 in range(7):
            for ax0 in range(13):
                ...
            for ax0_1 in range(13):
                with T.block("B_i_1_1"):
                    v_i, v_j = T.axis.remap("SS", [i_1, ax0_1])
                    T.where(i_1 >= 6)
                    B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
            for j_1 in range(13):
                ...
    """)


def test_what_is_packed_beside_its_padding():
    s = Checked(parse(PACKED_BESIDE_PADDING.format(first=7)))
    (i,) = s.get_loops("C")
    s.compute_at("pad", i)
    s.becomes("""
        B = T.alloc_buffer((2, 4))
        for i_1 in range(7):
            ...
        for i_2 in range(7):
            for ax0, ax1 in T.grid(2, 4):
                with T.block("pad"):
                    v_i, v_j = T.axis.remap("SS", [ax0, ax1])
                    T.where(ax0 * 4 + ax1 >= 7)
                    B[v_i, v_j] = T.float32(0.0)
            with T.block("C"):
                ...
    """)


def test_a_condition_on_axes_goes_with_the_block():
    s = differences_of_rows()
    s.compute_at("B", s.get_loops("C")[0])
    s.becomes("""
        B = T.alloc_buffer((7, 5))
        for i_1 in range(7):
            for ax0 in range(5):
                with T.block("B"):
                    v_i, v_j = T.axis.remap("SS", [i_1, ax0])
                    T.where(i_1 * 5 + ax0 < 30)
                    B[v_i, v_j] = A[v_i + 1, v_j] - A[v_i, v_j]
            for j_1 in range(5):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                    C[v_i, v_j] = T.if_then_else(v_i < 6, B[v_i, v_j] * T.float32(3.0), T.float32(0.0))
    """)


def test_loops_inside_of_the_block_keep_their_names():
    s = Schedule(chain())
    s.cache_read("B", "A", "local")
    s.blockize("ax1")
    s.compute_at("A_local_o", "i", preserve_unit_loops=True)
    well_formed(s.func)
    assert s.get_loops("A_local_o") == ["i", "ax0", "ax1_1"] and s.get_loops("A_local") == ["ax1"]
    same_numbers(chain(), s.func)


def test_tiles_of_a_producer():
    """Of 4 x 4 tiles, which are blocks, an iteration computes the two rows of tiles that two rows can reach."""
    A = te.placeholder((13, 13), name="A")
    B = te.compute((13, 13), lambda i, j: A[i, j] + 1.0, name="B")
    s = Checked(te.create_prim_func([A, te.compute((13, 13), lambda i, j: B[12 - i, j] * 3.0, name="C")]))
    s.tile("i", "j", 4, 4)
    s.blockize(s.get_loops("B")[2])
    io, _ = s.split(s.get_loops("C")[0], [None, 2])
    s.compute_at("B_o", io)
    s.becomes("""
        B = T.alloc_buffer((13, 13))
        for i_1_0 in range(7):
            for ax0, ax1 in T.grid(2, 4):
                with T.block("B_o"):
                    v_i_o = T.axis.spatial(4, (1 - i_1_0) // 2 + ax0 + 2)
                    v_j_o = T.axis.spatial(4, ax1)
                    T.where((1 - i_1_0) // 2 + ax0 + 2 >= 0)
                    for i_1_1, j_1_1 in T.grid(4, 4):
                        ...
            for i_1_1_1, j_1 in T.grid(2, 13):
                with T.block("C"):
                    ...
    """)


def test_what_threads_share_is_computed_for_all_of_them():
    s = Checked(chain(3, 12))
    s.set_scope("B", 0, "shared")
    i, j = s.get_loops("C")
    thread, _ = s.split(j, [3, 4])
    s.bind(i, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    s.compute_at("B", thread)
    _, own = s.split("ax0", [None, 3])
    s.bind(own, "threadIdx.x")
    s.becomes("""
        B_shared = T.alloc_buffer((3, 12), scope="shared")
        for i_1 in T.thread_binding(3, thread="blockIdx.x"):
            for j_1_0 in T.thread_binding(3, thread="threadIdx.x"):
                for ax0_0 in range(4):
                    for ax0_1 in T.thread_binding(3, thread="threadIdx.x"):
                        with T.block("B"):
                            ...
                for j_1_1 in range(4):
                    ...
    """)


def test_no_condition_where_it_is_known_to_hold():
    """`i_1 < n` and `ax0 < 3` say that `i_1 + ax0 < n + 2`."""
    n, k = te.var("n"), te.reduce_axis((0, 3), name="k")
    A = te.placeholder((n,), name="A")
    X = te.compute((n + 2,), lambda i: te.if_then_else(te.all(i >= 1, i < n + 1), A[i - 1], 0.0), name="X")
    before = te.create_prim_func([A, te.compute((n,), lambda i: te.sum(X[i + k], axis=k), name="C"), n])
    s = Schedule(before)
    s.compute_at("X", "i_1")
    assert s.func.outline().splitlines()[3:5] == [
        "        for ax0 in 3:",
        "            X[i_1 + ax0] = (A[i_1 + ax0 - 1] if i_1 + ax0 >= 1 and i_1 + ax0 < n + 1 else 0)",
    ]
    same_numbers(before, s.func, {"n": 7})


def test_partial_results_keep_to_their_terms():
    s = partial_results()
    s.compute_at("C_rf", s.get_loops("C")[0])
    s.becomes("""
        C_rf = T.alloc_buffer((2, 7))
        for i_1 in range(7):
            for ax0, ax1 in T.grid(2, 7):
                with T.block("C_rf"):
                    v_i, v_k_0, v_k_1 = T.axis.remap("SSR", [i_1, ax0, ax1])
                    T.where(ax0 * 7 + ax1 < 13)
                    with T.init():
                    ...
            for k_0_1 in range(2):
                with T.block("C"):
                    ...
    """)


@pytest.mark.parametrize(("terms", "loop", "where"), [("4", "4", ""), ("i + 1", "5", "\n" + " " * 20 + "T.where(ax0 < i_1 + 1)")])
def test_terms_that_the_loops_leave_out_stay_out(terms, loop, where):
    s = Checked(parse(SUM_OF_TERMS.format(terms=terms, step="")))
    s.compute_at("B", s.get_loops("C")[0])
    s.becomes(f"""
        B = T.alloc_buffer((7,))
        for i_1 in range(5):
            for ax0 in range({loop}):
                with T.block("B"):
                    v_i = T.axis.spatial(7, i_1)
                    v_k = T.axis.reduce(7, ax0){where}
                    with T.init():
                        B[v_i] = T.float32(0.0)
                    B[v_i] = B[v_i] + A[v_i, v_k]
            with T.block("C"):
                v_i = T.axis.spatial(5, i_1)
                C[v_i] = B[v_i] * T.float32(3.0)
    """)


def test_rows_that_were_never_written_are_not_copied():
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((4, 3), "float32"), C: T.Buffer((7, 3), "float32")):
            B = T.alloc_buffer((7, 3))
            for i, j in T.grid(3, 3):
                with T.block("B"):
                    v_i = T.axis.spatial(7, i + 1)
                    v_j = T.axis.spatial(3, j)
                    B[v_i, v_j] = A[v_i, v_j] * T.float32(2.0)
            for i, j in T.grid(7, 3):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    C[v_i, v_j] = T.if_then_else(v_i >= 1 and v_i < 4, B[v_i, v_j], T.float32(0.0))
    """)
    s.cache_read("C", "B", "local")
    i, _ = s.get_loops("C")
    s.compute_at("B_local", i)
    s.compute_at("B", i)
    s.becomes("""
        B = T.alloc_buffer((7, 3))
        B_local = T.alloc_buffer((7, 3), scope="local")
        for i_1 in range(7):
            for ax0_1 in range(3):
                with T.block("B"):
                    v_i, v_j = T.axis.remap("SS", [i_1, ax0_1])
                    T.where(i_1 >= 1 and i_1 < 4)
                    B[v_i, v_j] = A[v_i, v_j] * T.float32(2.0)
            for ax0 in range(3):
            ...
    """)


def test_a_block_with_a_buffer_of_its_own():
    """It updates no element that another iteration reads: what it writes and reads is its own."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3, 5), "float32"), C: T.Buffer((3, 5), "float32")):
    B = T.alloc_buffer((3, 5))
    for i in range(3):
        with T.block("rows"):
            v = T.axis.spatial(3, i)
            row = T.alloc_buffer((5,))
            for j in range(5):
                row[j] = A[v, j] + 1.0
            for j in range(5):
                B[v, j] = row[4 - j] * 2.0
    for x, y in T.grid(3, 5):
        with T.block("C"):
            p, q = T.axis.remap("SS", [x, y])
            C[p, q] = B[p, q] + 1.0
""")
    s = Schedule(func)
    s.compute_at("rows", "x")
    assert s.get_loops("rows")[0] == "x"
    well_formed(s.func)
    same_numbers(func, s.func)


def test_a_block_that_never_runs():
    """It writes nothing where it is moved, and reads nothing that has not been written."""
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
            X = T.alloc_buffer((4,))
            B = T.alloc_buffer((4,))
            for i in range(3):
                with T.block("X"):
                    v = T.axis.spatial(4, i)
                    X[v] = A[v] + T.float32(1.0)
            for i in range(3):
                with T.block("first"):
                    v = T.axis.spatial(4, i)
                    B[v] = X[v] * T.float32(2.0)
            for i in range(1):
                with T.block("last"):
                    v = T.axis.spatial(4, i + 3)
                    T.where(False)
                    B[v] = X[v] * T.float32(2.0)
            for i in range(4):
                with T.block("C"):
                    v = T.axis.spatial(4, i)
                    C[v] = T.if_then_else(v < 3, B[v], T.float32(1.0))
    """)
    s.compute_at("last", "i_3")
    well_formed(s.func)
    same_numbers(s.before, s.func)


@pytest.mark.parametrize("where", ["i >= 2", "i <= 2", "i < n"])
def test_a_producer_runs_no_further_than_its_loops(where):
    """The loop of the consumer is longer than that of the producer, which reads all of a shorter array."""
    func = parse(f"""
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,))
    C = T.match_buffer(c, (n + 3,))
    B = T.alloc_buffer((n + 3,))
    for i in range(n):
        with T.block("B"):
            v = T.axis.spatial(n + 3, i)
            T.where({where})
            B[v] = A[v] + T.float32(1)
    for i in range(n + 3):
        with T.block("C"):
            v = T.axis.spatial(n + 3, i)
            C[v] = T.if_then_else({where} and v < n, B[v], T.float32(0))
""")
    s = Schedule(func)
    s.compute_at("B", s.get_loops("C")[0])
    same_numbers(func, s.func, {"n": 2})


def test_again_at_a_place_in_loops_of_another_width():
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((3, 2)), C: T.Buffer((T.int64(3), 2))):
            B = T.alloc_buffer((3, 2))
            for i, j in T.grid(3, 2):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] + T.float32(1)
            for i, j in T.grid(T.int64(3), 2):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[T.int64(2) - vi, vj]
    """)
    s.compute_at("B", "j_1")
    s.blockize(["B", "C"])
    s.add_unit_loop("C")
    s.compute_at("B", "u")
    well_formed(s.func)
