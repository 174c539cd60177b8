"""Look-up of the best recorded schedule of a function: a hit, a near hit or a miss, with the reason."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from codegen.target import Target
from schedule import Schedule, ScheduleError, replay_json
from tir.ir import PrimFunc, need_func
from tir.nearest import near_file
from tir.notices import degraded

from ..keys import key
from ..measure.provenance import device
from ..task import target_text
from .database import FaultyRecord, Record, Records, Summary

MAX_TITLES = 5  # of recorded functions in a message


class NoRecord(LookupError):
    """No schedule of this function is recorded; the message lists the recorded functions."""


class NearHit(UserWarning):
    """The schedule was recorded for another target or on another processor: it is correct here, but may not be fast."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The result of a look-up, and why: a `near` hit is for another target or processor, a `miss` has no record."""

    kind: Literal["hit", "near", "miss"]
    record: Record | None
    why: str


def look_up(func: PrimFunc, target: str | Target, records: Records) -> Lookup:
    """The best record of `func` for `target` on this processor, or else the nearest one.

    Nearness compares, in this order, the target, the number of threads, the processor and the time. Records whose schedules do
    not apply are skipped, with the warning FaultyRecord.
    """
    target, own = Target(target), key(func)
    asked = f"{func.name} for {target} on {device(target)}"
    record = _applicable(func, records, own, records.fingerprint(target))
    if record is not None:
        return Lookup("hit", record, f"{records.path} has {asked}: {record.seconds:.3e} s")
    summaries = records.summaries()
    here = [s for s in summaries if s.workload == own]
    alike = [s for s in here if s.target.split()[:1] == [target.kind]]  # another machine's target may be invalid here
    near = [s for s in alike if s.best is not None]
    if near:
        text = target_text(target)
        nearest = max(near, key=lambda s: (s.target == text, s.threads == target.num_cores, s.cpu == device(target), s.last))
        found = _applicable(func, records, own, nearest.fingerprint)
        return Lookup("near", found, f"{records.path} has no {asked}; the nearest is for {nearest.target} on {nearest.cpu}")
    why = f"{records.path} has no {asked}: "
    if here:
        tried = ", ".join(f"{s.records} candidates for {s.target}" for s in alike or here)
        fault = "but none is valid and checked" if alike else f"but schedules are of no use from there to {target.kind}"
        return Lookup("miss", None, f"{why}there are {tried}, {fault}")
    if others := records.near(func, own):
        return Lookup("miss", None, f"{why}it is recorded for other shapes only: {_listed(others)}")
    return Lookup("miss", None, f"{why}{f'there are {_listed(summaries)}' if summaries else 'it has no records'}")


def _applicable(func: PrimFunc, records: Records, key: str, fingerprint: str) -> Record | None:
    """The best record whose schedule applies to the function, else the best of all."""
    faulty: list[tuple[Record, NoRecord]] = []
    for record in records.ranking(key, fingerprint):
        try:
            _replayed(func, record)
        except NoRecord as error:
            faulty.append((record, error))
            continue
        for other, reason in faulty:
            warnings.warn(f"{records.path}: the candidate {other.id} is left out: {reason}", FaultyRecord, stacklevel=4)
        return record
    return faulty[0][0] if faulty else None


def _listed(summaries: list[Summary]) -> str:
    titles = list(dict.fromkeys(s.title for s in summaries))
    more = f" and {len(titles) - MAX_TITLES} more" if len(titles) > MAX_TITLES else ""
    return "; ".join(titles[:MAX_TITLES]) + more


def best_schedule(func: PrimFunc, target: str | Target = "llvm", *, records: str | Path | Records) -> Schedule:
    """The fastest recorded schedule of `func` for `target`, replayed on it.

    `records` is the file that `autotune(records=...)` wrote, or an open one. Without a record for this target and processor,
    the nearest one is used, with the warning `NearHit`. Without any, as for a function of other shapes, NoRecord (a LookupError)
    lists the recorded functions; `tir.default_schedule` needs no record. RecordsError for a file that is damaged or of another
    kind.
    """
    func = need_func(func, "best_schedule")
    if isinstance(records, (str, Path)) and not Path(records).exists():
        raise NoRecord(f"no schedule of {func.name}: records file {records} does not exist{near_file(records) or _HINT}")
    with opened(records) as known:
        assert known is not None  # the file exists
        found = look_up(func, target, known)
    schedule = recorded_schedule(func, found)
    if found.kind == "near":
        warnings.warn(f"not tuned for this target: {found.why}", NearHit, stacklevel=2)
    return schedule


_HINT = "; tir.autotune(..., records=...) makes records, tir.default_schedule needs none"


@contextmanager
def opened(records: str | Path | Records | None) -> Iterator[Records | None]:
    """Open the records of a file, and close them at the end; open ones stay open. None, with a warning, for a missing file."""
    if records is None or isinstance(records, Records):
        yield records
    elif isinstance(records, (str, Path)) and not Path(records).exists():
        degraded(f"records file {records} does not exist: default schedules are used{near_file(records)}")
        yield None
    else:
        with Records(records, create=False) as found:
            yield found


def recorded_schedule(func: PrimFunc, found: Lookup) -> Schedule:
    """The schedule of `func` that a look-up found, replayed on it. NoRecord for a miss, or if it does not apply."""
    if found.record is None:
        raise NoRecord(f"no schedule of {func.name}: {found.why}{_HINT}")
    return _replayed(func, found.record)


def _replayed(func: PrimFunc, record: Record) -> Schedule:
    """The schedule of a record. NoRecord if it does not apply to the function."""
    try:
        return replay_json(func, record.measurement.candidate.trace)
    except (ScheduleError, ValueError) as error:
        made = ", ".join(f"{name} {version}" for name, version in record.versions.items())
        raise NoRecord(
            f"no schedule of {func.name}: the best record, made with {made}, does not apply any more: {error}"
        ) from None
