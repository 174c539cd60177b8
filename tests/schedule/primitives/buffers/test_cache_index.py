from tests.programs import chain
from tests.schedule.harness import Checked
from tir import te


def gathered():
    """Sums of A at places that repeat."""
    A = te.placeholder((13, 9), name="A")
    place = lambda i, j: (i * 3 + j) // 2  # noqa: E731
    return te.create_prim_func([A, te.compute((7, 3), lambda i, j: A[place(i, j), j] + A[place(i, j) + 1, 8 - j], name="C")])


def test_whole_indices():
    s = Checked(gathered())
    assert s.cache_index("C", "global") == ["index_0", "index_1", "index_2"]
    s.becomes("""
        index_0 = T.alloc_buffer((7, 3), "int32")
        index_1 = T.alloc_buffer((7, 3), "int32")
        index_2 = T.alloc_buffer((3,), "int32")
        for ax0, ax1 in T.grid(7, 3):
            with T.block("index_0"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                index_0[v0, v1] = (v0 * 3 + v1) // 2
        for ax0_1, ax1_1 in T.grid(7, 3):
            with T.block("index_1"):
                v0, v1 = T.axis.remap("SS", [ax0_1, ax1_1])
                index_1[v0, v1] = (v0 * 3 + v1) // 2 + 1
        for ax0_2 in range(3):
            with T.block("index_2"):
                v0 = T.axis.spatial(3, ax0_2)
                index_2[v0] = 8 - v0
        for i, j in T.grid(7, 3):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                C[v_i, v_j] = A[index_0[v_i, v_j], v_j] + A[index_1[v_i, v_j], index_2[v_j]]
    """)


def test_what_occurs_often():
    s = Checked(gathered())
    assert s.cache_index("C", "local", 2) == ["index_0"]
    s.becomes("""
        index_0 = T.alloc_buffer((7, 3), "int32", scope="local")
        for ax0, ax1 in T.grid(7, 3):
            with T.block("index_0"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                index_0[v0, v1] = (v0 * 3 + v1) // 2
        for i, j in T.grid(7, 3):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                C[v_i, v_j] = A[index_0[v_i, v_j], v_j] + A[index_0[v_i, v_j] + 1, 8 - v_j]
    """)


def test_plain_indices_are_refused():
    Checked(chain()).refuses("""
        cache_index('C', 'global'): no index of `C` computes anything from its axes
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: indices that are variables, constants or loaded, or of what is written side by side, are read as they are
    """)


def test_what_lanes_write_is_read_as_it_was():
    """Through memory, nothing would prove that lanes keep apart."""
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[6 - i] + 1.0, name="B")
    s = Checked(te.create_prim_func([A, te.compute((6,), lambda i: B[i + 1] * A[i + 1], name="C")]))
    s.compute_at("B", s.get_loops("C")[0])
    s.vectorize(s.get_loops("C")[0])
    s.cache_index("C", "local")
    s.becomes("""
        B = T.alloc_buffer((7,))
        index_0 = T.alloc_buffer((6,), "int32", scope="local")
        for ax0 in range(6):
            with T.block("index_0"):
                v0 = T.axis.spatial(6, ax0)
                index_0[v0] = v0 + 1
        for i_1 in T.vectorized(6):
            with T.block("B"):
                v_i = T.axis.spatial(7, i_1 + 1)
                B[v_i] = A[6 - v_i] + T.float32(1.0)
            with T.block("C"):
                v_i = T.axis.spatial(6, i_1)
                C[v_i] = B[v_i + 1] * A[index_0[v_i]]
    """)


def test_the_place_of_a_sum_is_no_index():
    A, k = te.placeholder((12,), name="A"), te.reduce_axis((0, 3), name="k")
    s = Checked(te.create_prim_func([A, te.compute((6,), lambda i: te.sum(A[i * 2 + k % 2], axis=k), name="C")]))
    s.transform_block_layout("C", "lambda i, k: (i // 2, i % 2, k)")
    s.cache_index("C", "local")
    s.becomes("""
        index_0 = T.alloc_buffer((3, 2, 3), "int32", scope="local")
        for ax0_1, ax1_1, ax2_1 in T.grid(3, 2, 3):
            with T.block("index_0"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0_1, ax1_1, ax2_1])
                index_0[v0, v1, v2] = v0 * 4 + v1 * 2 + v2 % 2
        for ax0, ax1, ax2 in T.grid(3, 2, 3):
            with T.block("C"):
                v0, v1, v2 = T.axis.remap("SSR", [ax0, ax1, ax2])
                with T.init():
                    C[v0 * 2 + v1] = T.float32(0.0)
                C[v0 * 2 + v1] = C[v0 * 2 + v1] + A[index_0[v0, v1, v2]]
    """)
