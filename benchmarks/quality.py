"""What a search finds in some minutes, beside the schedule that needs no search, numpy and, where installed, torch.

Each row is tuned for `--trials` candidates or `--seconds`, whichever ends first; then what was found and the others are timed in
turns. The rows are those of `cpu`, where a schedule written by hand is to be reached, and the cases of the Ansor paper
(`benchmarks.cases`), for which none was written; of these ten are drawn, with a seed.
With `--save DIR` the candidates are recorded in `DIR/quality.db`: a row goes on where it ended, and one whose budget is used up
is only timed. With `--minutes M` all rows take about so long: each an equal share of what is left.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tir
from search.measure import BASELINE, Measurement, count
from search.records import Records
from search.task import Task
from search.tuning.result import NothingFound, default_seconds
from tir.ir import buffer_nbytes

from . import cases, cpu, pages, peers, programs
from .budget import used
from .options import Options
from .runner import Effort, Roof, Timing, circumstances, race, ratios, warm

if TYPE_CHECKING:
    from schedule import Schedule
    from tir.workloads import Instance

THREADED = True

TRIALS = 256  # of a row, unless the command says otherwise
SECONDS = 300.0

TIMED = 4.0  # seconds that the contenders are timed for at the end
APART = 15.0  # seconds of a row's minutes for that, and for building, checking and warming up
WORTH = 5.0  # seconds of a budget that a search is begun for

CONTENDERS = ("tuned", "default", "numpy", "torch")

DRAWN = cases.draw(cases.SEED)

ROWS = (*cpu.ROWS, *cases.CASES)

DEFAULT = (*cpu.ROWS, *DRAWN)

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
    task = programs.task_of(instance, target)
    result: dict[str, Any] = {
        "threads": options.threads,
        "program": instance.name,
        "shape": list(instance.shape),
        "dtype": instance.dtype,
        "flop": instance.flop,
        **circumstances(),
    }
    with options.folder() as folder, Records(folder / "quality.db") as records:
        found = search(task, records, options)
        best = records.best(task.key, target)
        tuned = tir.best_schedule(instance.func, target, records=records) if best is not None else None
    result |= found
    if best is None or tuned is None:
        yield {**result, "error": "the search found no valid candidate"}
        return
    result["sketch"] = best.measurement.candidate.sketch
    result |= compared(instance, tuned, target, options)
    if "error" not in result:
        pages.keep(options.save, "quality", row, result, write)
    yield result


# --- the search --------------------------------------------------------------------------------------------------------


def search(task: Task, records: Records, options: Options) -> dict[str, Any]:
    """Tune as far as the records do not hold the budget yet; what the searches of the task took and found, together."""
    trials, seconds = used(records.of(task.key, task.target))
    left = options.seconds - seconds
    if options.minutes is not None:
        left = min(left, max(WORTH, 60 * options.minutes - APART))
    if trials < options.trials and left >= WORTH:
        from tir.tune import LineProgress

        try:
            tir.autotune(
                task.func,
                task.target,
                options.trials - trials,
                left,
                records=records,
                seed=options.seed,
                workload=task.workload,
                callbacks=[LineProgress(sys.stderr)],
            )
        except NothingFound as error:
            print(error, file=sys.stderr)
        trials, seconds = used(records.of(task.key, task.target))
    measured = [r.measurement for r in records.of(task.key, task.target)]
    outcomes = {kind: n for kind, n in count(measured).items() if n}
    return {"trials": trials, "searched_s": seconds, "outcomes": outcomes, "faster": faster(measured)}


def faster(measured: Sequence[Measurement]) -> float | None:
    """The share of the valid trials that were faster than that of the default schedule; None where it has none."""
    default = default_seconds((), measured, None)
    valid = [m.seconds for m in measured if m.outcome == "ok" and m.candidate != BASELINE]
    return None if default is None else sum(s < default for s in valid) / len(valid)


# --- the comparison ----------------------------------------------------------------------------------------------------


def compared(instance: Instance, tuned: Schedule, target: tir.Target, options: Options) -> dict[str, Any]:
    """The contenders checked against the reference, then timed in turns."""
    inputs, outputs = programs.arrays(instance, options.seed)
    rivals = peers.rivals(instance, inputs, outputs, options.threads)
    kernels = {
        "tuned": tir.build(tuned.func, target),
        "default": tir.build(tir.default_schedule(instance.func, target).func, target),
    }
    contenders = {name: kernel.bind(*inputs, *outputs) for name, kernel in kernels.items()} | rivals

    result, checks = cpu.judged(contenders, outputs, instance.checker(inputs))
    if ours := [name for name in kernels if not checks[name].ok]:
        return {**result, "error": f"{ours[0]}: {checks[ours[0]]}"}
    right = {name: call for name, call in contenders.items() if checks[name].ok}
    before = Roof.measure(options.threads, instance.dtype)
    timings = race(right, Effort(seconds=TIMED, warm=warm(options.threads)))
    roof = before.best(Roof.measure(options.threads, instance.dtype))
    shares = roof.shares(instance.flop, buffer_nbytes(*instance.func.buffers), timings["tuned"].median)
    return {**result, "shares": shares, **summary(timings, instance.flop)}


def summary(timings: dict[str, Timing], flop: int) -> dict[str, Any]:
    """What the timings say: of each contender its seconds and speed, and how many times faster than it the tuned one is."""
    between = {name: ratios(timings["tuned"], t) for name, t in timings.items() if name != "tuned"}
    return {
        "contenders": {name: {**t.as_json(), "gflops": flop / t.median / 1e9} for name, t in timings.items()},
        "ratios": {name: {"ratio": ratio, "quartiles": list(quartiles)} for name, (ratio, quartiles) in between.items()},
    }


# --- what is shown -----------------------------------------------------------------------------------------------------

COLUMNS = (
    "row", "shape", "threads", "trials", "s", "found by", "faster", "ms", "GFLOP/s", "of peak",
    *(f"x {name}" for name in CONTENDERS[1:]), "goal",
)  # fmt: skip


def table(results: Sequence[dict[str, Any]]) -> Any:
    """A line a result: the budget used, times, ratios, and whether the goal is met; then the geometric means of the cases."""
    from rich.table import Table

    title = f"quality: {len(DRAWN)} cases of the paper drawn with seed {cases.SEED}: {', '.join(DRAWN)}"
    t = Table(title=title, title_justify="left", caption=CAPTION, caption_justify="left")
    t.add_column("row", no_wrap=True)
    t.add_column("shape", no_wrap=True, max_width=32)
    for name in COLUMNS[2:]:
        t.add_column(name, justify="right", no_wrap=True)
    for r in results:
        if "contenders" not in r:
            t.add_row(r["row"], "", str(r.get("threads", "")), "[red]failed[/red]")
            continue
        *cell, goal = cells(r)
        color = {"+": "green", "-": "red"}.get(goal[-1:], "default")
        t.add_row(*cell, f"[{color}]{goal}[/{color}]")
    for threads in sorted({r["threads"] for r in results if "ratios" in r}):
        means = geometric_means([r for r in results if r.get("threads") == threads and r["row"] in cases.CASES])
        if means:
            t.add_row("cases", "geometric mean", str(threads), *[""] * 7, *(f"{means[n]:.2f}" for n in CONTENDERS[1:]), "")
    return t


CAPTION = (
    "s: seconds of search; found by: the sketch, or the default schedule where the search found none faster; faster: share of "
    "the trials faster than the default; of peak: of arithmetic (a) or of copying (c), whichever is more; x NAME: how many times "
    "faster than it"
)


def cells(r: dict[str, Any]) -> tuple[str, ...]:
    """A result that has timings, in COLUMNS; behind the goal + where it is met, else -."""
    ours = r["contenders"]["tuned"]
    kind = max(r["shares"], key=lambda k: r["shares"][k])
    return (
        r["row"],
        ",".join(map(str, r["shape"])),
        str(r["threads"]),
        str(r["trials"]),
        f"{r['searched_s']:.0f}",
        r["sketch"],
        "-" if r.get("faster") is None else f"{r['faster']:.0%}",
        f"{ours['median_s'] * 1e3:.3g}",
        f"{ours['gflops']:.1f}",
        f"{r['shares'][kind]:.0%} {kind[0]}",
        *(f"{r['ratios'][name]['ratio']:.2f}" if name in r["ratios"] else "-" for name in CONTENDERS[1:]),
        _goal(r),
    )


def geometric_means(results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of the ratios to each peer, over the results that have one; empty where there is no result."""
    found = {name: [r["ratios"][name]["ratio"] for r in results if name in r.get("ratios", {})] for name in CONTENDERS[1:]}
    if not any(found.values()):
        return {}
    return {name: pages.geometric_mean(ratios) for name, ratios in found.items()}


def _goal(r: dict[str, Any]) -> str:
    if r["row"] not in GOALS:
        return ""
    peer, goal = GOALS[r["row"]]
    text = f"{goal:.2f} x {peer}"
    if peer not in r["ratios"]:
        return text
    reached = r["sketch"] == peer or r["ratios"][peer]["ratio"] >= goal
    return f"{text} {'+' if reached else '-'}"


INTRODUCTION = f"""# What a search finds

Made by `python -m benchmarks quality --threads 2 --minutes M --save DIR`. Each row is tuned for at most {TRIALS} candidates, and
for its share of the M minutes; then what was found, the
schedule that needs no search (`default`), numpy and torch are timed in turns, in one process, with the same number of threads:
the figures are medians. `s` are the seconds of search; `x NAME` says how many times faster than it what was found is; `found by`
is the sketch, or `default` where the search found nothing faster; `faster` the share of trials that were faster than the default
schedule's; `of peak` the share of the measured peak of arithmetic (a) or of copying (c), whichever is more.
The rows after those with a goal are cases of the Ansor paper (appendix C), drawn with seed
{cases.SEED}, for which no schedule was written. Operations are counted as the formulas state them: a transposed convolution (t2d)
also counts those with the zeros between its inputs, which no kernel does, and may stand above the peak.
"""


def write(kept: dict[str, dict[str, Any]], folder: Path) -> None:
    """The page and the pictures of all rows that were measured, by name of the row and number of threads."""
    sections = [INTRODUCTION]
    for threads, heading, results in pages.by_threads(kept, ROWS):
        name = f"quality-{threads}.svg"
        plot(results, heading, folder / name)
        rows = [cells(r) for r in results]
        means = geometric_means([r for r in results if r["row"] in cases.CASES])
        if means:
            rows.append(("cases, geometric mean", *[""] * 9, *(f"{means[n]:.2f}" for n in CONTENDERS[1:]), ""))
        goals = [_goal(r)[-1] for r in results if _goal(r)[-1:] in ("+", "-")]
        met = f"{goals.count('+')} of {len(goals)} goals are met." if goals else ""
        sections.append(f"## {heading}\n\n![times faster than others]({name})\n\n{pages.circumstances(results)} {met}\n")
        sections.append(pages.table(COLUMNS, rows) + "\n")
    (folder / "quality.md").write_text("\n".join(sections))


def plot(results: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Draw how many times faster than each peer what was found is, a line a row, with quartiles; nothing without matplotlib."""
    picture = pages.figure(7.5, 1.6 + 0.24 * len(results))
    if picture is None:
        return
    axes = picture.subplots()
    for name, color, marker in zip(CONTENDERS[1:], pages.SHADES, "osD", strict=False):
        there = [n for n, r in enumerate(results) if name in r["ratios"]]
        if there:
            ratio = np.array([results[n]["ratios"][name]["ratio"] for n in there])
            spread = np.abs(np.array([results[n]["ratios"][name]["quartiles"] for n in there]).T - ratio)
            axes.errorbar(ratio, there, xerr=spread, fmt=marker, color=color, markersize=5, label=f"than {name}")
    axes.axvline(1.0, color="black", linewidth=0.9)
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    ticks = [2.0**k for k in range(-6, 11) if low <= 2.0**k <= high]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_yticks(range(len(results)), [r["row"] for r in results])
    axes.set(title=title, xlabel="times faster (medians and quartiles)", ylim=(len(results) - 0.5, -0.5))
    axes.grid(alpha=0.3)
    picture.legend(loc="outside lower center", ncols=len(CONTENDERS))
    pages.draw(picture, path)
