from tests.programs import matmul, symbolic
from tests.schedule.harness import Checked


def test_a_main_part_and_a_tail():
    s = Checked(matmul())
    s.split("j", [None, 4])
    s.reorder("j_0", "i", "k", "j_1")
    assert s.peel("j_0") == ["j_0_0", "j_0_1"]
    s.becomes("""
        for j_0_0, i, k, j_1 in T.grid(3, 7, 5, 4):
            with T.block("C_j_0_0"):
                v_i = T.axis.spatial(7, i)
                v_j = T.axis.spatial(13, j_0_0 * 4 + j_1)
                v_k = T.axis.reduce(5, k)
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        for j_0_1, i_1, k_1, j_1_1 in T.grid(1, 7, 5, 1):
            with T.block("C_j_0_1"):
                v_i = T.axis.spatial(7, i_1)
                v_j = T.axis.spatial(13, j_0_1 * 4 + j_1_1 + 12)
                v_k = T.axis.reduce(5, k_1)
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_a_reduction():
    s = Checked(matmul(1, 13, 7))
    s.split("k", [None, 3])
    s.peel("k_0")
    s.becomes("""
        for i, j in T.grid(1, 7):
            for k_0_0, k_1 in T.grid(4, 3):
                with T.block("C_k_0_0"):
                    v_i = T.axis.spatial(1, i)
                    v_j = T.axis.spatial(7, j)
                    v_k = T.axis.reduce(13, k_0_0 * 3 + k_1)
                    with T.init():
                        C[v_i, v_j] = T.float32(0.0)
                    C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            for k_0_1, k_1_1 in T.grid(1, 1):
                with T.block("C_k_0_1"):
                    v_i = T.axis.spatial(1, i)
                    v_j = T.axis.spatial(7, j)
                    v_k = T.axis.reduce(13, k_0_1 * 3 + k_1_1 + 12)
                    C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_refusals():
    s = Checked(matmul())
    s.refuses("""
        peel('j'): no condition below `j` depends on it
            8 |     for i, j, k in T.grid(7, 13, 5):
              |            ^ nothing to peel
          hint: a split that does not divide makes conditions
    """)
    s = Checked(matmul())
    s.split("j", [1, 16])
    s.refuses("""
        peel('j_0'): `j_0` has no iterations in which its conditions always hold
            8 |     for i, j_0, j_1, k in T.grid(7, 1, 16, 5):
              |            ^^^ the loop
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ runs where `j_0 * 16 + j_1 < 13`
          hint: with a smaller factor in split there are such iterations
    """)
    s = Checked(symbolic())
    s.split("i", [None, 4])
    s.refuses("""
        peel('i_0'): the extent of `i_0` is not a constant
            8 |     for i_0, i_1 in T.grid((n + 3) // 4, 4):
              |         ^^^ runs over (n + 3) // 4
          hint: split('i_0', [None, 4]) makes an inner loop whose extent is one
    """)
