"""Report on the tuning of a network: times of its kernels, before and after, as a page or as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen.processor import host_name
from codegen.runtime.timing import duration
from tir.display import count_text
from tir.files import write_atomically

from ..drawing.html import document, section, table, wide
from ..drawing.svg import Chart, bars

MAX_BARS = 24  # tasks in the picture; the others are one bar
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

    @property
    def title(self) -> str:
        return f"{self.label}  ({self.calls})" if self.calls > 1 else self.label

    @property
    def gain(self) -> str:
        """The speedup, as a factor; empty without a gain."""
        return f"{self.before / self.after:.2f} ×" if self.after < self.before else ""


@dataclass(frozen=True)
class NetworkReport:
    """A tuned network: seconds of a call, measured `before` and `after`; its tasks, longest first. `curve` is pairs of the
    seconds of the run and the estimated seconds of a call. `elapsed` are the seconds of the run. `device` is the one that
    measured, if not this machine's; `before` and `after` are then the sums of the kernels."""

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
    """Write the report, or its picture alone for a file name of PICTURES. OSError, ModuleNotFoundError (matplotlib)."""
    file = Path(path)
    if file.suffix in PICTURES:
        from .network_figures import picture

        write_atomically(file, picture(joined(report.tasks), file.suffix[1:]))
    else:
        write_atomically(file, page(report))


def page(report: NetworkReport) -> str:
    """The report as one self-contained HTML page."""
    trials = sum(t.trials for t in report.tasks)
    cores = count_text(report.threads, "thread")
    where = report.device or host_name()
    times = (("default schedules", report.before), ("tuned", report.after))
    network = [(name, duration(seconds), _times(report.before, seconds)) for name, seconds in times]
    sections = [
        table(("", "a call", "× default"), network),
        section("Kernels", KERNELS, wide(_kernels(joined(report.tasks)))),
        section("Time of the network", "Estimated from its kernels, as the search went on.", _latency(report)),
        section("All kernels", "", table(("kernel", *COLUMNS), rows(report.tasks))),
    ]
    about = f"{report.target} on {where}; {cores}; {count_text(trials, 'trial')} in {report.elapsed:.1f} s"
    return document(f"Tuning of {report.name}", report.name, about, sections)


KERNELS = "Milliseconds in one call of the network, of those that took longest first: by default schedules grey, tuned blue."


def _kernels(tasks: Sequence[TaskTime]) -> str:
    lines = []
    for t in tasks:
        lines.append((t.title, t.before, f"{1e3 * t.before:.3g}", "grey"))
        lines.append(("", t.after, f"{1e3 * t.after:.3g}  {t.gain}".rstrip(), "blue"))
    return bars("milliseconds by kernel, before and after tuning", lines, 1060)


def _latency(report: NetworkReport) -> str | None:
    """The estimated time of the network, by the seconds of the run."""
    if not report.curve:
        return None
    points = [(at, 1e3 * seconds) for at, seconds in (*report.curve, (report.elapsed, report.curve[-1][1]))]
    label, top = "time of the network by seconds of the run", 1.05 * max(y for _, y in points)
    chart = Chart(760, 300, label, (0, report.elapsed), (0, top), "seconds", "milliseconds")
    chart.line(points, "orange", steps=True)
    return chart.svg()


def joined(tasks: Sequence[TaskTime], most: int = MAX_BARS) -> list[TaskTime]:
    """The longest tasks, and all others as one."""
    if len(tasks) <= most:
        return list(tasks)
    rest = tasks[most - 1 :]
    others = [sum(values) for values in zip(*((t.calls, t.before, t.after, t.trials) for t in rest), strict=True)]
    return [*tasks[: most - 1], TaskTime(f"{len(rest)} others", *others)]


def rows(tasks: Sequence[TaskTime]) -> list[tuple[str, ...]]:
    """A table row for each task: its label, and COLUMNS; its share is that of the kernels' time before."""
    whole = sum(t.before for t in tasks)
    return [
        (
            t.label, str(t.calls), f"{t.before / whole if whole else 0:.1%}", duration(t.before, 3), duration(t.after, 3),
            _times(t.before, t.after), str(t.trials),
        )
        for t in tasks
    ]  # fmt: skip


def _times(before: float, after: float) -> str:
    """The speedup, or a dash for an unknown time."""
    return f"{before / after:.2f}" if after else "-"
