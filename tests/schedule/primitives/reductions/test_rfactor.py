import pytest

from schedule import Schedule
from tests.programs import chain, matmul, reduction, sums_of_chain
from tests.schedule.harness import Checked, same_numbers, well_formed
from tir import te
from tir.ir import Const, PrimFunc, Var
from tir.script import parse
from tir.traverse import blocks, replace_stmt


def arg_reduction(better) -> PrimFunc:
    """The index and the value of the element that is better than all others."""
    A = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")

    def combine(x, y):
        keep = better(x, y)
        return te.select(keep, x[0], y[0]), te.select(keep, x[1], y[1])

    reducer = te.comm_reducer(combine, lambda i, v: (te.const(2**31 - 1, i), te.const(-1e30, v)), name="argmax")
    index, value = te.compute((7,), lambda i: reducer((k.value, A[i, k]), axis=k), name="R")
    return te.create_prim_func([A, index, value])


def first_of_equals(x, y):
    return te.any(x[1] > y[1], te.all(te.equal(x[1], y[1]), x[0] <= y[0]))


def test_one_of_two_writers():
    """What another block writes of the result is not touched."""
    s = Checked(matmul(7, 109, 13))
    s.reorder("j", "i", "k")
    s.loop_partition("j", [None, 1])
    _, lane = s.split("k_1", [None, 16])
    assert s.rfactor(lane, -1) == "C_j_1_rf"
    s.becomes("""
        C_rf = T.alloc_buffer((7, 13, 16))
        for j_0, i, k in T.grid(12, 7, 109):
            ...
        for j_1, i_1, k_1_0, k_1_1 in T.grid(1, 7, 7, 16):
            with T.block("C_j_1_rf"):
                v_i = T.axis.spatial(7, i_1)
                v_j = T.axis.spatial(13, j_1 + 12)
                v_k_1_1 = T.axis.spatial(16, k_1_1)
                v_k_1_0 = T.axis.reduce(7, k_1_0)
                T.where(k_1_0 * 16 + k_1_1 < 109)
                with T.init():
                    C_rf[v_i, v_j, v_k_1_1] = T.float32(0.0)
                C_rf[v_i, v_j, v_k_1_1] = C_rf[v_i, v_j, v_k_1_1] + A[v_i, v_k_1_0 * 16 + v_k_1_1] * B[v_k_1_0 * 16 + v_k_1_1, v_j]
        for j_1_1, i_1_1, k_1_1_1 in T.grid(1, 7, 16):
            with T.block("C_j_1"):
                v_i = T.axis.spatial(7, i_1_1)
                v_j = T.axis.spatial(13, j_1_1 + 12)
                v_k_1_1 = T.axis.reduce(16, k_1_1_1)
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + C_rf[v_i, v_j, v_k_1_1]
    """)


def test_outer_part():
    s = Checked(matmul(7, 109, 13))
    ko, _ = s.split("k", [None, 16])
    assert s.rfactor(ko, 0) == "C_rf"
    s.becomes("""
        C_rf = T.alloc_buffer((7, 7, 13))
        for i, j, k_0, k_1 in T.grid(7, 13, 7, 16):
            with T.block("C_rf"):
                v_i, v_j, v_k_0, v_k_1 = T.axis.remap("SSSR", [i, j, k_0, k_1])
                T.where(k_0 * 16 + k_1 < 109)
                with T.init():
                    C_rf[v_k_0, v_i, v_j] = T.float32(0.0)
                C_rf[v_k_0, v_i, v_j] = C_rf[v_k_0, v_i, v_j] + A[v_i, v_k_0 * 16 + v_k_1] * B[v_k_0 * 16 + v_k_1, v_j]
        for i_1, j_1, k_0_1 in T.grid(7, 13, 7):
            with T.block("C"):
                v_i, v_j, v_k_0 = T.axis.remap("SSR", [i_1, j_1, k_0_1])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + C_rf[v_k_0, v_i, v_j]
    """)


def test_inner_part_as_the_last_dimension():
    s = Checked(matmul(7, 109, 13))
    _, ki = s.split("k", [None, 16])
    s.rfactor(ki, -1)
    s.becomes("""
        C_rf = T.alloc_buffer((7, 13, 16))
        for i, j, k_0, k_1 in T.grid(7, 13, 7, 16):
            with T.block("C_rf"):
                v_i, v_j, v_k_1, v_k_0 = T.axis.remap("SSSR", [i, j, k_1, k_0])
                T.where(k_0 * 16 + k_1 < 109)
                with T.init():
                    C_rf[v_i, v_j, v_k_1] = T.float32(0.0)
                C_rf[v_i, v_j, v_k_1] = C_rf[v_i, v_j, v_k_1] + A[v_i, v_k_0 * 16 + v_k_1] * B[v_k_0 * 16 + v_k_1, v_j]
        for i_1, j_1, k_1_1 in T.grid(7, 13, 16):
            with T.block("C"):
                v_i, v_j, v_k_1 = T.axis.remap("SSR", [i_1, j_1, k_1_1])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + C_rf[v_i, v_j, v_k_1]
    """)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_loop_of_one_iteration(axis):
    """Such as a split leaves: the one partial result is the whole."""
    s = Checked(f"""
        @T.prim_func
        def main(A: T.Buffer((7, 13), "float32"), B: T.Buffer((7,), "float32")):
            for i, u, k in T.grid(7, {"1, 13" if axis else "13, 1"}):
                with T.block("B"):
                    v_i = T.axis.spatial(7, i)
                    v_k = T.axis.reduce(13, {"k" if axis else "u"})
                    with T.init():
                        B[v_i] = T.float32(0)
                    B[v_i] = B[v_i] + A[v_i, v_k]
    """)
    s.rfactor("u" if axis else "k", axis)
    shape, place = ("(7, 1)", "v_i, v_u") if axis else ("(1, 7)", "v_k_1, v_i")
    assert f"B_rf = T.alloc_buffer({shape})" in s.script and f"B[v_i] = B[v_i] + B_rf[{place}]" in s.script, s.script
    well_formed(s.func)
    same_numbers(s.before, s.func)


def test_whole_reduction_leaves_no_init():
    s = Checked(matmul())
    s.rfactor("k", 1)
    s.becomes("""
        C_rf = T.alloc_buffer((7, 5, 13))
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C_rf"):
                v_i, v_j, v_k = T.axis.remap("SSS", [i, j, k])
                C_rf[v_i, v_k, v_j] = A[v_i, v_k] * B[v_k, v_j]
        for i_1, j_1, k_1 in T.grid(7, 13, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i_1, j_1, k_1])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + C_rf[v_i, v_k, v_j]
    """)


def test_guard_that_excludes_whole_parts():
    s = Checked(matmul(3, 5, 2))
    ko, _ = s.split("k", [4, 4])
    s.rfactor(ko)
    s.becomes("""
        C_rf = T.alloc_buffer((4, 3, 2))
        for i, j, k_0, k_1 in T.grid(3, 2, 4, 4):
            with T.block("C_rf"):
                v_i, v_j, v_k_0, v_k_1 = T.axis.remap("SSSR", [i, j, k_0, k_1])
                with T.init():
                    C_rf[v_k_0, v_i, v_j] = T.float32(0.0)
                if v_k_0 * 4 + v_k_1 < 5:
                    C_rf[v_k_0, v_i, v_j] = C_rf[v_k_0, v_i, v_j] + A[v_i, v_k_0 * 4 + v_k_1] * B[v_k_0 * 4 + v_k_1, v_j]
        for i_1, j_1, k_0_1 in T.grid(3, 2, 4):
            with T.block("C"):
                v_i, v_j, v_k_0 = T.axis.remap("SSR", [i_1, j_1, k_0_1])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + C_rf[v_k_0, v_i, v_j]
    """)


def test_two_reduction_axes_fused_and_a_condition():
    A = te.placeholder((7, 3, 5), name="A")
    r, q = te.reduce_axis((0, 3), name="r"), te.reduce_axis((0, 5), name="q")
    C = te.compute((7,), lambda i: te.sum(A[i, r, q], axis=[r, q], where=r.value + q.value < 6), name="C")
    s = Checked(te.create_prim_func([A, C]))
    rq = s.fuse("r", "q")
    _, inner = s.split(rq, [None, 4])
    s.rfactor(inner)
    s.becomes("""
        C_rf = T.alloc_buffer((4, 7))
        for i, r_q_fused_0, r_q_fused_1 in T.grid(7, 4, 4):
            with T.block("C_rf"):
                v_i, v_r_q_fused_1, v_r_q_fused_0 = T.axis.remap("SSR", [i, r_q_fused_1, r_q_fused_0])
                T.where(r_q_fused_0 * 4 + r_q_fused_1 < 15)
                with T.init():
                    C_rf[v_r_q_fused_1, v_i] = T.float32(0.0)
                C_rf[v_r_q_fused_1, v_i] = T.if_then_else((v_r_q_fused_0 * 4 + v_r_q_fused_1) // 5 + (v_r_q_fused_0 * 4 + v_r_q_fused_1) % 5 < 6, C_rf[v_r_q_fused_1, v_i] + A[v_i, (v_r_q_fused_0 * 4 + v_r_q_fused_1) // 5, (v_r_q_fused_0 * 4 + v_r_q_fused_1) % 5], C_rf[v_r_q_fused_1, v_i])
        for i_1, r_q_fused_1_1 in T.grid(7, 4):
            with T.block("C"):
                v_i, v_r_q_fused_1 = T.axis.remap("SR", [i_1, r_q_fused_1_1])
                with T.init():
                    C[v_i] = T.float32(0.0)
                C[v_i] = C[v_i] + C_rf[v_r_q_fused_1, v_i]
    """)


def test_inside_of_a_loop_with_other_statements():
    A = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    C = te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="C")
    D = te.compute((7,), lambda i: C[i] * 2.0, name="D")
    s = Checked(te.create_prim_func([A, D]))
    s.compute_at("C", s.get_loops("D")[0])
    _, ki = s.split(s.get_loops("C")[1], [None, 4])
    s.rfactor(ki)
    s.becomes("""
        C = T.alloc_buffer((7,))
        C_rf = T.alloc_buffer((4, 7))
        for i_1 in range(7):
            for ax0_0, ax0_1 in T.grid(4, 4):
                with T.block("C_rf"):
                    v_i, v_ax0_1, v_ax0_0 = T.axis.remap("SSR", [i_1, ax0_1, ax0_0])
                    T.where(ax0_0 * 4 + ax0_1 < 13)
                    with T.init():
                        C_rf[v_ax0_1, v_i] = T.float32(0.0)
                    C_rf[v_ax0_1, v_i] = C_rf[v_ax0_1, v_i] + A[v_i, v_ax0_0 * 4 + v_ax0_1]
            for ax0_1_1 in range(4):
                with T.block("C"):
                    v_i, v_ax0_1 = T.axis.remap("SR", [i_1, ax0_1_1])
                    with T.init():
                        C[v_i] = T.float32(0.0)
                    C[v_i] = C[v_i] + C_rf[v_ax0_1, v_i]
            with T.block("D"):
                v_i = T.axis.spatial(7, i_1)
                D[v_i] = C[v_i] * T.float32(2.0)
    """)


@pytest.mark.parametrize("reducer", [te.sum, te.max, te.min, te.prod], ids=lambda r: r.name)
@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
@pytest.mark.parametrize("part", [0, 1])
def test_known_reducers(reducer, dtype, part):
    before = reduction(reducer, dtype, 13)
    s = Schedule(before)
    s.rfactor(s.split("k", [None, 4])[part])
    same_numbers(before, s.func)
    well_formed(s.func)


@pytest.mark.parametrize("part", [0, 1])
def test_several_values(part):
    before = arg_reduction(first_of_equals)
    s = Schedule(before)
    s.rfactor(s.split("k", [None, 4])[part])
    same_numbers(before, s.func)
    well_formed(s.func)


def test_order_is_kept_by_the_outer_part():
    s = Checked(arg_reduction(lambda x, y: x[1] >= y[1]))
    s.rfactor(s.split("k", [None, 4])[0])
    s.becomes("""
        R_v0_rf = T.alloc_buffer((4, 7), "int32")
        R_v1_rf = T.alloc_buffer((4, 7))
        for i, k_0, k_1 in T.grid(7, 4, 4):
            with T.block("R_rf"):
                v_i, v_k_0, v_k_1 = T.axis.remap("SSR", [i, k_0, k_1])
                T.where(k_0 * 4 + k_1 < 13)
                with T.init():
                    R_v0_rf[v_k_0, v_i] = 2147483647
                    R_v1_rf[v_k_0, v_i] = T.float32(-1e+30)
                v_R_v0_rf: T.int32 = T.Select(R_v1_rf[v_k_0, v_i] >= A[v_i, v_k_0 * 4 + v_k_1], R_v0_rf[v_k_0, v_i], v_k_0 * 4 + v_k_1)
                v_R_v1_rf: T.float32 = T.Select(R_v1_rf[v_k_0, v_i] >= A[v_i, v_k_0 * 4 + v_k_1], R_v1_rf[v_k_0, v_i], A[v_i, v_k_0 * 4 + v_k_1])
                R_v0_rf[v_k_0, v_i] = v_R_v0_rf
                R_v1_rf[v_k_0, v_i] = v_R_v1_rf
        for i_1, k_0_1 in T.grid(7, 4):
            with T.block("R"):
                v_i, v_k_0 = T.axis.remap("SR", [i_1, k_0_1])
                with T.init():
                    R_v0[v_i] = 2147483647
                    R_v1[v_i] = T.float32(-1e+30)
                v_R_v0_rf_1: T.int32 = T.Select(R_v1[v_i] >= R_v1_rf[v_k_0, v_i], R_v0[v_i], R_v0_rf[v_k_0, v_i])
                v_R_v1_rf_1: T.float32 = T.Select(R_v1[v_i] >= R_v1_rf[v_k_0, v_i], R_v1[v_i], R_v1_rf[v_k_0, v_i])
                R_v0[v_i] = v_R_v0_rf_1
                R_v1[v_i] = v_R_v1_rf_1
    """)


def test_a_reducer_of_conditions():
    """Whether any, and whether all are positive."""
    both = te.comm_reducer(
        lambda x, y: (te.any(x[0], y[0]), te.all(x[1], y[1])), lambda a, b: (te.const(False, a), te.const(True, b)), name="both"
    )
    A = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    X, Y = te.compute((7,), lambda i: both((A[i, k] > 0.0, A[i, k] > 0.0), axis=k), name="X")
    before = te.create_prim_func([A, X, Y])
    s = Schedule(before)
    s.rfactor(s.split("k", [None, 4])[1])
    same_numbers(before, s.func)


def test_refuses_spatial_loops_and_fused_ones():
    s = Checked(matmul())
    s.refuses("""
        rfactor('j'): `j` drives spatial axes of `C`, not its reduction alone
            8 |     for i, j, k in T.grid(7, 13, 5):
              |            ^ drives spatial axes
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: loops of the reduction are `k`
    """)
    s.fuse("j", "k")
    s.refuses("""
        rfactor('j_k_fused'): `j_k_fused` drives spatial axes of `C`, not its reduction alone
            8 |     for i, j_k_fused in T.grid(7, 65):
              |            ^^^^^^^^^ drives spatial axes
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: rfactor before the loops are fused
    """)


def test_refuses_blocks_that_reduce_nothing():
    Checked(chain()).refuses("""
        rfactor('i'): `B` is not a reduction with its init
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: only what a block adds up can be factored
    """)
    s = Checked(matmul())
    s.decompose_reduction("C", "k")
    s.refuses("""
        rfactor('k'): `C_update` is not a reduction with its init
           13 |             with T.block("C_update"):
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^ the block
          hint: rfactor before decompose_reduction
    """)
    s.refuses("""
        rfactor('i'): `i` must have one block below it, not `C_init` and `C_update`
            8 |     for i, j in T.grid(7, 13):
              |         ^ the loop
            9 |         with T.block("C_init"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^ below
           10 |             v_i, v_j = T.axis.remap("SS", [i, j])
           11 |             C[v_i, v_j] = T.float32(0.0)
           12 |         for k in range(5):
           13 |             with T.block("C_update"):
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^ below
          hint: choose a loop further inside, and rfactor before decompose_reduction
    """)


def test_refuses_a_factor_axis_out_of_range():
    s = Checked(matmul())
    s.refuses("""
        rfactor('k', 3): factor_axis must be from -3 to 2 for a result of rank 2, got 3
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
    """)
    s.refuses("""
        rfactor('k', -4): factor_axis must be from -3 to 2 for a result of rank 2, got -4
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
    """)


def test_refuses_a_reduction_loop_with_other_statements():
    s = Checked(sums_of_chain())
    ko, ki = s.split("k", [None, 4])
    s.compute_at("B", ko)
    with s.refusal("""
        rfactor('k_1'): `k_0` drives the reduction, and has more below it than `C`
            9 |     for i_1, k_0 in T.grid(7, 4):
              |              ^^^ drives the reduction
              ...
           17 |             with T.block("C"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: move what else it holds out of `k_0` first
    """):
        s.rfactor(ki)
    with s.refusal("""
        rfactor('k_0'): `k_0` must have one block below it, not `B` and `C`
            9 |     for i_1, k_0 in T.grid(7, 4):
              |              ^^^ the loop
           10 |         for ax0 in range(4):
           11 |             with T.block("B"):
              |             ^^^^^^^^^^^^^^^^^^ below
              ...
           17 |             with T.block("C"):
              |             ^^^^^^^^^^^^^^^^^^ below
          hint: choose a loop further inside, and rfactor before decompose_reduction
    """):
        s.rfactor(ko)


def test_refuses_a_condition_over_reduction_and_other_axes():
    func = reduction()
    C = blocks(func)[0]
    s = Checked(replace_stmt(func, C, C.with_(predicate=Var("i") + Var("k") < Const(9))))
    _, ki = s.split("k", [None, 4])
    with s.refusal("""
        rfactor('k_1'): the condition `i + k_0 * 4 + k_1 < 9` of `C` concerns the reduction and other axes together
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: split by factors that divide the extents, or peel the loop first
    """):
        s.rfactor(ki)


def test_refuses_a_reduction_that_goes_on_in_other_iterations_of_the_enclosing_block():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 7, 2), "int32"), C: T.Buffer((4,), "int32")):
    for i, r in T.grid(4, 7):
        with T.block("rows"):
            v_i, v_r = T.axis.remap("SR", [i, r])
            for q in range(2):
                with T.block("C"):
                    v_i_1 = T.axis.spatial(4, v_i)
                    v_r_1 = T.axis.reduce(7, v_r)
                    v_q = T.axis.reduce(2, q)
                    with T.init():
                        C[v_i_1] = 0
                    C[v_i_1] = C[v_i_1] + A[v_i_1, v_r_1, v_q]
""")
    s = Checked(func)
    with s.refusal("""
        rfactor('q'): `C` goes on reducing over `v_r_1` in other iterations of `rows`, in which its partial results are allocated
            8 |         with T.block("rows"):
              |         ^^^^^^^^^^^^^^^^^^^^^ its `v_r` drives the reduction
            9 |             v_i, v_r = T.axis.remap("SR", [i, r])
           10 |             for q in range(2):
           11 |                 with T.block("C"):
              |                 ^^^^^^^^^^^^^^^^^^ reduces
          hint: do this before blockize
    """):
        s.rfactor("q")


def test_a_condition_over_a_loop_around_is_over_its_axis():
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((5, 7), "float32"), C: T.Buffer((5,), "float32"), D: T.Buffer((5,), "float32")):
            for i in range(5):
                for k in range(7):
                    with T.block("C"):
                        v_i, v_k = T.axis.remap("SR", [i, k])
                        T.where(k <= i)
                        with T.init():
                            C[v_i] = T.float32(0.0)
                        C[v_i] = C[v_i] + A[v_i, v_k]
                with T.block("D"):
                    v_i = T.axis.spatial(5, i)
                    D[v_i] = C[v_i] * T.float32(2.0)
    """)
    s.rfactor("k", 0)
    s.becomes("""
        C_rf = T.alloc_buffer((7, 5))
        for i in range(5):
            for k in range(7):
                with T.block("C_rf"):
                    v_i, v_k = T.axis.remap("SS", [i, k])
                    C_rf[v_k, v_i] = T.if_then_else(v_k <= v_i, A[v_i, v_k], T.float32(0.0))
            for k_1 in range(7):
                with T.block("C"):
                    v_i, v_k = T.axis.remap("SR", [i, k_1])
                    with T.init():
                        C[v_i] = T.float32(0.0)
                    C[v_i] = C[v_i] + C_rf[v_k, v_i]
            with T.block("D"):
                v_i = T.axis.spatial(5, i)
                D[v_i] = C[v_i] * T.float32(2.0)
    """)


def test_axes_have_names_of_their_own():
    """Though the loop of the reduction is called as that of the rows was, of which the axis still is `v_i`."""
    s = Checked(reduction())
    s.split("i", [None], names=["row"])
    s.split("k", [None], names=["i"])
    s.rfactor("i")
    s.becomes("""
        C_rf = T.alloc_buffer((13, 7))
        for row, i in T.grid(7, 13):
            with T.block("C_rf"):
                v_i, v_i_1 = T.axis.remap("SS", [row, i])
                C_rf[v_i_1, v_i] = A[v_i, v_i_1]
        for row_1, i_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_i_1 = T.axis.remap("SR", [row_1, i_1])
                with T.init():
                    C[v_i] = T.float32(0.0)
                C[v_i] = C[v_i] + C_rf[v_i_1, v_i]
    """)


def test_refuses_an_extent_that_depends_on_another_loop():
    """Also on one that holds more."""
    s = Checked("""
        from tir.script import tir as T

        @T.prim_func
        def main(A: T.Buffer((7, 8), "float32"), B: T.Buffer((7,), "float32")):
            for i in range(7):
                for j in range(i + 1):
                    with T.block("B"):
                        vi = T.axis.spatial(7, i)
                        vj = T.axis.reduce(8, j)
                        with T.init():
                            B[vi] = T.float32(0.0)
                        B[vi] = B[vi] + A[vi, vj]
    """)
    with s.refusal("""
        rfactor('j'): the extent of `j` depends on other loops
            8 |         for j in range(i + 1):
              |         ^^^^^^^^^^^^^^^^^^^^^^ runs over i + 1
          hint: give the inner loop the largest extent, and its block a condition (T.where) for what is left out
    """):
        s.rfactor("j")
    s.read_at("i", "B", 0, "local")
    with s.refusal("""
        rfactor('j'): the extent of `j` depends on other loops
           14 |         for j in range(i + 1):
              |         ^^^^^^^^^^^^^^^^^^^^^^ runs over i + 1
          hint: give the inner loop the largest extent, and its block a condition (T.where) for what is left out
    """):
        s.rfactor("j")
