"""What is shown instead of a run: the workloads, the sketches."""

from __future__ import annotations

import json

from tests.cli.tune.commands import SHAPE, run
from tir import tune, workloads


def test_list_names_every_workload_with_its_shape(capsys):
    assert tune.main(["--list"]) == 0
    out = capsys.readouterr().out
    for name in workloads.names():
        assert f"{name} " in out and workloads.get(name).usage in out
    assert tune.main(["--list", "--json"]) == 0
    listed = {w["workload"]: w for w in json.loads(capsys.readouterr().out)}
    assert tuple(listed) == workloads.names() and listed["gmm"]["sizes"] == "M,K,N[,batch]"
    assert all(w["default"] == list(workloads.get(name).default) for name, w in listed.items())


def test_sketches_are_scripts_with_holes(capsys, tmp_path, monkeypatch):
    assert run("gmm", "--shape", SHAPE, "--threads", "1", "--sketches", "--space", "ansor") == 0
    text = capsys.readouterr().out
    assert text.startswith("# sketch 0\n#   C: ") and "t0" in text and text.endswith("of gmm 7,13,109\n")
    assert run("gmm", "--shape", SHAPE, "--threads", "1", "--sketches", "--json") == 0
    assert {"name", "rules", "columns", "script"} == set(json.loads(capsys.readouterr().out)[0])
    (tmp_path / "my_rules.py").write_text("from search.space.rules import Skip\nRULES = (Skip(),)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run("gmm", "--shape", SHAPE, "--sketches", "--rules", "my_rules:RULES") == 0
    assert capsys.readouterr().out.endswith("\n1 sketch of gmm 7,13,109\n")
    assert run("gmm", "--sketches", "--rules", "my_rules:NONE") == 2
    assert "--rules: rules 'my_rules:NONE' cannot be loaded" in capsys.readouterr().err
    (tmp_path / "broken.py").write_text("RULES = (\n")
    assert run("gmm", "--sketches", "--rules", str(tmp_path / "broken.py")) == 2
    assert "'(' was never closed (broken.py, line 1)" in capsys.readouterr().err
