"""Records of measured candidates in one SQLite file: a row each, written when its measurement ends.

    with Records("tune.db") as records:
        run = records.start(task, seed=0)
        records.add(run, measurement)
        record = records.best(task.key, task.target)

Several processes may use a file at once (write-ahead logging, short transactions), and each may be killed at any moment. A
damaged or foreign file raises `RecordsError` and is never written to; an invalid row is left out with the warning `FaultyRecord`.
"""

from .database import FaultyRecord, Record, Records, Summary
from .lookup import Lookup, NearHit, NoRecord, best_schedule, look_up, opened, recorded_schedule
from .schema import RecordsError

__all__ = [
    "FaultyRecord", "Lookup", "NearHit", "NoRecord", "Record", "Records", "RecordsError", "Summary", "best_schedule", "look_up",
    "opened", "recorded_schedule",
]  # fmt: skip
