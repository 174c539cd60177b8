"""Tuning runs in which everything goes wrong: `python -m tests.search.faults --kills 10`.

On one records file, runs measure candidates that crash, hang, take all memory or give wrong answers, beside good ones. Each run is
killed with SIGKILL at a random moment, and then a row of its file is spoilt. One run finds the disk full. Nothing that was
recorded may be lost, and the last run, which is left to end, must name the right winner.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SHAPE = (61, 131, 109)
TARGET = "llvm -num-cores 1 -l1 32768 -l2 524288 -l3 16777216"  # as the processes find it too that `--host` does not reach
LAST = 6  # trials of the runs that are left to end
LATEST = 4.0  # seconds from the first candidate to the kill, at most
LANES = 16  # of the fastest candidate; other good ones sleep, so that no clock takes them for it
FAULTS = ("segfault", "loop", "fork_and_loop", "allocate", "wrong", "compiler_hangs", "nothing")

STALE = {"version": 1, "steps": [{"name": "split", "args": {"loop": "nowhere", "factors": [None, 4]}, "results": []}]}
LIE = {"version": 1, "steps": [{"name": "unroll", "args": {"loop": "i"}, "results": []}]}  # slow, and said to be fast
POISON: tuple[dict[str, Any], ...] = (  # columns of a recorded candidate that are spoilt, in turn
    {"trace": json.dumps(STALE), "seconds": 1e-12, "samples": "[1e-12]"},
    {"trace": json.dumps(LIE), "seconds": 1e-12, "samples": "[1e-12]"},
    {"trace": "{"},
    {"trace": "[" * 100_000},
    {"seconds": -1.0},
    {"seconds": "fast"},
    {"samples": "[NaN]"},
    {"row": "[99999999999999999999]"},
    {"row": '["4"]'},
    {"outcome": "fine"},
    {"time": b"\xff"},
)


@dataclass(frozen=True)
class Summary:
    """How many runs were `killed`; of how many candidates callbacks were told (`logged`), and how many were `recorded` at the
    end; how many rows were `spoilt`; the recorded `outcomes`, and what was not recorded for lack of space (`unrecorded`)."""

    killed: int
    logged: int
    recorded: int
    spoilt: int
    unrecorded: int
    outcomes: dict[str, int]


# --- a run ---------------------------------------------------------------------------------------------------------------


def tiled(factor: int):
    """Columns in vectors of `factor`."""
    from schedule import Schedule
    from search.measure import Candidate
    from tir import workloads

    s = Schedule(workloads.make("gmm", SHAPE).func)
    i, j, k = s.get_loops("C")
    jo, ji = s.split(j, [None, factor])
    s.reorder(i, jo, k, ji)
    s.vectorize(ji)
    return Candidate("tiles", (factor,), s.trace.as_json())


class Endless:
    """Proposes the good candidates, and ones that misbehave, no two the same; or, as `large` records, ones that do not. In a run
    that is left to `end`, the good ones come first."""

    def __init__(self, seed: int, large: bool, end: bool):
        from search.measure import Candidate

        fastest = tiled(LANES)
        self.good = [Candidate("sleeps", (n,), {"fault": "sleeps", "of": fastest.trace, "directory": str(n)}) for n in (0, 1)]
        self.good.append(fastest)
        self.slow, self.large, self.seed, self.count = tiled(1).trace, large, seed, 0
        self.often = 1.0 if end and not large else 0.4

    def propose(self, n, rng):
        from search.measure import Candidate

        found = []
        for _ in range(min(n, 4)):
            self.count += 1
            kind = "nothing" if self.large else FAULTS[int(rng.integers(len(FAULTS)))]
            trace = {
                "fault": kind,
                "of": self.slow,
                "directory": f"{self.seed} {self.count}",
                "size": "large " * 2000 * self.large,
            }
            found.append(self.good.pop(0) if self.good and rng.random() < self.often else Candidate(kind, (), trace))
        return found

    def update(self, measurements):
        pass


def child(directory: Path, trials: int, seed: int, full: bool) -> None:
    """A run that writes a line to a log for each candidate it is told of, and at its end its result as JSON."""
    from search.measure import Limits
    from search.measure.reference import NamedWorkload
    from search.records import Records
    from search.tuning.autotune import autotune
    from search.tuning.events import Measured
    from tir import workloads

    log = (directory / "log").open("a")
    instance = workloads.make("gmm", SHAPE)

    with Records(directory / "tune.db") as records:

        def write(event):
            if isinstance(event, Measured) and not full:
                print(json.dumps(event.measurement.candidate.trace), file=log, flush=True)
            elif isinstance(event, Measured):
                (pages,) = records._connection.execute("PRAGMA page_count").fetchone()
                records._connection.execute(f"PRAGMA max_page_count = {pages}")

        result = autotune(
            instance.func, TARGET, trials, policy=Endless(seed, full, trials == LAST), first=(), builder="faulty_builder", seed=seed, workers=2,
            limits=Limits(build=5.0, run=1.0, run_floor=0.4, min_seconds=0.01, race=0.2, memory=1 << 30),
            workload=NamedWorkload("gmm", SHAPE), callbacks=[write], records=records,
        )  # fmt: skip
    inputs, outputs = instance.inputs(np.random.default_rng(seed)), instance.outputs()
    result.kernel(*inputs, *outputs)
    right = bool(instance.check(outputs, inputs).ok and result.max_error <= result.tolerance)
    found = {"trace": result.trace, "right": right, "resumed": result.earlier, "trials": result.trials}
    print(json.dumps({**found, "problem": result.problem}))


def start(directory: Path, trials: int, seed: int, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.search.faults", "--child", str(directory), str(trials), str(seed), *options]
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    return subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The result of a run that is left to end."""
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, f"a run failed:\n{errors[-2000:]}"
    return json.loads(out.splitlines()[-1])


# --- many runs -----------------------------------------------------------------------------------------------------------


def lines(path: Path) -> list[str]:
    """The whole lines of a file; the last may have been cut off."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def spoil(database: Path, columns: dict[str, Any]) -> None:
    """Add a row like the first valid one, but for these columns."""
    connection = sqlite3.connect(database)
    connection.row_factory = sqlite3.Row
    with connection:
        row = connection.execute("SELECT * FROM candidates WHERE outcome = 'ok' AND max_error IS NOT NULL LIMIT 1").fetchone()
        values = {**dict(row), "id": uuid.uuid4().hex, "sketch": "poison", "time": time.time(), **columns}
        connection.execute(
            f"INSERT INTO candidates ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", [*values.values()]
        )
    connection.close()


def faulty_runs(directory: Path, kills: int, seed: int) -> Summary:
    """Kill `kills` runs on one file, spoil a row after each, let one run with a full disk and a last one end; AssertionError
    where something is lost, or the last has another winner."""
    import warnings

    from search.keys import key
    from search.records import FaultyRecord, Records
    from tir import workloads

    rng = np.random.default_rng(seed)
    own = key(workloads.make("gmm", SHAPE).func)
    log, database = directory / "log", directory / "tune.db"

    def recorded() -> list[str]:
        with Records(database, create=False) as records:
            found = [r.measurement.candidate for r in records.of(own, TARGET)]
        return [json.dumps(c.trace) for c in found if c.sketch != "poison"]

    def has_valid() -> bool:
        """Whether there is a row to spoil."""
        with Records(database, create=False) as records:
            return any(r.first.outcome == "ok" and r.first.max_error is not None for r in records.of(own, TARGET))

    def need_all(before: list[str], logged: list[str]) -> list[str]:
        found = recorded()
        assert found[: len(before)] == before, "candidates of earlier runs are missing"
        missing = set(logged) - set(found)
        assert not missing, f"{len(missing)} recorded candidates are lost: {sorted(missing)[:3]}"
        return found

    before: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FaultyRecord)
        for n in range(kills):
            known = len(lines(log))
            process = start(directory, 10**6, seed + n)
            deadline = time.monotonic() + 300
            while (len(lines(log)) == known or not has_valid()) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(LATEST * rng.random() ** 2)
            assert process.poll() is None, f"the run ended before it was killed:\n{process.communicate()[1][-2000:]}"
            process.kill()
            process.communicate()
            found = need_all(before, lines(log))
            assert len(found) > len(before), "nothing was recorded"
            before = found
            spoil(database, POISON[n % len(POISON)])
        short = ended(start(directory, LAST, seed + kills, "--full"))
        assert short["problem"].startswith("not all was recorded: ") and short["problem"].endswith("disk is full"), short[
            "problem"
        ]
        assert short["right"], "the winner of the run with a full disk computes something else"
        before = need_all(before, lines(log))
        last = ended(start(directory, LAST, seed + kills + 1))
        found = need_all(before, lines(log))
        best = tiled(LANES).trace
        assert last["right"] and last["trace"] == best, f"the winner is {last['trace']}"
        with Records(database, create=False) as records:
            winner = records.best(own, TARGET)
            assert winner is not None and winner.measurement.candidate.trace == best, "the records have another winner"
            outcomes = Counter(
                r.measurement.outcome for r in records.of(own, TARGET) if r.measurement.candidate.sketch != "poison"
            )
    return Summary(kills, len(lines(log)), len(found), kills, short["trials"], dict(outcomes))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.search.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=10, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--full", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(Path(args.child[0]), int(args.child[1]), int(args.child[2]), args.full)
        return
    with tempfile.TemporaryDirectory() as directory:
        print(faulty_runs(Path(directory), args.kills, args.seed))


if __name__ == "__main__":
    main()
