"""Mutants: what is changed in a source, and whether the tests that run it notice."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from tests import mutant_switch
from tests.mutants import NO_EFFECT, ROOT, drawn, main, mutants, switched


def changes(source):
    """The kinds and the changed lines of a source's mutants."""
    text = dedent(source).lstrip("\n")
    return [(m.kind, *(x[1:].strip() for x in m.diff.splitlines()[3:] if x.startswith("+"))) for m in mutants("m.py", text)]


@pytest.mark.parametrize(("line", "changed"), [
    ("x = a < b", ("comparison", "x = (a <= b)")),
    ("x = a >= b", ("comparison", "x = (a > b)")),
    ("x = a <= MAX_B", ("comparison", "x = (a > MAX_B)")),
    ("x = not (a in b)", ("comparison", "x = not ((a not in b))")),
    ("x = 'é' is b", ("comparison", "x = ('é' is not b)")),
    ("raise ValueError(x)", ("refusal", "pass")),
    ("if x: return None", ("refusal", "if x: pass")),
    ("if x: return", ("refusal", "if x: pass")),
    ("if x: return False", ("refusal", "if x: pass")),
    ("need_no_lanes(x)", ("refusal", "pass")),
    ("_refuse_other(x)", ("refusal", "pass")),
    ("x = y[0]", ("index", "x = y[1]")),
    ("x = y[-1]", ("index", "x = y[-2]")),
])  # fmt: skip
def test_changes(line, changed):
    assert changes(line) == [changed]


@pytest.mark.parametrize(
    "line", ["if x: return 0", "if x: return True", "x = y[k]", "x = y[1:]", "f(x)", "x.need(y)", "x = f'{y[0]}'", "x = y['0']"]
)
def test_what_is_left_alone(line):
    assert changes(line) == []


def test_each_comparison_of_a_chain_is_turned():
    assert [line for _, line in changes("x = 0 <= a < b")] == ["x = (0 < a < b)", "x = (0 <= a <= b)"]


def test_statements_of_several_lines_are_dropped_whole():
    source = """
    if wrong:
        raise ValueError(
            "no"
        )
    x = 1
    """
    (mutant,) = mutants("m.py", dedent(source).lstrip("\n"))
    assert mutant.diff.endswith('-    raise ValueError(\n-        "no"\n-    )\n+    pass\n x = 1')


@pytest.mark.parametrize(("line", "results"), [
    ("x = [3 > 3]", [[False], [True]]),
    ("x = [[1, 0][0] < 1]", [[False], [True], [True]]),
    ("x = [4, 5]; x[-1] += 1", [[4, 6], [5, 5]]),
    ("x = [n for n in range(4) if 0 < n < 3]", [[1, 2], [0, 1, 2], [1, 2, 3]]),
    ("x = 0; need(x); x = 1", [None, 1]),
    ("x = 'é' if (n := 2) < 3 else n", ["é", "é"]),
])  # fmt: skip
def test_each_mutant_stands_behind_its_switch(line, results, monkeypatch):
    """The first result is without one; None stands for an error."""
    source = f'"""Text."""\nfrom __future__ import annotations\n{line}'
    found = []
    for number in range(-1, len(results) - 1):
        monkeypatch.setattr(mutant_switch, "active", number + 5 if number >= 0 else -1)
        names = {"need": lambda x: 1 / x}
        with suppress(ArithmeticError, IndexError):
            exec(switched(source, 5), names)
        found.append(names.get("x") or None)
    assert found == results
    assert len(list(mutants("m.py", source))) == len(results) - 1


@pytest.mark.parametrize("file", sorted({file for file, _ in NO_EFFECT}))
def test_mutants_without_effect_are_in_their_files(file):
    without = [m for m in mutants(file, (ROOT / file).read_text()) if not m.has_effect]
    assert len(without) == sum(name == file for name, _ in NO_EFFECT)


def test_a_sample_has_mutants_of_all_parts():
    every = list(range(100))
    assert [n // 10 for n in drawn(every, 10, seed=1)] == list(range(10))
    assert drawn(every, 10, seed=1) != drawn(every, 10, seed=2)
    assert drawn(every, 200, seed=1) == every


MODULE = """
def less(a, b):
    return a < b


def least(a, b):
    while a == b:
        pass
    return a


def first(x):
    return x[0]


def last(x):
    return x[-1]
"""
TESTS = """
from plain.m import first, least, less


def test_less():
    assert not less(2, 2)


def test_first():
    first("ab")


def test_least():
    assert least(1, 2) == 1
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of one module whose tests run three of its four functions, and look at two; a mutant of one has no end."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "plain" / "m.py").write_text(MODULE)
    (tmp_path / "tests" / "test_m.py").write_text(TESTS)
    (tmp_path / "plain" / "__init__.py").touch()
    for name in ("mutant_switch.py", "mutant_trials.py"):
        shutil.copy(Path(__file__).with_name(name), tmp_path / "tests")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\npythonpath = .\n")
    settings = {"ROOT": tmp_path, "BUILD": tmp_path / "build", "MUTATED": ("plain",), "SECONDS": 1}
    for name, value in settings.items():
        monkeypatch.setattr(f"tests.mutants.{name}", value)
    return tmp_path


def test_what_no_test_notices_is_printed(repository, capfd):
    assert main(["--jobs", "4", "--tests", "tests"]) == 1
    out = capfd.readouterr().out
    assert "not reached: index, plain/m.py:17\n" in out and "survived: index, plain/m.py:13\n" in out
    assert "-    return x[0]\n+    return x[1]" in out
    assert out.splitlines()[-1] == "4 of 4 mutants, seed 0: 2 noticed, 1 survived, 1 not reached, 50.0% noticed"
    other = "from plain.m import last\n\n\ndef test_last():\n    assert last('ab') == 'b'\n"
    (repository / "tests" / "test_other.py").write_text(other)
    main(["--jobs", "4", "--tests", "tests"])  # what the first file's tests reach is known
    assert "3 noticed, 1 survived, 0 not reached" in capfd.readouterr().out


@pytest.mark.parametrize("test", ["def test_wrong():\n    assert 'abc' == 2\n", "import abc.nothing\n"])
def test_tests_that_fail_without_a_change_are_told(test, repository, capfd):
    (repository / "tests" / "test_m.py").write_text(test)
    with pytest.raises(RuntimeError, match="the tests fail without a change"):
        main(["--jobs", "1", "--tests", "tests"])
    assert "abc" in capfd.readouterr().out
