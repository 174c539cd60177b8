"""What was ever measured, kept in one SQLite file: a row a candidate, written as it ends.

    with Records("tune.db") as records:
        run = records.start(task, seed=0)
        records.add(run, measurement)
        record = records.best(task.key, task.target)

Any number of processes may use a file at once (write-ahead logging, short transactions), and any of them may be killed at any
moment. A file that is not a records file, or a damaged one, is one `RecordsError`, and is never written to.
"""

from .database import Record, Records, Summary
from .lookup import Lookup, NearHit, NoRecord, best_schedule, look_up, opened, recorded_schedule
from .schema import RecordsError

__all__ = [
    "Lookup", "NearHit", "NoRecord", "Record", "Records", "RecordsError", "Summary", "best_schedule", "look_up", "opened",
    "recorded_schedule",
]  # fmt: skip
