import json
import multiprocessing
import pickle

import pytest

from schedule import REGISTRY, Schedule, ScheduleError, Step, Trace, primitive, replay
from schedule.primitive import LoopName
from tests.programs import chain, matmul, vector
from tests.schedule.harness import Checked
from tir import te
from tir.ir import PrimFunc


def scheduled() -> Schedule:
    s = Schedule(matmul())
    i0, i1 = s.split("i", [None, 2])
    s.reorder(i0, "k", i1, "j")
    s.fuse(i1, "j", preserve_unit_iters=False)
    s.annotate("C", "note", {"deep": [1, None]})
    s.parallel(i0)
    return s


def test_the_trace_prints_as_python():
    assert str(scheduled().trace) == (
        "s.split('i', [None, 2])  # i_0, i_1\n"
        "s.reorder('i_0', 'k', 'i_1', 'j')\n"
        "s.fuse('i_1', 'j', preserve_unit_iters=False)  # i_1_j_fused\n"
        "s.annotate('C', 'note', {'deep': [1, None]})\n"
        "s.parallel('i_0')\n"
    )


def test_the_trace_is_json():
    s = scheduled()
    data = json.loads(json.dumps(s.trace.as_json()))
    assert data["version"] == 1
    assert data["steps"][0] == {"name": "split", "args": {"loop": "i", "factors": [None, 2]}, "results": ["i_0", "i_1"]}
    assert Trace.from_json(data) == s.trace
    assert pickle.loads(pickle.dumps(s.trace)) == s.trace


def test_traces_that_are_none():
    with pytest.raises(ValueError, match="this trace has version 0; version 1 is understood"):
        Trace.from_json({"version": 0, "steps": []})
    with pytest.raises(ValueError, match="a trace is a JSON object with `version` and `steps`"):
        Trace.from_json("[1, 2]")
    with pytest.raises(ValueError, match="'split' is not JSON"):
        Trace.from_json("split")
    with pytest.raises(ValueError, match="a step of a trace is an object"):
        Trace.from_json({"version": 1, "steps": [{"name": "split"}]})
    for name in ([None], {}):
        with pytest.raises(ValueError, match=r"a step of a trace is an object .*a name is a text, got"):
            Trace.from_json({"version": 1, "steps": [{"name": name, "args": {}}]})
    with pytest.raises(ValueError, match=r"is not JSON: maximum recursion depth exceeded"):
        Trace.from_json("[" * 100_000)
    deep: list = []
    for _ in range(20_000):
        deep = [deep]
    with pytest.raises(ValueError, match="a step of a trace is an object"):
        Trace.from_json({"version": 1, "steps": [{"name": "annotate", "args": {"ann_val": deep}}]})


def test_replay_with_changed_arguments():
    s = scheduled()
    steps = (s.trace[0].with_args(factors=[None, 3]), *s.trace.steps[1:])
    assert "range(3)" in replay(matmul(), steps).script or "parallel(3)" in replay(matmul(), steps).script
    assert replay(matmul(), Trace(steps)).trace[0].bound["factors"] == [None, 3]


def test_replay_names_the_step():
    s = scheduled()
    with pytest.raises(ScheduleError) as caught:
        replay(vector(), s.trace)
    assert str(caught.value) == (
        "step 2 of 5, reorder('i_0', 'k', 'i_1', 'j'): `k` is no loop of this function; its loops are `i_0` and `i_1`"
    )
    with pytest.raises(ScheduleError) as caught:
        replay(vector(), [Step("splitt", (("loop", "i"),))])
    assert str(caught.value) == "step 1 of 1, splitt(loop='i'): `splitt` is no primitive\n  hint: did you mean `split`?"
    with pytest.raises(ScheduleError) as caught:
        replay(vector(), [Step("split", (("loop", "i"), ("factor", (None, 4))))])
    assert str(caught.value) == "step 1 of 1, split('i'): `split` has no parameter `factor`\n  hint: did you mean `factors`?"
    with pytest.raises(ScheduleError) as caught:
        replay(vector(), [Step("split", (("loop", "i"),))])
    assert str(caught.value) == "step 1 of 1, split('i'): `split` needs the argument `factors`"


def test_a_node_is_no_name():
    before = vector()
    s = Schedule(before)
    with pytest.raises(ScheduleError) as caught:
        s.split(before.body, [None, 4])
    assert str(caught.value) == (
        "split(<For>, [None, 4]): `loop` must be a name, got <For>\n  hint: loops, blocks and buffers are given by name, here 'i'"
    )
    assert s.func is before


def test_a_copy_goes_its_own_way():
    s = Schedule(matmul())
    s.split("i", [None, 2])
    t = s.copy()
    t.parallel("i_0")
    assert len(s.trace) == 1 and len(t.trace) == 2
    assert "parallel" not in s.script


def test_looking():
    s = Checked(chain())
    assert s.get_block("B") == "B" and s.get_child_blocks(s.get_block("root")) == ["B", "C"]
    assert s.get_loops("C") == ["i_1", "j_1"]
    assert s.get_producers("C") == ["B"] and s.get_producers("B") == []
    assert s.get_consumers("B") == ["C"] and s.get_consumers("C") == []
    assert s.get_child_blocks("i") == ["B"] and s.get_child_blocks("root") == ["B", "C"]
    assert s.get_output_blocks() == ["C"]
    assert len(s.trace) == 0
    s.refuses("get_block('D'): `D` is no block of this function; its blocks are `B` and `C`")
    s.refuses("get_loops('i'): `i` is a loop, not a block; its blocks are `B` and `C`")


def test_consumers_of_several_outputs():
    A = te.placeholder((7,), name="A")
    k = te.reduce_axis((0, 7), name="k")
    S = te.compute((), lambda: te.sum(A[k], axis=k), name="S")
    B = te.compute((7,), lambda i: A[i] / S[()], name="B")
    s = Schedule(te.create_prim_func([A, S, B]))
    assert s.get_consumers("S") == ["B"] and s.get_output_blocks() == ["S", "B"]


def test_only_functions_are_scheduled():
    with pytest.raises(TypeError, match="the seed must be an integer"):
        Schedule(matmul(), seed="a")
    with pytest.raises(TypeError, match="Schedule takes a PrimFunc, got int"):
        Schedule(3)


def caught_error() -> ScheduleError:
    try:
        Schedule(matmul()).parallel("k")
    except ScheduleError as error:
        return error
    raise AssertionError


def test_errors_pickle():
    error = caught_error()
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and "^ cannot be parallel" in str(again)


def test_errors_cross_processes():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert str(pool.apply(caught_error)) == str(caught_error())


def test_marks_far_apart():
    """Long stretches without marks are left out."""
    s = Schedule(chain())
    s.split("i", [None, 2])
    with pytest.raises(ScheduleError) as caught:
        s.fuse("i_0", "i_1")
    assert "      ...\n" in str(caught.value)


def test_witness_is_looked_for_when_read():
    calls = []
    error = ScheduleError("no", witness=lambda: calls.append(1) or "i = 0")
    assert not calls
    assert str(error) == "no\n  witness: i = 0" and str(error) and len(calls) == 1


def test_a_primitive_of_ones_own():
    @primitive
    def rename(func: PrimFunc, loop: LoopName, count: int = 1) -> tuple[PrimFunc, None]:
        return func, None

    try:
        s = Schedule(vector())
        s._apply("rename", "i", 2)
        assert str(s.trace) == "s.rename('i', 2)\n"
        with pytest.raises(ScheduleError, match="`count` must be an integer, got 'x'"):
            s._apply("rename", "i", "x")
    finally:
        del REGISTRY["rename"]


def test_every_primitive_says_its_rule():
    for name, known in REGISTRY.items():
        assert known.__doc__ and "Rewrite" in known.__doc__ and "Legal" in known.__doc__, name
        assert getattr(Schedule, name).__doc__, name


def test_output_blocks_of_a_block():
    s = Schedule(chain())
    outer = s.blockize("j_1")
    assert s.get_output_blocks() == [outer] and s.get_output_blocks(outer) == ["C"]
    with pytest.raises(ScheduleError, match=r"^get_output_blocks\('D'\): `D` is no block of this function"):
        s.get_output_blocks("D")


def test_steps_are_undone_and_shown():
    s = Schedule(chain())
    assert s.diff() == ""
    s.split("i", [None, 4])
    mark, script = s.checkpoint(), s.script
    s.vectorize("j")
    s.parallel("i_1_1")
    changed = [line for line in s.diff(mark).splitlines()[2:] if line[0] in "+-"]
    assert changed[0] == "-    for i_0, i_1_1, j in T.grid(2, 4, 13):" and changed[-1].startswith("+       ")
    s.undo()
    assert str(s.trace) == "s.split('i', [None, 4])  # i_0, i_1_1\ns.vectorize('j')\n"
    s.parallel("i_1_1")
    s.undo(to=mark)
    assert s.script == script and s.checkpoint() == mark
    t = s.copy()
    t.undo()
    assert t.func == chain() and len(s.trace) == 1
    with pytest.raises(ValueError, match=r"^undo: the schedule has 1 step\(s\), and none numbered -1$"):
        s.undo(2)
