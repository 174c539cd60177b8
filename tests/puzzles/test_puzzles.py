"""Each puzzle: its solution solves it, its start does not, and the verdict explains what is wrong."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

import explorer.simulate
import puzzles.measures
import tir
from docs.puzzle_pages import FOLDER, pages
from puzzles import PUZZLES, AnswerError, Goal, board, check, grade, shared
from puzzles.grading import LABS
from puzzles.measures import MEASURES
from puzzles.puzzle import Puzzle, Verdict, at_most
from schedule import REGISTRY, Schedule
from tests.puzzles.solutions import SOLUTIONS, WRONG
from tests.schedule.harness import same_numbers

LESSONS = {int(p.name[:2]) for p in Path(FOLDER).with_name("tutorial").glob("[0-9]*.py")}
SWAP = PUZZLES["first-swap"]


@cache
def solution(name: str) -> Verdict:
    """The verdict on a puzzle's solution."""
    return check(PUZZLES[name], SOLUTIONS[name])


def test_there_are_at_least_thirty_and_each_has_a_solution():
    assert len(PUZZLES) >= 30 and SOLUTIONS.keys() == PUZZLES.keys() and WRONG.keys() <= PUZZLES.keys()


@pytest.mark.parametrize("name", PUZZLES)
def test_solutions_solve(name):
    assert solution(name).solved, f"\n{solution(name)}"
    if PUZZLES[name].goals:
        same_numbers(PUZZLES[name].program(), solution(name).attempt.schedule.func, seeds=(0,))


@pytest.mark.parametrize("name", PUZZLES)
def test_neither_nothing_nor_the_start_solves(name):
    puzzle = PUZZLES[name]
    wrong = check(puzzle, puzzle.start)
    assert len(wrong.trace) > 0 and not check(puzzle, "").solved and not wrong.solved
    missed = [goal.missed for goal, met in zip(puzzle.goals, wrong.met, strict=False) if not met]
    explained = [text for text in missed if text and text in str(wrong)]
    assert explained or "refus" in str(wrong) or "cannot prove" in str(wrong), f"nothing explains\n{wrong}"


@pytest.mark.parametrize("name", WRONG)
def test_tempting_answers_are_explained(name):
    answer, words = WRONG[name]
    found = check(PUZZLES[name], answer)
    assert not found.solved and words in str(found), f"\n{found}"


@pytest.mark.parametrize("name", PUZZLES)
def test_puzzles_are_whole(name):
    puzzle = PUZZLES[name]
    assert puzzle.lesson in LESSONS and puzzle.hints and puzzle.text and (puzzle.goals or puzzle.refusal)
    assert set(puzzle.allowed) <= set(REGISTRY)


@pytest.mark.parametrize(("goal", "message"), [
    (("mises", "at most", 1), "no measure is named 'mises'; did you mean misses?"),
    (("misses", "below", 1), "no relation is named 'below'"),
    (("loads", "at most", 1), "the measure 'loads' counts loads of {}; got of=''"),
    (("misses", "at most", 1, "A"), "the measure 'misses' counts misses of the simulated cache; got of='A'"),
])  # fmt: skip
def test_goals_that_count_nothing(goal, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Goal(*goal)


def test_every_measure_is_used():
    assert {goal.measure for puzzle in PUZZLES.values() for goal in puzzle.goals} == set(MEASURES)


def test_every_puzzle_is_in_one_lab():
    lessons = [lesson for found in LABS.values() for lesson in found]
    assert len(lessons) == len(set(lessons)) and {p.lesson for p in PUZZLES.values()} <= set(lessons)


def test_the_pages_are_up_to_date():
    found = {p.name: p.read_text() for p in FOLDER.glob("*.md")}
    assert found == pages(), "python -m docs.puzzle_pages writes them anew"


def test_verdict_as_it_is_printed():
    assert str(check(SWAP, SWAP.start)) == (
        "first-swap: not solved\n"
        "  ✗ misses of the simulated cache: at most 1152; this answer: 1344\n"
        "      C 1024, A 256, B 64\n"
        "      A line holds 4 elements of a row. Which loop must be innermost so that B is read row by row?\n"
        "  ✓ primitives in the answer: at most 1; this answer: 1"
    )


def test_an_answer_is_the_same_as_calls_schedule_trace_and_json():
    s = Schedule(SWAP.program())
    s.reorder("i", "k", "j")
    for answer in (s, s.trace, s.trace.to_json(), str(s.trace)):
        found = check(SWAP, answer)
        assert found.solved and found.trace == s.trace
    for name in (p.name for p in PUZZLES.values() if p.lesson == 7):  # some of them are refused
        again = check(PUZZLES[name], solution(name).trace.to_json())
        assert again.solved and again.trace == solution(name).trace


def test_steps_that_are_taken_do_not_count_as_refused():
    found = check(PUZZLES["two-that-collide"], 's.parallel("j")')
    assert "every step was taken, and this puzzle asks for one that is refused" in str(found)


def test_a_program_that_is_too_long_is_not_counted(monkeypatch):
    for module in (explorer.simulate, puzzles.measures):
        monkeypatch.setattr(module, "MAX_EVENTS", 3000)
    long = Puzzle("long", 1, "", "", lambda: SWAP.program(), (at_most("misses", 10**9),))
    assert "executes more than 3000 statements" in str(check(long, "")) and not check(long, "").solved


def test_loops_of_which_a_guard_leaves_nothing_are_not_run():
    found = check(PUZZLES["square-tiles"], 's.split("k", [None, 100000000])')
    assert not found.solved and "the loops run" in str(found) and "too many to be watched" in str(found)


def test_what_cannot_be_compiled_is_not_counted():
    found = check(PUZZLES["register-tile"], 's.bind("i", "threadIdx.x")')
    assert not found.solved and "not counted: loop `i` is bound to threadIdx.x" in str(found)


@pytest.mark.parametrize(("text", "message"), [
    ("import os", "line 1: `import os` is not understood; an answer is a list of calls such as"),
    ("x = 1\nopen('a', 'w')", "line 2: `open('a', 'w')` is not understood"),
    ("s.func.body", "line 1: `s.func.body` is not understood"),
    ("s.__init__(1)", "line 1: no primitive is named '__init__'"),
    ("s.undo()", "line 1: no primitive is named 'undo'"),
    ("s.reoder('i')", "line 1: no primitive is named 'reoder'; did you mean `reorder`?"),
    ("s.assume('i')", "line 1: `assume` rests on the user's word"),
    ("s.split('i', [None, 4])", "line 1: `split` is not among the steps of this puzzle: reorder"),
    ("s.reorder(i)", "line 1: no result is named 'i'; write the loop's name in quotes: 'i'"),
    ("a, b = s.get_loops('C')", "line 1: `(a, b)` has 2 names, and there are 3 results: i, j, k"),
    ("s.get_loops('D')", "line 1: get_loops('D')"),
    ("s.reorder(*3)", "line 1: `*3` is not a list"),
    ("s.reorder(s.get_loops('C')[7])", "list index out of range"),
    ("s.reorder(", "line 1: not Python: '(' was never closed"),
    ("s = 3", "line 1: `s` is not a name for a result"),
    ("x = [y for y in 'ab']", "line 1: `[y for y in 'ab']` is not understood"),
    ("s.reorder(**{})", "line 1: write each argument as name=value"),
    ("for i in 'ab': s.reorder(i)", "line 1: `for i in 'ab':"),
    ("x = " + "-" * 5000 + "1", "too deeply nested"),
    ("x = [1]" + "\nx = [*x, *x]" * 12, "line 11: a list has at most 1000 elements"),
    ("x = [1]" + "\nx = [x, x]" * 12, "line 10: a list has at most 1000 elements"),
    ("#" * 100_001, "an answer has at most 100000 characters"),
    ('{"version": 1}', "a trace is a JSON object with `version` and `steps`"),
    ('{"version": 1, "steps": [{"name": "system", "args": {}}]}', "no primitive is named 'system'"),
    ('{"version": 1, "steps": [{"name": "unroll", "args": {"loop": "i"}}]}', "`unroll` is not among the steps"),
])  # fmt: skip
def test_what_is_no_answer(text, message):
    with pytest.raises(AnswerError) as raised:
        check(SWAP, text)
    assert message in str(raised.value)


def test_steps_on_the_users_word_are_no_answer():
    with pytest.raises(AnswerError, match="`unsafe_set_dtype` rests on the user's word"):
        check(PUZZLES["nowhere"], 's.unsafe_set_dtype("A", 0, "float16")')


def test_a_board_is_checked_anew_and_ranked():
    puzzle = PUZZLES["nowhere"]
    solution = SOLUTIONS[puzzle.name]
    answers = {"Ada": f'{solution}\ns.split("i_3", [None, 4])', "Bo": solution, "Cy": puzzle.start}
    lines = [shared(check(puzzle, text), by) for by, text in answers.items()]
    assert not any("\n" in line for line in lines)
    (ranked,) = board("\n".join(lines)).values()
    assert [(by, len(v.trace)) for by, v in ranked] == [("Bo", 3), ("Ada", 4)]
    for line, message in [
        ("nonsense", "line 2: a line is an object with"),
        ('{"puzzle": "x", "by": "y", "trace": {}}', "line 2: no puzzle is named 'x'"),
        (json.dumps({"puzzle": puzzle.name, "by": "y", "trace": 3}), "line 2: "),
    ]:
        with pytest.raises(AnswerError, match=message):
            board(f"\n{line}")


def test_grades_of_a_class(tmp_path):
    for who, answers in {"ada": {"nowhere": SOLUTIONS["nowhere"], "one-row": "open('x')"}, "bo": {}}.items():
        (tmp_path / who).mkdir()
        for name, text in answers.items():
            (tmp_path / who / f"{name}.py").write_text(text)
    found = tir.puzzles.grade(tmp_path, 3)
    assert found.points == {"ada": 1, "bo": 0}
    assert "one-row.py: line 1: `open('x')` is not understood" in found.verdicts["ada"]["one-row"]
    assert str(found).splitlines()[0].startswith("ada    1 of 7  not solved: one-row; no answer: rolling-rows, ")
    with pytest.raises(ValueError, match="no lab is named 9"):
        grade(tmp_path, 9)
