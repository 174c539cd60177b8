from tests.programs import chain, elementwise
from tests.schedule.harness import Checked


def test_tile():
    s = Checked(elementwise(7, 13))
    assert s.tile("i0", "i1", 2, 5) == ["i0_0", "i1_0", "i0_1", "i1_1"]
    s.becomes("""
        for i0_0, i1_0, i0_1, i1_1 in T.grid(4, 3, 2, 5):
            with T.block("B"):
                v_i0 = T.axis.spatial(7, i0_0 * 2 + i0_1)
                v_i1 = T.axis.spatial(13, i1_0 * 5 + i1_1)
                T.where(i0_0 * 2 + i0_1 < 7 and i1_0 * 5 + i1_1 < 13)
                B[v_i0, v_i1] = A[v_i0, v_i1] + T.float32(1.0)
    """)


def test_the_refusal_names_the_call_that_was_made():
    s = Checked(elementwise(7, 13))
    s.refuses("tile('i0', 'i1', 0, 5): factors must be at least 1, got 0\n  hint: tile('i0', 'i1', 4, 16)")
    s = Checked(chain())
    s.refuses("""
        tile('i', 'j_1', 2, 5): `j_1_1` is not inside `i_0`
            9 |     for i_0, i_1_1, j in T.grid(4, 2, 13):
              |         ^^^ one nest
              ...
           15 |     for i_1, j_1_0, j_1_1 in T.grid(7, 3, 5):
              |                     ^^^^^ another
          hint: loops of one nest are needed; merge joins two nests
    """)
