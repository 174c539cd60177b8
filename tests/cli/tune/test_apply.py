"""Schedules that are saved and applied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.tune.commands import run

CONTENT = {"format": 1, "trace": None, "workload": "gmm", "shape": [7, 13, 109], "target": "llvm", "threads": 1}


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Writes best.json, CONTENT but for some keys, into a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda **changes: Path("best.json").write_text(json.dumps({**CONTENT, **changes}))


@pytest.mark.parametrize(("content", "message"), [
    (b"{", "best.json is not JSON"),
    (b"[" * 100_000, "best.json is not JSON"),
    (b"\xff\xfe", "best.json is not JSON"),
    (b"[]", "was not written by --out: it holds no trace"),
    (b'{"trace": null}', "'workload' should be of type str, got None"),
    ({"format": None}, "has format None; 1 is understood"),
    ({"shape": [7]}, "gmm takes 3 or 4 sizes M,K,N[,batch] (got 1: 7)"),
    ({"shape": ["7", 1, 2]}, "gmm: M, "),
    ({"threads": 0}, "'threads' should be at least 1, got 0"),
])  # fmt: skip
def test_a_file_that_cannot_be_applied_says_why(content, message, saved, capsys):
    if isinstance(content, bytes):
        Path("best.json").write_bytes(content)
    else:
        saved(**content)
    assert run("--apply", "best.json") == 2
    assert message in capsys.readouterr().err


def test_a_schedule_does_not_name_the_file_to_execute(saved, capsys):
    Path("mine.py").write_text("open('executed', 'w')")
    saved(workload="mine.py:f", shape=[])
    assert run("--apply", "best.json") == 2
    assert "name it, if you trust the file, as in python -m tir.tune mine.py:f --apply best.json" in capsys.readouterr().err
    assert run("gmm", "--apply", "best.json") == 2
    assert "best.json holds a schedule of mine.py:f, not of gmm" in capsys.readouterr().err
    assert not Path("executed").exists()


def test_a_schedule_of_something_else_is_refused(saved, capsys):
    saved()
    assert run("mlp", "--apply", "best.json") == 2
    assert "best.json holds a schedule of gmm, not of mlp" in capsys.readouterr().err
    assert run("gmm", "--shape", "7,13,7", "--apply", "best.json") == 2
    assert "best.json holds a schedule for the shape 7,13,109, not 7,13,7" in capsys.readouterr().err


def test_a_trace_that_does_not_apply_is_status_1(saved, capsys):
    step = {"name": "split", "args": {"loop": "nowhere", "factors": [None, 4]}, "results": []}
    for trace in ({"version": 1, "steps": [step]}, {"steps": 3}):
        saved(trace=trace)
        assert run("--apply", "best.json") == 1
        err = capsys.readouterr().err
        assert "error: the schedule in best.json is not valid here: " in err and "Traceback" not in err
