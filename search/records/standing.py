"""Which recorded candidate counts as the fastest: by its own timing, by what races found since, and by who won them."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from ..measure.outcome import BROKEN


@dataclass(frozen=True, slots=True)
class Raced:
    """What a candidate did in a race that decided something: one that somebody won, or in which the candidate broke."""

    outcome: str
    message: str
    samples: str
    max_error: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Of a candidate on a task, the pair of a workload and a fingerprint: the `seconds` by which it is compared with others
    (infinite unless it is valid), whether it was `checked` against the reference, and its last race that decided something."""

    task: tuple[str, str]
    seconds: float
    checked: bool
    raced: Raced | None

    @property
    def order(self) -> tuple[bool, float]:
        """What sorts the best first."""
        return not self.checked, self.seconds


@dataclass(frozen=True, slots=True)
class _Win:
    candidate: str
    seconds: float
    run: str
    started: float
    time: float


def standings(connection: sqlite3.Connection, where: str = "TRUE", *values: Any) -> dict[str, Standing]:
    """The standing of each candidate by its identifier, of the runs for which `where` holds, in the order measured.

    A candidate counts as its last timing that decides; but what a run knew when it held a race, its own candidates and those
    recorded before it started, does not count as faster than the winner, for the shortest timing of many is one that had luck.
    Who gave a wrong result or crashed in a race is out.
    """
    races = defaultdict(list)
    wins: dict[tuple[str, str], dict[str, _Win]] = defaultdict(dict)
    for workload, print_, race, run, started, candidate, seconds, won, time, *did in connection.execute(
        f"""SELECT workload, fingerprint, race, run, started, candidate, seconds, won, races.time, outcome, message, samples,
        max_error FROM races JOIN runs USING (run) WHERE {where} ORDER BY races.time""",
        values,
    ):
        races[candidate].append((race, seconds, time, Raced(*did)))
        if won:
            wins[workload, print_][race] = _Win(candidate, seconds, run, started, time)
    found = {}
    for identifier, run, workload, print_, outcome, seconds, max_error, time in connection.execute(
        f"""SELECT id, run, workload, fingerprint, outcome, seconds, max_error, time FROM candidates JOIN runs USING (run)
        WHERE {where} ORDER BY candidates.rowid""",
        values,
    ):
        won, added, last = wins[workload, print_], time, None
        for race, again, when, raced in races[identifier]:
            if raced.outcome in BROKEN or (raced.outcome == "ok" and race in won and outcome == "ok"):
                outcome, seconds, max_error, time, last = raced.outcome, again, raced.max_error, when, raced
        seconds = math.inf if outcome != "ok" or seconds is None else seconds
        for win in won.values():
            knew = run == win.run or added <= win.started
            if win.candidate != identifier and win.time >= time and knew and seconds <= win.seconds:
                seconds = math.nextafter(win.seconds, math.inf)
        found[identifier] = Standing((workload, print_), seconds, outcome == "ok" and max_error is not None, last)
    return found
