"""Mutants: what is changed in a source, and whether the tests that run it notice."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.mutants import is_noticed, main, mutants


def changes(source):
    """The kinds and the changed lines of a source's mutants."""
    text = dedent(source).lstrip("\n")
    return [(m.kind, m.text.splitlines()[m.line - 1].strip()) for m in mutants("m.py", text)]


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("x = a < b", ("comparison", "x = (a <= b)")),
        ("x = a >= b", ("comparison", "x = (a > b)")),
        ("x = not (a in b)", ("comparison", "x = not ((a not in b))")),
        ("x = 'é' is b", ("comparison", "x = ('é' is not b)")),
        ("raise ValueError(x)", ("refusal", "pass")),
        ("need_no_lanes(x)", ("refusal", "pass")),
        ("_refuse_other(x)", ("refusal", "pass")),
        ("x = y[0]", ("index", "x = y[1]")),
        ("x = y[-1]", ("index", "x = y[-2]")),
    ],
)
def test_changes(line, changed):
    assert changes(line) == [changed]


@pytest.mark.parametrize("line", ["x = a < b < c", "x = y[k]", "x = y[1:]", "f(x)", "x.need(y)", "x = f'{y[0]}'", "x = y['0']"])
def test_what_is_left_alone(line):
    assert changes(line) == []


def test_statements_of_several_lines_are_dropped_whole():
    source = """
    if wrong:
        raise ValueError(
            "no"
        )
    x = 1
    """
    (mutant,) = mutants("m.py", dedent(source).lstrip("\n"))
    assert mutant.text == "if wrong:\n    pass\nx = 1\n"
    assert mutant.diff(dedent(source).lstrip("\n")).endswith('-    raise ValueError(\n-        "no"\n-    )\n+    pass\n x = 1')


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of one module whose tests run two of its three functions, and look at one."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "plain" / "m.py").write_text(
        "def less(a, b):\n    return a < b\n\n\ndef first(x):\n    return x[0]\n\n\ndef last(x):\n    return x[-1]\n"
    )
    (tmp_path / "tests" / "test_m.py").write_text(
        "from plain.m import first, less\n\n\ndef test_less():\n    assert not less(2, 2)\n\n\ndef test_first():\n    first('ab')\n"
    )
    (tmp_path / "plain" / "__init__.py").touch()
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\npythonpath = .\n")
    for name, value in (("ROOT", tmp_path), ("BUILD", tmp_path / "build"), ("MUTATED", ("plain",)), ("TESTS", ("tests",))):
        monkeypatch.setattr(f"tests.mutants.{name}", value)
    return tmp_path


def test_what_no_test_notices_is_printed(repository, capsys):
    assert main(["--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert "not run: index, plain/m.py:10" in out and "survived: index, plain/m.py:6" in out
    assert "-    return x[0]\n+    return x[1]" in out
    assert out.splitlines()[-1] == ("3 of 3 mutants, seed 0: 1 noticed, 1 survived, 1 not run, 33.3% noticed")


def test_tests_that_fail_without_a_change_are_told(repository):
    (repository / "tests" / "test_m.py").write_text("def test_wrong():\n    assert 1 == 2\n")
    with pytest.raises(RuntimeError, match="the tests fail without a change"):
        main(["--jobs", "1"])


def test_tests_without_end_notice(repository, monkeypatch):
    monkeypatch.setattr("tests.mutants.SECONDS", 2)
    (repository / "plain" / "m.py").write_text("def least(a, b):\n    while a == b:\n        pass\n    return a\n")
    (mutant,) = mutants("plain/m.py", (repository / "plain" / "m.py").read_text())
    (repository / "tests" / "test_m.py").write_text(
        "from plain.m import least\n\n\ndef test_least():\n    assert least(1, 2) == 1\n"
    )
    assert is_noticed(mutant, ["tests/test_m.py"], repository)
    assert "a == b" in (repository / "plain" / "m.py").read_text()
