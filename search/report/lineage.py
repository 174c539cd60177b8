"""The lineage of the winner: each of its ancestors, the operator that made it, and the changed numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from codegen.runtime.timing import duration
from schedule import ScheduleError, replay

from ..drawing.html import changed_lines
from ..measure import Measurement, Origin
from ..space.sketch import Sketch
from ..tuning.history import first_trials
from ..tuning.result import Result

MAX_STEPS = 40  # last steps of a line that are shown


@dataclass(frozen=True)
class Ancestor:
    """A row of the winner's line, its origin, and the number of its trial if it was measured in this run."""

    row: tuple[int, ...]
    origin: Origin | None
    trial: int | None


def winner(result: Result) -> Measurement | None:
    """The trial whose schedule is the result; None if that is of an earlier run, or the program as written."""
    return next((m for m in result.measurements if m.candidate.trace == result.trace and m.outcome == "ok"), None)


def line(result: Result) -> list[Ancestor]:
    """The rows from the first to the winner, along first parents; empty if the winner is no trial."""
    best = winner(result)
    if best is None:
        return []
    trials = first_trials(result.measurements)
    born = {(m.candidate.sketch, m.candidate.row): m.candidate.origin for m in reversed(result.measurements)}
    sketch, row, origin = best.candidate.sketch, best.candidate.row, best.candidate.origin
    found: list[Ancestor] = []
    while row not in {a.row for a in found}:
        found.append(Ancestor(row, origin, trials.get((sketch, row))))
        if origin is None or not origin.parents:
            break
        parent = origin.parents[0]
        row, origin = parent.row, parent.origin or born.get((sketch, parent.row))
    return found[::-1]


def columns(sketch: Sketch) -> list[str]:
    """A short description of each column of a sketch."""
    names = [""] * sketch.columns
    for t in sketch.tiles:
        for level, column in enumerate(t.columns, 1):
            names[column] = f"{t.block}: tile of {t.axis.removeprefix('v_')}" + (f", level {level}" if t.columns[1:] else "")
    for c in sketch.choices:
        names[c.column] = f"{c.block}: {c.name}" if c.block else c.name
    return names


def changes(sketch: Sketch, before: Sequence[int], after: Sequence[int]) -> list[tuple[str, int, int]]:
    """The columns that differ: a description, the number before, and the number after."""
    return [(name, a, b) for name, a, b in zip(columns(sketch), before, after, strict=True) if a != b]


def lineage(result: Result) -> str:
    """The line of the winner as a list, its first row at the top; empty if unknown."""
    found = line(result)[-MAX_STEPS:]
    best = winner(result)
    if not found or best is None:
        return ""
    sketch = next((s for s in result.sketches if s.name == best.candidate.sketch), None)
    return f"<ol class=lineage>{''.join(_items(result, found, sketch, best.candidate.sketch))}</ol>"


def _items(result: Result, found: Sequence[Ancestor], sketch: Sketch | None, name: str) -> Iterator[str]:
    text, before = "", None
    for a in found:
        came = "of an earlier run, or from a search of one's own" if a.origin is None else _origin_text(a.origin)
        if a.trial is None:
            became = "not measured, bred on"
        else:
            m = result.measurements[a.trial - 1]
            became = f"trial {a.trial}: {duration(m.seconds) if m.outcome == 'ok' else m.outcome}"
        new = _outline(result, sketch, a.row) if sketch is not None else ""
        if before is None or sketch is None:
            what, change = escape(name), ""
        else:
            moved = changes(sketch, before, a.row)
            what = "; ".join(f"{escape(n)} <b>{old} → {number}</b>" for n, old, number in moved) or "nothing"
            change = changed_lines(text, new)
        more = f"<details><summary>what changed in the nest</summary><pre>{change}</pre></details>" if change else ""
        yield f"<li><b>{escape(came)}</b> – {what} <span class=became>{escape(became)}</span>{more}</li>"
        text, before = new, a.row


def _origin_text(origin: Origin) -> str:
    others = f" of {len(origin.parents)} rows" if len(origin.parents) > 1 else ""
    return f"{origin.operator}{others}, batch {origin.batch}, generation {origin.generation}"


def _outline(result: Result, sketch: Sketch, row: tuple[int, ...]) -> str:
    try:
        return replay(result.task.func, sketch.trace(row)).func.outline()
    except ScheduleError as error:
        return f"refused: {str(error).splitlines()[0]}"
