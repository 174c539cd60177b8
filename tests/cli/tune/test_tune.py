"""The command line of the tuner: what it prints, saves and returns, and that bad input never ends in a traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.tune.table import sketches, timings
from search.measure import OUTCOMES, Candidate, Measurement
from tir import tune, workloads
from tir.files import write_atomically

pytestmark = pytest.mark.usefixtures("short_races")

ROOT = Path(__file__).resolve().parents[3]
SHAPE = "7,13,109"

# A program that runs the command line with the fake builder of tests/search and a given list of wishes as the search. It heeds
# Ctrl-C even where the suite is a background job of a shell, whose processes start with SIGINT ignored.
DRIVER = """
import signal
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
    def update(self, measurements):
        pass

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:], builder="fake_builder", search=Wishes, workers=2, first=()))
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


def test_a_request_to_end_is_like_ctrl_c(cli, tmp_path):
    saved = tmp_path / "best.json"
    process = cli.start(
        [*sleeps(0.05), {"fault": "hang"}], "gmm", "--shape", SHAPE, "--out", str(saved), "--timeout", "100", "--json"
    )
    wait_for(saved.exists)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 143 and json.loads(out)["outcomes"]["ok"] == 1
    assert "interrupted after 1 trials" in err and "Traceback" not in err and not list(tmp_path.glob("tir-measure-*"))


def test_kill_9_loses_nothing_and_leaves_nothing(cli, tmp_path):
    saved = tmp_path / "best.json"
    first = {"sleep": 0.05, "fault": "leaves_child"}
    process = cli.start([first, {"fault": "hang"}], "gmm", "--shape", SHAPE, "--out", str(saved), "--timeout", "100")
    wait_for(saved.exists)
    workers = children(process.pid)
    workers += [child for worker in workers for child in children(worker)]
    assert len(workers) > 2
    process.kill()
    process.communicate(timeout=30)
    assert json.loads(saved.read_text())["trace"] == first
    wait_for(lambda: not any(map(alive, workers)), 5)
    wait_for(lambda: not list(tmp_path.glob("tir-measure-*")), 5)


@pytest.mark.parametrize(
    ("closed", "status", "said"),
    [(">&-", 0, ""), ("2>&-", 2, ""), (">/dev/full", 1, "error: the output cannot be written: No space left on device")],
)
def test_output_that_goes_nowhere_is_no_traceback(closed, status, said):
    word = "--list" if status != 2 else "nothing-such"
    command = f"{sys.executable} -m tir.tune {word} {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == status and said in done.stderr and "Traceback" not in done.stderr


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
        (["gmm", "--trials", "0"], "argument --trials: a positive integer was expected, got '0'"),
        (["gmm", "--threads", "-1"], "argument --threads: a positive integer was expected, got '-1'"),
        (["gmm", "--threads", "1000000"], "argument --threads: at most"),
        (["gmm", "--shape", "-7,13,5"], "argument --shape: expected one argument; where it begins with -, write --option=value"),
        (["gmm", "--shape=-7,13,5"], "--shape takes integers separated by commas, M,K,N[,batch]; got '-7,13,5'"),
        (["gmm", "--model", "forest"], "argument --model: invalid choice: 'forest'"),
        (["--records", "tune.db", "import", "no.jsonl"], "import: cannot read no.jsonl: No such file or directory"),
        (["gmm", "--seed", str(1 << 63)], "argument --seed: an integer below 2**63 was expected, got '9223372036854775808'"),
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
    (line,) = captured.err.splitlines()
    assert line.startswith("python -m tir.tune: error: ") and message in line


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


def test_a_schedule_does_not_name_the_file_to_execute(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("open('executed', 'w')")
    content = {"format": 1, "trace": None, "workload": "mine.py:f", "shape": [], "target": "llvm", "threads": 1}
    Path("best.json").write_text(json.dumps(content))
    assert tune.main(["--apply", "best.json"]) == 2
    assert "name it, if you trust the file, as in python -m tir.tune mine.py:f --apply best.json" in capsys.readouterr().err
    assert tune.main(["gmm", "--apply", "best.json"]) == 2
    assert "best.json holds a schedule of mine.py:f, not of gmm" in capsys.readouterr().err
    assert not Path("executed").exists()


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
    for trace in ({"version": 1, "steps": [step]}, {"steps": 3}):
        Path("best.json").write_text(json.dumps({**content, "trace": trace}))
        assert tune.main(["--apply", "best.json"]) == 1
        err = capsys.readouterr().err
        assert "error: the schedule in best.json is not valid here: " in err and "Traceback" not in err


def test_list_names_every_workload_with_its_shape(capsys):
    assert tune.main(["--list"]) == 0
    out = capsys.readouterr().out
    for name in workloads.names():
        assert f"{name} " in out and workloads.get(name).usage in out
    assert tune.main(["--list", "--json"]) == 0
    listed = {w["workload"]: w for w in json.loads(capsys.readouterr().out)}
    assert tuple(listed) == workloads.names() and listed["gmm"]["sizes"] == "M,K,N[,batch]"
    assert all(w["default"] == list(workloads.get(name).default) for name, w in listed.items())


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

    from search.measure import Measurement
    from search.task import Task
    from search.tuning.events import Measured, Prepared, RoundEnded, Started

    task = Task.of(workloads.make("gmm", (7, 13, 109)).func, "llvm")
    progress = tune.LineProgress(io.StringIO())
    progress(Started(task, 10, None))
    candidate = Candidate("fake", (), None)
    progress(Prepared(Measurement(candidate, "ok", (1.0,)), 0.5, 2 * task.flop / 0.01, 3))
    progress(RoundEnded(0, {}, 0.02, 1.0))  # all copies of what an earlier run measured
    assert progress.status() == f"0/10  failed: none  best {task.flop / 0.02 / 1e9:.1f} GFLOP/s (25% of peak)"
    progress(Measured(Measurement(candidate, "ok", (0.01,)), 5, {"ok": 4, "crash": 1}, 0.01))
    status = progress.status()
    assert status.startswith(f"5/10  failed: 1 crash  best {task.flop / 0.01 / 1e9:.1f} GFLOP/s (50% of peak)")
    assert status.endswith(" s left")


def test_files_are_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "best.json"
    write_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["best.json"]


def test_links_stay_links_and_pipes_pipes(tmp_path):
    file, link, pipe = tmp_path / "best.json", tmp_path / "link.json", tmp_path / "pipe"
    link.symlink_to(file)
    write_atomically(link, "new")
    assert link.is_symlink() and file.read_text() == "new"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        found = reader.submit(pipe.read_text)
        write_atomically(pipe, "through")
        assert found.result(10) == "through" and pipe.is_fifo()


# --- records -----------------------------------------------------------------------------------------------------------


def run(*argv):
    """The exit status of the command line in this process."""
    try:
        return tune.main(list(argv))
    except SystemExit as end:
        return end.code


def test_records_are_written_listed_and_gone_on_with(cli, tmp_path, monkeypatch, capsys):
    common = ("gmm", "--shape", SHAPE, "--threads", "1", "--records", "tune.db", "--json")
    code, out, err = cli([*sleeps(0.05, 0.02), {"fault": "wrong"}], *common)
    assert code == 0, err
    code, out, err = cli([*sleeps(0.02, 0.03)], *common)
    assert code == 0, err
    assert "3 candidates known from earlier runs" in err
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


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A folder with tune.db, that holds one schedule of gmm for one thread."""
    from schedule import Schedule
    from search.measure import Measurement
    from search.measure.reference import NamedWorkload
    from search.records import Records
    from search.task import Task

    monkeypatch.chdir(tmp_path)
    func = workloads.make("gmm", (7, 13, 109)).func
    s = Schedule(func)
    s.split("j", [None, 4])
    with Records("tune.db") as records:
        number = records.start(Task.of(func, "llvm -num-cores 1", workload=NamedWorkload("gmm", (7, 13, 109))))
        candidate = Candidate("s0", (4,), s.trace.as_json())
        records.add(number, Measurement(candidate, "ok", (0.5, 0.25, 0.125), max_error=1e-7))
    return tmp_path


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


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["list"], "list needs --records FILE"),
        (["--records", "none.db", "list"], "--records: there is no records file none.db"),
        (["--records", "text", "list"], "--records: text is not a records file, or is damaged: file is not a database"),
        (["gmm", "--records", "text"], "--records: text is not a records file, or is damaged: file is not a database"),
        (["gmm", "--records", "."], "--records: . is a directory"),
        (["--records", "tune.db", "list", "gmm"], "list takes no further words, got gmm"),
        (["--records", "tune.db", "lst", "gmm"], "one workload was expected, got lst gmm; did you mean list?"),
        (["--records", "tune.db", "best", "gmm", "mlp"], "best takes one workload, got gmm mlp"),
        (["--records", "tune.db", "best", "--shape", "7,7,7"], "best without a workload lists all; --shape needs one"),
        (["--records", "tune.db", "best", "gmm", "--trials", "3"], "--trials does not go with best, which takes --records"),
        (["--records", "tune.db", "import"], "import takes the files that export wrote"),
        (["--records", "tune.db", "import", "none.jsonl"], "import: cannot read none.jsonl: No such file or directory"),
        (["--records", "tune.db", "import", "text"], "import: text: line 1 is not JSON"),
        (["--records", "tune.db", "import", "tune.db"], "import: tune.db is not text; what export wrote was expected"),
        (["--records", "tune.db", "export", "tune.db"], "export: tune.db is the records file itself"),
        (["--records", "tune.db", "export", "a", "b"], "export takes one file, got a b"),
        (["--records", "tune.db", "prune", "--keep", "-1"], "argument --keep: an integer of at least 0 was expected, got '-1'"),
        (["gmm", "--keep", "3"], "--keep does not go with a workload"),
        (["gmm", "--sketches", "--apply", "x"], "--apply and --sketches don't go together; one thing at a time"),
        (["gmm", "--sketches", "--model", "none"], "--model does not go with --sketches, which takes --shape"),
        (["--list", "--trials", "3"], "--trials does not go with --list, which takes --json, --quiet"),
        (["--apply", "x", "--report", "y.html"], "--report does not go with --apply"),
        (["--sketches"], "name a workload: mlp"),
        (["gmm", "--model", "xgb"], "argument --model: invalid choice: 'xgb'"),
        (["gmm", "--report", "no/such/report.html"], "--report: cannot write to the folder"),
    ],
)
def test_bad_combinations_say_what_goes_together(argv, message, recorded, capsys):
    Path("text").write_text("no records\n" * 50)
    before = Path("tune.db").read_bytes()
    assert run(*argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err and "Traceback" not in captured.err
    assert Path("tune.db").read_bytes() == before and not Path("none.db").exists()


def test_the_live_table_shows_the_search():
    import io

    from rich.console import Console

    from search.measure import Measurement
    from search.task import Task
    from search.tuning.events import Measured, Prepared, RoundEnded, Started

    task = Task.of(workloads.make("gmm", (7, 13, 109)).func, "llvm")
    progress = tune.LiveProgress(io.StringIO())
    try:
        progress(Started(task, 10, 100.0))
        candidate = Candidate("fake", (), None)
        progress(Prepared(Measurement(candidate, "ok", (1.0,)), 0.02, 2 * task.flop / 0.01, 3, 7))
        counts = {"ok": 4, "crash": 1}
        progress(Measured(Measurement(candidate, "ok", (0.01,)), 5, counts, 0.01))
        progress(RoundEnded(5, counts, 0.01, 3.0, 0.75, 123456.7))
        shown = io.StringIO()
        Console(file=shown, width=120).print(progress.render())
    finally:
        progress.close()
    rows = [line.split(None, 1) for line in shown.getvalue().splitlines()]
    assert [row[1].strip() for row in rows[:4]] == [
        "searching",
        "5 of 10: 4 valid; failed: 1 crash",
        f"10 ms, {task.flop / 0.01 / 1e9:.1f} GFLOP/s (50% of peak), 2.00 x numpy",
        "rank correlation 0.75, 123,457 scored/s",
    ]
    assert rows[4][0] == "time" and rows[4][1].strip().endswith(" s left")


# --- with the real search ----------------------------------------------------------------------------------------------


def test_a_real_run_with_records_and_a_report(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("codegen.peak.copy_bandwidth", lambda target, threads: 5e10)
    common = ("gmm", "--shape", SHAPE, "--threads", "1", "--records", "tune.db", "--json", "--quiet")
    assert run(*common, "--trials", "4", "--search", "random", "--model", "tile", "--space", "ansor", "--report", "r.html") == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["trials"] == result["outcomes"]["ok"] == 4 and "how the search went: r.html" in captured.err
    assert re.search(r"sketch \d", Path("r.html").read_text(encoding="utf-8"))
    assert run("--records", "tune.db", "best", "gmm", "--shape", SHAPE, "--threads", "1", "--json") == 0
    best = json.loads(capsys.readouterr().out)
    assert best["found"] == "hit" and best["seconds"] == pytest.approx(result["seconds"]["best"], rel=0.2)
    monkeypatch.setattr("search.report.available", lambda: False)
    assert run(*common, "--report", "r.html") == 2
    assert "--report draws with matplotlib, which is not installed: pip install" in capsys.readouterr().err


PROGRAMS = """
from tir import te
from tir.script import tir as T

a = te.placeholder((7, 13), name="A")
doubled = te.create_prim_func([a, te.compute((7, 13), lambda i, j: a[i, j] * 2.0, name="B")], name="doubled")


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


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["mine.py"], "one function was expected, but mine.py has doubled, beyond, open_size; mine.py:NAME takes one of several"),
        (["mine.py:a"], "there is no function 'a': mine.py has doubled, beyond, open_size"),
        (["mine.py:open_size"], "mine.py:open_size: a dimension of A is symbolic"),
        (["mine.py:beyond", "--trials", "1"], "mine.py:beyond is not well formed: "),
        (["mine.py:doubled", "--shape", "7,13"], "--shape goes with a workload; the function in mine.py:doubled has the sizes"),
        (["none.py"], "cannot read a function from none.py: [Errno 2] No such file or directory"),
        (["bad.py"], "cannot read a function from bad.py: '(' was never closed (bad.py, line 1)"),
        (["empty.py"], "one function was expected, but empty.py has none that te.create_prim_func or @T.prim_func made"),
    ],
)
def test_a_file_without_the_function_asked_for_says_what_it_has(argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, text in (("mine", PROGRAMS), ("bad", "x = (\n"), ("empty", "x = 1\n")):
        Path(f"{name}.py").write_text(text)
    assert run(*argv) == 2
    assert message in capsys.readouterr().err


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


def test_a_program_that_was_stopped_is_compared_all_the_same():
    rows = [("unscheduled", None), ("best found", 0.02), ("numpy", 0.04)]
    assert timings(rows, 4 * 10**9, None, stopped=2.5).splitlines()[1:] == [
        "unscheduled       > 2.5 s     < 1.60",
        "best found          20 ms     200.00        -     > 125     2.00",
        "numpy               40 ms     100.00        -      > 62     1.00",
    ]


def test_candidates_are_listed_by_the_rules_that_made_them():
    def ended(sketch: str, seconds: float) -> Measurement:
        return Measurement(Candidate(sketch, (), None), "ok" if seconds else "crash", (seconds,) if seconds else ())

    tried = (ended("sketch 0", 0.003), ended("sketch 1", 0.0), ended("sketch 0", 0.002))
    result = SimpleNamespace(measurements=tried, rules={"sketch 0": ("B: inline", "C: strips"), "sketch 1": ("C: skip",)})
    assert sketches(result) == [
        "candidates of trials   ok       best  made by",
        "sketch 0           2    2       2 ms  B: inline; C: strips",
        "sketch 1           1    0          -  C: skip",
    ]
    assert sketches(SimpleNamespace(measurements=(), rules={})) == []
