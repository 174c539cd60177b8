from tests.programs import matmul, symbolic, vector
from tests.schedule.harness import Checked


def test_unroll():
    s = Checked(matmul())
    s.unroll("k")
    s.becomes("""
        for i, j in T.grid(7, 13):
            for k in T.unroll(5):
                with T.block("C"):
                    ...
    """)


def test_refusals():
    s = Checked(symbolic())
    s.refuses("""
        unroll('i'): the extent of `i` is not a constant
            8 |     for i in range(n):
              |     ^^^^^^^^^^^^^^^^^^ runs over n
          hint: split('i', [None, 4]) makes an inner loop whose extent is one
    """)
    s = Checked(vector())
    s.parallel("i")
    s.refuses("""
        unroll('i'): `i` is already parallel
            8 |     for i in T.parallel(13):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^ parallel
          hint: serial('i') takes the mark away
    """)
