from schedule import Schedule
from tests.programs import chain
from tests.schedule.harness import Checked, check, refuse

CHAIN = """
for i, j in T.grid(7, 13):
    with T.block("B"):
        v_i, v_j = T.axis.remap("SS", [i, j])
        B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
for i_1, j_1 in T.grid(7, 13):
    with T.block("C"):
        v_i, v_j = T.axis.remap("SS", [i_1, j_1])
        C[v_i, v_j] = B[v_i, v_j] * T.float32(3.0)
"""


def test_dimensions_of_a_temporary():
    s = Checked(chain())
    s.set_axis_separator("C", ("read", 0), [1])
    check(s, f"B = T.alloc_buffer((7, 13), axis_separators=[1]){CHAIN}")
    s.set_axis_separator("B", "B", [])
    check(s, f"B = T.alloc_buffer((7, 13)){CHAIN}")


def test_a_parameter_and_another_layout():
    s = Schedule(chain())
    s.set_axis_separator("B", ("read", 0), [1])
    assert 'A: T.Buffer((7, 13), "float32", axis_separators=[1])' in s.script
    s.set_axis_separator("B", ("write", 0), [1])
    s.transform_layout("B", ("write", 0), lambda i, j: (i * 13 + j,))
    assert "    B = T.alloc_buffer((91,))\n" in s.script


def test_separators_that_do_not_ascend_are_refused():
    refuse(
        Schedule(chain()),
        """
set_axis_separator('B', ['write', 0], [2]): axis separators are ascending numbers of dimensions, from 1 to 1, got [2]
   10 |         with T.block("B"):
      |         ^^^^^^^^^^^^^^^^^^ uses B, of 2 dimension(s)
""",
    )
