from tests.programs import matmul
from tests.schedule.harness import Checked


def test_reduction_first():
    s = Checked(matmul())
    s.reorder_block_iter_var("C", [2, 0, 1])
    s.becomes("""
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C"):
                v_k, v_i, v_j = T.axis.remap("RSS", [k, i, j])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_refusals():
    s = Checked(matmul())
    s.refuses("""
        reorder_block_iter_var('C', [0, 1]): `new_order` must be a permutation of the numbers 0 to 2, got [0, 1]
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ has 3 iteration variables
    """)
    s = Checked(matmul())
    s.refuses("""
        reorder_block_iter_var('C', [0, 1, 1]): `new_order` must be a permutation of the numbers 0 to 2, got [0, 1, 1]
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ has 3 iteration variables
    """)
    s = Checked(matmul())
    s.refuses("""
        reorder_block_iter_var('k', [0, 1, 2]): `k` is a loop, not a block; its blocks are `C`
    """)
