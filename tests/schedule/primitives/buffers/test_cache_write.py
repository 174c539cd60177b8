from tests.programs import chain, matmul, relu_of_matmul
from tests.schedule.harness import Checked, rows_of_their_own, same_numbers, tiled_matmul
from tests.schedule.primitives.buffers.programs import READ_IN_PART
from tir import te
from tir.ir import Var
from tir.script import parse
from tir.traverse import blocks, replace_stmt


def test_of_an_output():
    s = Checked(matmul())
    assert s.cache_write("C", 0, "local") == "C_local"
    s.becomes("""
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
    """)


def test_of_tiles_that_dont_divide():
    s = tiled_matmul("i_0", "j_0", "k", "i_1", "j_1")
    s.cache_write("C", 0, "local")
    s.reverse_compute_at("C_local", "j_0")
    s.becomes("""
        C_local = T.alloc_buffer((7, 13), scope="local")
        for i_0, j_0 in T.grid(2, 3):
            for k, i_1, j_1 in T.grid(5, 4, 5):
                with T.block("C"):
                    ...
            for ax0, ax1 in T.grid(4, 5):
                with T.block("C_local"):
                    v0 = T.axis.spatial(7, i_0 * 4 + ax0)
                    v1 = T.axis.spatial(13, j_0 * 5 + ax1)
                    T.where(i_0 * 4 + ax0 < 7 and j_0 * 5 + ax1 < 13)
                    C[v0, v1] = C_local[v0, v1]
    """)


def test_consumers_read_the_copy():
    s = Checked(relu_of_matmul())
    assert s.cache_write("C", "C", "local", ["D"]) == "C_local"
    s.becomes("""
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
    """)


def test_inside_loops_shared_with_a_reader():
    s = Checked(relu_of_matmul())
    io, _ = s.split(s.get_loops("C")[0], [None, 4])
    s.reverse_compute_at("D", io)
    s.cache_write("C", 0, "local")
    s.becomes("""
        C = T.alloc_buffer((7, 13))
        C_local = T.alloc_buffer((7, 13), scope="local")
        for i_0 in range(2):
            for i_1_1, j, k in T.grid(4, 13, 5):
                with T.block("C"):
                    ...
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
                    ...
    """)


def test_rank_0_and_several_outputs():
    A = te.placeholder((7,), name="A")
    k = te.reduce_axis((0, 7), name="k")
    S = te.compute((), lambda: te.sum(A[k], axis=k), name="S")
    X, Y = te.compute((7,), lambda i: (A[i] + S[()], A[i] * 2.0), name="X")
    s = Checked(te.create_prim_func([A, X, Y, S]))
    assert s.cache_write("S", 0, "local") == "S_local"
    assert s.cache_write("X", 1, "local") == "X_v1_local"
    s.becomes("""
        S_local = T.alloc_buffer((), scope="local")
        X_v1_local = T.alloc_buffer((7,), scope="local")
        for k in range(7):
        ...
        for i in range(7):
            with T.block("X"):
                ...
                X_v0[v_i] = v_X_v0
                X_v1_local[v_i] = v_X_v1
        for ax0 in range(7):
            with T.block("X_v1_local"):
                v0 = T.axis.spatial(7, ax0)
                X_v1[v0] = X_v1_local[v0]
    """)


def test_what_is_written_under_conditions_on_axes():
    before = parse(READ_IN_PART.replace("            X[v_i] =", "            T.where(i >= 2 and i < 11)\n            X[v_i] ="))
    s = Checked(before)
    s.split("i", [None, 4])
    s.cache_write("X", 0, "local", ["B"])
    s.becomes("""
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
    """)


def test_of_an_output_written_in_part():
    func = chain()
    C = blocks(func)[1]
    s = Checked(replace_stmt(func, C, C.with_(predicate=Var("i_1") < 5)))
    s.cache_write("C", 0, "local")
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        C_local = T.alloc_buffer((7, 13), scope="local")
        for i, j in T.grid(7, 13):
            ...
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
    """)


def test_of_a_copy_of_what_is_read():
    s = Checked(parse(READ_IN_PART))
    s.cache_read("B", "X", "global")
    s.cache_write("X_global", 0, "local")
    s.becomes("""
        X = T.alloc_buffer((13,))
        X_global = T.alloc_buffer((13,))
        X_global_local = T.alloc_buffer((13,), scope="local")
        for i in range(13):
            ...
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
                ...
    """)


def test_places_that_are_not_axes_are_copied_as_far_as_they_are_read():
    s = Checked(parse(READ_IN_PART.replace("            X[v_i] =", "            if v_i <= 10:\n                X[12 - v_i] =")))
    s.cache_write("X", 0, "local")
    s.becomes("""
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
    """)


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
    s.becomes("""
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
    """)


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
    s.becomes("""
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
    """)
    Checked(parse(UNDER_IF)).refuses("""
        cache_write('C', 0, 'local', ['D']): `D` may read elements of `C` that `C` has not written by then, and the copy lacks
           10 |                 with T.block("C"):
              |                 ^^^^^^^^^^^^^^^^^^ writes C
           11 |                     v, w = T.axis.remap("SS", [i, j])
           12 |                     C[v, w] = A[v, w] * T.float32(2.0)
           13 |     for i_1, j_1 in T.grid(7, 5):
           14 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ reads C
          hint: leave `D` out of consumer_blocks: it then reads `C` itself
    """)


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
    s.becomes("""
        for i_0, j, k_0 in T.grid(2, 13, 2):
            with T.block("C_o"):
                v_i_o, v_j_o, v_k_o = T.axis.remap("SSR", [i_0, j, k_0])
                C_local = T.alloc_buffer((8, 13), scope="local")
                with T.init():
                    ...
                for ax0_1 in range(4):
                    with T.block("C_local_start"):
                        v0 = T.axis.spatial(8, v_i_o * 4 + ax0_1)
                        v1 = T.axis.spatial(13, v_j_o)
                        C_local[v0, v1] = C[v0, v1]
                for i_1, k_1 in T.grid(4, 3):
                    with T.block("C"):
                        ...
                        v_k_i = T.axis.reduce(3, k_1)
                        C_local[v_i_o * 4 + v_i_i, v_j_o + v_j_i] = C_local[v_i_o * 4 + v_i_i, v_j_o + v_j_i] + A[v_i_o * 4 + v_i_i, v_k_o * 3 + v_k_i] * B[v_k_o * 3 + v_k_i, v_j_o + v_j_i]
                for ax0 in range(4):
                    with T.block("C_local"):
                        v0 = T.axis.spatial(8, v_i_o * 4 + ax0)
                        v1 = T.axis.spatial(13, v_j_o)
                        C[v0, v1] = C_local[v0, v1]
    """)


def test_of_a_blockized_block():
    s = blockized()
    s.cache_write("C_o", 0, "local")
    s.becomes("""
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
    """)


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
    s.becomes("""
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
    """)


def test_what_a_block_allocates_is_not_among_what_it_writes():
    s = Checked(rows_of_their_own())
    with s.refusal("""
        cache_write('rows', 'row', 'local'): `row` is allocated inside of `rows`, and nothing outside has it
            8 |         with T.block("rows"):
              |         ^^^^^^^^^^^^^^^^^^^^^ allocates row
          hint: name a block or loop inside of `rows`
    """):
        s.cache_write("rows", "row", "local")


def test_what_nothing_was_written_to_is_not_copied_before():
    """Though the block says that it goes on with a reduction: of all others, it alone writes its temporary."""
    s = Checked("""
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
    """)
    s.cache_write("rows", "X", "local")
    s.becomes("""
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
    """)


def halves(first: str, second: str) -> Checked:
    """Elements that two blocks inside of one write, under conditions over its axes."""
    return Checked(f"""
        @T.prim_func
        def main(A: T.Buffer((7, 9), "float32"), C: T.Buffer((7, 9), "float32")):
            for i, j in T.grid(7, 9):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    with T.block("first"):
                        T.where({first})
                        C[v_i, v_j] = A[v_i, v_j] * T.float32(2)
                    with T.block("second"):
                        T.where({second})
                        C[v_i, v_j] = A[v_i, v_j] * T.float32(3)
    """)


def test_conditions_of_blocks_inside():
    """The copy goes back where one of them has written."""
    s = halves("v_i < 5", "v_j < 4")
    s.cache_write("C", 0, "local")
    s.becomes("""
        C_local = T.alloc_buffer((7, 9), scope="local")
        for i, j in T.grid(7, 9):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                with T.block("first"):
                    T.where(v_i < 5)
                    C_local[v_i, v_j] = A[v_i, v_j] * T.float32(2.0)
                with T.block("second"):
                    T.where(v_j < 4)
                    C_local[v_i, v_j] = A[v_i, v_j] * T.float32(3.0)
        for ax0, ax1 in T.grid(7, 9):
            with T.block("C_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                T.where(ax0 < 5 or ax1 < 4)
                C[v0, v1] = C_local[v0, v1]
    """)
    whole = halves("v_i < 5", "v_j < 9")
    whole.cache_write("C", 0, "local")
    assert "T.where(ax0" not in whole.script
    same_numbers(whole.before, whole.func)


def test_in_a_block_of_a_buffer_from_outside():
    """The axes of the block around count as loops; what the block reads it has written itself before."""
    s = Checked("""
        @T.prim_func
        def main(B: T.Buffer((9, 8), "float32"), C: T.Buffer((9, 8), "float32")):
            A = T.alloc_buffer((9, 8))
            for i, j in T.grid(3, 2):
                with T.block("tile"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    for x, y in T.grid(3, 4):
                        with T.block("A"):
                            a = T.axis.spatial(9, v_i * 3 + x)
                            b = T.axis.spatial(8, v_j * 4 + y)
                            A[a, b] = T.float32(1)
                    for x, y in T.grid(3, 4):
                        with T.block("B"):
                            a = T.axis.spatial(9, v_i * 3 + x)
                            b = T.axis.spatial(8, v_j * 4 + y)
                            B[a, b] = A[a, b] + T.float32(1)
            for i, j in T.grid(9, 8):
                with T.block("C"):
                    a, b = T.axis.remap("SS", [i, j])
                    C[a, b] = A[a, b] * T.float32(2)
    """)
    s.cache_write("A", 0, "local")
    s.cache_write("tile", "A", "global")
    s.becomes("""
        A = T.alloc_buffer((9, 8))
        A_global = T.alloc_buffer((9, 8))
        for i, j in T.grid(3, 2):
            with T.block("tile"):
                ...
                for ax0, ax1 in T.grid(3, 4):
                    with T.block("A_local"):
                        v0 = T.axis.spatial(9, v_i * 3 + ax0)
                        v1 = T.axis.spatial(8, v_j * 4 + ax1)
                        A_global[v0, v1] = A_local[v0, v1]
                for x_1, y_1 in T.grid(3, 4):
                    with T.block("B"):
                        a = T.axis.spatial(9, v_i * 3 + x_1)
                        b = T.axis.spatial(8, v_j * 4 + y_1)
                        B[a, b] = A_global[a, b] + T.float32(1.0)
        for ax0_1, ax1_1 in T.grid(9, 8):
            with T.block("A_global"):
                v0, v1 = T.axis.remap("SS", [ax0_1, ax1_1])
                A[v0, v1] = A_global[v0, v1]
        for i_1, j_1 in T.grid(9, 8):
            with T.block("C"):
                ...
    """)


def test_of_a_buffer_without_elements():
    A = te.placeholder((3, 0), name="A")
    s = Checked(te.create_prim_func([A, te.compute((3, 0), lambda i, j: A[i, j] + 1.0, name="C")]))
    s.cache_write("C", 0, "local")
    s.becomes("""
        C_local = T.alloc_buffer((3, 0), scope="local")
        for i, j in T.grid(3, 0):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                C_local[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
        for ax0, ax1 in T.grid(3, 0):
            with T.block("C_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                C[v0, v1] = C_local[v0, v1]
    """)


def test_a_copy_inside_of_a_block_is_copied_as_far_as_an_instance_reads_it():
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((6,)), B: T.Buffer((6,)), C: T.Buffer((6,))):
            for i in range(5):
                with T.block("B"):
                    vi = T.axis.spatial(5, i)
                    B[vi] = A[vi] + T.float32(1)
                with T.block("C"):
                    vi = T.axis.spatial(5, i)
                    C[vi] = B[vi + 1] * T.float32(3)
    """)
    s.blockize(["B", "C"])
    s.cache_read("C", "B", "local")
    assert s.cache_write("B_local", "B_local", "shared") == "B_local_shared"
    s.becomes("""
        for i in range(5):
            with T.block("outer_B_C_"):
                v_i = T.axis.opaque(5, i)
                B_local = T.alloc_buffer((6,), scope="local")
                B_local_shared = T.alloc_buffer((6,), scope="shared")
                with T.block("B"):
                    ...
                with T.block("B_local"):
                    v0 = T.axis.spatial(6, v_i + 1)
                    B_local_shared[v0] = B[v0]
                with T.block("B_local_shared"):
                    v0 = T.axis.spatial(6, v_i + 1)
                    B_local[v0] = B_local_shared[v0]
                with T.block("C"):
                    ...
    """)
