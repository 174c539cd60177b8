from tests.programs import chain, matmul
from tests.schedule.harness import Checked
from tir import te


def stencil(n: int = 13):
    """B = A + A shifted by one, and the sum of the diagonal of S."""
    A = te.placeholder((n + 1,), name="A")
    S = te.placeholder((n, n), name="S")
    B = te.compute((n,), lambda i: A[i] + A[i + 1] + S[i, i], name="B")
    return te.create_prim_func([A, S, B])


def test_a_matrix_in_the_order_of_the_loops():
    s = Checked(matmul())
    s.split("j", [None, 4])
    s.split("k", [None, 3])
    s.reorder("j_0", "k_0", "i", "k_1", "j_1")
    assert s.pack("C", 1) == "B_global"
    s.becomes("""
        B_global = T.alloc_buffer((4, 2, 3, 4))
        for ax0_1, ax1_1, ax2, ax3 in T.grid(4, 2, 3, 4):
            with T.block("B_global"):
                v0, v1, v2, v3 = T.axis.remap("SSSS", [ax0_1, ax1_1, ax2, ax3])
                B_global[v0, v1, v2, v3] = T.if_then_else(v1 * 3 + v2 < 5 and v0 * 4 + v3 < 13, B[v1 * 3 + v2, v0 * 4 + v3], T.float32(0.0))
        for j_0, k_0, i, k_1, j_1 in T.grid(4, 2, 7, 3, 4):
            with T.block("C"):
                ...
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B_global[v_j // 4, v_k // 3, v_k % 3, v_j % 4]
    """)


def test_both_sides_of_a_matmul():
    s = Checked(matmul(8, 10, 12))
    s.split("i", [None, 4])
    s.split("j", [None, 2, 3])
    s.split("k", [None, 5])
    s.reorder("i_0", "j_0", "k_0", "j_1", "k_1", "i_1", "j_2")
    s.pack("C", "A", "local")
    s.pack("C", "B", "local")
    s.becomes("""
        A_local = T.alloc_buffer((2, 2, 5, 4), scope="local")
        B_local = T.alloc_buffer((2, 2, 2, 5, 3), scope="local")
        for ax0_2, ax1_2, ax2_1, ax3_1, ax4 in T.grid(2, 2, 2, 5, 3):
            with T.block("B_local"):
                v0, v1, v2, v3, v4 = T.axis.remap("SSSSS", [ax0_2, ax1_2, ax2_1, ax3_1, ax4])
                B_local[v0, v1, v2, v3, v4] = B[v1 * 5 + v3, v0 * 6 + v2 * 3 + v4]
        for ax0_1, ax1_1, ax2, ax3 in T.grid(2, 2, 5, 4):
            with T.block("A_local"):
                ...
        for i_0, j_0, k_0, j_1, k_1, i_1, j_2 in T.grid(2, 2, 2, 2, 5, 4, 3):
            with T.block("C"):
                ...
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A_local[v_i // 4, v_k // 5, v_k % 5, v_i % 4] * B_local[v_j // 6, v_k // 5, v_j // 3 % 2, v_k % 5, v_j % 3]
    """)


def test_the_copy_can_be_moved_to_the_loop_that_uses_it():
    s = Checked(matmul())
    s.split("j", [None, 4])
    s.reorder("j_0", "k", "i", "j_1")
    packed = s.pack("C", 1)
    s.compute_at(packed, "j_0")
    s.becomes("""
        B_global = T.alloc_buffer((4, 5, 4))
        for j_0 in range(4):
            for ax0, ax1 in T.grid(5, 4):
                with T.block("B_global"):
                    v0, v1, v2 = T.axis.remap("SSS", [j_0, ax0, ax1])
                    B_global[v0, v1, v2] = T.if_then_else(v0 * 4 + v2 < 13, B[v1, v0 * 4 + v2], T.float32(0.0))
            for k, i, j_1 in T.grid(5, 7, 4):
                with T.block("C"):
                    ...
    """)


def test_a_loop_of_one_iteration_makes_no_dimension():
    s = Checked(matmul(1, 5, 13))
    s.reorder("k", "i", "j")
    s.pack("C", 0)
    s.becomes("""
        A_global = T.alloc_buffer((1, 5))
        for ax0_1, ax1 in T.grid(1, 5):
            with T.block("A_global"):
                v0, v1 = T.axis.remap("SS", [ax0_1, ax1])
                A_global[0, v1] = A[0, v1]
        for k, i, j in T.grid(5, 1, 13):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A_global[0, v_k] * B[v_k, v_j]
    """)


def test_only_this_block_reads_the_copy():
    s = Checked(chain())
    s.cache_read("C", 0, "local")
    s.pack("C", 0)
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        B_local = T.alloc_buffer((7, 13), scope="local")
        B_local_global = T.alloc_buffer((7, 13))
        for i, j in T.grid(7, 13):
            ...
        for ax0, ax1 in T.grid(7, 13):
            ...
        for ax0_1, ax1_1 in T.grid(7, 13):
            with T.block("B_local_global"):
                v0, v1 = T.axis.remap("SS", [ax0_1, ax1_1])
                B_local_global[v0, v1] = B_local[v0, v1]
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B_local_global[v_i, v_j] * T.float32(3.0)
    """)


def test_loops_that_the_copy_shares_stay():
    s = Checked(chain())
    s.compute_at("B", s.get_loops("C")[0])
    s.split(s.get_loops("C")[1], [None, 4])
    s.reorder(s.get_loops("C")[2], s.get_loops("C")[1])
    s.pack("C", 0)
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        B_global = T.alloc_buffer((7, 4, 4))
        for ax0_2, ax1, ax2 in T.grid(7, 4, 4):
            with T.block("B_global_pad"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0_2, ax1, ax2])
                T.where(ax2 * 4 + ax1 >= 13)
                B_global[v0, v1, v2] = T.float32(0.0)
        for i_1 in range(7):
            for ax0 in range(13):
                with T.block("B"):
                    ...
            for ax0_1 in range(13):
                with T.block("B_global"):
                    v0, v1 = T.axis.remap("SS", [i_1, ax0_1])
                    B_global[v0, v1 % 4, v1 // 4] = B[v0, v1]
            for j_1_1, j_1_0 in T.grid(4, 4):
                with T.block("C"):
                    ...
                    T.where(j_1_0 * 4 + j_1_1 < 13)
                    C[v_i, v_j] = B_global[v_i, v_j % 4, v_j // 4] * T.float32(3.0)
    """)


def test_several_places_are_refused():
    s = Checked(stencil())
    s.refuses("""
        pack('B', 0): `B` reads `A` at 2 places
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ reads A
          hint: cache_read('B', 'A', ...) copies it as it is
    """)


def test_an_operand_that_is_read_backwards():
    """The copy has the order of the operand there."""
    A, B = te.placeholder((7, 5), name="A"), te.placeholder((5, 13), name="B")
    k = te.reduce_axis((0, 5), name="k")
    before = te.create_prim_func([A, B, te.compute((7, 13), lambda i, j: te.sum(A[i, k] * B[4 - k, j], axis=k), name="C")])
    s = Checked(before)
    s.split("j", [None, 4])
    s.reorder("j_0", "i", "k", "j_1")
    s.pack("C", "B")
    s.becomes("""
        B_global = T.alloc_buffer((4, 5, 4))
        for ax0_1, ax1_1, ax2 in T.grid(4, 5, 4):
            with T.block("B_global"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0_1, ax1_1, ax2])
                B_global[v0, v1, v2] = T.if_then_else(v0 * 4 + v2 < 13, B[v1, v0 * 4 + v2], T.float32(0.0))
        for j_0, i, k, j_1 in T.grid(4, 7, 5, 4):
            with T.block("C"):
                ...
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B_global[v_j // 4, 4 - v_k, v_j % 4]
    """)


def test_a_part_of_an_operand():
    """What lies at a constant in one dimension is copied alone."""
    A, B = te.placeholder((7, 5), name="A"), te.placeholder((5, 3, 13), name="B")
    k = te.reduce_axis((0, 5), name="k")
    before = te.create_prim_func([A, B, te.compute((7, 13), lambda i, j: te.sum(A[i, k] * B[k, 1, j], axis=k), name="C")])
    s = Checked(before)
    s.split("j", [None, 4])
    s.reorder("j_0", "i", "k", "j_1")
    s.pack("C", "B")
    s.becomes("""
        B_global = T.alloc_buffer((4, 5, 4))
        for ax0_1, ax1_1, ax2 in T.grid(4, 5, 4):
            with T.block("B_global"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0_1, ax1_1, ax2])
                B_global[v0, v1, v2] = T.if_then_else(v0 * 4 + v2 < 13, B[v1, 1, v0 * 4 + v2], T.float32(0.0))
        for j_0, i, k, j_1 in T.grid(4, 7, 5, 4):
            with T.block("C"):
                ...
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B_global[v_j // 4, v_k, v_j % 4]
    """)


def test_an_axis_in_two_dimensions_is_refused():
    s = Checked(stencil())
    s.refuses("""
        pack('B', 1): `B` reads `S` at `v_i`, no axis of its own
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ reads S
          hint: reindex('B', 'S') makes a copy indexed by the axes
    """)


def test_fused_loops_are_refused():
    s = Checked(matmul())
    s.fuse("i", "j")
    s.refuses("""
        pack('C', 0): `v_i` = `i_j_fused // 13` is not counted by the loops around `C`, one after the other
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: pack after split and reorder, before fuse
    """)


def test_the_refusal_of_the_copy_is_passed_on():
    s = Checked(matmul())
    s.refuses("""
        pack('C', 0, 'the cache'): no storage scope is named 'the cache'; there are: global, shared, shared.dyn, \
shared.swizzled, warp, local, register, wmma.matrix_a, wmma.matrix_b, wmma.accumulator
    """)
