from tests.programs import matmul, symbolic, vector
from tests.schedule.harness import Checked


def test_idle_iterations():
    s = Checked(vector(13))
    s.split("i", [7, 4])
    s.trim("i_0")
    s.becomes("""
        for i_0, i_1 in T.grid(4, 4):
            with T.block("B"):
                ...
    """)


def test_a_condition_that_then_always_holds():
    s = Checked(vector(13))
    s.split("i", [3, 5])
    s.loop_partition("i_0", [2, 1])
    s.trim("i_1_1")
    s.becomes("""
        for i_0_0, i_1 in T.grid(2, 5):
            ...
        for i_0_1, i_1_1 in T.grid(1, 3):
            with T.block("B_i_0_1"):
                v_i = T.axis.spatial(13, i_0_1 * 5 + i_1_1 + 10)
                B[v_i] = A[v_i] * T.float32(2.0)
    """)


def test_refusals():
    s = Checked(matmul())
    s.refuses("""
        trim('j'): no iteration at the end of `j` is without effect
            8 |     for i, j, k in T.grid(7, 13, 5):
              |            ^ 13 iterations
          hint: trim follows a split whose factors make more iterations than the loop has
    """)
    s = Checked(matmul())
    s.split("j", [None, 4])
    s.refuses("""
        trim('j_1'): no iteration at the end of `j_1` is without effect
            8 |     for i, j_0, j_1, k in T.grid(7, 4, 4, 5):
              |                 ^^^ 4 iterations
          hint: trim follows a split whose factors make more iterations than the loop has
    """)
    s = Checked(symbolic())
    s.refuses("""
        trim('i'): the extent of `i` is not a constant
            8 |     for i in range(n):
              |     ^^^^^^^^^^^^^^^^^^ runs over n
          hint: split('i', [None, 4]) makes an inner loop whose extent is one
    """)
