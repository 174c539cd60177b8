"""Functions of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import workloads
from search.task import Task
from tests.cli.tune.commands import run

PROGRAMS = """
from tir import te
from tir.script import tir as T

a = te.placeholder((7, 13), name="A")
doubled = te.create_prim_func([a, te.compute((7, 13), lambda i, j: a[i, j] * 2.0, name="B")], name="doubled")


def make(rows, columns):
    A = te.placeholder((rows, columns), name="A")
    return [A, te.compute((rows, columns), lambda i, j: A[i, j] + 1.0, name="B")]


def nothing():
    pass


@T.prim_func
def beyond(A: T.Buffer((9,), "float32"), B: T.Buffer((9,), "float32")):
    for i in range(9):
        with T.block("B"):
            v = T.axis.spatial(9, i)
            B[v] = A[v + 1]


@T.prim_func
def open_size(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        with T.block("B"):
            v = T.axis.spatial(n, i)
            B[v] = A[v]
"""


def test_a_function_of_the_users_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PROGRAMS)
    options = ("--trials", "1", "--threads", "1", "--quiet", "--json", "--records", "tune.db", "--out", "best.json")
    assert run("mine.py:doubled", *options) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert (result["workload"], result["shape"], result["flop"], result["max_error"]) == ("mine.py:doubled", [], 7 * 13, 0.0)
    assert result["seconds"]["numpy"] is None and result["seconds"]["best"] > 0
    assert captured.err.startswith("mine.py:doubled  float32  llvm  1 thread\n")
    assert "largest error against the program as written: 0 of its scale" in captured.err
    Path("mine.py").rename("moved.py")
    assert run("moved.py:doubled", "--apply", "best.json", "--json", "--quiet") == 0
    assert json.loads(capsys.readouterr().out)["outcomes"]["ok"] == 1
    Path("mine.py").write_text(PROGRAMS)
    assert run("--records", "tune.db", "best", "mine.py:doubled", "--threads", "1") == 0
    assert capsys.readouterr().out.startswith("doubled  llvm -num-cores 1")
    assert run("mine.py:doubled", "--sketches", "--space", "ansor") == 0
    assert capsys.readouterr().out.endswith("\n1 sketch of mine.py:doubled\n")
    assert run("mine.py:make", "--shape", "5,6", "--sketches", "--space", "ansor") == 0
    assert capsys.readouterr().out.endswith("\n1 sketch of mine.py:make 5,6\n")


@pytest.mark.parametrize(("argv", "message"), [
    (["mine.py"], "expected one function, but mine.py has doubled, beyond, open_size; mine.py:NAME takes one of several"),
    (["mine.py:a"], "there is no function 'a': mine.py has doubled, beyond, open_size"),
    (["mine.py:open_size"], "mine.py:open_size: a dimension of A is symbolic"),
    (["mine.py:beyond", "--trials", "1"], "mine.py:beyond is not well formed: "),
    (["mine.py:doubled", "--shape", "7,13"], "--shape goes with a workload, or a Python function that takes sizes"),
    (["mine.py:make", "--shape", "7"], "mine.py:make takes --shape rows,columns: missing a required argument: 'columns'"),
    (["mine.py:nothing"], "mine.py:nothing makes no function: it returns a NoneType, not a PrimFunc or a list of tensors"),
    (["mine.py:doubled", "--inputs", "none.npz"], "--inputs: there is no file none.npz"),
    (["mine.py:doubled", "--inputs", "one.npy"], "--inputs: one.npy holds one array; numpy.savez writes several, by name"),
    (["mine.py:doubled", "--inputs", "objects.npz"],
     "--inputs: objects.npz is no file of numpy.savez, or is damaged: Object arrays cannot be loaded"),
    (["mine.py:doubled", "--inputs", "bad.py"], "--inputs: bad.py is no file of numpy.savez, or is damaged: "),
    (["mine.py:doubled", "--inputs", "other.npz"], "--inputs: no input is named 'X'; there are: A"),
    (["none.py"], "cannot read a function from none.py: [Errno 2] No such file or directory"),
    (["bad.py"], "cannot read a function from bad.py: '(' was never closed (bad.py, line 1)"),
    (["empty.py"], "expected one function, but empty.py has none that te.create_prim_func or @T.prim_func made"),
])  # fmt: skip
def test_a_file_without_the_function_asked_for_says_what_it_has(argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, text in (("mine", PROGRAMS), ("bad", "x = (\n"), ("empty", "x = 1\n")):
        Path(f"{name}.py").write_text(text)
    np.save("one.npy", np.zeros(3))
    np.savez("objects.npz", A=np.array([None]))
    np.savez("other.npz", X=np.zeros(3))
    assert run(*argv) == 2
    assert message in capsys.readouterr().err


RAISING = """
def make(rows):
    return 1 // (rows - 7)


if __name__ != "<run_path>":
    make(7)
"""


@pytest.mark.parametrize(
    ("argv", "frames"),
    [(["raising.py:make", "--shape", "7"], 1), (["gmm", "--model", "raising.py"], 2), (["gmm", "--rules", "raising.py"], 2)],
)
def test_what_a_users_file_raises_is_shown_where_it_does(argv, frames, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("raising.py").write_text(RAISING)
    assert run(*argv) == 2
    said = capsys.readouterr().err
    word = next(part for part in argv if part.startswith("raising.py"))
    assert said.startswith(f"python -m tir.tune: error: {word} fails:\n  File ") and said.count("  File ") == frames
    assert "line 3, in make\n    return 1 // (rows - 7)\n" in said
    assert said.endswith("ZeroDivisionError: integer division or modulo by zero\n")


PARTS = """
from search.policy.random_search import RandomSearch
from search.population.mutate import mutations
from search.space import generate
from tir import Target


class MODEL:
    @staticmethod
    def score(sketch, rows):
        return -rows.sum(axis=1).astype("float64")

    @staticmethod
    def update(sketch, rows, seconds):
        pass


MODEL = MODEL()
MUTATIONS = dict(list(mutations().items())[:1])


def POLICY(task):
    target = Target(task.target)
    return RandomSearch(generate(task.func, target), target, None)
"""


@pytest.mark.parametrize(("options", "kind"), [
    (["--model", "parts.py", "--policy", "random"], ["random", "MODEL"]),
    (["--policy", "parts.py"], ["function"]),
    (["--mutations", "parts.py", "--model", "none"], ["partial"]),
])  # fmt: skip
def test_parts_of_the_users_own(options, kind, tmp_path, monkeypatch):
    """They reach the search as they are in the file."""
    monkeypatch.chdir(tmp_path)
    Path("parts.py").write_text(PARTS)
    seen: dict[str, object] = {}

    def autotune(*args, **given):
        seen.update(given)
        raise KeyboardInterrupt

    monkeypatch.setattr("search.tuning.autotune.autotune", autotune)
    assert run("gmm", "--shape", "7,13,9", "--quiet", *options) == 130
    found = [seen[name] for name in ("policy", "model") if name in seen]
    assert [x if isinstance(x, str) else type(x).__name__ for x in found] == kind
    if kind == ["partial"]:
        policy = seen["policy"](Task.of(workloads.make("gmm", (7, 13, 9)).func))
        assert len(policy._mutations) == 1


@pytest.mark.parametrize(("options", "message"), [
    (["--model", "parts.py:MUTATIONS"], "--model: model takes a name, or an object with score and update (costmodel.CostModel)"),
    (["--model", "parts.py:NONE"], "--model: model 'parts.py:NONE' cannot be loaded: module 'parts' has no attribute 'NONE'"),
    (["--mutations", "parts.py:MODEL"], "--mutations: 'parts.py:MODEL' is no dict of mutations"),
    (["--mutations", "parts.py", "--policy", "random"], "--mutations: for --policy evolution alone"),
    (["--policy", "bogus"], "--policy: no policy is named 'bogus'; there are: evolution"),
])  # fmt: skip
def test_parts_that_are_none(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("parts.py").write_text(PARTS)
    assert run("gmm", "--shape", "7,13,9", "--quiet", *options) == 2
    assert message in capsys.readouterr().err
