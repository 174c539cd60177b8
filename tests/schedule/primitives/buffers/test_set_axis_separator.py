import pytest

from schedule import IndexMap, Schedule
from tests.programs import chain
from tests.schedule.harness import Checked

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
    s.becomes(f"B = T.alloc_buffer((7, 13), axis_separators=[1]){CHAIN}")
    s.set_axis_separator("B", "B", [])
    s.becomes(f"B = T.alloc_buffer((7, 13)){CHAIN}")


def test_a_parameter_and_another_layout():
    s = Schedule(chain())
    s.set_axis_separator("B", ("read", 0), [1])
    assert 'A: T.Buffer((7, 13), "float32", axis_separators=[1])' in s.script
    s.set_axis_separator("B", ("write", 0), [1])
    s.transform_layout("B", ("write", 0), lambda i, j: (i * 13 + j,))
    assert "    B = T.alloc_buffer((91,))\n" in s.script


@pytest.mark.parametrize("buffer", ["B", ("write", 0), "object"])
def test_separators_of_an_index_map(buffer):
    """They stand between the outputs, in a group of functions of TVM's; the buffer may be given itself."""
    s = Checked(chain())
    given = s.get("B").writes[0].buffer if buffer == "object" else buffer
    s.transform_layout("B", given, lambda i, j: [i, IndexMap.AXIS_SEPARATOR, j])
    s.becomes(f"B = T.alloc_buffer((7, 13), axis_separators=[1]){CHAIN}")
    tiled = Checked(chain())
    tiled.transform_layout("B", given, lambda *i, j: (*i, IndexMap.AXIS_SEPARATOR, j // 13, IndexMap.AXIS_SEPARATOR, j % 13))
    tiled.becomes(f"B = T.alloc_buffer((7, 1, 13), axis_separators=[1, 2]){CHAIN.replace('B[v_i, v_j]', 'B[v_i, 0, v_j]')}")


def test_separators_alone_leave_a_parameter_where_it_is():
    s = Checked(chain())
    s.transform_layout("B", s.get("B").reads[0].buffer, lambda i, j: (i, IndexMap.AXIS_SEPARATOR, j))
    assert 'A: T.Buffer((7, 13), "float32", axis_separators=[1])' in s.script
    s.refuses("""
        transform_layout('B', 'A', "lambda i, j: (j, 'axis separator', i)"): `A` is a parameter of the function, and its layout is the caller's
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ uses A
          hint: cache_read makes a copy whose layout is free, and of_caller=True changes what is passed
    """)


def test_separators_elsewhere_are_refused():
    for given in ("(i, j, IndexMap.AXIS_SEPARATOR)", "(IndexMap.AXIS_SEPARATOR, i, j)"):
        s = Checked(chain())
        with s.refusal(f"""
transform_layout('B', 'B', "lambda i, j: {given.replace("IndexMap.AXIS_SEPARATOR", "'axis separator'")}"): axis separators stand between indices
  hint: lambda i, j: (i, IndexMap.AXIS_SEPARATOR, j)
"""):
            s.transform_layout("B", "B", eval(f"lambda i, j: {given}", {"IndexMap": IndexMap}))
    Checked(chain()).refuses("""
        transform_block_layout('B', "lambda i, j: (j, 'axis separator', i)"): axis separators are for buffers, not for the axes of a block
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ the block
    """)


def test_separators_that_do_not_ascend_are_refused():
    Checked(chain()).refuses("""
        set_axis_separator('B', ['write', 0], [2]): axis separators are ascending numbers of dimensions, from 1 to 1, got [2]
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ uses B, of 2 dimension(s)
    """)
