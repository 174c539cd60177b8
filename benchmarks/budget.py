"""What searches have used of their budgets, by their records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from search.records import Record


def used(records: Sequence[Record]) -> tuple[int, float]:
    """The candidates that were measured, and the seconds that the runs took, each until its last candidate."""
    took: dict[str, float] = defaultdict(float)
    for record in records:
        took[record.run] = max(took[record.run], record.time - record.started)
    return len(records), sum(took.values())
