"""Sketches in the making: open numbers, branches, and the traces that rows make of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from codegen.target import Target
from schedule import ScheduleError, replay
from schedule.open_schedule import OpenSchedule
from schedule.open_trace import Branch, Choice
from search.space import SPACES, named
from search.space.rules import DEFAULT, RefusedRule, Verdict, load_rules, rule
from search.space.show import sketch_text
from search.space.sketch import Sketch
from tests.programs import elementwise_chain, matmul
from tests.search.once import generate
from tir.ir import Kind
from tir.traverse import blocks, loops

TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4")


def state(func=None) -> OpenSchedule:
    func = func or matmul(7, 13, 109)
    return OpenSchedule(func, TWO, [b.name for b in blocks(func)])


def rows_of(sketch: Sketch) -> np.ndarray:
    """All rows of a sketch that has choices alone."""
    options = [c.options for c in sorted(sketch.choices, key=lambda c: c.column)]
    return sketch.matrix(itertools.product(*options))


def texts(sketch: Sketch) -> list[str]:
    return [str(sketch.trace(row)) for row in rows_of(sketch)]


def nothing(state: OpenSchedule) -> None:
    pass


def parallel(loop: str):
    return lambda state: state.parallel(loop)


def test_rows_are_a_matrix_of_all_columns_also_where_there_are_none():
    s = state()
    closed = s.finish("s", matmul(7, 13, 109))
    assert closed.matrix([()]).shape == (1, 0)
    s.branch("threads", {"none": nothing, "rows": parallel("i")})
    sketch = s.finish("s", matmul(7, 13, 109))
    for rows in ([], [(1,), (0,)], np.array([[1], [0]]), iter([(0,)] * 2)):
        found = sketch.matrix(rows)
        assert found.shape in ((0, 1), (2, 1)) and found.dtype == np.int64


def test_a_branch_takes_one_of_several_runs_of_steps():
    s = state()
    assert s.branch("threads", {"none": nothing, "rows": parallel("i"), "columns": parallel("j")}) == 3
    sketch = s.finish("s", matmul(7, 13, 109))
    assert sketch.choices == (Choice("threads", 0, (0, 1, 2)),) and sketch.columns == 1
    assert texts(sketch) == ["", "s.parallel('i')\n", "s.parallel('j')\n"]
    (branch,) = sketch.branches
    assert branch.labels == ("none", "rows", "columns")


def test_ways_that_are_refused_or_the_same_are_left_out():
    s = state()
    ways = {"sum": parallel("k"), "rows": parallel("i"), "again": parallel("i"), "none": nothing}
    assert s.branch("threads", ways) == 2
    sketch = s.finish("s", matmul(7, 13, 109))
    assert texts(sketch) == ["s.parallel('i')\n", ""]


def test_one_way_needs_no_column_and_none_changes_nothing():
    s = state()
    assert s.branch("threads", {"sum": parallel("k"), "rows": parallel("i")}) == 1
    assert s.branch("more", {"sum": parallel("k")}) == 0
    sketch = s.finish("s", matmul(7, 13, 109))
    assert sketch.columns == 0 and sketch.branches == () and texts(sketch) == ["s.parallel('i')\n"]


def test_ways_share_columns_by_name():
    def depth(count: int):
        def way(state: OpenSchedule) -> None:
            names = ["i", "j", "k"][:count]
            state.branch("loop", {f"{n}": lambda state, n=n: state.unroll(names[n]) for n in range(count)})
            state.annotate("C", "limit", state.choose("limit", (1, 2)))

        return way

    s = state()
    s.branch("how", {"none": nothing, "two": depth(2), "three": depth(3)})
    sketch = s.finish("s", matmul(7, 13, 109))
    assert {c.name: c.options for c in sketch.choices} == {"how": (0, 1, 2), "loop": (0, 1, 2), "limit": (1, 2)}
    assert sorted(c.column for c in sketch.choices) == list(range(sketch.columns)) == [0, 1, 2]
    assert len(set(texts(sketch))) == 1 + 3 * 2  # what two loops offer, three offer, too
    rows = rows_of(sketch)
    variants = sketch.variants(rows)
    assert variants.shape == (len(rows), 3)
    for row, variant in zip(rows, variants, strict=True):
        assert sketch.variant(row) == tuple(variant)
        assert [x.name for x in sketch.picked(variant)] == [x.name for x in sketch.trace(row)]
        replay(matmul(7, 13, 109), sketch.trace(row))
    # Rows of one variant differ in numbers alone; runs that are not picked have no say.
    assert len({tuple(v) for v in variants}) == 1 + 2 + 3


def test_names_are_those_of_the_variant():
    """What a later branch means by a loop does not depend on the names that an earlier one used up."""
    s = state(elementwise_chain())

    def cache(state: OpenSchedule) -> None:
        copy = state.cache_write("Y", 0, "local")
        state.vectorize(state.get_loops(copy)[-1])

    def read(state: OpenSchedule) -> None:
        copy = state.cache_read("W", 0, "local")
        state.vectorize(state.get_loops(copy)[-1])

    s.branch("first", {"none": nothing, "cached": cache})
    s.branch("second", {"none": nothing, "cached": read})
    sketch = s.finish("s", elementwise_chain())
    names = {}
    for row in rows_of(sketch):
        scheduled = replay(elementwise_chain(), sketch.trace(row))
        vectors = [x.name for x in loops(scheduled.func.body) if x.kind is Kind.VECTORIZED]
        assert len(vectors) == sum(row)
        names[tuple(row.tolist())] = vectors
    (alone,) = names[0, 1]
    assert len(set(names[1, 1])) == 2 and alone in names[1, 0] + names[0, 1]
    assert names[1, 1] != [*names[1, 0], alone]  # the second has another name after the first


def test_one_of_a_few_values_of_any_kind():
    """What is picked may be no number: the column has the number of a value."""
    s = state()
    values = ((), (("A", 4),), "static")
    s.annotate("C", "how", s.choose("how", values))
    assert s.block("C").annotations == (("how", []),)
    sketch = s.finish("s", matmul(7, 13, 109))
    assert sketch.choices == (Choice("how", 0, (0, 1, 2)),) and sketch.branches == ()
    found = [dict(replay(matmul(7, 13, 109), sketch.trace([n])).trace[0].args)["ann_val"] for n in range(3)]
    assert found == list(values)


def test_a_name_is_used_once():
    s = state()
    s.choose("limit", (1, 2))
    with pytest.raises(ValueError, match="there is a choice named 'limit' already"):
        s.choose("limit", (1, 2))
    with pytest.raises(ValueError, match="there is a choice named 'limit' already"):
        s.branch("limit", {"none": nothing})


@pytest.mark.parametrize("space", SPACES)
def test_every_column_is_described_once(space):
    for func in (matmul(7, 13, 109), matmul(33, 600, 70)):
        for sketch in generate(func, TWO, space=space):
            described = [c for t in sketch.tiles for c in t.columns] + [c.column for c in sketch.choices]
            assert sorted(described) == list(range(sketch.columns))
            for branch in sketch.branches:
                (choice,) = [c for c in sketch.choices if c.column == branch.column]
                assert choice.options == tuple(range(len(choice.options))) and len(branch.options) <= len(choice.options)
                assert len(branch.labels) == len(branch.options)


@pytest.mark.parametrize("space", SPACES)
def test_every_row_is_legal(space):
    """Any positive integers in the columns of tiles, dividing or not, beyond the extent or not."""
    rng = np.random.default_rng(0)
    for func in (matmul(7, 13, 109), matmul(2, 600, 37)):
        for sketch in generate(func, TWO, space=space):
            rows = rng.integers(1, 20, size=(4, sketch.columns))
            for c in sketch.choices:
                rows[:, c.column] = rng.choice(c.options, size=len(rows))
            for row in rows:
                replay(func, sketch.trace(row))


def test_spaces_have_names():
    assert named("ansor") is SPACES["ansor"]
    with pytest.raises(
        ValueError, match=r"no space for llvm is named 'anser'; did you mean ansor\? there are: full, ansor, limited"
    ):
        named("anser")


# --- rules as functions --------------------------------------------------------------------------------------------------


@rule("rows to threads", when=lambda state, block: block == "C", only=True)
def rows_to_threads(state: OpenSchedule, block: str) -> None:
    state.parallel(state.axes(block)[0][1])


@rule("sum to threads", when=lambda state, block: block == "C")
def sum_to_threads(state: OpenSchedule, block: str) -> None:
    state.parallel(state.axes(block)[2][1])


RULES = (rows_to_threads, sum_to_threads)


def test_a_function_is_a_rule():
    assert rows_to_threads.applies(state(), "C") is Verdict.ONLY
    assert sum_to_threads.applies(state(), "C") is Verdict.APPLY and sum_to_threads.applies(state(), "D") is Verdict.SKIP
    with pytest.raises(ScheduleError, match="drives the reduction axis `v_k` of `C`"):
        sum_to_threads.change(state(), "C")
    with pytest.warns(
        RefusedRule, match=r"^the rule 'sum to threads' makes nothing of block `C`: .*drives the reduction axis `v_k`"
    ):
        assert sum_to_threads.apply(state(), "C") == []
    assert [s.rules for s in generate(matmul(7, 13, 109), TWO, rules=(rows_to_threads, *DEFAULT))] == [("C: rows to threads",)]


def test_rules_are_loaded_from_a_file(tmp_path):
    file = tmp_path / "my_rules.py"
    file.write_text("from search.space.rules import Skip\nRULES = (Skip(),)\nONE = Skip()\n")
    assert [r.name for r in load_rules(str(file))] == ["skip"] == [r.name for r in load_rules(f"{file}:ONE")]
    with pytest.raises(ValueError, match=r"rules '.*missing\.py' cannot be loaded"):
        load_rules(str(tmp_path / "missing.py"))


def test_rules_are_loaded_by_name():
    assert load_rules(f"{__name__}:RULES") == RULES
    assert load_rules(f"{__name__}:rows_to_threads") == (rows_to_threads,)
    for spec, message in [
        ("RULES", "rules should be module:name, for example my_rules:RULES, got 'RULES'"),
        ("no_such_module:RULES", "rules 'no_such_module:RULES' cannot be loaded: No module named 'no_such_module'"),
        (f"{__name__}:TWO", "is no rule: .* has no name and no applies and no apply"),
        ("search.space.rules:Skip", "'search.space.rules:Skip' is no rule: .* is a class, not an object"),
    ]:
        with pytest.raises(ValueError, match=message):
            load_rules(spec)


# --- as text -------------------------------------------------------------------------------------------------------------


def test_a_sketch_as_text():
    s = state()
    _, inner = s.split("i", [None, s.choose("rows of a strip", (1, 2, 4))])
    s.branch("threads", {"none": nothing, "columns": lambda state: state.unroll(inner)})
    text = sketch_text(s.finish("strips", matmul(7, 13, 109)), (1,))
    assert text.splitlines()[:3] == ["# strips", "#   t0: rows of a strip: 1 | 2 | 4", "#   t1: threads: none | [columns]"]
    assert "for i_0 in range(ceildiv(7, t0)):" in text and "for i_1 in T.unroll(t0):" in text
    assert "v_i = T.axis.spatial(7, i_0 * t0 + i_1)" in text


def test_branches_are_frozen_data():
    branch = Branch(0, ((), ()))
    assert hash(branch) == hash(Branch(0, ((), ())))
