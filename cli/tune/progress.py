"""Progress of a run: one line for each round in logs and pipes, a live table in a terminal."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

from codegen.runtime.timing import duration
from tir.display import tally

from .cluster import Workers

if TYPE_CHECKING:
    from codegen import Target
    from search.tuning.events import Event

MAX_WORKERS = 16  # rows in the table of workers


def displayed(live: type, lines: type, args: argparse.Namespace, options: dict[str, Any], target: Target) -> Callable[..., Any]:
    """The maker of the display of a run, with these further arguments: `live` in a terminal, `lines` elsewhere."""

    def make(*more: Any) -> Any:
        workers = Workers(options["measurer"], str(target)) if args.cluster is not None else None
        updated = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        return live(*more, None, workers) if updated else lines(*more, sys.stderr, workers)

    return make


class Display:
    """Lines of progress on a stream, with those of the workers of a cluster, if there is one."""

    def __init__(self, stream: IO[str], workers: Workers | None = None):
        self._stream, self._workers = stream, workers

    def line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def dashboard(self) -> None:
        """Print the address of the cluster's dashboard."""
        if self._workers is not None and self._workers.dashboard:
            self.line(f"the dashboard of the cluster: {self._workers.dashboard}")

    def close(self) -> None:
        """End the display."""


class LineProgress(Display):
    """A callback that prints one line for each round: for logs and pipes."""

    def __init__(self, stream: IO[str], workers: Workers | None = None):
        super().__init__(stream, workers)
        self.trials = 0
        self.total: int | None = None
        self.best: float | None = None
        self.outcomes: dict[str, int] = {}
        self.seconds: float | None = None
        self.flop = 0
        self.peak: float | None = None
        self.numpy: float | None = None
        self.correlation: float | None = None
        self.scored: float | None = None
        self.started = self.search_started = time.monotonic()
        self.phase = "starting"

    def __call__(self, event: Event) -> None:
        from search.tuning.events import Finished, Measured, NewBest, Prepared, RaceStarted, RoundEnded, Started

        match event:
            case Started(task, trials, seconds):
                self.flop, self.total, self.seconds = task.flop, trials, seconds
                self.phase = "timing the program as written, and numpy"
            case Prepared(baseline, numpy, peak, sketches, earlier):
                self.peak, self.numpy, self.phase, self.search_started = peak, numpy, "searching", time.monotonic()
                self.prepared(baseline, numpy, sketches, earlier)
            case Measured(_, trials, outcomes, best):
                self.trials, self.outcomes, self.best = trials, outcomes, best
            case NewBest(measurement):
                self.new_best(measurement.candidate.sketch)
            case RoundEnded(best=best, correlation=correlation, scored_per_second=scored):
                self.best, self.correlation, self.scored = best, correlation, scored  # the best may be of an earlier run
                self.round_ended()
            case RaceStarted(contenders):
                self.phase = "final race"
                self.race(len(contenders))
            case Finished():
                self.phase = "done"

    def prepared(self, baseline: Any, numpy: float | None, sketches: int | None, earlier: int) -> None:
        ended = {"ok": duration(baseline.seconds), "run_timeout": baseline.message}
        parts = [f"unscheduled {ended.get(baseline.outcome, baseline.outcome)}"]
        parts += [] if numpy is None else [f"numpy {duration(numpy)}"]
        parts += [] if self.peak is None else [f"peak {self.peak / 1e9:.0f} GFLOP/s"]
        parts += [] if sketches is None else [f"{sketches} sketch{'es' if sketches != 1 else ''}"]
        parts += [f"{earlier} candidates known from earlier runs"] if earlier else []
        self.line("  ".join(parts))
        self.dashboard()
        if baseline.outcome not in ("ok", "run_timeout"):
            self.line(f"warning: the program as written is not valid: {baseline.outcome}: {baseline.message}")

    def new_best(self, sketch: str) -> None:
        """A candidate of this sketch is the best so far; the line of its round shows it."""

    def round_ended(self) -> None:
        self.line(self.status())

    def race(self, contenders: int) -> None:
        self.line(_race(contenders))

    def status(self) -> str:
        """Candidates measured, failures by kind, the best and its share of peak, time left."""
        of = f"/{self.total}" if self.total else ""
        parts = [f"{self.trials}{of}", f"failed: {self.failed()}"]
        if self.best is not None:
            parts.append(f"best {self.speed()}")
        parts += self.model()
        parts += [] if self._workers is None else [self._workers.line()]
        if (left := self.time_left()) is not None:
            parts.append(f"{left:.0f} s left")
        return "  ".join(parts)

    def failed(self) -> str:
        return tally({kind: n for kind, n in self.outcomes.items() if kind != "ok"})

    def speed(self) -> str:
        """The speed of the best, and its share of the peak, unless above 1: then the peak was measured on a busy machine."""
        assert self.best is not None
        speed = self.flop / self.best
        share = f" ({speed / self.peak:.0%} of peak)" if self.peak and speed <= self.peak else ""
        return f"{speed / 1e9:.1f} GFLOP/s{share}"

    def model(self) -> list[str]:
        """The rank correlation of the cost model, and its speed. Below 0 it ranks worse than chance: it knows too little yet."""
        parts = [] if self.correlation is None else [f"rank correlation {self.correlation:.2f}"]
        if self.correlation is not None and self.correlation < 0:
            parts[0] += " (the model has not learned yet)"
        return parts if self.scored is None else [*parts, f"{self.scored:,.0f} scored/s"]

    def used(self) -> float:
        """The share of the budget that has been spent, from 0 to 1."""
        shares = [] if not self.total else [self.trials / self.total]
        shares += [] if self.seconds is None else [(time.monotonic() - self.started) / self.seconds]
        return min(1.0, max(shares, default=0.0))

    def time_left(self) -> float | None:
        """An estimate of the seconds until the budget is spent; None without one."""
        now = time.monotonic()
        estimates = []
        if self.seconds is not None:
            estimates.append(self.seconds - (now - self.started))
        if self.total and self.trials:
            estimates.append((now - self.search_started) / self.trials * (self.total - self.trials))
        return max(0.0, min(estimates)) if estimates else None


class LiveProgress(LineProgress):
    """A callback that updates a small table in a terminal."""

    def __init__(self, stream: IO[str] | None = None, workers: Workers | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True) if stream is None else Console(file=stream, force_terminal=True)
        super().__init__(console.file, workers)
        self._console = console
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=8, transient=True)
        self._live.start()

    def render(self) -> Any:
        """The table as it is now."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, min_width=6, style="dim")
        table.add_column()
        table.add_row(Text("|/-\\"[int(time.monotonic() * 8) % 4], "bold"), Text(self.phase, "bold"))
        if self.phase != "searching":
            return table
        of = f" of {self.total}" if self.total else ""
        trials = Text(f"{self.trials}{of}: {self.outcomes.get('ok', 0)} valid; failed: ")
        table.add_row("trials", trials.append(self.failed(), "" if self.failed() == "none" else "red"))
        if self.best is not None:
            times = f", {self.numpy / self.best:.2f} x numpy" if self.numpy else ""
            table.add_row("best", Text(f"{duration(self.best)}, {self.speed()}{times}", "bold green"))
        if model := self.model():
            table.add_row("model", ", ".join(model))
        left = self.time_left()
        table.add_row("time", f"{time.monotonic() - self.started:.0f} s" + ("" if left is None else f", {left:.0f} s left"))
        table.add_row("", ProgressBar(total=1.0, completed=self.used(), width=40))
        if self._workers is not None:
            table.add_row("farm", self._workers.line())
            table.add_row("", workers_table(self._workers))
        return table

    def round_ended(self) -> None:
        """The table is up to date already."""

    def new_best(self, sketch: str) -> None:
        assert self.best is not None
        self.line(f"{time.monotonic() - self.started:5.1f} s  {duration(self.best):>8}  {self.speed()}  {sketch}")

    def race(self, contenders: int) -> None:
        self.phase = _race(contenders)

    def line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._live.stop()


def workers_table(workers: Workers) -> Any:
    """The workers of a cluster, a row each, of many only the first."""
    from rich.table import Table

    table = Table("worker", "does", "busy", "measured", box=None, pad_edge=False)
    rows = workers.rows()
    for row in rows[:MAX_WORKERS]:
        table.add_row(*row)
    if len(rows) > MAX_WORKERS:
        table.add_row(f"and {len(rows) - MAX_WORKERS} more")
    return table


def _race(contenders: int) -> str:
    return f"timing the {contenders} fastest in turns" if contenders > 1 else "timing the best beside numpy"
