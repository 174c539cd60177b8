import math

import pytest

from schedule import Schedule, ScheduleError, Trace, replay
from tests.programs import elementwise, matmul
from tests.schedule.harness import Checked
from tir import te
from tir.script import parse


def test_loop_and_block():
    s = Checked(elementwise(7, 13))
    s.annotate("i0", "pragma_auto_unroll_max_step", 64)
    s.annotate("B", "tiling", [2, "SSRSRS", {"deep": True}])
    s.becomes("""
        for i0 in T.serial(7, annotations={"pragma_auto_unroll_max_step": 64}):
            for i1 in range(13):
                with T.block("B"):
                    v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                    T.block_attr({"tiling": [2, "SSRSRS", {"deep": T.bool(True)}]})
                    B[v_i0, v_i1] = A[v_i0, v_i1] + T.float32(1.0)
    """)


def test_values_are_replaced_and_removed():
    before = elementwise(7, 13)
    s = Schedule(before)
    s.annotate("i0", "key", 1)
    s.annotate("i0", "key", 2)
    assert 'annotations={"key": 2}' in s.script
    s.unannotate("i0", "key")
    assert s.script == Schedule(before).script
    assert s.func == before


def test_refusals():
    s = Checked(matmul())
    s.annotate("C", "a", 1)
    s.refuses("""
        unannotate('C', 'b'): `C` has no annotation 'b'; it has `a`
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ not annotated with it
    """)
    s.refuses("""
        annotate('C', '', 1): the key must not be empty
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ to annotate
    """)
    s.refuses("annotate('C', 'a', {1, 2}): `ann_val` must be JSON data, got {1, 2}")
    message = "annotate('C', 'a', [1, nan]): `ann_val` must be JSON data, got [1, nan]"
    with s.refusal(message):
        s.annotate("C", "a", [1, math.nan])
    s.refuses("annotate('D', 'a', 1): `D` is no loop or block of this function; it has `i`, `j`, `k` and `C`")


def test_a_value_that_code_generation_does_not_know():
    """Whether a step is new or of a trace; a chunk of 2**62 iterations once was added up past 64 bits."""
    s = Checked(matmul())
    expected = """
annotate('i', 'chunk', 4611686018427387904): the annotation chunk must be an integer from 0 to 2147483647, got 4611686018427387904
    8 |     for i, j, k in T.grid(7, 13, 5):
      |         ^ to annotate
"""
    s.refuses(expected)
    s.annotate("i", "chunk", 2**31 - 1)
    trace = Trace.from_json(s.trace.to_json().replace("2147483647", str(2**62)))
    with pytest.raises(ScheduleError, match=r"annotate\('i', 'chunk', 4611686018427387904\): the annotation chunk must be"):
        replay(matmul(), trace)


def test_a_name_of_both():
    A = te.placeholder((7,), name="A")
    s = Schedule(te.create_prim_func([A, te.compute((7,), lambda x: A[x] + 1.0, name="y")]))
    s = Schedule(te.create_prim_func([A, te.compute((7,), lambda y: A[y] + 1.0, name="y_1")]))
    loop, block = s.get_loops("y_1")[0], "y_1"
    assert loop != block


def test_hints_for_a_search_on_the_function():
    """As traces have them that TVM prints."""
    s = Checked(matmul())
    before = s.script
    s.annotate(block_or_loop=s.get_block("root", func_name="main"), ann_key="meta_schedule.parallel", ann_val=160)
    assert '"meta_schedule.parallel": 160' in s.script and parse(s.script) == s.func
    s.enter_postproc()
    s.unannotate("root", "meta_schedule.parallel")
    assert s.script == before
    s.refuses("""
        annotate('root', 'tir.noalias', False): of the whole function, "root", only keys that begin with "meta_schedule." are annotated
    """)
