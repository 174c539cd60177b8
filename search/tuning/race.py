"""The final race: its candidates, its winner, and its records."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from ..measure import BASELINE, BROKEN, Candidate, Measurement, Measurer
from .budget import Budget
from .events import RaceStarted
from .journal import Journal

MAX_LEADERS = 4  # candidates in the race, beside the first ones
LEADER_MARGIN = 1.15  # maximum time of a candidate in the race, relative to the best
FIRST_MARGIN = 4.0  # the same for one of the first candidates
BUSY_SLOWDOWN = 2.0  # slowdown of all candidates above which the machine counts as busy
FALSE_SLOWDOWN = 100.0  # slowdown above that of any busy machine: the recorded time of such a candidate is false

Entry = tuple[Measurement, Measurement]  # of one candidate: before the race, and in it


def race(journal: Journal, measurer: Measurer, budget: Budget, first: Sequence[Candidate]) -> None:
    """Time the leading candidates, then numpy, in turns in one process; the fastest becomes the best. If all fail, the race is
    repeated without the broken ones; if none is broken, without recorded ones. Candidates with a false time in the records are
    removed, too, and the others race again. `first` are the first candidates of the run."""
    while contenders := leaders(journal.best, journal.sound, first, journal.written if journal.found else None):
        journal.emit(RaceStarted(tuple(contenders)))
        with journal.phase("race"):
            known = journal.task.workload is not None
            comparison = measurer.compare([m.candidate for m in contenders], numpy=known, seconds=budget.race)
            journal.measure_peak(measurer)
        entries = list(zip(contenders, comparison.candidates, strict=True))
        busy = disturbed([entry for entry in entries if journal.recorded(entry[0])])
        valid = [entry for entry in entries if entry[1].outcome == "ok"]
        known_only = [(m, after) for m, after in entries if any(m is e for e in journal.earlier)]
        if false := [m for m, after in known_only if after.outcome == "ok" and after.seconds > FALSE_SLOWDOWN * m.seconds]:
            journal.discard(false)
            continue
        won = winner(valid, first) if valid else None
        journal.race = tuple(after for _, after in valid)
        journal.raced(entries, won, certain=not busy)
        journal.tied = () if won is None else tuple(tied(valid, won))
        journal.slowdown = slowdown([entry for entry in valid if not any(entry[0] is m for m in journal.earlier)])
        if comparison.numpy:
            journal.numpy = statistics.median(comparison.numpy)
        if comparison.tolerance is not None:
            journal.tolerance = comparison.tolerance
        if valid:
            journal.baseline = next((after for _, after in valid if after.candidate == BASELINE), journal.baseline)
            return
        broken = [before for before, after in entries if after.outcome in BROKEN]
        if not broken and known_only:
            broken = [*journal.earlier]
        if not broken:
            return
        journal.discard(broken)


def leaders(
    best: Measurement | None, measured: Sequence[Measurement], first: Sequence[Candidate], written: Measurement | None
) -> list[Measurement]:
    """The candidates of a race, each program once: `best`, then the fastest `measured` ones, and the program as written, if it is
    about as fast. `first` ones have the wider FIRST_MARGIN, because the machine may have been busier at the beginning. Without a
    best, only the program as written."""
    if best is None:
        return [] if written is None else [written]
    valid = sorted((m for m in measured if m.outcome == "ok"), key=lambda m: m.seconds)
    found = [best]

    def take(candidates: Sequence[Measurement]) -> None:
        for m in candidates:
            if not any(m is f or (m.digest and m.digest == f.digest) for f in found):
                found.append(m)

    take([m for m in valid if not m.cut and m.seconds <= LEADER_MARGIN * best.seconds])
    del found[MAX_LEADERS:]
    take([m for m in valid if m.seconds <= FIRST_MARGIN * best.seconds and m.candidate in first])
    known = any(m.candidate == BASELINE for m in found)  # of an earlier run
    return [*found, written] if written is not None and written.seconds <= LEADER_MARGIN * best.seconds and not known else found


def winner(raced: Sequence[Entry], first: Sequence[Candidate]) -> Entry:
    """The entry with the smallest lower quartile of times, because disturbances only make calls slower. To replace the best of
    the first candidates, it must be faster in three of four rounds, because the fastest of equal candidates is partly luck. Nor
    may it be slower in its median, which is the time that is shown."""
    fastest = min(raced, key=_lower_quartile)
    default = min((entry for entry in raced if entry[1].candidate in first), key=_lower_quartile, default=fastest)
    gains = [d / f for d, f in zip(default[1].samples, fastest[1].samples, strict=False)]
    return fastest if np.quantile(gains, 0.25) > 1 and fastest[1].seconds <= default[1].seconds else default


def tied(raced: Sequence[Entry], won: Entry) -> list[Measurement]:
    """The candidates that were as fast as the winner in a round of four, or more: the race cannot tell them from it."""
    others = (after for _, after in raced if after is not won[1])
    return [m for m in others if np.quantile([s / w for s, w in zip(m.samples, won[1].samples, strict=False)], 0.25) <= 1]


def slowdown(raced: Sequence[Entry]) -> float | None:
    """The median ratio of the time of a candidate in the race to its time in the trials: how much slower the machine became."""
    return statistics.median(after.seconds / before.seconds for before, after in raced) if raced else None


def disturbed(raced: Sequence[Entry]) -> bool:
    """True if all candidates took much longer than before, so the machine was busy."""
    return bool(raced) and all(after.seconds > BUSY_SLOWDOWN * before.seconds for before, after in raced)


def _lower_quartile(entry: Entry) -> float:
    return float(np.quantile(entry[1].samples, 0.25))
