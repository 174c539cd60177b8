from schedule import Schedule
from tests.programs import matmul, symbolic, vector
from tests.schedule.harness import Checked, check, refuse


def test_unroll():
    s = Checked(matmul())
    s.unroll("k")
    check(
        s,
        """
        for i, j in T.grid(7, 13):
            for k in T.unroll(5):
                with T.block("C"):
                    v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        C[v_i, v_j] = T.float32(0.0)
                    C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        """,
    )


def test_refusals():
    s = Schedule(symbolic())
    refuse(
        s,
        """
unroll('i'): the extent of `i` is not a constant
    8 |     for i in range(n):
      |     ^^^^^^^^^^^^^^^^^^ runs over n
  hint: split('i', [None, 4]) makes an inner loop whose extent is one
""",
    )
    s = Schedule(vector())
    s.parallel("i")
    refuse(
        s,
        """
unroll('i'): `i` is already parallel
    8 |     for i in T.parallel(13):
      |     ^^^^^^^^^^^^^^^^^^^^^^^^ parallel
  hint: serial('i') takes the mark away
""",
    )
