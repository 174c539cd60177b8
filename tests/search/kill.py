"""Kills tuning runs with SIGKILL at random moments, and checks that their records file opens, that nothing recorded is lost, and
that the next run goes on: `python -m tests.search.kill --kills 10`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SHAPE = (7, 13, 109)
TARGET = "llvm -num-cores 1"
LAST = 5  # trials of the run that is left to end
LATEST = 2.5  # seconds from the first candidate to the kill, at most


@dataclass(frozen=True)
class Summary:
    """How many runs were `killed`; how many candidates callbacks had been told of (`logged`) and were found (`recorded`)
    afterwards; of how many the last run was told (`resumed`), and how many `trials` it made."""

    killed: int
    logged: int
    recorded: int
    resumed: int
    trials: int


def child(directory: Path, trials: int, seed: int) -> None:
    """A tuning run of made-up candidates, that writes a line to a log for each it is told of."""
    from search.measure import Candidate, Limits
    from search.measure.reference import NamedWorkload
    from search.tuning.autotune import autotune
    from search.tuning.events import Measured
    from tir import workloads

    class Endless:
        def propose(self, n, rng):
            return [Candidate("fake", (), {"sleep": 0.001 + 0.004 * rng.random(), "n": rng.random()}) for _ in range(n)]

        def update(self, measurements):
            pass

    log = (directory / "log").open("a")

    def write(event):
        if isinstance(event, Measured):
            print(json.dumps(event.measurement.candidate.trace), file=log, flush=True)

    result = autotune(
        workloads.make("gmm", SHAPE).func, TARGET, trials, search=Endless(), first=(), builder="fake_builder", seed=seed,
        limits=Limits(min_seconds=0.0, min_runs=1, race=0.1), workload=NamedWorkload("gmm", SHAPE), workers=1, callbacks=[write],
        records=directory / "tune.db",
    )  # fmt: skip
    print(json.dumps({"resumed": result.earlier, "trials": result.trials}))


def start(directory: Path, trials: int, seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.search.kill", "--child", str(directory), str(trials), str(seed)]
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)


def lines(path: Path) -> list[str]:
    """The whole lines of a file; the last may have been cut off."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def killed_runs(directory: Path, kills: int, seed: int) -> Summary:
    """Kill `kills` runs on one file, let another end; AssertionError where something is lost."""
    from search.keys import key
    from search.records import Records
    from tir import workloads

    rng = np.random.default_rng(seed)
    own = key(workloads.make("gmm", SHAPE).func)
    log, database = directory / "log", directory / "tune.db"

    def recorded() -> list[str]:
        with Records(database, create=False) as records:
            return [json.dumps(r.measurement.candidate.trace) for r in records.of(own, TARGET)]

    before: list[str] = []
    for n in range(kills):
        known = len(lines(log))
        process = start(directory, 10**6, seed=seed + n)
        deadline = time.monotonic() + 60
        while len(lines(log)) == known and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(LATEST * rng.random() ** 2)
        assert process.poll() is None, "the run ended before it was killed"
        process.kill()
        process.communicate()
        found = recorded()
        assert found[: len(before)] == before, "candidates of earlier runs are missing"
        missing = set(lines(log)) - set(found)
        assert not missing, f"{len(missing)} recorded candidates are lost: {sorted(missing)[:3]}"
        assert len(found) > len(before), "nothing was recorded"
        before = found
    process = start(directory, LAST, seed=seed + kills)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, "the resumed run failed"
    last = json.loads(out.splitlines()[-1])
    logged = len(lines(log)) - last["trials"]
    return Summary(kills, logged, len(before), last["resumed"], last["trials"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.search.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=10, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(Path(args.child[0]), int(args.child[1]), int(args.child[2]))
        return
    with tempfile.TemporaryDirectory() as directory:
        print(killed_runs(Path(directory), args.kills, args.seed))


if __name__ == "__main__":
    main()
