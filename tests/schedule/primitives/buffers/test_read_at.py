from schedule import Schedule
from tests.programs import matmul
from tests.schedule.harness import Checked, check, refuse


def test_rows_are_copied_in_each_iteration():
    s = Checked(matmul())
    assert s.read_at("i", "C", 0, "shared") == "A_shared"
    assert s.write_at("i", "C", 0, "local") == "C_local"
    check(
        s,
        """
        A_shared = T.alloc_buffer((7, 5), scope="shared")
        C_local = T.alloc_buffer((7, 13), scope="local")
        for i in range(7):
            for ax0 in range(5):
                with T.block("A_shared"):
                    v0, v1 = T.axis.remap("SS", [i, ax0])
                    A_shared[v0, v1] = A[v0, v1]
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
        """,
    )


def test_refusals():
    s = Schedule(matmul())
    refuse(
        s,
        """
read_at('l', 'C', 0, 'shared'): `l` is no loop of this function; its loops are `i`, `j` and `k`
""",
    )
    refuse(
        s,
        """
write_at('k', 'C', 0, 'local'): it cannot be shown that `C` finishes a part of its own in each iteration of `k`: `k` is a loop of the reduction
    9 |     for i, j, k in T.grid(7, 13, 5):
      |               ^ the loop
   10 |         with T.block("C"):
      |         ^^^^^^^^^^^^^^^^^^ the producer
      ...
   16 |         with T.block("C_local"):
      |         ^^^^^^^^^^^^^^^^^^^^^^^^ the consumer
  hint: choose a place outside of `k`
""",
    )
