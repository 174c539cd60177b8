"""What the parts of the search are worth: the best found against the number of trials, without one part at a time.

Each row is tuned with `--seeds` seeds of `--trials` trials in each of CONFIGURATIONS, without the default schedule; the best of
all runs are timed in turns at the end. With `--save DIR` all candidates are recorded in `DIR/records`, one file a run, so that an
interrupted benchmark goes on where it ended; each row's curves are drawn as `DIR/ablation-ROW.svg` (with matplotlib), and
`DIR/ablation.md` has the tables of all rows. A run of 48 trials takes 5 to 10 seconds, all five rows with five seeds a quarter of
an hour.

`best` is the speed of what was found relative to the fastest of the row, the median over the seeds with its range; `area` the
mean of the same over all trials; `to 90%` the trials after which the median has 90 per cent of the fastest. As in figure 7 of the
Ansor paper (OSDI 2020), except that times are those of this machine.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import tir
from search.measure import Candidate, Limits, LocalMeasurer
from search.oracle import Workload
from search.records import Records
from search.result import NothingFound
from search.task import Task
from search.tuner import autotune

from . import programs
from .options import Options
from .runner import circumstances

CONFIGURATIONS: dict[str, dict[str, str]] = {
    "full": {"search": "evolution", "model": "gbdt", "space": "full"},
    "ansor space": {"search": "evolution", "model": "gbdt", "space": "ansor"},
    "limited space": {"search": "evolution", "model": "gbdt", "space": "limited"},
    "random search": {"search": "random", "model": "none", "space": "full"},
    "no model": {"search": "evolution", "model": "none", "space": "full"},
}

TABLE: dict[str, tuple[str, tuple[int, ...]]] = {
    "gemm-512": ("gmm", (512, 512, 512)),
    "conv-14x256": ("conv2d", (1, 14, 14, 256, 256, 3, 3, 1, 1)),
    "depthwise": ("depthwise", (1, 112, 112, 32, 3, 3, 1, 1)),
    "softmax": ("softmax", (4096, 1024)),
    "layernorm": ("layernorm", (4096, 1024)),
    "gemm-61": ("gmm", (61, 67, 109)),
}

ROWS = tuple(TABLE)

DEFAULT = ROWS[:-1]

TRIALS = 48

LIMITS = Limits(baseline=2.0, min_seconds=0.05, race=0.2)  # the runs' own races are no result

GOOD = 0.9  # of the fastest speed of a row

Curve = list[float]  # the best seconds after one trial, after two, ...; infinite while there is no valid candidate


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result a configuration: the curves of its seeds, and how they compare with the fastest of the row."""
    program, shape = TABLE[row]
    instance = programs.instance(program, shape)
    workload = Workload(program, shape) if programs.known(program) else None
    task = Task.of(instance.func, tir.Target("llvm", num_cores=options.threads), workload=workload)
    with ExitStack() as stack:
        folder = Path(options.save or stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "records").mkdir(parents=True, exist_ok=True)
        found: dict[str, list[tuple[Curve, Candidate | None]]] = {name: [] for name in CONFIGURATIONS}
        for seed in range(options.seed, options.seed + options.seeds):
            for name, parts in CONFIGURATIONS.items():  # in turns, so that a busy hour hits all alike
                path = folder / "records" / f"{row}-{options.threads}-{name.replace(' ', '-')}-{seed}.db"
                found[name].append(_run(task, parts, options, seed, path))
        raced = _race(task, [best for runs in found.values() for _, best in runs], options.seconds)
    fastest = min((s for s in raced if s > 0), default=math.inf)
    results = []
    for n, (name, runs) in enumerate(found.items()):
        final = raced[n * len(runs) : (n + 1) * len(runs)]
        results.append({"configuration": name, **summary([c for c, _ in runs], final, fastest), **circumstances()})
    if options.save:
        heading = f"{row}, {options.threads} thread{'s' * (options.threads > 1)}"
        plot(results, heading, folder / f"ablation-{row}.svg")
        page = folder / "ablation.md"
        page.write_text(with_section(page.read_text() if page.exists() else "", heading, markdown(row, results)))
    yield from results


def _run(task: Task, parts: dict[str, str], options: Options, seed: int, path: Path) -> tuple[Curve, Candidate | None]:
    """Tune as far as `path` does not hold the trials yet; the curve, and the best candidate."""
    with Records(path) as records:
        left = options.trials - len(records.of(task.key, task.target))
        if left > 0:
            try:
                autotune(
                    task.func, task.target, left, records=records, seed=seed, first=(), workload=task.workload,
                    limits=LIMITS, **parts,  # type: ignore[arg-type]
                )  # fmt: skip
            except NothingFound:
                pass
        known = records.of(task.key, task.target)[: options.trials]
    times = [r.measurement.seconds if not r.measurement.cut else math.inf for r in known]
    curve = np.minimum.accumulate([*times, *[math.inf] * (options.trials - len(times))]).tolist()
    best = min((r for r in known if math.isfinite(r.seconds)), key=lambda r: r.seconds, default=None)  # by the run's race
    return curve, best.measurement.candidate if best else None


def _race(task: Task, candidates: Sequence[Candidate | None], seconds: float) -> list[float]:
    """The lower quartiles of the candidates' seconds, timed in turns; infinite where there is none or it fails."""
    there = [c for c in candidates if c is not None]
    with LocalMeasurer(task, limits=Limits(run=60.0)) as measurer:
        measurer.prepare()
        timed = iter(measurer.compare(there, rounds=100, seconds=max(seconds, 0.2 * len(there))).candidates)
    measured = [next(timed) if c is not None else None for c in candidates]
    return [float(np.quantile(m.samples, 0.25)) if m is not None and m.outcome == "ok" else math.inf for m in measured]


def summary(curves: Sequence[Curve], final: Sequence[float], fastest: float) -> dict[str, Any]:
    """The figures of one configuration: speeds relative to `fastest` seconds, each curve made to end at what its best took when
    it was timed in turns, `final` (infinite where there is none)."""
    times = np.array(curves, dtype=float)
    found = np.isfinite(times[:, -1:])
    with np.errstate(invalid="ignore"):
        speeds = np.where(found, times[:, -1:] / times, 0.0) * (fastest / np.array(final, dtype=float))[:, None]
    middle = np.median(speeds, axis=0)
    good = np.flatnonzero(middle >= GOOD)
    return {
        "trials": speeds.shape[1],
        "seeds": len(curves),
        "best": float(middle[-1]),
        "best_range": [float(speeds[:, -1].min()), float(speeds[:, -1].max())],
        "area": float(np.mean(middle)),
        "to_90": int(good[0]) + 1 if len(good) else None,
        "speeds": speeds.tolist(),
    }


def table(results: Sequence[dict[str, Any]]) -> Any:
    """A line a configuration."""
    from rich.table import Table

    t = Table(title="ablation: speeds relative to the fastest that any run found", title_justify="left")
    for column in ("row", "configuration"):
        t.add_column(column, no_wrap=True)
    for column in ("seeds", "trials", "best", "range", "area", "to 90%"):
        t.add_column(column, justify="right")
    for r in results:
        if "error" in r:
            t.add_row(r["row"], "-", *["-"] * 6)
            continue
        low, high = r["best_range"]
        reached = str(r["to_90"] or "never")
        t.add_row(
            r["row"], r["configuration"], str(r["seeds"]), str(r["trials"]), f"{r['best']:.2f}", f"{low:.2f}..{high:.2f}",
            f"{r['area']:.2f}", reached,
        )  # fmt: skip
    return t


INTRODUCTION = """# What the parts of the search are worth

Made by `python -m benchmarks ablation --save DIR`: the median over the seeds of the best speed found, relative to the fastest
that any run of the row found, timed in turns at the end; its range; its mean over all trials (area); and the trials after which
the median has 90 per cent of the fastest.
"""


def with_section(text: str, heading: str, section: str) -> str:
    """A page with a section under a heading, in place of the one it may have; sections are in the order of their headings."""
    sections = dict(part.split("\n", 1) for part in text.split("\n## ")[1:]) | {heading: f"\n{section}"}
    return "\n".join([INTRODUCTION, *(f"## {name}\n{sections[name].rstrip()}\n" for name in sorted(sections))])


def markdown(row: str, results: Sequence[dict[str, Any]]) -> str:
    """The picture and the table of one row, as text."""
    machine = results[0]["machine"]
    made = f"On {machine['processor']} ({machine['mcpu']}), commit {results[0]['commit']}."
    lines = [f"![speed against trials](ablation-{row}.svg)", "", made, ""]
    lines += ["| configuration | seeds | trials | best | range | area | to 90% |", "|---|---|---|---|---|---|---|"]
    for r in results:
        low, high = r["best_range"]
        cells = (r["configuration"], r["seeds"], r["trials"], f"{r['best']:.2f}", f"{low:.2f} to {high:.2f}", f"{r['area']:.2f}")
        lines.append("| " + " | ".join(map(str, (*cells, r["to_90"] or "never"))) + " |")
    return "\n".join(lines)


def plot(results: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Draw the median of each configuration's seeds, and their range, into an SVG file; nothing without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for r in results:
        speeds = np.array(r["speeds"])
        trials = np.arange(1, speeds.shape[1] + 1)
        (line,) = axes.plot(trials, np.median(speeds, axis=0), label=r["configuration"])
        axes.fill_between(trials, speeds.min(axis=0), speeds.max(axis=0), color=line.get_color(), alpha=0.12, linewidth=0)
    axes.set(title=title, xlabel="trials", ylabel="speed relative to the fastest found", ylim=(0, 1.05))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=len(results))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):  # text as text, and the same picture for the same figures
        figure.savefig(path, metadata={"Date": None})
