"""`--sizes`: a function whose sizes are open."""

from __future__ import annotations

import json

import pytest

import tir
from cli.tune import main
from tests.graph.fake_measurer import DEFAULT, Fake

PROGRAM = """
from tir import te

n = te.var("n")
X = te.placeholder((n, 13), name="X")
rows = te.create_prim_func([n, X, te.compute((n, 13), lambda i, j: X[i, j] * 2.0, name="Y")])
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


QUICK = ("--policy", "random", "--model", "none", "--trials", "4", "--threads", "1")


def test_each_size_is_tuned_and_recorded(file, tmp_path, capsys):
    records = tmp_path / "tune.db"
    command = [f"{file}:rows", "--sizes", "n=5,7", "--records", str(records), "--json", *QUICK]
    assert main(command, measurer=Fake) == 0
    said = capsys.readouterr()
    found = json.loads(said.out.splitlines()[-1])
    assert found["sizes"] == [{"size": {"n": 5}, "best": DEFAULT}, {"size": {"n": 7}, "best": DEFAULT}]
    assert found["trials"] == 4 and found["target"].startswith("llvm -num-cores 1")
    assert "n = 5: 2 ms\n" in said.err and "n = 7" in said.err.splitlines()[-1]
    with tir.Records(records) as kept:
        titles = sorted(task.title for task in kept.summaries())
    assert titles == [f"main float32[{n}, 13] float32[{n}, 13]" for n in (5, 7)]


@pytest.mark.parametrize(("words", "message"), [
    (("gmm", "--sizes", "n=5"),
     "--sizes goes with FILE.py:NAME, a function whose sizes are open; those of gmm are given by --shape"),
    (("FILE:rows", "--sizes", "5,7"), "--sizes: expected NAME=1,3,224,224, a size and its values, got '5,7'"),
    (
        ("FILE:rows", "--sizes", "n=5", "--report", "x.html"),
        "--report does not go with --sizes, which takes --shape, --trials, --seconds, --threads, --seed, --timeout, --target, "
        "--records, --policy, --model, --space, --cluster, --builders, --json, --quiet",
    ),
])  # fmt: skip
def test_refusals(words, message, file, capsys):
    assert main([word.replace("FILE", str(file)) for word in words], measurer=Fake) == 2
    assert capsys.readouterr().err == f"python -m tir.tune: error: {message}\n"
