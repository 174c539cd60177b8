"""What searches have used of their budgets, by their records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from search.measure.outcome import BASELINE
from search.records import Record, Records
from search.task import Task


def trials(records: Records, task: Task) -> list[Record]:
    """The measured candidates of a task; not the program as written, which is recorded where it was the fastest."""
    return [r for r in records.of(task.key, task.target) if r.measurement.candidate.sketch != BASELINE.sketch]


def used(records: Sequence[Record]) -> tuple[int, float]:
    """The candidates that were measured, and the seconds that the runs took, each until its last candidate."""
    took: dict[str, float] = defaultdict(float)
    for record in records:
        took[record.run] = max(took[record.run], record.time - record.started)
    return len(records), sum(took.values())
