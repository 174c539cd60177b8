"""The command line of the tuner: what it prints, saves and returns, and that bad input never ends in a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from search.measure import OUTCOMES, Candidate
from tir import tune, workloads

ROOT = Path(__file__).resolve().parents[1]
SHAPE = "7,13,109"

# A program that runs the command line with the fake builder of tests/search and a given list of wishes as the search.
DRIVER = """
import sys
sys.path[:0] = [{root!r}, {fakes!r}]
from search.measure import Candidate
from tir.tune import main

class Wishes:
    sketches = ("fake",)
    def __init__(self, task):
        self.left = [Candidate("fake", (n,), wish) for n, wish in enumerate({wishes!r})]
    def propose(self, n, rng):
        chosen, self.left = self.left[:n], self.left[n:]
        return chosen
    def tell(self, measurements):
        pass

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], builder="fake_builder", search=Wishes, workers=2))
"""


@pytest.fixture
def cli(tmp_path):
    """Runs the command line on wishes; `cli.start` returns the process instead of its result."""

    class Cli:
        def start(self, wishes, *args):
            driver = tmp_path / "driver.py"
            driver.write_text(DRIVER.format(root=str(ROOT), fakes=str(ROOT / "tests" / "search"), wishes=wishes))
            command = [sys.executable, str(driver), *args]
            pipe = subprocess.PIPE
            environment = {**os.environ, "TMPDIR": str(tmp_path)}
            return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path, env=environment)

        def __call__(self, wishes, *args):
            process = self.start(wishes, *args)
            out, err = process.communicate(timeout=120)
            return process.returncode, out, err

    return Cli()


def sleeps(*seconds):
    return [{"sleep": s} for s in seconds]


# --- a run -------------------------------------------------------------------------------------------------------------


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
    assert rows == ["gmm", "time", "unscheduled", "best", "numpy", "largest", "1"]


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


# --- ends before its time ----------------------------------------------------------------------------------------------


def wait_for(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


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
    process = cli.start([*sleeps(0.05), {"fault": "hang"}], "gmm", "--shape", SHAPE, "--out", str(saved), "--timeout", "100")
    wait_for(saved.exists)
    workers = children(process.pid)
    assert len(workers) == 2
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - start < 5
    assert process.returncode == 130
    assert "interrupted after 1 trials" in out and "best found" in out
    assert "Traceback" not in err
    assert json.loads(saved.read_text())["trace"] == {"sleep": 0.05}
    wait_for(lambda: not any(map(alive, workers)), 5)
    assert not list(tmp_path.glob("tir-measure-*"))


def test_kill_9_loses_nothing_and_leaves_nothing(cli, tmp_path):
    saved = tmp_path / "best.json"
    process = cli.start([*sleeps(0.05), {"fault": "hang"}], "gmm", "--shape", SHAPE, "--out", str(saved), "--timeout", "100")
    wait_for(saved.exists)
    workers = children(process.pid)
    process.kill()
    process.communicate(timeout=30)
    assert json.loads(saved.read_text())["trace"] == {"sleep": 0.05}
    wait_for(lambda: not any(map(alive, workers)), 5)
    wait_for(lambda: not list(tmp_path.glob("tir-measure-*")), 5)


# --- bad usage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "name a workload to tune: mlp, gmm"),
        (["gmmm"], "no workload is named 'gmmm'; did you mean gmm? there are: mlp, gmm"),
        (["gmm", "--shape", "7,13"], "gmm takes 3 or 4 sizes M,K,N[,batch] (got 2: 7,13)"),
        (["gmm", "--shape", "7,x,3"], "--shape takes integers separated by commas, M,K,N[,batch]; got '7,x,3'"),
        (["gmm", "--shape", "7,0,3"], "gmm: K"),
        (["gmm", "--shape", "9" * 12 + ",1," + "9" * 12], "does not fit into the memory of this machine"),
        (["gmm", "--target", "lvm"], "--target: target 'lvm': the first word must be one of llvm, cuda"),
        (["gmm", "--target", "llvm -num-cores x"], "--target: target option num_cores must be an integer"),
        (["gmm", "--target", "cuda"], "kernels for cuda cannot be measured yet"),
        (["gmm", "--trials", "0"], "argument --trials: a positive integer was expected, got '0'"),
        (["gmm", "--threads", "-1"], "--threads"),
        (["gmm", "--seed", "x"], "argument --seed: an integer of at least 0 was expected, got 'x'"),
        (["gmm", "--timeout", "nan"], "argument --timeout: a positive number of seconds was expected, got 'nan'"),
        (["gmm", "--seconds", "0"], "argument --seconds: a positive number of seconds was expected, got '0'"),
        (["gmm", "--trial", "3"], "unrecognized arguments: --trial"),
        (["gmm", "--out", "no/such/folder/best.json"], "--out: cannot write to the folder"),
        (["gmm", "--out", "."], "--out: . is a directory"),
        (["--apply", "no.json"], "--apply: cannot read no.json: No such file or directory"),
    ],
)
def test_bad_usage_is_status_2_and_says_what_was_expected(argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        code = tune.main(argv)
    except SystemExit as end:
        code = end.code
    assert code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (
        f"python -m tir.tune: error: {message}" in captured.err or f"error: {message}" in captured.err or message in captured.err
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "best.json is not JSON"),
        ("\xff\xfe", "best.json is not JSON"),
        ("[]", "was not written by --out: it holds no trace"),
        ('{"trace": null}', "'workload' should be of type str, got None"),
        ('{"trace": null, "workload": "gmm", "shape": [7], "target": "llvm", "threads": 1}', "has format None; 1 is understood"),
        (
            '{"format": 1, "trace": null, "workload": "gmm", "shape": [7], "target": "llvm", "threads": 1}',
            "gmm takes 3 or 4 sizes M,K,N[,batch] (got 1: 7)",
        ),
        (
            '{"format": 1, "trace": null, "workload": "gmm", "shape": ["7", 1, 2], "target": "llvm", "threads": 1}',
            "gmm: M, ",
        ),
        (
            '{"format": 1, "trace": null, "workload": "gmm", "shape": [7, 1, 2], "target": "llvm", "threads": 0}',
            "'threads' should be at least 1, got 0",
        ),
    ],
)
def test_a_file_that_cannot_be_applied_says_why(content, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("best.json").write_bytes(content.encode("latin-1"))
    assert tune.main(["--apply", "best.json"]) == 2
    assert message in capsys.readouterr().err


def test_a_schedule_of_something_else_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    content = {"format": 1, "trace": None, "workload": "gmm", "shape": [7, 13, 109], "target": "llvm", "threads": 1}
    Path("best.json").write_text(json.dumps(content))
    assert tune.main(["mlp", "--apply", "best.json"]) == 2
    assert "best.json holds a schedule of gmm, not of mlp" in capsys.readouterr().err
    assert tune.main(["gmm", "--shape", "7,13,7", "--apply", "best.json"]) == 2
    assert "best.json holds a schedule for the shape 7,13,109, not 7,13,7" in capsys.readouterr().err


def test_a_trace_that_does_not_apply_is_status_1(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    content = {"format": 1, "workload": "gmm", "shape": [7, 13, 109], "target": "llvm", "threads": 1}
    step = {"name": "split", "args": {"loop": "nowhere", "factors": [None, 4]}, "results": []}
    for trace in ({"version": 1, "steps": [step]}, {"version": 7, "steps": []}, {"steps": 3}, 7):
        Path("best.json").write_text(json.dumps({**content, "trace": trace}))
        assert tune.main(["--apply", "best.json"]) == 1
        err = capsys.readouterr().err
        assert "error: the schedule in best.json is not valid here: " in err and "Traceback" not in err


def test_list_names_every_workload_with_its_shape(capsys):
    assert tune.main(["--list"]) == 0
    out = capsys.readouterr().out
    for name in workloads.names():
        assert f"{name} " in out and workloads.get(name).usage in out


def test_help_needs_no_compiler():
    code = "import sys, tir.tune\ntry:\n tir.tune.main(['--help'])\nexcept SystemExit:\n pass\n"
    code += "print([m for m in sys.modules if 'llvm' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.endswith("[]\n") and "--shape" in ran.stdout


# --- what is shown -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, "1.5 s"), (0.0112, "11.2 ms"), (4.5e-5, "45 us"), (2e-8, "20 ns"), (123.456, "123.5 s")]
)
def test_durations_have_a_fitting_unit(seconds, text):
    assert tune.duration(seconds) == text


def test_live_progress_shows_failures_best_share_and_time_left():
    import io

    from search.events import Measured, Prepared, Started
    from search.measure import Measurement
    from search.task import Task

    task = Task.of(workloads.make("gmm", (7, 13, 109)).func, "llvm")
    progress = tune.LineProgress(io.StringIO())
    progress(Started(task, 10, None))
    candidate = Candidate("fake", (), None)
    progress(Prepared(Measurement(candidate, "ok", (1.0,)), 0.5, 2 * task.flop / 0.01, 3))
    progress(Measured(Measurement(candidate, "ok", (0.01,)), 5, {"ok": 4, "crash": 1}, 0.01))
    status = progress.status()
    assert status.startswith(f"5/10  failed: 1 crash  best {task.flop / 0.01 / 1e9:.1f} GFLOP/s (50% of peak)")
    assert status.endswith(" s left")


def test_files_are_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "best.json"
    tune.write_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        tune.write_atomically(path, "new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["best.json"]
