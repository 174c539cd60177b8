import pytest

import tir
from schedule import Schedule
from tests.programs import matmul
from tests.schedule.harness import Checked
from tir import te
from tir.traverse import loops


def chain():
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((7, 13), lambda i, j: B[i, j] * 2.0, name="C")
    return te.create_prim_func([A, te.compute((7, 13), lambda i, j: C[i, j] - A[i, j], name="D")])


def annotations(s):
    return {x.name: dict(x.annotations) for x in loops(s.func) if x.annotations}


def test_what_is_inlined_is_fetched_no_more():
    s = Checked(chain())
    loop = s.get_loops("C")[-1]
    s.annotate(loop, "prefetch", [["B", 4], ["C", 2]])
    s.compute_inline("B")
    assert annotations(s) == {loop: {"prefetch": [["C", 2]]}}
    tir.build(s.func)
    s.reverse_compute_inline("D")
    assert annotations(s) == {}
    s.becomes("""
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                D[v_i, v_j] = (A[v_i, v_j] + T.float32(1.0)) * T.float32(2.0) - A[v_i, v_j]
    """)


@pytest.mark.parametrize("value", ["C", ["C"], ["C", "D"]])
def test_stores_that_moved(value):
    s = Schedule(chain())
    s.merge(s.get_loops("C")[0], s.get_loops("D")[0])
    loop = s.get_loops("C")[0]
    s.annotate(loop, "non_temporal", value)
    s.compute_inline("C")
    left = [name for name in value if name != "C"]
    assert annotations(s) == ({loop: {"non_temporal": left}} if left else {})


def test_an_operand_that_is_read_through_a_copy():
    s = Schedule(matmul())
    k = s.get_loops("C")[-1]
    s.annotate(k, "prefetch", ["A", 8])
    s.annotate("C", "note", ["A", 8])  # what has another key is none of ours
    s.cache_read("C", "A", "global", ["C"])
    assert annotations(s) == {} and "note" in s.script
    tir.build(s.func)


def test_a_name_that_never_was_right_stays():
    s = Schedule(chain())
    loop = s.get_loops("D")[-1]
    s.annotate(loop, "prefetch", [["B", 4], ["nothing", 2], ["C", 1]])
    s.compute_inline("C")  # B is read where C was
    assert annotations(s) == {loop: {"prefetch": [["B", 4], ["nothing", 2]]}}
    with pytest.raises(ValueError, match="names `nothing`"):
        tir.build(s.func)
