"""What a search finds in some minutes, beside the schedule that needs no search, numpy and, where installed, torch.

Each row is tuned for `--trials` candidates or `--seconds`, whichever ends first; then what was found, the default schedule and
the peers are timed in turns in one process, as everywhere here. The rows are those of `cpu`, where a schedule written by hand is
to be reached, and the cases of the Ansor paper (`benchmarks.cases`), for which none was written; of these ten are drawn, with a
seed.

With `--save DIR` the candidates are recorded in `DIR/quality.db`: a row goes on where it ended, and one whose budget is used up
is only timed. The budget in seconds is what the searches of a row took together.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tir
from search.measure import count
from search.oracle import Workload
from search.records import Record, Records
from search.result import NothingFound
from search.task import Task

from . import cases, cpu, peers, programs
from .options import Options
from .runner import Effort, Timing, circumstances, race, ratios, warm

if TYPE_CHECKING:
    from schedule import Schedule
    from tir.workloads import Instance

THREADED = True

TRIALS = 256  # of a row, unless the command says otherwise
SECONDS = 300.0

TIMED = 4.0  # seconds that the contenders are timed for at the end
WORTH = 5.0  # seconds of a budget that a search is begun for

CONTENDERS = ("tuned", "default", "numpy", "torch")

DRAWN = cases.draw(cases.SEED)

ROWS = (*cpu.ROWS, *cases.CASES)

DEFAULT = ("gemm-1024", "mlp", *DRAWN)

# What a row must reach: so many times the speed of a contender. Of the others the figures are of interest.
GOALS = dict.fromkeys(cpu.ROWS, ("default", 1.0)) | {"gemm-1024": ("numpy", 1.0), "mlp": ("numpy", 1.0)}


def instance_of(row: str) -> Instance:
    """The program of a row, at its shape."""
    if row in cases.CASES:
        case = cases.CASES[row]
        return programs.instance(case.program, case.shape)
    return programs.instance(cpu.TABLE[row].program, cpu.TABLE[row].shape)


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: the search, what each contender took and its error, and the ratios."""
    instance = instance_of(row)
    target = tir.Target("llvm", num_cores=options.threads)
    workload = Workload(instance.name, instance.shape) if programs.known(instance.name) else None
    task = Task.of(instance.func, target, workload=workload)
    result: dict[str, Any] = {
        "threads": options.threads,
        "program": instance.name,
        "shape": list(instance.shape),
        "dtype": instance.dtype,
        "flop": instance.flop,
        **circumstances(),
    }
    with ExitStack() as stack:
        folder = Path(options.save or stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        records = stack.enter_context(Records(folder / "quality.db"))
        found = search(task, records, options)
        best = records.best(task.key, target)
        tuned = tir.best_schedule(instance.func, target, records=records) if best is not None else None
    result |= found
    if best is None or tuned is None:
        yield {**result, "error": "the search found no valid candidate"}
        return
    result["sketch"] = best.measurement.candidate.sketch
    yield {**result, **compared(instance, tuned, target, options)}


# --- the search --------------------------------------------------------------------------------------------------------


def search(task: Task, records: Records, options: Options) -> dict[str, Any]:
    """Tune as far as the records do not hold the budget yet; what the searches of the task took and found, together."""
    trials, seconds = used(records.of(task.key, task.target))
    if trials < options.trials and seconds + WORTH <= options.seconds:
        from tir.tune import LineProgress

        try:
            tir.autotune(
                task.func,
                task.target,
                options.trials - trials,
                options.seconds - seconds,
                records=records,
                seed=options.seed,
                workload=task.workload,
                callbacks=[LineProgress(sys.stderr)],
            )
        except NothingFound as error:
            print(error, file=sys.stderr)
        trials, seconds = used(records.of(task.key, task.target))
    outcomes = count(r.measurement for r in records.of(task.key, task.target))
    return {"trials": trials, "searched_s": seconds, "outcomes": {kind: n for kind, n in outcomes.items() if n}}


def used(records: Sequence[Record]) -> tuple[int, float]:
    """The candidates that were measured, and the seconds that the runs took, each until its last candidate."""
    took: dict[str, float] = defaultdict(float)
    for record in records:
        took[record.run] = max(took[record.run], record.time - record.started)
    return len(records), sum(took.values())


# --- the comparison ----------------------------------------------------------------------------------------------------


def compared(instance: Instance, tuned: Schedule, target: tir.Target, options: Options) -> dict[str, Any]:
    """The contenders checked against the reference, then timed in turns."""
    inputs = tuple(programs.aligned(a) for a in instance.inputs(np.random.default_rng(options.seed)))
    outputs = tuple(programs.aligned(a) for a in instance.outputs())
    rivals = peers.rivals(instance, inputs, outputs, options.threads)
    kernels = {
        "tuned": tir.build(tuned.func, target),
        "default": tir.build(tir.default_schedule(instance.func, target).func, target),
    }
    contenders = {name: kernel.bind(*inputs, *outputs) for name, kernel in kernels.items()} | rivals

    check = instance.checker(inputs)
    checks = {name: cpu.checked(call, outputs, check) for name, call in contenders.items()}
    result: dict[str, Any] = {
        "tolerance": checks["tuned"].tolerance,
        "errors": {name: c.max_error if np.isfinite(c.max_error) else None for name, c in checks.items()},
    }
    wrong = [name for name, c in checks.items() if not c.ok]
    if ours := [name for name in wrong if name in kernels]:
        off = checks[ours[0]]
        return {**result, "error": f"{ours[0]}: off by {off.max_error:.3g} of its scale; the tolerance is {off.tolerance:.3g}"}
    if wrong:
        result["note"] = f"the result of {', '.join(wrong)} is wrong: left out"
    right = {name: call for name, call in contenders.items() if name not in wrong}
    timings = race(right, Effort(seconds=TIMED, warm=warm(options.threads)))
    return {**result, **summary(timings, instance.flop)}


def summary(timings: dict[str, Timing], flop: int) -> dict[str, Any]:
    """What the timings say: of each contender its seconds and speed, and how many times faster than it the tuned one is."""
    between = {name: ratios(timings["tuned"], t) for name, t in timings.items() if name != "tuned"}
    return {
        "contenders": {name: {**t.as_json(), "gflops": flop / t.median / 1e9} for name, t in timings.items()},
        "ratios": {name: {"ratio": ratio, "quartiles": list(quartiles)} for name, (ratio, quartiles) in between.items()},
    }


# --- the table ---------------------------------------------------------------------------------------------------------


def table(results: Sequence[dict[str, Any]]) -> Any:
    """A line a result: the budget used, times, ratios, and whether the goal is met; then the geometric means of the cases."""
    from rich.table import Table

    title = f"quality: {len(DRAWN)} cases of the paper drawn with seed {cases.SEED}: {', '.join(DRAWN)}"
    t = Table(title=title, title_justify="left", caption=CAPTION, caption_justify="left")
    t.add_column("row", no_wrap=True)
    t.add_column("shape", no_wrap=True, max_width=32)
    for name in ("threads", "trials", "search", "found by", "time", "speed", "x default", "x numpy", "x torch", "goal"):
        t.add_column(name, justify="right", no_wrap=True)
    for r in results:
        if "contenders" not in r:
            t.add_row(r["row"], "", str(r.get("threads", "")), "[red]failed[/red]")
            continue
        ours = r["contenders"]["tuned"]
        cells = (
            str(r["threads"]),
            str(r["trials"]),
            f"{r['searched_s']:.0f} s",
            r["sketch"],
            f"{ours['median_s'] * 1e3:.3g} ms",
            f"{ours['gflops']:.1f} GFLOP/s",
            *(f"{r['ratios'][name]['ratio']:.2f}" if name in r["ratios"] else "-" for name in CONTENDERS[1:]),
            _goal(r),
        )
        t.add_row(r["row"], ",".join(map(str, r["shape"])), *cells)
    for threads in sorted({r["threads"] for r in results if "ratios" in r}):
        means = geometric_means([r for r in results if r.get("threads") == threads and r["row"] in cases.CASES])
        if means:
            t.add_row("cases", "geometric mean", str(threads), *[""] * 5, *(f"{means[n]:.2f}" for n in CONTENDERS[1:]), "")
    return t


CAPTION = (
    "x NAME: how many times faster than it; found by: the sketch, or the default schedule where the search found none faster"
)


def geometric_means(results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of the ratios to each peer, over the results that have one; empty where there is no result."""
    found = {name: [r["ratios"][name]["ratio"] for r in results if name in r.get("ratios", {})] for name in CONTENDERS[1:]}
    if not any(found.values()):
        return {}
    return {name: float(np.exp(np.mean(np.log(ratios)))) if ratios else float("nan") for name, ratios in found.items()}


def _goal(r: dict[str, Any]) -> str:
    if r["row"] not in GOALS:
        return ""
    peer, goal = GOALS[r["row"]]
    text = f"{goal:.2f} x {peer}"
    if peer not in r["ratios"]:
        return text
    reached = r["sketch"] == peer or r["ratios"][peer]["ratio"] >= goal
    return f"[green]{text}[/green] +" if reached else f"[red]{text}[/red] -"
