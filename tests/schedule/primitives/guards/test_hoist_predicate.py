from tests.programs import matmul
from tests.schedule.harness import Checked


def test_out_of_the_loops_it_does_not_depend_on():
    s = Checked(matmul())
    s.split("k", [None, 4])
    s.reorder("k_0", "k_1", "i", "j")
    s.hoist_predicate("i")
    s.becomes("""
        for k_0, k_1 in T.grid(2, 4):
            if k_0 * 4 + k_1 < 5:
                for i, j in T.grid(7, 13):
                    with T.block("C"):
                        ...
                        v_k = T.axis.reduce(5, k_0 * 4 + k_1)
                        with T.init():
                        ...
    """)


def test_refusals():
    s = Checked(matmul())
    s.refuses("""
        hoist_predicate('j'): no condition is the same throughout `j` for all that runs under it
            8 |     for i, j, k in T.grid(7, 13, 5):
              |            ^ the loop
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ runs under no condition
          hint: peel divides a loop where its conditions begin and cease to hold; add_guard divides by any condition
    """)
    s = Checked(matmul())
    s.split("k", [None, 4])
    s.refuses("""
        hoist_predicate('k_1'): no condition is the same throughout `k_1` for all that runs under it
            8 |     for i, j, k_0, k_1 in T.grid(7, 13, 2, 4):
              |                    ^^^ the loop
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ runs under `k_0 * 4 + k_1 < 5`
          hint: peel divides a loop where its conditions begin and cease to hold; add_guard divides by any condition
    """)
