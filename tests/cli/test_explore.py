"""`python -m tir.explore`."""

from __future__ import annotations

import pytest

from cli.explore import main
from cli.tune.saved import save
from schedule import Schedule
from tir import workloads

SHAPE = "7,13,109"


def run(*words: str) -> int:
    return main(["gmm", "--shape", SHAPE, "--no-measure", *words])


def test_pages_of_the_default_and_of_a_saved_schedule(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert run("--out", str(page)) == 0 and f" steps: {page}" in capsys.readouterr().out
    s = Schedule(workloads.make("gmm", (7, 13, 109)).func)
    s.split(s.get_loops("C")[0], [None, 3])
    header = {"workload": "gmm", "shape": [7, 13, 109], "dtype": "float32", "target": "llvm", "threads": 1, "seconds": {}}
    save(tmp_path / "best.json", {**header, "trace": s.trace.as_json()})
    assert run("--out", str(page), "--apply", str(tmp_path / "best.json")) == 0
    assert capsys.readouterr().out == f"1 steps: {page}\n" and "<h1>gmm 7,13,109</h1>" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("words", "message"), [
    (("--apply", "a", "--records", "b"), "--apply and --records: each names a schedule; give one of them"),
    (("--records", "none.db"), "--records: no schedule of gmm: records file none.db does not exist"),
])  # fmt: skip
def test_bad_usage(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run("--out", "page.html", *words) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "page.html").exists()
