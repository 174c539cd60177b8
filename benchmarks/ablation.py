"""What the parts of the search are worth: the best found against the number of trials, without one part at a time.

Each row is tuned with `--seeds` seeds of `--trials` trials in each of CONFIGURATIONS; what is shown says INTRODUCTION. With
`--minutes M` a row makes as many seeds as its share of the time allows, always as many of each configuration. With `--save DIR`
all candidates are recorded in `DIR/records`, one file a run, so that an interrupted benchmark goes on where it ended. As in
figure 7 of the Ansor paper (OSDI 2020), except that times are those of this machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tir
from search.measure import Candidate, Limits, LocalMeasurer
from search.policy.named import make_policy
from search.records import Record, Records
from search.task import Task
from search.tuning.autotune import autotune, default_candidate
from search.tuning.result import NothingFound
from tir.ir import buffer_nbytes

from . import pages, programs
from .budget import trials, used
from .options import Options
from .runner import Roof, circumstances

# Arguments of `search.policy.named.make_policy`, beside the task; those that replace parts of the evolution come last.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "full": {},
    "no start": {"start": None},
    "ansor space": {"space": "ansor"},
    "limited space": {"space": "limited"},
    "random search": {"policy": "random", "model": "none"},
    "no model": {"model": "none"},
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

RACE = 0.2  # seconds that each of the bests is timed for at the end

GOOD = 0.9  # of the fastest speed of a row

Curve = list[float]  # the best seconds after one trial, after two, ...; infinite while there is no valid candidate


class Ran(NamedTuple):
    """A run: its curve, its best valid candidate or None, its seconds, and after how many each of its trials ended."""

    curve: Curve
    best: Candidate | None
    seconds: float
    ended: tuple[float, ...] = ()


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result a configuration: the curves of its seeds, and how they compare with the fastest of the row."""
    results = compared(row, options, TABLE, CONFIGURATIONS)
    pages.keep(options.save, "ablation", row, {"threads": options.threads, "results": results}, write)
    yield from results


def compared(
    row: str, options: Options, table: Mapping[str, tuple[str, tuple[int, ...]]], configurations: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """The results of a row of a table: one a configuration, by its arguments of `make_policy`.

    Raises ValueError where no run has a candidate, as where the records are of another program."""
    instance = programs.instance(*table[row])
    task = task_of(table[row], options)
    with options.folder() as folder:
        runs = _runs(task, row, folder, options, configurations)
        if not any(ran.ended for made in runs.values() for ran in made):
            raise ValueError(f"{row}: no run has a candidate; its records in {folder / 'records'} are not of this program")
        raced, beside = _race(task, [ran.best for made in runs.values() for ran in made])
    fastest = min(raced)
    about = {
        "fastest_s": fastest if math.isfinite(fastest) else None,
        "gflops": task.flop / fastest / 1e9,
        "shares": Roof.measure(options.threads, instance.dtype).shares(task.flop, buffer_nbytes(*instance.func.buffers), fastest),
        "beside": {name: min(1e3, fastest / seconds) for name, seconds in beside.items() if np.isfinite(fastest)},
        **circumstances(),
    }
    results = []
    for n, (name, made) in enumerate(runs.items()):
        final = raced[n * len(made) : (n + 1) * len(made)]
        figures = summary([ran.curve for ran in made], final, fastest)
        stamps = [list(ran.ended) for ran in made]
        took = float(np.median([ran.seconds for ran in made]))
        results.append({"configuration": name, **figures, "run_s": took, "ended_s": stamps, **about})
    return results


# --- the runs ----------------------------------------------------------------------------------------------------------


def task_of(program: tuple[str, tuple[int, ...]], options: Options) -> Task:
    """The task of a program at a shape."""
    return programs.task_of(programs.instance(*program), tir.Target("llvm", num_cores=options.threads))


def path_of(folder: Path, row: str, configuration: str, seed: int, options: Options) -> Path:
    """Where the candidates of a run are recorded."""
    return folder / "records" / f"{row}-{options.threads}-{configuration.replace(' ', '-')}-{seed}.db"


def ended(path: Path, options: Options) -> Path:
    """The empty file that says that a run has made its trials, or all that its space has."""
    return path.with_suffix(f".{options.trials}")


def _runs(
    task: Task, row: str, folder: Path, options: Options, configurations: Mapping[str, dict[str, Any]]
) -> dict[str, list[Ran]]:
    """The runs of each configuration, a seed after the other as long as there is time; of a seed the configurations in turns, so
    that a busy hour hits all alike."""
    found: dict[str, list[Ran]] = {configuration: [] for configuration in configurations}
    begin = start = time.monotonic()
    longest = 0.0
    for seed in range(options.seed, options.seed + options.seeds):
        for configuration, parts in configurations.items():
            path = path_of(folder, row, configuration, seed, options)
            found[configuration].append(run(task, parts, options, seed, path))
        now = time.monotonic()
        longest, start = max(longest, now - start), now
        racing = 2 * RACE * (len(configurations) * (seed - options.seed + 2))  # what one seed more would have to race
        if options.minutes is not None and now - begin + longest + racing > 60 * options.minutes:
            break
    return found


def run(task: Task, parts: dict[str, Any], options: Options, seed: int, path: Path) -> Ran:
    """Tune as far as `path` does not hold the trials yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Records(path) as records:
        left = 0 if ended(path, options).exists() else options.trials - len(trials(records, task))
        if left > 0:
            try:
                autotune(
                    task.func, task.target, left, records=records, seed=seed, first=(), workload=task.workload,
                    limits=LIMITS, policy=lambda task: make_policy(task, **parts),
                )  # fmt: skip
            except NothingFound:
                pass
        ended(path, options).touch()
        known = trials(records, task)[: options.trials]
    times = [r.measurement.seconds if not r.measurement.cut else math.inf for r in known]
    curve = np.minimum.accumulate([*times, *[math.inf] * (options.trials - len(times))]).tolist()
    best = min((r for r in known if math.isfinite(r.seconds)), key=lambda r: r.seconds, default=None)  # by the run's race
    return Ran(curve, best.measurement.candidate if best else None, used(known)[1], stamps(known))


def stamps(known: Sequence[Record]) -> tuple[float, ...]:
    """The seconds of a run after which each of its trials ended; one that was interrupted went on in another."""
    found: list[float] = []
    before = 0.0
    for n, r in enumerate(known):
        if n and r.run != known[n - 1].run:
            before = found[-1]
        found.append(before + r.time - r.started)
    return tuple(found)


def _race(task: Task, candidates: Sequence[Candidate | None]) -> tuple[list[float], dict[str, float]]:
    """The lower quartiles of the candidates' seconds, timed in turns; infinite where there is none or it fails. And those of the
    default schedule and of numpy, by name."""
    there = [c for c in candidates if c is not None]
    with LocalMeasurer(task, limits=Limits(run=60.0)) as measurer:
        measurer.prepare()
        compared = measurer.compare(
            [*there, default_candidate(task)], numpy=task.workload is not None, rounds=100, seconds=RACE * (len(there) + 5)
        )
    *timed, default = [float(np.quantile(m.samples, 0.25)) if m.outcome == "ok" else math.inf for m in compared.candidates]
    left = iter(timed)
    beside = {"default schedule": default}
    if compared.numpy:
        beside["numpy"] = float(np.quantile(compared.numpy, 0.25))
    return [next(left) if c is not None else math.inf for c in candidates], beside


def summary(curves: Sequence[Curve], final: Sequence[float], fastest: float) -> dict[str, Any]:
    """The figures of one configuration: speeds relative to `fastest` seconds, each curve made to end at what its best took when
    it was timed in turns, `final` (infinite where there is none)."""
    times = np.array(curves, dtype=float)
    found = np.isfinite(times[:, -1:])
    with np.errstate(invalid="ignore"):
        ratios = np.nan_to_num(fastest / np.array(final, dtype=float))  # 0 where no run of the row found anything
        speeds = np.where(found, times[:, -1:] / times, 0.0) * ratios[:, None]
    middle = np.median(speeds, axis=0)
    good = np.flatnonzero(middle >= GOOD)
    return {
        "trials": speeds.shape[1],
        "seeds": len(curves),
        "best": float(middle[-1]),
        "quartiles": np.quantile(speeds[:, -1], (0.25, 0.75)).tolist(),
        "area": float(np.mean(middle)),
        "to_90": int(good[0]) + 1 if len(good) else None,
        "speeds": speeds.round(4).tolist(),
    }


# --- what is shown -----------------------------------------------------------------------------------------------------

COLUMNS = ("configuration", "seeds", "trials", "a run", "best", "quartiles", "area", "to 90%")


def cells(r: dict[str, Any]) -> tuple[str, ...]:
    """A result in COLUMNS."""
    low, high = r["quartiles"]
    return (
        r["configuration"], str(r["seeds"]), str(r["trials"]), f"{r['run_s']:.1f} s", f"{r['best']:.2f}",
        f"{low:.2f}..{high:.2f}", f"{r['area']:.2f}", str(r["to_90"] or "never"),
    )  # fmt: skip


def table(results: Sequence[dict[str, Any]]) -> Any:
    """A line a configuration."""
    from rich.table import Table

    t = Table(title="ablation: speeds relative to the fastest that any run found", title_justify="left")
    for column in ("row", *COLUMNS[:1]):
        t.add_column(column, no_wrap=True)
    for column in COLUMNS[1:]:
        t.add_column(column, justify="right")
    for r in results:
        t.add_row(r["row"], *(("-",) * len(COLUMNS) if "error" in r else cells(r)))
    return t


INTRODUCTION = """# What the parts of the search are worth

Made by `python -m benchmarks ablation --save DIR`. Speeds are relative to the fastest that any run of the row found, all bests
timed in turns at the end. The schedule that needs no search is no candidate of these runs: a curve is the search's own. But in
the full space evolution begins with the seeds of templates, unless it has `no start`. `best` is the median over the seeds, beside
its quartiles; `area` its mean over all trials; `to 90%` the trials after which the median has 90 per cent of the fastest; `a run`
the median seconds of one.
"""


def write(kept: dict[str, dict[str, Any]], folder: Path) -> None:
    """The page and the pictures of all rows that were measured, by name of the row and number of threads."""
    sections = [INTRODUCTION]
    for threads, heading, entries in pages.by_threads(kept, ROWS):
        rows = {entry["row"]: entry["results"] for entry in entries}
        name = f"ablation-{threads}.svg"
        plot(rows, heading, folder / name)
        everything = [r for results in rows.values() for r in results]
        sections.append(f"## {heading}\n\n![speed against trials]({name})\n\n{pages.circumstances(everything)}\n")
        if len(rows) > 1:
            sections.append(f"### Means over the rows\n\n{pages.table(('configuration', 'best', 'area'), means(rows))}\n")
        for row, results in rows.items():
            sections.append(f"### {row}\n\n{about(row, results[0])}\n\n{pages.table(COLUMNS, [cells(r) for r in results])}\n")
    (folder / "ablation.md").write_text("\n".join(sections))


def means(rows: dict[str, list[dict[str, Any]]]) -> list[tuple[str, ...]]:
    """Of each configuration the mean over the rows of `best` and `area`."""
    found = []
    for name in CONFIGURATIONS:
        mine = [r for results in rows.values() for r in results if r["configuration"] == name]
        if mine:
            found.append((name, *(f"{np.mean([r[key] for r in mine]):.2f}" for key in ("best", "area"))))
    return found


def about(row: str, r: dict[str, Any]) -> str:
    """A sentence on the fastest of a row, and what it is beside."""
    program, shape = TABLE[row]
    what = f"`{program}` {','.join(map(str, shape))}"
    if r["fastest_s"] is None:
        return f"{what}: no run found a valid candidate."
    shares = ", ".join(f"{share:.0%} of the peak of {kind}" for kind, share in r["shares"].items())
    speed = f"{r['fastest_s'] * 1e3:.3g} ms, {r['gflops']:.1f} GFLOP/s ({shares})"
    beside = "; ".join(f"{name}: {speed:.2f} of its speed" for name, speed in r["beside"].items())
    return f"{what}. The fastest: {speed}. {beside[:1].upper()}{beside[1:]}."


def _corners(steps: np.ndarray) -> np.ndarray:
    """The indices at which a curve of steps has another value than before, and the last one."""
    return np.union1d(np.flatnonzero(np.diff(steps, prepend=np.nan)), len(steps) - 1)


def plot(rows: dict[str, list[dict[str, Any]]], title: str, path: Path) -> None:
    """Draw a panel a row: the median of each configuration's seeds between their quartiles; nothing without matplotlib."""
    across = min(3, len(rows))
    picture = pages.figure(3.4 * across + 0.4, 2.9 * math.ceil(len(rows) / across) + 0.9)
    if picture is None:
        return
    for n, (row, results) in enumerate(rows.items()):
        axes = picture.add_subplot(math.ceil(len(rows) / across), across, n + 1)
        for r, color in zip(results, pages.SHADES, strict=False):
            low, middle, high = np.quantile(np.array(r["speeds"]), (0.25, 0.5, 0.75), axis=0)
            trials = np.arange(1, len(middle) + 1)
            label = r["configuration"] if n == 0 else None
            at = _corners(middle)
            axes.plot(trials[at], middle[at], label=label, color=color, drawstyle="steps-post")
            if r["seeds"] > 1:
                at = np.union1d(_corners(low), _corners(high))
                axes.fill_between(trials[at], low[at], high[at], color=color, alpha=0.12, linewidth=0, step="post")
        for (name, speed), dashes in zip(results[0]["beside"].items(), ("--", ":"), strict=False):
            axes.axhline(speed, color="black", linewidth=0.9, linestyle=dashes, label=name if n == 0 else None)
        last = max(r["trials"] for r in results)
        ticks = [2**k for k in range(last.bit_length()) if 1.3 * 2**k < last] + [last]
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(t) for t in ticks], minor=False)
        top = max(1.0, *results[0]["beside"].values()) if results[0]["beside"] else 1.0
        axes.set(title=row, ylim=(0, min(1.5, 1.05 * top)), xlim=(1, last))
        axes.grid(alpha=0.3)
        if n % across == 0:
            axes.set_ylabel("speed, of the fastest found")
        if n >= len(rows) - across:
            axes.set_xlabel("trials")
    picture.suptitle(title)
    picture.legend(loc="outside lower center", ncols=4)
    pages.draw(picture, path)
