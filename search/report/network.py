"""How tuning a network went: which kernels take its time, before and after, as a page or as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from codegen.timing import duration
from tir.files import write_atomically

from ..measure.provenance import processor, versions
from . import network_figures as figures
from .html import document, section, table

BARS = 24  # tasks in the picture; the others are one bar
PICTURES = (".png", ".svg")  # names of files that get the picture alone
COLUMNS = ("calls", "share", "default", "tuned", "× default", "trials")


@dataclass(frozen=True, slots=True)
class TaskTime:
    """A task of a network: seconds of its `calls` in one call of the network, `before` and `after`; its `trials`."""

    label: str
    calls: int
    before: float
    after: float
    trials: int


@dataclass(frozen=True)
class NetworkReport:
    """A network that was tuned: a call of it in seconds, measured `before` and `after`; its tasks, those that took longest first;
    `curve`, what it was estimated to take after so many seconds of the run; how long the run took; the `device` that measured, if
    it was not this machine's, and then `before` and `after` are the sums of the kernels."""

    name: str
    target: str
    threads: int
    before: float
    after: float
    tasks: Sequence[TaskTime]
    curve: Sequence[tuple[float, float]]
    elapsed: float
    device: str | None = None


def write(path: str | Path, report: NetworkReport) -> None:
    """Write the report, or its picture alone where the file is named so. OSError, ModuleNotFoundError (matplotlib)."""
    place = Path(path)
    if place.suffix in PICTURES:
        write_atomically(place, figures.bars(joined(report.tasks), place.suffix[1:]))
    else:
        write_atomically(place, page(report))


def page(report: NetworkReport) -> str:
    """The report as HTML, with nothing that has to be loaded from elsewhere."""
    made = ", ".join(f"{name} {version}" for name, version in versions().items())
    trials = sum(t.trials for t in report.tasks)
    cores = f"{report.threads} thread{'s' * (report.threads > 1)}"
    where = report.device or processor()
    times = (("default schedules", report.before), ("tuned", report.after))
    network = [(name, duration(seconds), _times(report.before, seconds)) for name, seconds in times]
    kernels = figures.bars(joined(report.tasks))
    fall = figures.latency(report.curve, report.elapsed)
    sections = [
        f"<h1>{escape(report.name)}</h1>",
        f"<p>{escape(report.target)} on {escape(where)}; {cores}; {trials} trials in {report.elapsed:.1f} s</p>",
        table(("", "a call", "× default"), network),
        section("Kernels", "Where the time of the network goes, those that took longest first.", kernels),
        section("Time of the network", "Estimated from its kernels, as the search went on.", fall),
        "<h2>All kernels</h2>",
        table(("kernel", *COLUMNS), rows(report.tasks)),
        f"<p>{escape(made)}</p>",
    ]
    return document(f"Tuning of {report.name}", sections)


def joined(tasks: Sequence[TaskTime], most: int = BARS) -> list[TaskTime]:
    """The tasks that took longest, and all others as one."""
    if len(tasks) <= most:
        return list(tasks)
    rest = tasks[most - 1 :]
    others = [sum(values) for values in zip(*((t.calls, t.before, t.after, t.trials) for t in rest), strict=True)]
    return [*tasks[: most - 1], TaskTime(f"{len(rest)} others", *others)]


def rows(tasks: Sequence[TaskTime]) -> list[tuple[str, ...]]:
    """A row of a table for each task: its label, and COLUMNS; its share is that of the kernels' time before."""
    whole = sum(t.before for t in tasks)
    return [
        (
            t.label, str(t.calls), f"{t.before / whole if whole else 0:.1%}", duration(t.before, 3), duration(t.after, 3),
            _times(t.before, t.after), str(t.trials),
        )
        for t in tasks
    ]  # fmt: skip


def _times(before: float, after: float) -> str:
    """How many times faster, once both are known."""
    return f"{before / after:.2f}" if after else "-"
