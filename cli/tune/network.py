"""`python -m tir.tune MODEL.onnx`: tuning a network, from the words of the command line to the table at its end."""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any, cast

from codegen.runtime.timing import duration
from tir.display import aligned_columns, count_text

from ..networks import check_exportable, export, for_processors, in_precision, load, quantised
from ..options import Usage, measurable, parse_target, writable
from .arguments import parts, searching
from .cluster import Workers
from .progress import Display, displayed, workers_table
from .saved import reported

if TYPE_CHECKING:
    from graph import Graph, Model
    from graph.tuning import Progress, TunedNetwork
    from search.report.network import TaskTime
    from search.tuning.events import Event

DEFAULT_SECONDS = 600.0  # of a run without --trials and --seconds
MAX_TASK_ROWS = 16  # rows of the table of tasks; the last one sums up the remaining tasks


def tune(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Search, show the progress, and print the result; the exit status. `options` go to `tune_graph`."""
    target = parse_target(args.target or "llvm", args.threads)
    for_processors(args, ("export", "quantise"), target)
    if "measurer" not in options:
        measurable(target)
    if args.report is not None:
        from search.report.network import PICTURES

        writable("--report", args.report)
        if args.report.endswith(PICTURES) and find_spec("matplotlib") is None:
            raise Usage("--report draws pictures with matplotlib, which is not installed: pip install 'tir-compiler[report]'")
    if args.export is not None:
        check_exportable(args.export)
    graph = load(args.words[0], args.shape or ())
    stream = sys.stderr if args.json else sys.stdout
    if args.quantise is not None:
        graph = quantised(graph, args.quantise, target, stream)
    if args.precision is not None:
        graph = in_precision(graph, args.precision, target)
    try:
        found = _search(args, options, graph, target)
    except KeyboardInterrupt:  # before the first result
        if args.json:
            print(_json(args, graph.name, None))
        raise
    print(_summary(found), file=stream)
    for problem in dict.fromkeys(p for p in found.problems if p):
        print(f"warning: {problem}", file=sys.stderr)
    if args.report is not None:
        _report(args.report, found, stream)
    if args.json:
        print(_json(args, graph.name, found))
    if args.export is not None:
        export(cast("Model", found.model), args.export, stream)
    return 130 if found.interrupted else 0


def _search(args: argparse.Namespace, options: dict[str, Any], graph: Graph, target: Any) -> TunedNetwork:
    """The search, with its progress on standard error."""
    from graph.tuning import tune_graph

    named = parts(args, "policy", "model")
    if not args.quiet:
        print(f"{graph.name}: compiling it with default schedules", file=sys.stderr, flush=True)
    show = displayed(LiveNetwork, NetworkLines, args, options, target)
    with searching(args, options, show, seconds=DEFAULT_SECONDS) as own:
        return tune_graph(graph, target, **{**own, **named})


# --- progress ----------------------------------------------------------------------------------------------------------


class NetworkLines(Display):
    """A callback that prints one line for each round: for logs and pipes."""

    def __init__(self, trials: int | None, seconds: float | None, stream: IO[str], workers: Workers | None = None):
        super().__init__(stream, workers)
        self._trials, self._seconds = trials, seconds

    def __call__(self, progress: Progress, event: Event | None) -> None:
        from search.tuning.events import RoundEnded

        match event:
            case None:
                self.begun(progress)
            case RoundEnded():
                self.round_ended(progress)

    def begun(self, progress: Progress) -> None:
        calls = sum(t.calls for t in progress.tasks)
        now = (
            f"{duration(progress.before)} with default schedules" if progress.device is None else f"measured on {progress.device}"
        )
        self.line(f"{len(progress.tasks)} tasks in {calls} calls: {now}")
        self.dashboard()
        if known := [t for t in progress.tasks if t.recorded]:
            self.line(f"going on from {sum(t.recorded for t in known)} recorded candidates of {len(known)} of the tasks")

    def round_ended(self, progress: Progress) -> None:
        self.line(f"{progress.elapsed:6.1f} s  {self.status(progress)}  {_label(progress)}")

    def status(self, progress: Progress) -> str:
        """The network's time, and the used part of the budget."""
        of = f" of {self._trials}" if self._trials else ""
        now = f"{duration(progress.seconds)}, {progress.gain:.2f} x default, {progress.trials}{of} trials"
        now += "" if self._workers is None else f", {self._workers.line()}"
        return now if self._seconds is None else f"{now}, {max(0.0, self._seconds - progress.elapsed):.0f} s left"


class LiveNetwork(NetworkLines):
    """A callback that updates a table of the tasks in a terminal."""

    def __init__(self, trials: int | None, seconds: float | None, stream: IO[str] | None = None, workers: Workers | None = None):
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True) if stream is None else Console(file=stream, force_terminal=True, width=120)
        super().__init__(trials, seconds, console.file, workers)
        self._progress: Progress | None = None
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=4, transient=True)
        self._live.start()

    def begun(self, progress: Progress) -> None:
        self._progress = progress

    def round_ended(self, progress: Progress) -> None:
        """The table is up to date already."""

    def render(self) -> Any:
        """The table as it is now, the task at hand marked."""
        from rich.table import Table

        from search.report.network import COLUMNS, joined, rows

        title = "compiling" if self._progress is None else f"{self._progress.name}: {self.status(self._progress)}"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for n, column in enumerate(("kernel", *COLUMNS)):
            table.add_column(column, justify="right" if n else "left", no_wrap=True)
        if self._progress is not None:
            for row in rows(joined(task_times(self._progress), MAX_TASK_ROWS)):
                table.add_row(*row, style="bold" if row[0] == _label(self._progress) else None)
        if self._workers is None:
            return table
        from rich.console import Group

        return Group(table, workers_table(self._workers))

    def close(self) -> None:
        self._live.stop()


def _label(progress: Progress) -> str:
    """The label of the task at hand."""
    return progress.current.label if progress.current is not None else ""


# --- the result --------------------------------------------------------------------------------------------------------


def task_times(progress: Progress) -> list[TaskTime]:
    """The tasks, as the report has them."""
    from search.report.network import TaskTime

    return [TaskTime(t.label, t.calls, t.before, t.seconds, t.trials) for t in progress.tasks]


def _summary(found: TunedNetwork) -> str:
    """The table of the tasks, then the time of the network before and after."""
    from search.report.network import COLUMNS, joined, rows

    progress = found.progress
    lines = [("kernel", *COLUMNS), *rows(joined(task_times(progress), MAX_TASK_ROWS))]
    text = [aligned_columns(lines)]
    ended = "interrupted after " if found.interrupted else ""
    text += [f"kept with the default schedule, which is faster in the network: {label}" for label in found.kept]
    text += [f"in another form, which is faster in the network: {label}" for label in found.forms]
    text.append(f"{ended}{count_text(progress.trials, 'trial')} in {found.elapsed:.1f} s")
    timed = "timed in turns" if progress.device is None else f"the sum of its kernels, each alone on {progress.device}"
    text.append(
        f"{progress.name}: {duration(found.before)} with default schedules, {duration(found.after)} tuned, "
        f"{progress.gain if progress.device else found.before / found.after:.2f} x, {timed}"
    )
    return "\n".join(text)


def _json(args: argparse.Namespace, name: str, found: TunedNetwork | None) -> str:
    """The JSON object at the end of a run; without a result where it ended before there was one."""
    progress = None if found is None else found.progress
    tasks = [] if progress is None else task_times(progress)
    content = {
        "network": name,
        "target": args.target or "llvm",
        "device": progress and progress.device,
        "trials": sum(t.trials for t in tasks),
        "seconds": {"default": found and found.before, "best": found and found.after},
        "tasks": [{"kernel": t.label, "calls": t.calls, "default": t.before, "best": t.after, "trials": t.trials} for t in tasks],
        "elapsed": found and round(found.elapsed, 3),
    }
    return json.dumps(content, allow_nan=False)


def _report(path: str, found: TunedNetwork, stream: Any) -> None:
    from search.report.network import NetworkReport, write

    progress, target = found.progress, found.model.target
    report = NetworkReport(
        progress.name, str(target), target.num_cores, found.before, found.after, task_times(progress), progress.curve,
        found.elapsed, progress.device,
    )  # fmt: skip
    reported(path, lambda: write(path, report), stream)
