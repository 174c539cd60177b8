from tests.programs import matmul
from tests.schedule.harness import Checked


def test_rows_are_copied_in_each_iteration():
    s = Checked(matmul())
    assert s.read_at("i", "C", 0, "shared") == "A_shared"
    assert s.write_at("i", "C", 0, "local") == "C_local"
    s.becomes("""
        A_shared = T.alloc_buffer((7, 5), scope="shared")
        C_local = T.alloc_buffer((7, 13), scope="local")
        for i in range(7):
            ...
            for j, k in T.grid(13, 5):
                with T.block("C"):
                    v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        C_local[v_i, v_j] = T.float32(0.0)
                    C_local[v_i, v_j] = C_local[v_i, v_j] + A_shared[v_i, v_k] * B[v_k, v_j]
            for ax0_1 in range(13):
                with T.block("C_local"):
                    v0, v1 = T.axis.remap("SS", [i, ax0_1])
                    C[v0, v1] = C_local[v0, v1]
    """)


def test_refusals():
    s = Checked(matmul())
    s.refuses("""
        read_at('l', 'C', 0, 'shared'): `l` is no loop of this function; its loops are `i`, `j` and `k`
    """)
    s.refuses("""
        write_at('k', 'C', 0, 'local'): it cannot be shown that `C` finishes a part of its own in each iteration of `k`: `k` is a loop of the reduction
            9 |     for i, j, k in T.grid(7, 13, 5):
              |               ^ the loop
           10 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the producer
              ...
           16 |         with T.block("C_local"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^ the consumer
          hint: choose a place outside of `k`
    """)


def test_a_copy_whose_place_is_read_under_a_condition_is_whole():
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((4,), "float32"), I: T.Buffer((3,), "int32"), C: T.Buffer((3,), "float32")):
            for i in range(3):
                with T.block("C"):
                    v_i = T.axis.spatial(3, i)
                    C[v_i] = A[I[v_i] % 4]
    """)
    _, inner = s.split("i", [None, 2])
    s.read_at(inner, "C", "A", "local")
    s.becomes("""
        A_local = T.alloc_buffer((4,), scope="local")
        for i_0, i_1 in T.grid(2, 2):
            for ax0 in range(4):
                with T.block("A_local"):
                    v0 = T.axis.spatial(4, ax0)
                    A_local[v0] = A[v0]
            with T.block("C"):
                v_i = T.axis.spatial(3, i_0 * 2 + i_1)
                T.where(i_0 * 2 + i_1 < 3)
                C[v_i] = A_local[I[v_i] % 4]
    """)


def test_a_copy_of_what_is_written_in_part_is_of_that_part():
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((3, 8), "float32"), C: T.Buffer((3, 8), "float32")):
            for i, j in T.grid(2, 7):
                with T.block("C"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    C[v_i, v_j] = A[v_i, v_j] * T.float32(3.0)
    """)
    s.cache_write("C", 0, "local")
    outer, _ = s.split("ax0", [None, 4])
    s.read_at(outer, "C_local", 0, "shared")
    s.becomes("""
        C_local = T.alloc_buffer((3, 8), scope="local")
        C_local_shared = T.alloc_buffer((3, 8), scope="shared")
        for i, j in T.grid(2, 7):
            ...
        for ax0_0 in range(1):
            for ax0, ax1_1 in T.grid(3, 7):
                with T.block("C_local_shared"):
                    v0 = T.axis.spatial(3, ax0)
                    v1 = T.axis.spatial(8, ax1_1)
                    T.where(ax0 <= 1)
                    C_local_shared[v0, v1] = C_local[v0, v1]
            for ax0_1, ax1 in T.grid(4, 7):
                with T.block("C_local"):
                    ...
                    T.where(ax0_0 * 4 + ax0_1 < 2)
                    C[v0, v1] = C_local_shared[v0, v1]
    """)


def test_iterations_beyond_a_dimension_of_one_element_copy_nothing_back():
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((1, 7)), B: T.Buffer((1, 7))):
            for i, j in T.grid(1, 7):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(3)
    """)
    s.split("i", [2, None])
    s.parallel("i_0")
    s.write_at("i_1", "B", 0, "local")
    s.becomes("""
        B_local = T.alloc_buffer((1, 7), scope="local")
        for i_0 in T.parallel(2):
            for i_1 in range(1):
                for j in range(7):
                    with T.block("B"):
                        vi = T.axis.spatial(1, i_0 + i_1)
                        vj = T.axis.spatial(7, j)
                        T.where(i_0 + i_1 < 1)
                        B_local[vi, vj] = A[vi, vj] * T.float32(3.0)
                for ax0 in range(7):
                    with T.block("B_local"):
                        v0 = T.axis.spatial(1, 0)
                        v1 = T.axis.spatial(7, ax0)
                        T.where(i_0 < 1)
                        B[v0, v1] = B_local[v0, v1]
    """)
