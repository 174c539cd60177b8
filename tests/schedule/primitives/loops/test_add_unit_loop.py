from tests.programs import elementwise
from tests.schedule.harness import Checked


def test_around_a_block_and_a_loop():
    s = Checked(elementwise(7, 13))
    assert s.add_unit_loop("B") == "u"
    assert s.add_unit_loop("i0") == "u_1"
    s.becomes("""
        for u_1, i0, i1, u in T.grid(1, 7, 13, 1):
            with T.block("B"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                B[v_i0, v_i1] = A[v_i0, v_i1] + T.float32(1.0)
    """)


def test_refusal():
    s = Checked(elementwise(7, 13))
    s.refuses("add_unit_loop('i2'): `i2` is no loop or block of this function; it has `i0`, `i1` and `B`")
