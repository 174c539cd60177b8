"""Export of the records of `python -m benchmarks policies --save DIR`: python -m benchmarks.searches DIR FILE.jsonl.gz

A line is a run: its row of the table, program, shape, threads, policy, seed, processor, and its trials in order. A trial has the
name of its sketch, the values of its row, its seconds (null for a failure), its outcome, and the seconds of the run until it
ended. `read` gives the runs, `best` the seconds of the best of the first trials.

    for run in read("searches.jsonl.gz"):
        print(run["row"], run["policy"], run["seed"], best(run, 48))
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from search.records import Record, Records

from . import policies
from .budget import trials
from .options import Options


def write(folder: str | Path, file: str | Path) -> int:
    """Write all runs of a folder to a file, and return their number."""
    known = {name.replace(" ", "-"): name for name in policies.CONFIGURATIONS}
    pattern = re.compile(rf"({'|'.join(policies.TABLE)})-(\d+)-({'|'.join(known)})-(\d+)")
    count = 0
    with gzip.open(file, "wt", compresslevel=9) as out:
        for path in sorted(Path(folder, "records").glob("*.db")):
            if (named := pattern.fullmatch(path.stem)) is None:
                continue
            row, threads, policy, seed = named.groups()
            task = policies.ablation.task_of(policies.TABLE[row], Options(threads=int(threads)))
            with Records(path, create=False) as records:
                found = trials(records, task)
            program, shape = policies.TABLE[row]
            about = {"row": row, "program": program, "shape": shape, "threads": int(threads), "policy": known[policy]}
            made = [_trial(r, ended) for r, ended in zip(found, policies.ablation.stamps(found), strict=True)]
            cpu = found[0].cpu if found else ""
            out.write(json.dumps({**about, "seed": int(seed), "cpu": cpu, "trials": made}) + "\n")
            count += 1
    return count


def _trial(record: Record, ended: float) -> list[Any]:
    m = record.first
    seconds = m.seconds if math.isfinite(m.seconds) else None
    return [m.candidate.sketch, m.candidate.row, seconds, m.outcome, round(ended, 3)]


def read(file: str | Path) -> Iterator[dict[str, Any]]:
    """The runs of a file."""
    with gzip.open(file, "rt") as lines:
        yield from map(json.loads, lines)


def best(run: dict[str, Any], count: int) -> float:
    """The seconds of the best of the first `count` trials of a run; infinite without a valid one."""
    return min((seconds for _, _, seconds, _, _ in run["trials"][:count] if seconds is not None), default=math.inf)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m benchmarks.searches DIR FILE.jsonl.gz")
    print(f"{write(*sys.argv[1:])} runs in {sys.argv[2]}, {Path(sys.argv[2]).stat().st_size / 1e6:.2f} MB")
