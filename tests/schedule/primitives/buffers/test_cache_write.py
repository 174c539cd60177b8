from schedule import Schedule
from tests.programs import chain, matmul, relu_of_matmul, stencil, window_sums
from tests.schedule.harness import Checked, check, refuse, rows_of_their_own, tiled_matmul
from tir import te
from tir.ir import Axis, Block, Buffer, Const, For, Iter, PrimFunc, Store, Var, seq
from tir.script import parse
from tir.traverse import blocks, replace_stmt


def test_of_an_output():
    s = Checked(matmul())
    assert s.cache_write("C", 0, "local") == "C_local"
    check(
        s,
        """
        C_local = T.alloc_buffer((7, 13), scope="local")
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_local[v_i, v_j] = T.float32(0.0)
                C_local[v_i, v_j] = C_local[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        for ax0, ax1 in T.grid(7, 13):
            with T.block("C_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                C[v0, v1] = C_local[v0, v1]
        """,
    )


def test_of_tiles_that_dont_divide():
    s = tiled_matmul("i_0", "j_0", "k", "i_1", "j_1")
    s.cache_write("C", 0, "local")
    s.reverse_compute_at("C_local", "j_0")
    check(
        s,
        """
        C_local = T.alloc_buffer((7, 13), scope="local")
        for i_0, j_0 in T.grid(2, 3):
            for k, i_1, j_1 in T.grid(5, 4, 5):
                with T.block("C"):
                    v_i = T.axis.spatial(7, i_0 * 4 + i_1)
                    v_j = T.axis.spatial(13, j_0 * 5 + j_1)
                    v_k = T.axis.reduce(5, k)
                    T.where(i_0 * 4 + i_1 < 7 and j_0 * 5 + j_1 < 13)
                    with T.init():
                        C_local[v_i, v_j] = T.float32(0.0)
                    C_local[v_i, v_j] = C_local[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            for ax0, ax1 in T.grid(4, 5):
                with T.block("C_local"):
                    v0 = T.axis.spatial(7, i_0 * 4 + ax0)
                    v1 = T.axis.spatial(13, j_0 * 5 + ax1)
                    T.where(i_0 * 4 + ax0 < 7 and j_0 * 5 + ax1 < 13)
                    C[v0, v1] = C_local[v0, v1]
        """,
    )


def test_consumers_read_the_copy():
    s = Checked(relu_of_matmul())
    assert s.cache_write("C", "C", "local", ["D"]) == "C_local"
    check(
        s,
        """
        C = T.alloc_buffer((7, 13))
        C_local = T.alloc_buffer((7, 13), scope="local")
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_local[v_i, v_j] = T.float32(0.0)
                C_local[v_i, v_j] = C_local[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        for ax0, ax1 in T.grid(7, 13):
            with T.block("C_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                C[v0, v1] = C_local[v0, v1]
        for i_1, j_1 in T.grid(7, 13):
            with T.block("D"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                D[v_i, v_j] = T.max(C_local[v_i, v_j], T.float32(0.0))
        """,
    )


def test_inside_loops_shared_with_a_reader():
    s = Checked(relu_of_matmul())
    io, _ = s.split(s.get_loops("C")[0], [None, 4])
    s.reverse_compute_at("D", io)
    s.cache_write("C", 0, "local")
    check(
        s,
        """
        C = T.alloc_buffer((7, 13))
        C_local = T.alloc_buffer((7, 13), scope="local")
        for i_0 in range(2):
            for i_1_1, j, k in T.grid(4, 13, 5):
                with T.block("C"):
                    v_i = T.axis.spatial(7, i_0 * 4 + i_1_1)
                    v_j = T.axis.spatial(13, j)
                    v_k = T.axis.reduce(5, k)
                    T.where(i_0 * 4 + i_1_1 < 7)
                    with T.init():
                        C_local[v_i, v_j] = T.float32(0.0)
                    C_local[v_i, v_j] = C_local[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            for ax0_1, ax1_1 in T.grid(4, 13):
                with T.block("C_local"):
                    v0 = T.axis.spatial(7, i_0 * 4 + ax0_1)
                    v1 = T.axis.spatial(13, ax1_1)
                    T.where(i_0 * 4 + ax0_1 < 7)
                    C[v0, v1] = C_local[v0, v1]
            for ax0, ax1 in T.grid(4, 13):
                with T.block("D"):
                    v_i = T.axis.spatial(7, i_0 * 4 + ax0)
                    v_j = T.axis.spatial(13, ax1)
                    T.where(i_0 * 4 + ax0 < 7)
                    D[v_i, v_j] = T.max(C[v_i, v_j], T.float32(0.0))
        """,
    )


def test_rank_0_and_several_outputs():
    A = te.placeholder((7,), name="A")
    k = te.reduce_axis((0, 7), name="k")
    S = te.compute((), lambda: te.sum(A[k], axis=k), name="S")
    X, Y = te.compute((7,), lambda i: (A[i] + S[()], A[i] * 2.0), name="X")
    s = Checked(te.create_prim_func([A, X, Y, S]))
    assert s.cache_write("S", 0, "local") == "S_local"
    assert s.cache_write("X", 1, "local") == "X_v1_local"
    check(
        s,
        """
        S_local = T.alloc_buffer((), scope="local")
        X_v1_local = T.alloc_buffer((7,), scope="local")
        for k in range(7):
            with T.block("S"):
                v_k = T.axis.reduce(7, k)
                with T.init():
                    S_local[()] = T.float32(0.0)
                S_local[()] = S_local[()] + A[v_k]
        with T.block("S_local"):
            S[()] = S_local[()]
        for i in range(7):
            with T.block("X"):
                v_i = T.axis.spatial(7, i)
                v_X_v0: T.float32 = A[v_i] + S[()]
                v_X_v1: T.float32 = A[v_i] * T.float32(2.0)
                X_v0[v_i] = v_X_v0
                X_v1_local[v_i] = v_X_v1
        for ax0 in range(7):
            with T.block("X_v1_local"):
                v0 = T.axis.spatial(7, ax0)
                X_v1[v0] = X_v1_local[v0]
        """,
    )


PART = """
@T.prim_func
def main(A: T.Buffer((13,), "float32"), B: T.Buffer((9,), "float32")):
    X = T.alloc_buffer((13,))
    for i in range(13):
        with T.block("X"):
            v_i = T.axis.spatial(13, i)
            X[v_i] = A[v_i]
    for i_1 in range(9):
        with T.block("B"):
            v_i = T.axis.spatial(9, i_1)
            B[v_i] = X[v_i + 2]
"""


def test_what_is_written_under_conditions_on_axes():
    before = parse(PART.replace("            X[v_i] =", "            T.where(i >= 2 and i < 11)\n            X[v_i] ="))
    s = Checked(before)
    s.split("i", [None, 4])
    s.cache_write("X", 0, "local", ["B"])
    check(
        s,
        """
        X = T.alloc_buffer((13,))
        X_local = T.alloc_buffer((13,), scope="local")
        for i_0, i_1_1 in T.grid(4, 4):
            with T.block("X"):
                v_i = T.axis.spatial(13, i_0 * 4 + i_1_1)
                T.where(i_0 * 4 + i_1_1 >= 2 and i_0 * 4 + i_1_1 < 11 and i_0 * 4 + i_1_1 < 13)
                X_local[v_i] = A[v_i]
        for ax0 in range(13):
            with T.block("X_local"):
                v0 = T.axis.spatial(13, ax0)
                T.where(ax0 >= 2 and ax0 < 11)
                X[v0] = X_local[v0]
        for i_1 in range(9):
            with T.block("B"):
                v_i = T.axis.spatial(9, i_1)
                B[v_i] = X_local[v_i + 2]
        """,
    )


def test_of_an_output_written_in_part():
    func = chain()
    C = blocks(func)[1]
    s = Checked(replace_stmt(func, C, C.with_(predicate=Var("i_1") < 5)))
    s.cache_write("C", 0, "local")
    check(
        s,
        """
        B = T.alloc_buffer((7, 13))
        C_local = T.alloc_buffer((7, 13), scope="local")
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                T.where(i_1 < 5)
                C_local[v_i, v_j] = B[v_i, v_j] * T.float32(3.0)
        for ax0, ax1 in T.grid(7, 13):
            with T.block("C_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                T.where(ax0 < 5)
                C[v0, v1] = C_local[v0, v1]
        """,
    )


def test_of_a_copy_of_what_is_read():
    s = Checked(parse(PART))
    s.cache_read("B", "X", "global")
    s.cache_write("X_global", 0, "local")
    check(
        s,
        """
        X = T.alloc_buffer((13,))
        X_global = T.alloc_buffer((13,))
        X_global_local = T.alloc_buffer((13,), scope="local")
        for i in range(13):
            with T.block("X"):
                v_i = T.axis.spatial(13, i)
                X[v_i] = A[v_i]
        for ax0 in range(9):
            with T.block("X_global"):
                v0 = T.axis.spatial(13, ax0 + 2)
                X_global_local[v0] = X[v0]
        for ax0_1 in range(13):
            with T.block("X_global_local"):
                v0 = T.axis.spatial(13, ax0_1)
                T.where(ax0_1 >= 2 and ax0_1 <= 10)
                X_global[v0] = X_global_local[v0]
        for i_1 in range(9):
            with T.block("B"):
                v_i = T.axis.spatial(9, i_1)
                B[v_i] = X_global[v_i + 2]
        """,
    )


def test_places_that_are_not_axes_are_copied_as_far_as_they_are_read():
    s = Checked(parse(PART.replace("            X[v_i] =", "            if v_i <= 10:\n                X[12 - v_i] =")))
    s.cache_write("X", 0, "local")
    check(
        s,
        """
        X = T.alloc_buffer((13,))
        X_local = T.alloc_buffer((13,), scope="local")
        for i in range(13):
            with T.block("X"):
                v_i = T.axis.spatial(13, i)
                if v_i <= 10:
                    X_local[12 - v_i] = A[v_i]
        for ax0 in range(13):
            with T.block("X_local"):
                v0 = T.axis.spatial(13, ax0)
                T.where(ax0 >= 2 and ax0 <= 10)
                X[v0] = X_local[v0]
        for i_1 in range(9):
            with T.block("B"):
                v_i = T.axis.spatial(9, i_1)
                B[v_i] = X[v_i + 2]
        """,
    )


def test_refuses_a_part_that_nobody_reads():
    before = parse(PART.replace("X[v_i + 2]", "A[v_i + 2]").replace("X[v_i] =", "X[12 - v_i] ="))
    s = Schedule(before)
    refuse(
        s,
        """
        cache_write('X', 0, 'local'): it cannot be shown which part of `X` is written by `X`: its axes are not those of the buffer
            9 |         with T.block("X"):
              |         ^^^^^^^^^^^^^^^^^^ writes X
          hint: each spatial axis must index one dimension of `X`
        """,
    )


def test_refuses_unknown_buffers():
    s = Schedule(matmul())
    refuse(
        s,
        """
        cache_write('C', 1, 'local'): `C` writes 1 buffer(s), `C`: there is no number 1
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: numbers start at 0; a name does as well
        """,
    )
    refuse(
        s,
        """
        cache_write('C', 'A', 'local'): `C` writes no buffer called `A`, but `C`
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes `C`
        """,
    )
    refuse(
        s,
        """
        cache_write('C', 0, ''): no storage scope is named ''; there are: global, shared, shared.dyn, warp, local, register, \
wmma.matrix_a, wmma.matrix_b, wmma.accumulator
        """,
    )
    refuse(
        s,
        """
        cache_write('C', 0, 'local', ['D']): `D` is not a block that reads `C`; these are none
        """,
    )


def test_refuses_a_decomposed_reduction():
    s = Schedule(matmul())
    s.decompose_reduction("C", "k")
    refuse(
        s,
        """
        cache_write('C_update', 0, 'local'): `C_init` writes `C` too, so `C_update` cannot be given a copy to write
            9 |         with T.block("C_init"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^ writes C
           10 |             v_i, v_j = T.axis.remap("SS", [i, j])
           11 |             C[v_i, v_j] = T.float32(0.0)
           12 |         for k in range(5):
           13 |             with T.block("C_update"):
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^ writes C
          hint: do this before decompose_reduction
        """,
    )
    refuse(
        s,
        """
        cache_write('C_init', 0, 'local'): `C_update` writes `C` too, so `C_init` cannot be given a copy to write
            9 |         with T.block("C_init"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^ writes C
           10 |             v_i, v_j = T.axis.remap("SS", [i, j])
           11 |             C[v_i, v_j] = T.float32(0.0)
           12 |         for k in range(5):
           13 |             with T.block("C_update"):
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^ writes C
          hint: do this before decompose_reduction
        """,
    )


def test_refuses_a_reader_before():
    A, B = Buffer("A", (Const(7),)), Buffer("B", (Const(7),))
    v = Var("v")
    first = For(Var("i"), Const(7), Block("B", (Iter(v, Const(7), Axis.SPATIAL, Var("i")),), Store(B, (v,), A[v])))
    second = For(
        Var("j"), Const(7), Block("A", (Iter(v, Const(7), Axis.SPATIAL, Var("j")),), Store(A, (v,), Const(0.0, "float32")))
    )
    s = Schedule(PrimFunc("main", (A, B), seq(first, second)))
    refuse(
        s,
        """
        cache_write('A', 0, 'local'): `B` reads `A` before `A` writes it
            8 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ first
            9 |             v = T.axis.spatial(7, i)
           10 |             B[v] = A[v]
           11 |     for j in range(7):
           12 |         with T.block("A"):
              |         ^^^^^^^^^^^^^^^^^^ then
          hint: let `B` read another buffer, as it needs the values of before
        """,
    )


def test_refuses_a_part_of_an_output_that_is_not_exact():
    s = Schedule(chain())
    s.split("i_1", [None, 4])
    C = blocks(s.func)[1]
    s = Schedule(replace_stmt(s.func, C, C.with_(predicate=Var("i_1_0") < 1)))
    refuse(
        s,
        """
        cache_write('C', 0, 'local'): it cannot be shown which part of `C` is written by `C`: `v_i` = `i_1_0 * 4 + i_1_1` takes 4 values of 7
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes C
        """,
    )


def test_refuses_places_that_are_not_its_axes():
    func = chain()
    C = blocks(func)[1]
    v_i, v_j = (it.var for it in C.iters)
    s = Schedule(replace_stmt(func, C, C.with_(body=C.body.with_(indices=(6 - v_i, v_j)))))
    refuse(
        s,
        """
        cache_write('C', 0, 'local'): it cannot be shown which part of `C` is written by `C`: its axes are not those of the buffer
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes C
          hint: each spatial axis must index one dimension of `C`
        """,
    )


def test_refuses_overlapping_windows_in_a_shared_loop():
    before = stencil()
    s = Schedule(before)
    io, _ = s.split(s.get_loops("C")[0], [None, 4])
    s.compute_at("P", io)
    refuse(
        s,
        """
        cache_write('P', 0, 'local'): it cannot be shown which part of `P` is written by `P` in an iteration of `i_2_0`: `v_i` = `i_2_0 * 4 + ax0` repeats values
           14 |     for i_2_0 in range(4):
              |     ^^^^^^^^^^^^^^^^^^^^^^ the loop
           15 |         for ax0 in range(6):
           16 |             with T.block("P"):
              |             ^^^^^^^^^^^^^^^^^^ writes P
        """,
    )


def test_refuses_a_consumer_of_what_is_written_later():
    """The parameter B had values before, which the copy has not."""
    s = Schedule(
        parse(
            """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            B[vi] = A[vi] + T.float32(1.0)
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[vi] = B[vi + 1] * T.float32(3.0)
"""
        )
    )
    refuse(
        s,
        """
cache_write('B', 0, 'global', ['C']): `C` may read elements of `B` that `B` has not written by then, and the copy lacks
    8 |         with T.block("B"):
      |         ^^^^^^^^^^^^^^^^^^ writes B
    9 |             vi = T.axis.spatial(7, i)
   10 |             B[vi] = A[vi] + T.float32(1.0)
   11 |         with T.block("C"):
      |         ^^^^^^^^^^^^^^^^^^ reads B
  hint: leave `C` out of consumer_blocks: it then reads `B` itself
""",
    )


def test_a_store_under_a_condition_on_the_axes():
    before = parse("""
@T.prim_func
def main(A: T.Buffer((13,), "float32"), B: T.Buffer((13,), "float32")):
    for i in range(13):
        with T.block("B"):
            v = T.axis.spatial(13, i)
            if v < 9:
                B[v] = A[v] * T.float32(2)
""")
    s = Checked(before)
    s.cache_write("B", 0, "local")
    check(
        s,
        """
        B_local = T.alloc_buffer((13,), scope="local")
        for i in range(13):
            with T.block("B"):
                v = T.axis.spatial(13, i)
                if v < 9:
                    B_local[v] = A[v] * T.float32(2.0)
        for ax0 in range(13):
            with T.block("B_local"):
                v0 = T.axis.spatial(13, ax0)
                T.where(ax0 < 9)
                B[v0] = B_local[v0]
        """,
    )


UNDER_IF = """
@T.prim_func
def main(A: T.Buffer((7, 5), "float32"), C: T.Buffer((7, 5), "float32"), D: T.Buffer((7, 5), "float32")):
    for i in range(7):
        if A[i, 0] > T.float32(0):
            for j in range(5):
                with T.block("C"):
                    v, w = T.axis.remap("SS", [i, j])
                    C[v, w] = A[v, w] * T.float32(2)
    for i, j in T.grid(7, 5):
        with T.block("D"):
            v, w = T.axis.remap("SS", [i, j])
            D[v, w] = C[v, w] + T.float32(1)
"""


def test_under_a_condition():
    """What is written where it holds is copied where it holds."""
    s = Checked(parse(UNDER_IF))
    s.cache_write("C", 0, "local")
    check(
        s,
        """
        C_local = T.alloc_buffer((7, 5), scope="local")
        for i in range(7):
            if A[i, 0] > T.float32(0.0):
                for j in range(5):
                    with T.block("C"):
                        v, w = T.axis.remap("SS", [i, j])
                        C_local[v, w] = A[v, w] * T.float32(2.0)
                for ax0 in range(5):
                    with T.block("C_local"):
                        v0, v1 = T.axis.remap("SS", [i, ax0])
                        C[v0, v1] = C_local[v0, v1]
        for i_1, j_1 in T.grid(7, 5):
            with T.block("D"):
                v, w = T.axis.remap("SS", [i_1, j_1])
                D[v, w] = C[v, w] + T.float32(1.0)
        """,
    )
    refuse(
        Schedule(parse(UNDER_IF)),
        """
cache_write('C', 0, 'local', ['D']): `D` may read elements of `C` that `C` has not written by then, and the copy lacks
   10 |                 with T.block("C"):
      |                 ^^^^^^^^^^^^^^^^^^ writes C
   11 |                     v, w = T.axis.remap("SS", [i, j])
   12 |                     C[v, w] = A[v, w] * T.float32(2.0)
   13 |     for i_1, j_1 in T.grid(7, 5):
   14 |         with T.block("D"):
      |         ^^^^^^^^^^^^^^^^^^ reads C
  hint: leave `D` out of consumer_blocks: it then reads `C` itself
""",
    )


def blockized() -> Checked:
    s = Checked(matmul(8, 6, 13))
    io, ii = s.split("i", [None, 4])
    ko, ki = s.split("k", [None, 3])
    s.reorder(io, "j", ko, ii, ki)
    s.blockize(ii)
    return s


def test_inside_a_blockized_block():
    """The reduction goes on from what `C_o` has begun."""
    s = blockized()
    s.cache_write("C", 0, "local")
    check(
        s,
        """
        for i_0, j, k_0 in T.grid(2, 13, 2):
            with T.block("C_o"):
                v_i_o, v_j_o, v_k_o = T.axis.remap("SSR", [i_0, j, k_0])
                C_local = T.alloc_buffer((8, 13), scope="local")
                with T.init():
                    for i_1_init in range(4):
                        with T.block("C_init"):
                            v_i_i = T.axis.spatial(4, i_1_init)
                            v_j_i = T.axis.spatial(1, 0)
                            C[v_i_o * 4 + v_i_i, v_j_o + v_j_i] = T.float32(0.0)
                for ax0_1 in range(4):
                    with T.block("C_local_start"):
                        v0 = T.axis.spatial(8, v_i_o * 4 + ax0_1)
                        v1 = T.axis.spatial(13, v_j_o)
                        C_local[v0, v1] = C[v0, v1]
                for i_1, k_1 in T.grid(4, 3):
                    with T.block("C"):
                        v_i_i = T.axis.spatial(4, i_1)
                        v_j_i = T.axis.spatial(1, 0)
                        v_k_i = T.axis.reduce(3, k_1)
                        C_local[v_i_o * 4 + v_i_i, v_j_o + v_j_i] = C_local[v_i_o * 4 + v_i_i, v_j_o + v_j_i] + A[v_i_o * 4 + v_i_i, v_k_o * 3 + v_k_i] * B[v_k_o * 3 + v_k_i, v_j_o + v_j_i]
                for ax0 in range(4):
                    with T.block("C_local"):
                        v0 = T.axis.spatial(8, v_i_o * 4 + ax0)
                        v1 = T.axis.spatial(13, v_j_o)
                        C[v0, v1] = C_local[v0, v1]
        """,
    )


def test_of_a_blockized_block():
    s = blockized()
    s.cache_write("C_o", 0, "local")
    check(
        s,
        """
        C_local = T.alloc_buffer((8, 13), scope="local")
        for i_0, j, k_0 in T.grid(2, 13, 2):
            with T.block("C_o"):
                v_i_o, v_j_o, v_k_o = T.axis.remap("SSR", [i_0, j, k_0])
                with T.init():
                    for i_1_init in range(4):
                        with T.block("C_init"):
                            v_i_i = T.axis.spatial(4, i_1_init)
                            v_j_i = T.axis.spatial(1, 0)
                            C_local[v_i_o * 4 + v_i_i, v_j_o + v_j_i] = T.float32(0.0)
                for i_1, k_1 in T.grid(4, 3):
                    with T.block("C"):
                        v_i_i = T.axis.spatial(4, i_1)
                        v_j_i = T.axis.spatial(1, 0)
                        v_k_i = T.axis.reduce(3, k_1)
                        C_local[v_i_o * 4 + v_i_i, v_j_o + v_j_i] = C_local[v_i_o * 4 + v_i_i, v_j_o + v_j_i] + A[v_i_o * 4 + v_i_i, v_k_o * 3 + v_k_i] * B[v_k_o * 3 + v_k_i, v_j_o + v_j_i]
        for ax0, ax1 in T.grid(8, 13):
            with T.block("C_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                C[v0, v1] = C_local[v0, v1]
        """,
    )


def reduced_in_blocks() -> Schedule:
    """Sums that go on in the next iteration of an enclosing block."""
    s = Schedule(window_sums())
    s.compute_at("B", "k")
    s.blockize(["B", "C"])
    return s


def test_refuses_a_reduction_that_goes_on():
    refuse(
        reduced_in_blocks(),
        """
cache_write('C', 0, 'local'): `C` goes on reducing over `v_k` in other iterations of `outer_B_C_`, in which its copy is allocated
   10 |         with T.block("outer_B_C_"):
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^ its `v_k_1` drives the reduction
      ...
   15 |             with T.block("C"):
      |             ^^^^^^^^^^^^^^^^^^ reduces
  hint: do this before blockize
""",
    )
    refuse(
        reduced_in_blocks(),
        """
reindex('C', ['write', 0]): `C` goes on reducing over `v_k` in other iterations of `outer_B_C_`, in which its copy is allocated
   10 |         with T.block("outer_B_C_"):
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^ its `v_k_1` drives the reduction
      ...
   15 |             with T.block("C"):
      |             ^^^^^^^^^^^^^^^^^^ reduces
  hint: do this before blockize
""",
        lambda s: s.reindex("C", ("write", 0)),
    )


BRANCHES = """
@T.prim_func
def main(A: T.Buffer((7,), "float32"), C: T.Buffer((7,), "float32"), D: T.Buffer((7,), "float32")):
    for i in range(7):
        if A[i] > T.float32(0):
            with T.block("C"):
                v = T.axis.spatial(7, i)
                C[v] = A[v] * T.float32(2)
        else:
            with T.block("D"):
                v = T.axis.spatial(7, i)
                D[v] = C[v] + T.float32(1)
"""


def test_refuses_a_consumer_in_the_other_branch():
    """It reads what `C` held before."""
    refuse(
        Schedule(parse(BRANCHES)),
        """
cache_write('C', 0, 'local', ['D']): `D` may read elements of `C` that `C` has not written by then, and the copy lacks
    9 |             with T.block("C"):
      |             ^^^^^^^^^^^^^^^^^^ writes C
   10 |                 v = T.axis.spatial(7, i)
   11 |                 C[v] = A[v] * T.float32(2.0)
   12 |         else:
   13 |             with T.block("D"):
      |             ^^^^^^^^^^^^^^^^^^ reads C
  hint: leave `D` out of consumer_blocks: it then reads `C` itself
""",
    )


CONDITION_ON_A_UNIT_AXIS = """
@T.prim_func
def main(A: T.Buffer((7,), "float32"), C: T.Buffer((7,), "float32")):
    for i, u in T.grid(7, 1):
        with T.block("C"):
            v, w = T.axis.remap("SS", [i, u])
            if v + w < 5:
                C[v] = A[v] * T.float32(2)
"""


def test_a_condition_on_an_axis_of_one_value():
    s = Checked(parse(CONDITION_ON_A_UNIT_AXIS))
    s.cache_write("C", 0, "local")
    check(
        s,
        """
        C_local = T.alloc_buffer((7,), scope="local")
        for i, u in T.grid(7, 1):
            with T.block("C"):
                v, w = T.axis.remap("SS", [i, u])
                if v + w < 5:
                    C_local[v] = A[v] * T.float32(2.0)
        for ax0 in range(7):
            with T.block("C_local"):
                v0 = T.axis.spatial(7, ax0)
                T.where(ax0 < 5)
                C[v0] = C_local[v0]
        """,
    )


ANYWHERE = """
@T.prim_func
def main(A: T.Buffer((7,), "float32"), I: T.Buffer((1,), "int32"), C: T.Buffer((7, 9), "float32")):
    for i in range(7):
        with T.block("C"):
            v = T.axis.spatial(7, i)
            C[v, {place}] = A[v] * T.float32(2)
        with T.block("I"):
            v = T.axis.opaque(7, i)
            I[0] = v
"""


def test_refuses_places_that_are_others_behind_the_nest():
    refuse(
        Schedule(parse(ANYWHERE.format(place="I[0]"))),
        """
cache_write('C', 0, 'local'): it cannot be shown which part of `C` is written by `C`: its axes are not those of the buffer
    8 |         with T.block("C"):
      |         ^^^^^^^^^^^^^^^^^^ writes C
  hint: each spatial axis must index one dimension of `C`
""",
    )
    refuse(
        Schedule(parse(ANYWHERE.format(place="i"))),
        """
cache_write('C', 0, 'local'): it cannot be shown which part of `C` is written by `C`: its place depends on `i`, which is not one of its axes
    8 |         with T.block("C"):
      |         ^^^^^^^^^^^^^^^^^^ writes C
""",
    )


def test_what_a_block_allocates_is_not_among_what_it_writes():
    refuse(
        Schedule(rows_of_their_own()),
        """
        cache_write('rows', 'row', 'local'): `row` is allocated inside of `rows`, and nothing outside has it
            8 |         with T.block("rows"):
              |         ^^^^^^^^^^^^^^^^^^^^^ allocates row
          hint: name a block or loop inside of `rows`
        """,
        call=lambda s: s.cache_write("rows", "row", "local"),
    )


def test_what_nothing_was_written_to_is_not_copied_before():
    """Though the block says that it goes on with a reduction: of all others, it alone writes its temporary."""
    s = Checked(
        parse(
            """
from tir.script import tir as T

@T.prim_func
def main(A: T.Buffer((7, 5), "float32"), C: T.Buffer((7,), "float32")):
    X = T.alloc_buffer((7,))
    with T.block("rows"):
        vt = T.axis.reduce(1, 0)
        for i in range(7):
            with T.block("start"):
                v = T.axis.spatial(7, i)
                X[v] = T.float32(0.0)
        for i, k in T.grid(7, 5):
            with T.block("sum"):
                v, vk = T.axis.remap("SR", [i, k])
                X[v] = X[v] + A[v, vk]
    for i in range(7):
        with T.block("C"):
            v = T.axis.spatial(7, i)
            C[v] = X[v] * T.float32(2.0)
"""
        )
    )
    s.cache_write("rows", "X", "local")
    check(
        s,
        """
        X = T.alloc_buffer((7,))
        X_local = T.alloc_buffer((7,), scope="local")
        with T.block("rows"):
            vt = T.axis.reduce(1, 0)
            for i in range(7):
                with T.block("start"):
                    v = T.axis.spatial(7, i)
                    X_local[v] = T.float32(0.0)
            for i_1, k in T.grid(7, 5):
                with T.block("sum"):
                    v, vk = T.axis.remap("SR", [i_1, k])
                    X_local[v] = X_local[v] + A[v, vk]
        for ax0 in range(7):
            with T.block("X_local"):
                v0 = T.axis.spatial(7, ax0)
                X[v0] = X_local[v0]
        for i_2 in range(7):
            with T.block("C"):
                v = T.axis.spatial(7, i_2)
                C[v] = X[v] * T.float32(2.0)
        """,
    )
