import pytest

from schedule import Schedule
from tests.programs import chain, matmul, relu_of_matmul
from tests.schedule.harness import Checked, same_numbers, well_formed
from tests.schedule.primitives.reductions.programs import IN_TURN
from tir import te
from tir.ir import Const, For, Var
from tir.script import parse
from tir.traverse import blocks, replace_stmt


def test_before_the_reduction_loop():
    s = Checked(matmul())
    assert s.decompose_reduction("C", "k") == "C_init"
    s.becomes("""
        for i, j in T.grid(7, 13):
            with T.block("C_init"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                C[v_i, v_j] = T.float32(0.0)
            for k in range(5):
                with T.block("C_update"):
                    v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                    C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_before_the_outermost_loop():
    s = Checked(matmul())
    s.decompose_reduction("C", "i")
    s.becomes("""
        for i_init, j_init in T.grid(7, 13):
            with T.block("C_init"):
                v_i, v_j = T.axis.remap("SS", [i_init, j_init])
                C[v_i, v_j] = T.float32(0.0)
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C_update"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_spatial_loops_as_long_as_where_the_reduction_starts():
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((7,), "float32"), B: T.Buffer((7,), "float32")):
            for k in range(7):
                for i in range(7 - k):
                    with T.block("B"):
                        vi = T.axis.spatial(7, i)
                        vk = T.axis.reduce(7, k)
                        with T.init():
                            B[vi] = T.float32(0.0)
                        B[vi] = B[vi] + A[vk]
    """)
    s.decompose_reduction("B", "k")
    s.becomes("""
        for i_init in range(7):
            with T.block("B_init"):
                vi = T.axis.spatial(7, i_init)
                B[vi] = T.float32(0.0)
        for k in range(7):
            for i in range(7 - k):
                with T.block("B_update"):
                    vi = T.axis.spatial(7, i)
                    vk = T.axis.reduce(7, k)
                    B[vi] = B[vi] + A[vk]
    """)


def test_tiled_with_guards_and_marked_loops():
    s = Checked(matmul(7, 5, 13))
    i, j, k = s.get_loops("C")
    io, ii = s.split(i, [None, 4])
    jo, ji = s.split(j, [None, 8])
    ko, ki = s.split(k, [None, 2])
    s.reorder(io, jo, ko, ii, ki, ji)
    s.vectorize(ji)
    s.annotate("C", "tiling", "SSRSRS")
    s.annotate(ii, "unroll_hint", 4)
    s.decompose_reduction("C", ko)
    s.becomes("""
        for i_0, j_0 in T.grid(2, 2):
            for i_1_init in T.serial(4, annotations={"unroll_hint": 4}):
                for j_1_init in T.vectorized(8):
                    with T.block("C_init"):
                        v_i = T.axis.spatial(7, i_0 * 4 + i_1_init)
                        v_j = T.axis.spatial(13, j_0 * 8 + j_1_init)
                        T.where(i_0 * 4 + i_1_init < 7 and j_0 * 8 + j_1_init < 13)
                        T.block_attr({"tiling": "SSRSRS"})
                        C[v_i, v_j] = T.float32(0.0)
            for k_0 in range(3):
                for i_1 in T.serial(4, annotations={"unroll_hint": 4}):
                    for k_1 in range(2):
                        for j_1 in T.vectorized(8):
                            with T.block("C_update"):
                                v_i = T.axis.spatial(7, i_0 * 4 + i_1)
                                v_j = T.axis.spatial(13, j_0 * 8 + j_1)
                                v_k = T.axis.reduce(5, k_0 * 2 + k_1)
                                T.where(i_0 * 4 + i_1 < 7 and j_0 * 8 + j_1 < 13 and k_0 * 2 + k_1 < 5)
                                T.block_attr({"tiling": "SSRSRS"})
                                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_outer_loops_of_the_window_repeat():
    before = relu_of_matmul()
    s = Schedule(before)
    io, _ = s.split(s.get_loops("D")[0], [None, 3])
    s.compute_at("C", io)
    s.decompose_reduction("C", s.get_loops("C")[1])
    same_numbers(before, s.func)
    well_formed(s.func)


@pytest.mark.parametrize("level", range(4))
def test_every_legal_loop(level):
    before = matmul(7, 5, 13)
    s = Schedule(before)
    i, j, k = s.get_loops("C")
    io, ii = s.split(i, [None, 3])
    ko, ki = s.split(k, [2, None])
    s.reorder(io, j, ii, ko, ki)
    s.decompose_reduction("C", s.get_loops("C")[level])
    same_numbers(before, s.func)
    well_formed(s.func)


def test_reader_in_the_same_iteration():
    A = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    C = te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="C")
    D = te.compute((7,), lambda i: C[i] * 2.0, name="D")
    s = Checked(te.create_prim_func([A, C, D]))
    s.reverse_compute_at("D", "i")
    s.decompose_reduction("C", "i")
    s.becomes("""
        for i_init in range(7):
            with T.block("C_init"):
                v_i = T.axis.spatial(7, i_init)
                C[v_i] = T.float32(0.0)
        for i in range(7):
            for k in range(13):
                with T.block("C_update"):
                    v_i, v_k = T.axis.remap("SR", [i, k])
                    C[v_i] = C[v_i] + A[v_i, v_k]
            with T.block("D"):
                v_i = T.axis.spatial(7, i)
                D[v_i] = C[v_i] * T.float32(2.0)
    """)


def test_refuses_a_block_without_init():
    s = Checked(matmul())
    s.decompose_reduction("C", "k")
    s.refuses("""
        decompose_reduction('C_update', 'k'): `C_update` has no init
           13 |             with T.block("C_update"):
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^ no init
          hint: it has been decomposed already
    """)
    Checked(chain()).refuses("""
        decompose_reduction('C', 'i_1'): `C` has no init
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ no init
          hint: only a reduction, with T.init(), has one
    """)


def test_refuses_another_nest():
    Checked(relu_of_matmul()).refuses("""
        decompose_reduction('C', 'i_1'): `i_1` is not a loop around `C`; these are `i`, `j` and `k`
           10 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
              ...
           15 |     for i_1, j_1 in T.grid(7, 13):
              |         ^^^ the loop
    """)


def test_refuses_a_reduction_loop_outside():
    s = Checked(matmul())
    s.reorder("k", "i")
    s.refuses("""
        decompose_reduction('C', 'j'): `k` is outside of `j` and drives the reduction, so the init would run in each of its iterations
            8 |     for k, j, i in T.grid(5, 13, 7):
              |         ^ drives the reduction
              |            ^ the loop
          hint: decompose_reduction('C', 'k')
    """)


def test_refuses_a_loop_that_drives_both():
    s = Checked(matmul())
    s.fuse("j", "k")
    s.refuses("""
        decompose_reduction('C', 'j_k_fused'): `j_k_fused` drives the reduction and spatial axes of `C`, so the init has no loop of its own
            8 |     for i, j_k_fused in T.grid(7, 65):
              |            ^^^^^^^^^ drives both
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: decompose_reduction before the loops are fused
    """)


def test_refuses_points_that_are_visited_again():
    func = matmul()
    loop = func.body
    s = Checked(func.with_(body=For(Var("again"), Const(3), loop)))
    s.refuses("""
        decompose_reduction('C', 'again'): it cannot be shown that `C` visits each of its points once under `again`: `again` repeats `C`
            8 |     for again, i, j, k in T.grid(3, 7, 13, 5):
              |         ^^^^^ the loop
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: do this before `C` is moved under `again`, or choose a loop inside `again`
    """)


def test_refuses_a_reduction_that_starts_elsewhere():
    func = matmul()
    C = blocks(func)[0]
    *spatial, k = C.iters
    turned = C.with_(iters=(*spatial, k.with_(binding=4 - k.binding)))
    s = Checked(replace_stmt(func, C, turned))
    s.refuses("""
        decompose_reduction('C', 'k'): the reduction axis `v_k` starts at `4`, where no init runs
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: let `v_k` start at 0
    """)


def test_refuses_a_reader_of_old_contents():
    A = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    C = te.compute((8,), lambda i: te.sum(A[te.minimum(i, 6), k], axis=k), name="C")
    D = te.compute((8,), lambda i: C[i] * 2.0, name="D")
    func = te.create_prim_func([A, C, D])
    s = Checked(func)
    s.reverse_compute_at("D", "i")
    D = blocks(s.func)[1]
    (v,) = (it.var for it in D.iters)
    s = Checked(replace_stmt(s.func, D, D.with_(body=D.body.with_(value=blocks(func)[0].body.buffer[7 - v]))))
    s.refuses("""
        decompose_reduction('C', 'i'): `D` uses `C` under `i`, and could see that it is initialised earlier
            8 |     for i in range(8):
              |     ^^^^^^^^^^^^^^^^^^ the loop
            9 |         for k in range(13):
           10 |             with T.block("C"):
              |             ^^^^^^^^^^^^^^^^^^ writes C
              ...
           15 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ uses C
          hint: choose a loop that is not around `D`
    """)


def test_refuses_threads_that_reduce_together():
    s = Checked(matmul())
    s.bind("k", "threadIdx.x")
    s.refuses("""
        decompose_reduction('C', 'k'): `k`, which drives the reduction, is bound to threadIdx.x: threads that reduce together need the init
            9 |         for k in T.thread_binding(5, thread="threadIdx.x"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ drives the reduction
           10 |             with T.block("C"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: do this before bind
    """)


def test_refuses_an_init_that_reads_what_is_made_in_the_loop():
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((7, 13), "float32"), E: T.Buffer((7,), "float32"), D: T.Buffer((7,), "float32")):
            for i, k in T.grid(7, 13):
                with T.block("D"):
                    v_i, v_k = T.axis.remap("SR", [i, k])
                    with T.init():
                        D[v_i] = E[v_i]
                    D[v_i] = D[v_i] + A[v_i, v_k]
    """)
    s.stage_mem("D", "E", "staged", "local")
    s.refuses("""
        decompose_reduction('D', 'k'): `staged` writes `staged` under `k`, and the init, which reads it, would come before
            8 |     for i, k in T.grid(7, 13):
              |            ^ the loop
            9 |         with T.block("staged"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^ writes staged
           10 |             v0 = T.axis.spatial(7, i)
           11 |             staged[v0] = E[v0]
           12 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ starts from it
          hint: choose a loop that is not around `staged`
    """)


def test_an_opaque_axis_places_the_init():
    s = Checked(parse(IN_TURN))
    s.decompose_reduction("S", "k")
    s.becomes("""
        S = T.alloc_buffer((4, 2))
        for i, j in T.grid(4, 3):
            with T.block("S_init"):
                v_i, v_j = T.axis.remap("SO", [i, j])
                S[v_i, v_j % 2] = T.float32(0.0)
            for k in range(6):
                with T.block("S_update"):
                    v_i, v_j, v_k = T.axis.remap("SOR", [i, j, k])
                    S[v_i, v_j % 2] = S[v_i, v_j % 2] + A[v_i, v_j, v_k]
            with T.block("E"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                E[v_i, v_j] = S[v_i, v_j % 2]
    """)


def test_refuses_inits_before_the_updates_of_an_earlier_value_of_an_opaque_axis():
    Checked(parse(IN_TURN)).refuses("""
        decompose_reduction('S', 'j'): `j` drives an opaque axis of `S`, and all of its inits would run before its updates
            8 |     for i, j in T.grid(4, 3):
              |            ^ drives an opaque axis
            9 |         for k in range(6):
           10 |             with T.block("S"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: choose a loop inside of `j`
    """)
