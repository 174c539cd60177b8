import pytest

from schedule.annotation_values import MAX_COUNT, MAX_RESIDENT, MAX_STAGES, RULES, refusal, value_of
from tir.arith.symbolic import SymbolicChoice, SymbolicInt
from tir.ir import Const, Evaluate, For, Var

VALUES = {  # of each key: values that have a meaning, and values that have none
    "schedule": (("static", "dynamic"), ("guided", 1, None)),
    "chunk": ((0, 1, MAX_COUNT), (-1, MAX_COUNT + 1, 2**62, 1.0, True, "2")),
    "pragma_auto_unroll_max_step": ((0, 16, MAX_COUNT), (-1, MAX_COUNT + 1, 1.5, True, "many")),
    "pipeline_stages": ((1, MAX_STAGES), (0, -1, MAX_STAGES + 1, 2.0, True, "2")),
    "resident_blocks": ((1, MAX_RESIDENT), (0, MAX_RESIDENT + 1, True)),
    "prefetch": (
        (("A", 1), ["A", MAX_COUNT], [["A", 1], ["B", 8]], [], ()),
        ("A", 1, ["A"], ["A", 0], ["A", True], ["A", MAX_COUNT + 1], [["A"]], [[]], [[["A", 1]]]),
    ),
    "non_temporal": (("A", ["A", "B"], (), []), (1, [1], ["A", 1], {"A": 1})),
    **dict.fromkeys(
        ("double_buffer", "combine_lanes", "in_order", "allow_reciprocal", "tf32", "narrow_pairs"), ((True, False), (1, 0, "yes"))
    ),
}


def test_values():
    assert VALUES.keys() == RULES.keys()
    for key, (good, bad) in VALUES.items():
        assert [v for v in good if refusal(key, v)] == [v for v in bad if not refusal(key, v)] == [], key


def test_other_keys_have_any_value():
    assert refusal("note", {"deep": [1, None]}) is None


def test_an_open_choice_is_refused_for_any_of_its_values():
    index = SymbolicInt.column(0, 0)
    assert refusal("schedule", SymbolicChoice.of(index, ("static", "dynamic"))) is None
    words = """the annotation schedule must be "static" or "dynamic", got 'guided'"""
    assert refusal("schedule", SymbolicChoice.of(index, ("static", "guided"))) == words


def test_what_a_loop_says():
    loop = For(Var("k"), Const(4), Evaluate(Const(0)), annotations=(("chunk", 3), ("schedule", "guided")))
    assert value_of(loop, "chunk", 0) == 3 and value_of(loop, "pipeline_stages", 1) == 1
    with pytest.raises(ValueError) as caught:
        value_of(loop, "schedule", "static")
    assert str(caught.value) == """loop `k`: the annotation schedule must be "static" or "dynamic", got 'guided'"""
