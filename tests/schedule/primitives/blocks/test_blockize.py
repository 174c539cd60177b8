from tests.programs import chain, elementwise, matmul, reduction, relu_of_matmul, stencil, vector, window_sums
from tests.schedule.harness import Checked
from tests.schedule.primitives.reductions.programs import IN_TURN
from tir import te
from tir.ir import Const, For, Var
from tir.script import parse
from tir.traverse import path_to, replace_stmt


def again():
    """The sums of rows, computed three times."""
    func = reduction()
    loop = path_to(func, "k")[-1]
    return func.with_(body=replace_stmt(func.body, loop, For(Var("again"), Const(3), loop)))


def test_a_tile():
    s = Checked(elementwise(8, 6))
    s.tile("i0", "i1", 4, 3)
    assert s.blockize("i0_1") == "B_o"
    assert s.get_loops("B") == ["i0_1", "i1_1"] and s.get_child_blocks("B_o") == ["B"]
    s.becomes("""
        for i0_0, i1_0 in T.grid(2, 2):
            with T.block("B_o"):
                v_i0_o, v_i1_o = T.axis.remap("SS", [i0_0, i1_0])
                for i0_1, i1_1 in T.grid(4, 3):
                    with T.block("B"):
                        v_i0_i, v_i1_i = T.axis.remap("SS", [i0_1, i1_1])
                        B[v_i0_o * 4 + v_i0_i, v_i1_o * 3 + v_i1_i] = A[v_i0_o * 4 + v_i0_i, v_i1_o * 3 + v_i1_i] + T.float32(1.0)
    """)


def test_a_tile_that_does_not_divide():
    s = Checked(elementwise(7, 13))
    s.tile("i0", "i1", 4, 4)
    s.blockize("i0_1")
    s.becomes("""
        for i0_0, i1_0 in T.grid(2, 4):
            with T.block("B_o"):
                v_i0_o, v_i1_o = T.axis.remap("SS", [i0_0, i1_0])
                for i0_1, i1_1 in T.grid(4, 4):
                    with T.block("B"):
                        v_i0_i, v_i1_i = T.axis.remap("SS", [i0_1, i1_1])
                        T.where(v_i0_o * 4 + i0_1 < 7 and v_i1_o * 4 + i1_1 < 13)
                        B[v_i0_o * 4 + v_i0_i, v_i1_o * 4 + v_i1_i] = A[v_i0_o * 4 + v_i0_i, v_i1_o * 4 + v_i1_i] + T.float32(1.0)
    """)


def test_a_reduction():
    s = Checked(matmul())
    s.blockize("j")
    s.becomes("""
        for i in range(7):
            with T.block("C_o"):
                v_i_o = T.axis.spatial(7, i)
                v_j_o = T.axis.spatial(1, 0)
                v_k_o = T.axis.reduce(1, 0)
                with T.init():
                    for j_init in range(13):
                        with T.block("C_init"):
                            v_i_i = T.axis.spatial(1, 0)
                            v_j_i = T.axis.spatial(13, j_init)
                            C[v_i_o + v_i_i, v_j_o * 13 + v_j_i] = T.float32(0.0)
                for j, k in T.grid(13, 5):
                    with T.block("C"):
                        v_i_i = T.axis.spatial(1, 0)
                        v_j_i = T.axis.spatial(13, j)
                        v_k_i = T.axis.reduce(5, k)
                        C[v_i_o + v_i_i, v_j_o * 13 + v_j_i] = C[v_i_o + v_i_i, v_j_o * 13 + v_j_i] + A[v_i_o + v_i_i, v_k_o * 5 + v_k_i] * B[v_k_o * 5 + v_k_i, v_j_o * 13 + v_j_i]
    """)


def test_without_unit_axes():
    s = Checked(matmul())
    s.blockize("j", preserve_unit_iters=False)
    s.becomes("""
        for i in range(7):
            with T.block("C_o"):
                v_i_o = T.axis.spatial(7, i)
                for j, k in T.grid(13, 5):
                    with T.block("C"):
                        v_j_i, v_k_i = T.axis.remap("SR", [j, k])
                        with T.init():
                            C[v_i_o, v_j_i] = T.float32(0.0)
                        C[v_i_o, v_j_i] = C[v_i_o, v_j_i] + A[v_i_o, v_k_i] * B[v_k_i, v_j_i]
    """)


def test_a_tiled_reduction():
    s = Checked(matmul())
    s.split("j", [None, 4])
    s.split("i", [None, 2])
    s.split("k", [None, 2])
    s.reorder("i_0", "j_0", "k_0", "i_1", "j_1", "k_1")
    s.blockize("i_1")
    s.decompose_reduction("C_o", "k_0")
    s.becomes("""
        for i_0, j_0 in T.grid(4, 4):
            with T.block("C_o_init"):
                v_i_o, v_j_o = T.axis.remap("SS", [i_0, j_0])
                for i_1_init, j_1_init in T.grid(2, 4):
                    with T.block("C_init"):
                        ...
            for k_0 in range(3):
                with T.block("C_o_update"):
                    v_i_o, v_j_o, v_k_o = T.axis.remap("SSR", [i_0, j_0, k_0])
                    for i_1, j_1, k_1 in T.grid(2, 4, 2):
                        with T.block("C"):
                            ...
    """)


def test_a_block_in_a_block():
    s = Checked(vector(24))
    s.split("i", [2, 3, 4])
    s.blockize("i_1")
    s.blockize("i_2")
    s.becomes("""
        for i_0 in range(2):
            with T.block("B_o"):
                v_i_o = T.axis.spatial(2, i_0)
                for i_1 in range(3):
                    with T.block("B_o_1"):
                        v_i_i_o = T.axis.spatial(3, i_1)
                        for i_2 in range(4):
                            with T.block("B"):
                                v_i_i_i = T.axis.spatial(4, i_2)
                                B[v_i_o * 12 + (v_i_i_o * 4 + v_i_i_i)] = A[v_i_o * 12 + (v_i_i_o * 4 + v_i_i_i)] * T.float32(2.0)
    """)


def test_what_is_beyond_the_domain():
    s = Checked(vector(13))
    s.split("i", [7, 4])
    s.blockize("i_1")
    s.becomes("""
        for i_0 in range(7):
            with T.block("B_o"):
                v_i_o = T.axis.spatial(4, i_0)
                T.where(i_0 < 4)
                for i_1 in range(4):
                    with T.block("B"):
                        v_i_i = T.axis.spatial(4, i_1)
                        T.where(v_i_o * 4 + i_1 < 13)
                        B[v_i_o * 4 + v_i_i] = A[v_i_o * 4 + v_i_i] * T.float32(2.0)
    """)


def test_a_condition_with_large_numbers_stays_exact():
    """36028797018963972 is no float: rounded to one, the condition would hold for i_0 = 5, too."""
    text = """
from tir.script import tir as T

@T.prim_func
def main(A: T.Buffer((28,), "float32"), B: T.Buffer((28,), "float32")):
    for i_0, i_1 in T.grid(T.int64(7), T.int64(4)):
        with T.block("B"):
            vi = T.axis.spatial(T.int64(28), i_0 * T.int64(4) + i_1)
            T.where(i_0 * T.int64(36028797018963972) + i_1 < T.int64(180143985094819860))
            B[vi] = A[vi]
"""
    s = Checked(parse(text))
    s.blockize("i_1")
    s.becomes("""
        for i_0 in range(T.int64(7)):
            with T.block("B_o"):
                vi_o = T.axis.spatial(T.int64(7), i_0)
                for i_1 in range(T.int64(4)):
                    with T.block("B"):
                        vi_i = T.axis.spatial(T.int64(4), i_1)
                        T.where(vi_o * T.int64(36028797018963972) + i_1 < T.int64(180143985094819860))
                        B[vi_o * T.int64(4) + vi_i] = A[vi_o * T.int64(4) + vi_i]
    """)


def test_refusals():
    s = Checked(chain())
    s.merge("i", "i_1")
    s.refuses("""
        blockize('i_m'): `i_m` must hold one block in perfectly nested loops, and nothing else
            9 |     for i_m in range(7):
              |     ^^^^^^^^^^^^^^^^^^^^ holds something else
              |     ^^^^^^^^^^^^^^^^^^^^ the loop
          hint: decompose_reduction or compute_at afterwards, or choose a loop further inside
    """)
    s = Checked(vector(12))
    s.split("i", [3, 2, 2])
    s.reorder("i_0", "i_2", "i_1")
    s.refuses("""
        blockize('i_1'): `v_i` = `i_0 * 4 + i_1 * 2 + i_2` is not tiles outside of `i_1` and places in a tile inside
            8 |     for i_0, i_2, i_1 in T.grid(3, 2, 2):
              |                   ^^^ the loop
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: reorder first, so that of the loops of `v_i` those with the smallest steps are inside
    """)
    s = Checked(matmul())
    i, j = s.get_loops("C")[:2]
    f = s.fuse(i, j)
    s.split(f, [None, 4])
    s.refuses("""
        blockize('i_j_fused_1'): `v_i` = `(i_j_fused_0 * 4 + i_j_fused_1) // 13` mixes loops inside and outside of `i_j_fused_1` in `(i_j_fused_0 * 4 + i_j_fused_1) // 13`
            8 |     for i_j_fused_0, i_j_fused_1, k in T.grid(23, 4, 5):
              |                      ^^^^^^^^^^^ the loop
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: blockize before the loops are fused, or split them by a factor that divides
    """)
    s = Checked(matmul())
    s.fuse("j", "k")
    s.refuses("""
        blockize('j_k_fused'): `j_k_fused` drives the reduction and spatial axes of `C`, so the init has no loop of its own
            8 |     for i, j_k_fused in T.grid(7, 65):
              |            ^^^^^^^^^ drives both
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: decompose_reduction before the loops are fused
    """)
    s = Checked(again())
    s.refuses("""
        blockize('again'): it cannot be shown that `C` visits each of its points once under `again`: `again` repeats `C`
            8 |     for i, again, k in T.grid(7, 3, 13):
              |            ^^^^^ the loop
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ starts each of them with its init
          hint: do this before `C` is moved under `again`, or choose a loop inside `again`
    """)


def test_threads_that_reduce_together_need_the_init():
    s = Checked(matmul())
    s.bind("k", "threadIdx.x")
    s.split("j", [None, 3])
    with s.refusal("""
        blockize('k'): `k`, which drives the reduction, is bound to threadIdx.x: threads that reduce together need the init
            9 |         for k in T.thread_binding(5, thread="threadIdx.x"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ drives the reduction
           10 |             with T.block("C"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: do this before bind
    """):
        s.blockize("k", preserve_unit_iters=True)


# --- several blocks ------------------------------------------------------------------------------------------------------


def test_several_blocks():
    s = Checked(relu_of_matmul())
    s.reverse_compute_at("D", "i")
    assert s.blockize(["C", "D"]) == "outer_C_D_"
    s.becomes("""
        C = T.alloc_buffer((7, 13))
        for i in range(7):
            with T.block("outer_C_D_"):
                v_i_1 = T.axis.spatial(7, i)
                for j, k in T.grid(13, 5):
                    with T.block("C"):
                        v_i = T.axis.spatial(7, v_i_1)
                        v_j = T.axis.spatial(13, j)
                        v_k = T.axis.reduce(5, k)
                        with T.init():
                            C[v_i, v_j] = T.float32(0.0)
                        C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
                for ax0 in range(13):
                    with T.block("D"):
                        v_i = T.axis.spatial(7, v_i_1)
                        v_j = T.axis.spatial(13, ax0)
                        D[v_i, v_j] = T.max(C[v_i, v_j], T.float32(0.0))
    """)
    assert s.get_child_blocks("outer_C_D_") == ["C", "D"]
    assert s.get_output_blocks("outer_C_D_") == ["D"]


def test_neighbours_under_a_loop_of_a_reduction():
    """The iterations of `k` depend on each other: its axis is opaque."""
    s = Checked(matmul())
    s.reorder("k", "i")
    s.cache_read("C", "A", "local")
    s.compute_at("A_local", "k")
    s.blockize(["A_local", "C"])
    s.becomes("""
        A_local = T.alloc_buffer((7, 5), scope="local")
        for k in range(5):
            with T.block("outer_A_local_C_"):
                v_k_1 = T.axis.opaque(5, k)
                for ax0 in range(7):
                    with T.block("A_local"):
                        v0 = T.axis.spatial(7, ax0)
                        v1 = T.axis.spatial(5, v_k_1)
                        A_local[v0, v1] = A[v0, v1]
                for j, i in T.grid(13, 7):
                    with T.block("C"):
                        v_i = T.axis.spatial(7, i)
                        v_j = T.axis.spatial(13, j)
                        v_k = T.axis.reduce(5, v_k_1)
                        with T.init():
                            C[v_i, v_j] = T.float32(0.0)
                        C[v_i, v_j] = C[v_i, v_j] + A_local[v_i, v_k] * B[v_k, v_j]
    """)


def test_the_whole_function():
    s = Checked(chain())
    s.blockize(["C", "B"])
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        with T.block("outer_B_C_"):
            for i, j in T.grid(7, 13):
                with T.block("B"):
            ...
    """)


def test_the_branches_of_a_condition():
    """Blocks of both branches share the condition, which stands inside of the new block."""
    s = Checked(elementwise(7, 13))
    s.add_guard("B", "i0 == 3")
    s.blockize(["B_1", "B"])
    s.becomes("""
        for i0, i1 in T.grid(7, 13):
            with T.block("outer_B_B_1_"):
                v_i0_1, v_i1_1 = T.axis.remap("SS", [i0, i1])
                if v_i0_1 == 3:
                    with T.block("B"):
                        v_i0 = T.axis.spatial(7, v_i0_1)
                        v_i1 = T.axis.spatial(13, v_i1_1)
                        B[v_i0, v_i1] = A[v_i0, v_i1] + T.float32(1.0)
                else:
                    with T.block("B_1"):
                        v_i0 = T.axis.spatial(7, v_i0_1)
                        v_i1 = T.axis.spatial(13, v_i1_1)
                        B[v_i0, v_i1] = A[v_i0, v_i1] + T.float32(1.0)
    """)


def test_loops_that_visit_a_part_of_an_axis():
    """Two whole tiles of three: a third one is not a value of the axis."""
    s = Checked(elementwise(2, 7))
    s.split("i1", [None, 3], tail="cut")
    s.blockize("i1_0_1")
    s.becomes("""
        for i0 in range(2):
            for i1_0_0 in range(2):
                with T.block("B_i1_0_o"):
                    v_i0_o, v_i1_o = T.axis.remap("SS", [i0, i1_0_0])
                    for i1_0_1 in range(3):
                        with T.block("B_i1_0"):
                            v_i0_i = T.axis.spatial(1, 0)
                            v_i1_i = T.axis.spatial(3, i1_0_1)
                            B[v_i0_o + v_i0_i, v_i1_o * 3 + v_i1_i] = A[v_i0_o + v_i0_i, v_i1_o * 3 + v_i1_i] + T.float32(1.0)
            for i1_1 in range(1):
                ...
    """)


def test_blocks_of_an_init_and_of_the_body_are_refused():
    s = Checked(matmul())
    s.blockize("k")
    s.refuses("""
        blockize(['C_init', 'C']): `C_init` is in the init of `C_o`, and `C` is not
            9 |         with T.block("C_o"):
              |         ^^^^^^^^^^^^^^^^^^^^ the block that holds both
          hint: blockize those of the init, or the others
    """)


def test_a_block_in_between_is_refused():
    Checked(relu_of_matmul()).refuses("""
        blockize([]): the list of blocks is empty
          hint: give the loop of a nest, or blocks
    """)
    s = Checked(stencil())
    s.refuses("""
        blockize(['B', 'C']): `P` stands among `B` and `C`, and is not in the list
           15 |         with T.block("P"):
              |         ^^^^^^^^^^^^^^^^^^ would be inside, too
          hint: blockize(['B', 'C', 'P']), or move it out
    """)
    nested = Checked(chain())
    nested.blockize("j_1")
    nested.refuses("""
        blockize(['C', 'C_o']): `C` is inside `C_o`
           14 |         with T.block("C_o"):
              |         ^^^^^^^^^^^^^^^^^^^^ in the list, too
          hint: leave one of them out
    """)


def test_several_blocks_that_threads_reduce_together():
    s = Checked(window_sums())
    s.bind("k", "threadIdx.x")
    s.compute_at("B", "k")
    s.refuses("""
        blockize(['B', 'C']): `k`, which drives the reduction, is bound to threadIdx.x: threads that reduce together need the init
           10 |         for k in T.thread_binding(3, thread="threadIdx.x"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ drives the reduction
           11 |             with T.block("B"):
           12 |                 v_i = T.axis.spatial(9, i_1 + k)
           13 |                 B[v_i] = A[v_i % 7] * T.float32(2.0)
           14 |             with T.block("C"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: do this before bind
    """)


def test_refuses_an_extent_inside_that_depends_on_a_loop_outside():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((5, 5), "float32")):
    for i in range(5):
        for j in range(i + 1):
            with T.block("A"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                A[v_i, v_j] = 0.0
""")
    Checked(func).refuses("""
        blockize('j'): the extent of `j`, inside of the block, depends on loops outside
            8 |         for j in range(i + 1):
              |         ^^^^^^^^^^^^^^^^^^^^^^ runs over i + 1
          hint: give the inner loop the largest extent, and its block a condition (T.where) for what is left out
    """)
    s = Checked(func)
    with s.refusal("""
        blockize(['A']): the extent of `j`, which becomes that of an axis, depends on loops outside
            8 |         for j in range(i + 1):
              |         ^^^^^^^^^^^^^^^^^^^^^^ runs over i + 1
          hint: give the inner loop the largest extent, and its block a condition (T.where) for what is left out
    """):
        s.blockize(["A"])


def test_axes_have_names_of_their_own():
    """Though `v_i` is one of an axis inside, and `v_i_1` that of another loop."""
    s = Checked(chain())
    s.compute_at("B", "j_1")
    s.split("j_1", [None], names=["i"])
    s.blockize(["B", "C"])
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i_1, i in T.grid(7, 13):
            with T.block("outer_B_C_"):
                v_i_1, v_i_2 = T.axis.remap("SS", [i_1, i])
                with T.block("B"):
                    v_i = T.axis.spatial(7, v_i_1)
                    v_j = T.axis.spatial(13, v_i_2)
                    B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
                with T.block("C"):
                    v_i = T.axis.spatial(7, v_i_1)
                    v_j = T.axis.spatial(13, v_i_2)
                    C[v_i, v_j] = B[v_i, v_j] * T.float32(3.0)
    """)


def test_the_init_of_a_tile_runs_for_each_value_of_an_opaque_axis():
    s = Checked(parse(IN_TURN))
    s.split("k", [3, 2])
    s.blockize("k_1", preserve_unit_iters=False)
    s.becomes("""
        S = T.alloc_buffer((4, 2))
        for i, j in T.grid(4, 3):
            for k_0 in range(3):
                with T.block("S_o"):
                    v_i_o, v_j_o, v_k_o = T.axis.remap("SOR", [i, j, k_0])
                    with T.init():
                        with T.block("S_init"):
                            S[v_i_o, v_j_o % 2] = T.float32(0.0)
                    for k_1 in range(2):
                        with T.block("S"):
                            v_k_i = T.axis.reduce(2, k_1)
                            S[v_i_o, v_j_o % 2] = S[v_i_o, v_j_o % 2] + A[v_i_o, v_j_o, v_k_o * 2 + v_k_i]
            with T.block("E"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                E[v_i, v_j] = S[v_i, v_j % 2]
    """)


def test_a_condition_in_the_dtype_of_the_loops():
    """Which are of 32 bits, and the axes of 64."""
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((7,), "float32")):
            for i in range(7):
                with T.block("A"):
                    v = T.axis.spatial(T.int64(7), i)
                    A[v] = 1.0
    """)
    s.split("i", [2, 4])
    s.blockize("i_1")
    s.becomes("""
        for i_0 in range(2):
            with T.block("A_o"):
                v_o = T.axis.spatial(T.int64(2), i_0)
                for i_1 in range(4):
                    with T.block("A"):
                        v_i = T.axis.spatial(T.int64(4), i_1)
                        T.where(T.Cast("int32", v_o) * 4 + i_1 < 7)
                        A[v_o * T.int64(4) + v_i] = T.float32(1.0)
    """)


def test_refuses_a_reduction_over_nothing_whose_init_would_be_inside():
    A, k = te.placeholder((7, 0), name="A"), te.reduce_axis((0, 0), name="k")
    s = Checked(te.create_prim_func([A, te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="C")]))
    s.refuses("""
        blockize(['C']): `k`, which drives the reduction of `C`, may have no iterations, and the init would not run then
            8 |     for i, k in T.grid(7, 0):
              |            ^ runs over 0
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ a reduction
          hint: decompose_reduction('C', 'k') first
    """)
