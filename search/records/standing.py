"""The order of recorded candidates: by first timing, later races, and their winners."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from ..measure.outcome import BROKEN


@dataclass(frozen=True, slots=True)
class Standing:
    """The standing of a candidate among those of its `task`, a pair of a workload and a fingerprint.

    `seconds` is for comparisons, infinite unless the candidate is valid. `checked` is True if it was compared with the reference.
    `raced` is its row in its last race that had a winner or in which it failed.
    """

    task: tuple[str, str]
    seconds: float
    checked: bool
    raced: sqlite3.Row | None

    @property
    def order(self) -> tuple[bool, float]:
        """The sort key, best first."""
        return not self.checked, self.seconds


def standings(connection: sqlite3.Connection, where: str = "TRUE", *values: Any) -> dict[str, Standing]:
    """The standing of each candidate by its identifier, for the runs of the condition `where`, in the order measured.

    The last valid timing of a candidate counts. But no candidate known to a run (its own, and those recorded before its start)
    counts as faster than the winner of a race of this run. The shortest of many timings is partly luck. A candidate that crashed
    or gave a wrong result in a race is no longer valid.
    """
    races: dict[str, list[sqlite3.Row]] = defaultdict(list)
    wins: dict[tuple[str, str], dict[str, sqlite3.Row]] = defaultdict(dict)
    query = "SELECT races.*, workload, fingerprint, started FROM races JOIN runs USING (run)"
    for raced in connection.execute(f"{query} WHERE {where} ORDER BY races.time", values):
        races[raced["candidate"]].append(raced)
        if raced["won"]:
            wins[raced["workload"], raced["fingerprint"]][raced["race"]] = raced
    found = {}
    for identifier, run, workload, fingerprint, outcome, seconds, max_error, time in connection.execute(
        f"""SELECT id, run, workload, fingerprint, outcome, seconds, max_error, time FROM candidates JOIN runs USING (run)
        WHERE {where} ORDER BY candidates.rowid""",
        values,
    ):
        won, added, last = wins[workload, fingerprint], time, None
        for raced in races[identifier]:
            if raced["outcome"] in BROKEN or (raced["outcome"] == "ok" and raced["race"] in won and outcome == "ok"):
                last = raced
                outcome, seconds, max_error, time = (raced[name] for name in ("outcome", "seconds", "max_error", "time"))
        seconds = math.inf if outcome != "ok" or seconds is None else seconds
        for win in won.values():
            known = run == win["run"] or added <= win["started"]
            if win["candidate"] != identifier and win["time"] >= time and known and seconds <= win["seconds"]:
                seconds = math.nextafter(win["seconds"], math.inf)
        found[identifier] = Standing((workload, fingerprint), seconds, outcome == "ok" and max_error is not None, last)
    return found
