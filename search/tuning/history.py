"""The trials of a run as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..measure import Measurement

if TYPE_CHECKING:
    from pandas import DataFrame

FIELDS = (
    "trial", "sketch", "row", "operator", "batch", "generation", "parents", "outcome", "seconds", "pace", "best", "gflops",
    "ended",
)  # fmt: skip


class History(list[dict[str, Any]]):
    """A row for each trial, as a dict of the columns FIELDS, `score NAME` for each model, and `message`.

    `parents` are the nearest ancestors among the trials of this run. `seconds` is None for a failure; it is divided by `pace`,
    how many times as slow the machine was. `best` is in seconds, of the fastest checked trial so far; `ended` is in seconds
    since the start of the run.
    """

    def frame(self) -> DataFrame:
        """The table as a pandas frame; ModuleNotFoundError without pandas."""
        from pandas import DataFrame

        return DataFrame(list(self), columns=[*self[0]] if self else [*FIELDS, "message"]).set_index("trial")


def history(measurements: Sequence[Measurement], flop: int) -> History:
    """The table of the trials of a run, in order."""
    models = dict.fromkeys(name for m in measurements for name in m.candidate.scores or ())
    trials = first_trials(measurements)
    found, best = History(), None
    for n, m in enumerate(measurements, 1):
        seconds = m.seconds if m.outcome == "ok" else None
        if seconds is not None and m.max_error is not None:
            best = seconds if best is None else min(best, seconds)
        origin = m.candidate.origin
        born = (None, None, None) if origin is None else (origin.operator, origin.batch, origin.generation)
        values = (
            n, m.candidate.sketch, m.candidate.row, *born, parents(m, trials),
            m.outcome, seconds, m.pace, best, flop / seconds / 1e9 if seconds and flop else None, m.ended,
        )  # fmt: skip
        scores = {f"score {name}": (m.candidate.scores or {}).get(name) for name in models}
        found.append(dict(zip(FIELDS, values, strict=True)) | scores | {"message": m.message})
    return found


def first_trials(measurements: Sequence[Measurement]) -> dict[tuple[str, tuple[int, ...]], int]:
    """The number, from 1, of the first trial of each sketch and row."""
    return {(m.candidate.sketch, m.candidate.row): n for n, m in reversed([*enumerate(measurements, 1)])}


def parents(m: Measurement, trials: dict[tuple[str, tuple[int, ...]], int]) -> tuple[int, ...]:
    """The nearest ancestors of a candidate among `trials`, which are by sketch and row."""
    found: dict[int, None] = {}
    left = [] if m.candidate.origin is None else [*m.candidate.origin.parents]
    while left:
        parent = left.pop(0)
        if (number := trials.get((m.candidate.sketch, parent.row))) is not None:
            found[number] = None
        elif parent.origin is not None:
            left += parent.origin.parents
    return tuple(found)
