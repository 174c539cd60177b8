"""Records: written, listed, looked up, exchanged."""

from __future__ import annotations

import json

import pytest

from tests.cli.tune.commands import SHAPE, run, sleeps


def test_records_are_written_listed_and_gone_on_with(cli, tmp_path, monkeypatch, capsys):
    common = ("gmm", "--shape", SHAPE, "--threads", "1", "--records", "tune.db", "--json")
    code, out, err = cli([*sleeps(0.05, 0.02), {"fault": "wrong"}], *common)
    assert code == 0 and "records: tune.db is a new file\n" in err, err
    code, out, err = cli([*sleeps(0.02, 0.03)], *common)
    assert code == 0, err
    assert "3 candidates known from earlier runs" in err and "new file" not in err
    result = json.loads(out)
    assert result["trials"] == 1 and 0.02 <= result["seconds"]["best"] < 0.03  # 0.02 is known, and in the race again

    monkeypatch.chdir(tmp_path)
    assert run("--records", "tune.db", "list", "--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    (listed,) = json.loads(line)
    assert list(listed) == ["workload", "target", "records", "best"]
    assert listed["records"] == 4 and listed["best"] == pytest.approx(result["seconds"]["best"])
    assert listed["workload"] and listed["target"].startswith("llvm -num-cores 1")
    assert run("--records", "tune.db", "list") == 0
    text = capsys.readouterr().out
    assert "gmm 7,13,109" in text and "\x1b" not in text

    assert run("--records", "tune.db", "export", "all.jsonl") == 0
    assert capsys.readouterr().out == "wrote 4 records to all.jsonl\n"
    assert run("--records", "other.db", "import", "all.jsonl", "all.jsonl") == 0
    assert capsys.readouterr().out == "4 new records, 4 known before; other.db has 4\n"
    assert run("--records", "other.db", "prune", "--keep", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"removed": 3, "records": 1}
    assert run("--records", "other.db", "export") == 0
    exported = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [x["trace"] for x in exported if x["kind"] == "candidate"] == [{"sleep": 0.02}]


def test_best_shows_a_record_and_can_be_applied(recorded, capsys):
    asked = ("--records", "tune.db", "best", "gmm", "--shape", SHAPE, "--threads", "1")
    assert run(*asked, "--json", "--out", "best.json") == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert (found["found"], found["seconds"], found["row"], found["sketch"]) == ("hit", 0.25, [4], "s0")
    assert "s.split('j', [None, 4])" in captured.err and "250 ms" in captured.err
    assert run("--apply", "best.json", "--quiet") == 0
    assert "applied" in capsys.readouterr().out
    assert run(*asked, "--show") == 0
    assert "def gmm(" in capsys.readouterr().out


def test_best_says_loudly_what_it_did_not_find(recorded, capsys):
    assert run("--records", "tune.db", "best", "gmm", "--shape", SHAPE, "--threads", "2") == 0
    err = capsys.readouterr().err
    assert err.startswith("warning: tune.db has no gmm for llvm -num-cores 2") and "the nearest is for llvm -num-cores 1" in err
    assert run("--records", "tune.db", "best", "gmm", "--shape", "7,13,110") == 1
    assert "it is recorded for other shapes only: gmm 7,13,109" in capsys.readouterr().err
    assert run("--records", "tune.db", "best", "softmax") == 1
    assert "there are gmm 7,13,109" in capsys.readouterr().err
    assert run("--records", "tune.db", "best", "softmax", "--json") == 1
    missed = json.loads(capsys.readouterr().out)
    assert missed["found"] == "miss" and "there are gmm 7,13,109" in missed["why"]
    assert run("--records", "tune.db", "best", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["name"] == "gmm" and found["shape"] == [7, 13, 109]
    assert run("--records", "tune.db", "prune", "--keep", "0", "--quiet") == 0
    assert run("--records", "tune.db", "best") == 1
    assert capsys.readouterr().err == "error: tune.db has no valid record\n"
