"""A run: what it prints, saves and returns, also where it ends before its time."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from search.measure import OUTCOMES
from tests.cli.tune.commands import SHAPE, run, sleeps, wait_for


def test_a_run_ends_with_json_a_table_and_a_file_to_apply(cli, tmp_path):
    wishes = [*sleeps(0.05, 0.02), {"fault": "wrong"}, {"fault": "segfault"}, {"fault": "illegal"}]
    code, out, err = cli(wishes, "gmm", "--shape", SHAPE, "--threads", "1", "--out", "best.json", "--json", "--show")
    assert code == 0, err
    (line,) = out.splitlines()
    result = json.loads(line)
    assert list(result) == [
        "workload", "shape", "target", "threads", "trials", "outcomes", "seconds", "flop", "max_error", "tolerance", "elapsed",
    ]  # fmt: skip
    assert (result["workload"], result["shape"], result["target"], result["threads"]) == ("gmm", [7, 13, 109], "llvm", 1)
    assert result["trials"] == 5
    assert result["outcomes"] == dict.fromkeys(OUTCOMES, 0) | {"ok": 2, "wrong_result": 1, "crash": 1, "illegal": 1}
    assert 0.02 <= result["seconds"]["best"] < 0.05 < 0.1 <= result["seconds"]["unscheduled"]
    assert 0 < result["seconds"]["numpy"]
    assert result["flop"] == 2 * 7 * 13 * 109
    assert 0 <= result["max_error"] <= result["tolerance"]
    assert "5 trials in" in err and "2 ok, 1 illegal, 1 crash, 1 wrong_result" in err
    assert "\x1b" not in err  # no terminal, no escape sequences

    saved = json.loads((tmp_path / "best.json").read_text())
    assert saved["trace"] == {"sleep": 0.02}
    assert saved["seconds"] == result["seconds"]
    assert set(saved["versions"]) >= {"tir", "python", "numpy"}
    assert [p.name for p in tmp_path.iterdir() if "best" in p.name] == ["best.json"]
    assert not list(tmp_path.glob("tir-measure-*"))

    code, out, err = cli([], "--apply", "best.json", "--json")
    assert code == 0, err
    applied = json.loads(out)
    assert list(applied) == list(result)
    assert applied["outcomes"]["ok"] == 1 and applied["shape"] == [7, 13, 109] and 0.02 <= applied["seconds"]["best"] < 0.05
    assert "applied" in err and "numpy" in err


def test_quiet_prints_the_table_alone(cli):
    code, out, err = cli(sleeps(0.01), "gmm", "--shape", SHAPE, "--quiet", "--threads", "1")
    assert (code, err) == (0, "")
    rows = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert rows[:9] == ["gmm", "time", "unscheduled", "best", "numpy", "largest", "1", "candidates", "fake"]
    assert rows[9].startswith("main") and "for" in rows  # the loop nest


def test_nothing_valid_is_status_1_with_the_reasons(cli, tmp_path):
    wishes = [{"fault": "illegal"}, {"fault": "wrong"}, {"fault": "build_error"}, {"fault": "build_error", "n": 1}]
    code, out, err = cli(wishes, "gmm", "--shape", SHAPE, "--json", "--out", "best.json")
    assert code == 1
    assert "no valid candidate for gmm: 1 illegal, 2 build_error, 1 wrong_result" in err
    assert "illegal: ScheduleError: split: the factor is 0" in err
    assert "build_error: ValueError: no such instruction" in err
    assert "Traceback" not in err
    result = json.loads(out)
    assert result["outcomes"]["build_error"] == 2 and result["seconds"]["best"] is None
    assert not (tmp_path / "best.json").exists()


def test_candidates_slower_than_the_program_as_written_leave_it_the_best(cli):
    code, out, err = cli(sleeps(0.2), "gmm", "--shape", SHAPE, "--json", "--quiet")
    assert code == 0
    result = json.loads(out)
    assert result["seconds"]["best"] < 0.2
    assert "no candidate was faster than the program as written" in err


def children(pid: int) -> list[int]:
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(entry))
        except OSError:
            continue
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_prints_and_saves_the_best_so_far(cli, tmp_path):
    saved = tmp_path / "best.json"
    process = cli.start(
        [*sleeps(0.05), {"fault": "hang"}], "gmm", "--shape", SHAPE, "--out", str(saved), "--timeout", "100", workers=2
    )
    wait_for(saved.exists)
    workers = children(process.pid)
    assert len(workers) == 3  # and what ends them if the run is killed
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - start < 5
    assert process.returncode == 130
    assert "interrupted after 1 trial in" in out and "best found" in out
    assert "Traceback" not in err
    assert json.loads(saved.read_text())["trace"] == {"sleep": 0.05}
    wait_for(lambda: not any(map(alive, workers)), 5)
    assert not list(tmp_path.glob("tir-measure-*"))


def test_a_request_to_end_is_like_ctrl_c(cli, tmp_path):
    saved = tmp_path / "best.json"
    process = cli.start(
        [*sleeps(0.05), {"fault": "hang"}], "gmm", "--shape", SHAPE, "--out", str(saved), "--timeout", "100", "--json", workers=2
    )
    wait_for(saved.exists)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 143 and json.loads(out)["outcomes"]["ok"] == 1
    assert "interrupted after 1 trial in" in err and "Traceback" not in err and not list(tmp_path.glob("tir-measure-*"))


def test_kill_9_loses_nothing_and_leaves_nothing(cli, tmp_path):
    saved = tmp_path / "best.json"
    first = {"sleep": 0.05, "fault": "leaves_child"}
    process = cli.start([first, {"fault": "hang"}], "gmm", "--shape", SHAPE, "--out", str(saved), "--timeout", "100", workers=2)
    wait_for(saved.exists)
    workers = children(process.pid)
    workers += [child for worker in workers for child in children(worker)]
    assert len(workers) > 2
    process.kill()
    process.communicate(timeout=30)
    assert json.loads(saved.read_text())["trace"] == first
    wait_for(lambda: not any(map(alive, workers)), 5)
    wait_for(lambda: not list(tmp_path.glob("tir-measure-*")), 5)


def test_a_real_run_with_records_and_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("codegen.peak.copy_bandwidth", lambda target, threads: 5e10)
    common = ("gmm", "--shape", SHAPE, "--threads", "1", "--records", "tune.db", "--json", "--quiet")
    assert run(*common, "--trials", "4", "--policy", "random", "--model", "tile", "--space", "ansor", "--report", "r.html") == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["trials"] == result["outcomes"]["ok"] == 4 and "how the search went: r.html" in captured.err
    assert re.search(r"sketch \d", Path("r.html").read_text(encoding="utf-8"))
    assert run("--records", "tune.db", "best", "gmm", "--shape", SHAPE, "--threads", "1", "--json") == 0
    best = json.loads(capsys.readouterr().out)
    assert best["found"] == "hit" and best["seconds"] == pytest.approx(result["seconds"]["best"], rel=0.2)
