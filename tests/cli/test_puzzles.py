"""`python -m tir.puzzles`."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import cli.puzzles
from cli.puzzles import main

RIGHT, WRONG = 's.reorder("i", "k", "j")\n', 's.reorder("k", "i", "j")\n'


def test_list_and_one_of_them(capsys):
    assert main([]) == 0 and re.search(r"^Lesson 1\n  first-swap +One swap$", capsys.readouterr().out, re.MULTILINE)
    assert main(["first-swap", "--hint"]) == 0
    shown = capsys.readouterr().out
    assert "Goal:\n  misses of the simulated cache: at most 1152\n" in shown
    assert "Hint 1 of 2" in shown and "Hint 2 of 2" not in shown


def test_from_the_start_to_the_board(tmp_path, capsys):
    answer, page, line = tmp_path / "answer.py", tmp_path / "page.html", tmp_path / "board"
    assert main(["first-swap", "--begin", str(answer)]) == 0
    assert main(["first-swap", str(answer), "--hint", "2"]) == 1
    assert "first-swap: not solved" in (shown := capsys.readouterr().out) and shown.count("  hint: ") == 2
    answer.write_text(RIGHT)
    assert main(["first-swap", str(answer), "--share", "Ada", "--explore", str(page)]) == 0
    line.write_text(capsys.readouterr().out.splitlines()[-1])
    assert "One swap" in page.read_text("utf-8")
    assert main(["--board", str(line)]) == 0 and capsys.readouterr().out == "first-swap\n    1  Ada  1152, 1; 1 step(s)\n"
    (tmp_path / "class" / "ada").mkdir(parents=True)
    (tmp_path / "class" / "ada" / "first-swap.py").write_text(RIGHT)
    assert main(["--grade", str(tmp_path / "class"), "--lab", "1"]) == 0 and "ada    1 of " in capsys.readouterr().out


@pytest.mark.parametrize(("words", "message"), [
    (["first-swop"], "no puzzle is named 'first-swop'; did you mean first-swap?"),
    (["first-swap", "none.py"], "cannot read none.py: No such file or directory"),
    (["first-swap", "--watch"], "--watch, --explore and --share: give NAME and FILE, too"),
    (["--lab", "1"], "--lab: give --grade DIR, too"),
    (["--grade", "nowhere"], "--grade: cannot read nowhere: No such file or directory"),
    (["--grade", ".", "--lab", "9"], "--lab: no lab is named 9"),
    (["--board", "odd"], "odd: line 1: a line is an object"),
    (["first-swap", "odd"], "odd: line 1: `import os` is not understood"),
    (["first-swap", "--begin", "odd"], "--begin: odd exists already"),
])  # fmt: skip
def test_bad_usage(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd").write_text("import os")
    assert main(words) == 2 and message in capsys.readouterr().err


def test_a_watched_file_is_checked_again(tmp_path, monkeypatch, capsys):
    answer, saves = tmp_path / "answer.py", [WRONG, "import os", RIGHT]
    answer.write_text(saves.pop(0))

    def sleep(seconds):
        if not saves:
            raise KeyboardInterrupt
        before = answer.stat().st_mtime_ns
        answer.write_text(saves.pop(0))
        while answer.stat().st_mtime_ns == before:
            answer.touch()

    monkeypatch.setattr(cli.puzzles, "time", type("Clock", (), {"sleep": staticmethod(sleep)}))
    assert main(["first-swap", str(answer), "--watch"]) == 130
    shown = capsys.readouterr().out
    assert "first-swap: solved" in shown and "for i in 16, k in 16" in shown.replace("\n", "")


def test_the_door():
    done = subprocess.run([sys.executable, "-m", "tir.puzzles", "first-swap"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("One swap (lesson 1)")
