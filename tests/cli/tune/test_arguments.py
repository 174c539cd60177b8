"""Bad input never ends in a traceback, and says what was expected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.tune.commands import ROOT, run
from tir import tune


@pytest.mark.parametrize(("argv", "message"), [
    ([], "name a workload to tune: mlp, gmm"),
    (["gmmm"], "no workload is named 'gmmm'; did you mean gmm? there are: mlp, gmm"),
    (["gmm", "--shape", "7,13"], "gmm takes 3 or 4 sizes M,K,N[,batch] (got 2: 7,13)"),
    (["gmm", "--shape", "7,x,3"], "--shape takes integers separated by commas, M,K,N[,batch]; got '7,x,3'"),
    (["gmm", "--shape", "7,0,3"], "gmm: K"),
    (["gmm", "--shape", "7,3," + "9" * 20], "does not fit int64"),
    (["gmm", "--shape", "9" * 12 + ",1," + "9" * 12], "does not fit into the memory of this machine"),
    (["gmm", "--target", "lvm"], "--target: target 'lvm': the first word must be one of llvm, cuda"),
    (["gmm", "--target", "llvm -num-cores x"], "--target: target option num_cores must be an integer"),
    (["gmm", "--trials", "0"], "argument --trials: expected a positive integer, got '0'"),
    (["gmm", "--threads", "-1"], "argument --threads: expected a positive integer, got '-1'"),
    (["gmm", "--threads", "1000000"], "argument --threads: expected at most"),
    (["gmm", "--shape", "-7,13,5"], "argument --shape: expected one argument; where it begins with -, write --option=value"),
    (["gmm", "--shape=-7,13,5"], "--shape takes integers separated by commas, M,K,N[,batch]; got '-7,13,5'"),
    (["gmm", "--model", "forest"],
     "--model: no model is named 'forest'; there are: pretrained, gbdt, pack-sum, tile, random, none"),
    (["--records", "tune.db", "import", "no.jsonl"], "import: cannot read no.jsonl: No such file or directory"),
    (["gmm", "--seed", str(1 << 63)], "argument --seed: expected an integer below 2**63, got '9223372036854775808'"),
    (["gmm", "--seed", "x"], "argument --seed: expected an integer of at least 0, got 'x'"),
    (["gmm", "--timeout", "nan"], "argument --timeout: expected a positive number of seconds, got 'nan'"),
    (["gmm", "--seconds", "0"], "argument --seconds: expected a positive number of seconds, got '0'"),
    (["gmm", "--trial", "3"], "unrecognized arguments: --trial"),
    (["gmm", "--out", "no/such/folder/best.json"], "--out: cannot write to the folder"),
    (["gmm", "--out", "."], "--out: . is a directory"),
    (["--apply", "no.json"], "--apply: cannot read no.json: No such file or directory"),
])  # fmt: skip
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


@pytest.mark.parametrize(("argv", "message"), [
    (["list"], "list needs --records FILE"),
    (["--records", "none.db", "list"], "--records: records file none.db does not exist"),
    (["--records", "text", "list"], "--records: text is not a records file, or is damaged: file is not a database"),
    (["gmm", "--records", "text"], "--records: text is not a records file, or is damaged: file is not a database"),
    (["gmm", "--records", "."], "--records: . is a directory"),
    (["gmm", "--quick", "--trials", "3"], "--quick has a policy and a budget of its own; leave out --trials, or --quick"),
    (["net.onnx", "--quick"], "--quick does not go with a network"),
    (["--records", "tune.db", "list", "gmm"], "list takes no further words, got gmm"),
    (["--records", "tune.db", "lst", "gmm"], "expected one workload, got lst gmm; did you mean list?"),
    (["--records", "tune.db", "best", "gmm", "mlp"], "best takes one workload, got gmm mlp"),
    (["--records", "tune.db", "best", "--shape", "7,7,7"], "best without a workload lists all; --shape needs one"),
    (["--records", "tune.db", "best", "gmm", "--trials", "3"], "--trials does not go with best, which takes --records"),
    (["--records", "tune.db", "import"], "import takes the files that export wrote"),
    (["--records", "tune.db", "import", "none.jsonl"], "import: cannot read none.jsonl: No such file or directory"),
    (["--records", "tune.db", "import", "text"], "import: text: line 1 is not JSON"),
    (["--records", "tune.db", "import", "tune.db"], "import: tune.db is not text; expected the output of export"),
    (["--records", "tune.db", "export", "tune.db"], "export: tune.db is the records file itself"),
    (["--records", "tune.db", "export", "a", "b"], "export takes one file, got a b"),
    (["--records", "tune.db", "prune", "--keep", "-1"], "argument --keep: expected an integer of at least 0, got '-1'"),
    (["gmm", "--keep", "3"], "--keep does not go with a workload"),
    (["gmm", "--sketches", "--apply", "x"], "--apply and --sketches don't go together; one thing at a time"),
    (["gmm", "--sketches", "--model", "none"], "--model does not go with --sketches, which takes --shape"),
    (["--list", "--trials", "3"], "--trials does not go with --list, which takes --json, --quiet"),
    (["--apply", "x", "--report", "y.html"], "--report does not go with --apply"),
    (["--sketches"], "name a workload: mlp"),
    (["gmm", "--model", "xgb"], "--model: no model is named 'xgb'; there are: pretrained, gbdt, pack-sum, tile, random, none"),
    (["gmm", "--report", "no/such/report.html"], "--report: cannot write to the folder"),
])  # fmt: skip
def test_bad_combinations_say_what_goes_together(argv, message, recorded, capsys):
    Path("text").write_text("no records\n" * 50)
    before = Path("tune.db").read_bytes()
    assert run(*argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err and "Traceback" not in captured.err
    assert Path("tune.db").read_bytes() == before and not Path("none.db").exists()


def test_help_needs_no_compiler():
    code = "import sys, tir.tune\ntry:\n tir.tune.main(['--help'])\nexcept SystemExit:\n pass\n"
    code += "print([m for m in sys.modules if 'llvm' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.endswith("[]\n") and "--shape" in ran.stdout


@pytest.mark.parametrize(
    ("closed", "status", "said"),
    [(">&-", 0, ""), ("2>&-", 2, ""), (">/dev/full", 1, "error: the output cannot be written: No space left on device")],
)
def test_output_that_goes_nowhere_is_no_traceback(closed, status, said):
    word = "--list" if status != 2 else "nothing-such"
    command = f"{sys.executable} -m tir.tune {word} {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == status and said in done.stderr and "Traceback" not in done.stderr


INTERRUPTED = """
from cli.process import guarded, leave

def run():
    print("begun")
    raise KeyboardInterrupt

leave(guarded("prog", run))
"""


def test_an_interrupted_run_whose_reader_has_gone_is_no_traceback():
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTED], stdout=pipe, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
    assert (done.returncode, done.stderr) == (130, "\ninterrupted\n")


def test_a_terminal_without_the_letters_shows_question_marks():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "tir.tune", "--list"], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mlp               F = exp(A?B)?E: two matrix products")
