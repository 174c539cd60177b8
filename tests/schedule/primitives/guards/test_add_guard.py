from tests.programs import matmul, vector
from tests.schedule.harness import Checked


def test_a_loop_in_two_versions():
    s = Checked(matmul())
    s.split("j", [None, 4])
    s.reorder("j_0", "i", "k", "j_1")
    assert s.add_guard("i", "j_0 < 3") == ["i", "i_1"]
    s.becomes("""
        for j_0 in range(4):
            if j_0 < 3:
                for i, k, j_1 in T.grid(7, 5, 4):
                    with T.block("C"):
                        ...
                        v_k = T.axis.reduce(5, k)
                        with T.init():
                        ...
            else:
                for i_1, k_1, j_1_1 in T.grid(7, 5, 4):
                    with T.block("C_1"):
                        v_i = T.axis.spatial(7, i_1)
                        v_j = T.axis.spatial(13, j_0 * 4 + j_1_1)
                        v_k = T.axis.reduce(5, k_1)
                        T.where(j_0 * 4 + j_1_1 < 13)
                        with T.init():
                            C[v_i, v_j] = T.float32(0.0)
                        C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_a_reduction_starts_in_one_version():
    s = Checked(matmul())
    s.add_guard("C", "k == 0")
    s.becomes("""
        for i, j, k in T.grid(7, 13, 5):
            if k == 0:
                with T.block("C"):
                    ...
            else:
                with T.block("C_1"):
                    v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                    C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_a_block_in_two_versions():
    s = Checked(vector(13))
    s.split("i", [None, 4])
    assert s.add_guard("B", "i_0 == 3") == ["B", "B_1"]
    s.becomes("""
        for i_0, i_1 in T.grid(4, 4):
            if i_0 == 3:
                with T.block("B"):
                    ...
            else:
                with T.block("B_1"):
                    v_i = T.axis.spatial(13, i_0 * 4 + i_1)
                    B[v_i] = A[v_i] * T.float32(2.0)
    """)


def test_refusals():
    s = Checked(matmul())
    s.refuses("""
        add_guard('j', 'k < 3'): `k` in the condition is not visible here; variables are `i`
    """)
    s = Checked(matmul())
    s.refuses("""
        add_guard('k', 'j < 13'): the condition 'j < 13' always holds here
            8 |     for i, j, k in T.grid(7, 13, 5):
              |               ^ nothing to distinguish
          hint: it must hold in some iterations of the loops around, and not in others
    """)
    s = Checked(matmul())
    s.refuses("""
        add_guard('k', 'j < 0'): the condition 'j < 0' never holds here
            8 |     for i, j, k in T.grid(7, 13, 5):
              |               ^ nothing to distinguish
          hint: it must hold in some iterations of the loops around, and not in others
    """)
    s = Checked(matmul())
    s.refuses("""
        add_guard('k', 'j +'): the condition 'j +' is not an expression: invalid syntax
          hint: 'i < 3 and j >= 1'
    """)
    s = Checked(matmul())
    s.refuses("""
        add_guard('k', 'j + 1'): the condition 'j + 1' cannot be read: a condition must be bool, `j + 1` is int32
          hint: compare it: x != 0
    """)
    s = Checked(matmul())
    s.refuses("""
        add_guard('C', 'k >= i'): it cannot be shown in which part the reduction `C` starts with its init
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ a reduction
          hint: decompose_reduction first
    """)


def test_refuses_to_take_the_init_from_threads_that_reduce_together():
    s = Checked(matmul())
    s.bind("k", "threadIdx.x")
    s.refuses("""
        add_guard('C', 'k > 3'): `k`, which drives the reduction, is bound to threadIdx.x: threads that reduce together need the init
            9 |         for k in T.thread_binding(5, thread="threadIdx.x"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ drives the reduction
           10 |             with T.block("C"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: do this before bind
    """)
