"""Tuning a network: its groups are tasks, each weighted by how often it is called, under one budget.

Records know functions by their structure, so schedules found for one network serve every other.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.runtime.timing import in_turns
from search.keys import key
from search.measure.protocol import OtherDevices
from search.measure.provenance import fingerprint
from search.records import Records
from search.records.database import Record
from search.task import Task, target_text
from search.tuning.events import Event, Measured, NewBest
from search.tuning.gradient_allocation import Objective
from search.tuning.options import check_budget
from search.tuning.task_scheduler import TasksResult, WeightedFunction, tune_tasks
from tir.ir import PrimFunc

from .alternatives import Alternative, alternatives
from .compilation import compile, formed, passes_for
from .ir import Graph
from .model import Model, kernel_label
from .network import KernelTime, Profile
from .passes import optimize
from .reference import random_inputs

if TYPE_CHECKING:
    from codegen import Target

    from .device import DeviceModel

COMPARED_PROFILES = 3  # profiles of each of two models, in turns; a kernel is slower in the network if it is in all of them
PROFILE_RUNS = 10  # most runs of a model in each profile
MIN_RUNS, MAX_RUNS, SECONDS = 5, 200, 4.0  # calls of each of two models in the final comparison, and its seconds
ENDING_SHARE = 0.2  # share of a budget in seconds for the times of both models at its end, unless a call takes more
MIN_SEARCH_SHARE = 0.1  # the least share of a budget in seconds for the search
MIN_FORM_SECONDS = 50e-6  # least seconds of a function's calls in a network for which its other forms are tuned, too
MIN_FORM_SHARE = 0.02  # least share of the network's time for the same
SHARPNESS = 8.0  # power of the mean that is a smooth minimum of two forms: the longer one counts, too, but less
KERNEL_SECONDS = 0.2  # seconds to compile a tuned kernel where the default one came from the cache; an estimate


@dataclass
class TaskProgress:
    """A task of a network. `before` are the seconds of all its `calls` in one run of the network with the default schedule. Where
    the network does not run here, they are those of as many calls alone, 0 until known. `default` and `best` are the seconds of
    one call alone, None where not known. `trials` counts the candidates so far, `recorded` those of earlier runs."""

    func: PrimFunc
    key: str
    calls: int
    before: float
    default: float | None = None
    best: float | None = None
    trials: int = 0
    recorded: int = 0

    @property
    def label(self) -> str:
        return kernel_label(self.func)

    @property
    def gain(self) -> float:
        """The speedup of the best schedule over the default one, at least 1."""
        return max(1.0, self.default / self.best) if self.default and self.best else 1.0

    @property
    def seconds(self) -> float:
        """The seconds of all its calls in the network with the best schedule, as far as measurements of one call alone tell."""
        return self.before / self.gain


@dataclass(frozen=True)
class Rival:
    """Two forms of a part of a network: the numbers of calls by the keys of functions, by default and in the other form."""

    alternative: Alternative
    own: Counter[str]
    other: Counter[str]

    def gain(self, seconds: Callable[[str], float]) -> float:
        """The seconds that the other form saves, given those of a call of each function."""
        own, other = (sum(n * seconds(k) for k, n in side.items()) for side in (self.own, self.other))
        return own - other

    def mean(self, seconds: Callable[[str], float]) -> float:
        """A smooth minimum of the seconds of both forms, less those of the default one."""
        own, other = (max(1e-12, sum(n * seconds(k) for k, n in side.items())) for side in (self.own, self.other))
        least = min(own, other)
        return least * sum((least / s) ** SHARPNESS for s in (own, other)) ** (-1 / SHARPNESS) - own


@dataclass
class Progress:
    """The tasks of a network, the longest first, and the state of a run. `rivals` are other forms of its parts, and `others` the
    tasks of these forms alone. `other` are the seconds of the network outside of kernels. `curve` has pairs: seconds of the run,
    and of the network from then on. `current` is the task of the last event. `device` is the measuring device where that is not
    this machine: then the network itself is not timed."""

    name: str
    target: str
    tasks: list[TaskProgress]
    other: float
    begun: float = field(default_factory=time.monotonic)
    curve: list[tuple[float, float]] = field(default_factory=list)
    current: TaskProgress | None = None
    device: str | None = None
    rivals: tuple[Rival, ...] = ()
    others: tuple[TaskProgress, ...] = ()

    @property
    def before(self) -> float:
        """Seconds of the network with default schedules."""
        return sum(t.before for t in self.tasks) + self.other

    @property
    def seconds(self) -> float:
        """Seconds of the network with the best schedules so far, estimated."""
        saved = sum(max(0.0, r.gain(lambda k: self.of(k).seconds / self.of(k).calls)) for r in self.rivals)
        return sum(t.seconds for t in self.tasks) + self.other - saved

    @property
    def gain(self) -> float:
        """The speedup of the network by these schedules, estimated."""
        return self.before / self.seconds if self.seconds else 1.0

    @property
    def trials(self) -> int:
        return sum(t.trials for t in (*self.tasks, *self.others))

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.begun

    def note(self, task: Task, event: Event) -> None:
        """Update the progress by an event of a task."""
        own = self.current = self.of(task.key)
        match event:
            case Measured(measurement, trials):
                own.trials = trials
                if measurement.candidate.sketch == "default" and measurement.outcome == "ok":
                    own.default = measurement.seconds
                    if self.device is not None:
                        own.before = own.calls * own.default
            case NewBest(measurement):
                own.best = measurement.seconds
            case _:
                return
        if not self.curve or self.seconds < self.curve[-1][1]:
            self.curve.append((self.elapsed, self.seconds))

    def of(self, known: str) -> TaskProgress:
        """The task of a function with this key."""
        return next(t for t in (*self.tasks, *self.others) if t.key == known)


@dataclass(frozen=True)
class TunedNetwork:
    """The result of tuning a network. `before` and `after` are the median seconds of a call with default schedules and as tuned,
    timed in turns. Where the `model` runs on another device, they are sums over its kernels alone. `kept` are the labels of tasks
    whose default schedule stays, as the tuned one is slower inside of the network. `forms` are the labels of tasks that have
    another form, with its name. `result` is that of all tasks."""

    model: Model | DeviceModel
    before: float
    after: float
    progress: Progress
    kept: tuple[str, ...]
    result: TasksResult
    forms: tuple[str, ...] = ()

    @property
    def interrupted(self) -> bool:
        return self.result.interrupted

    @property
    def elapsed(self) -> float:
        """Seconds that the search took."""
        return self.result.elapsed

    @property
    def problems(self) -> list[str]:
        """The label of each task that was tuned in vain, and the reason."""
        reasons = zip((*self.progress.tasks, *self.progress.others), self.result.problems, strict=True)
        return [f"{task.label}: {reason}" for task, reason in reasons if reason and task.trials]


Callback = Callable[[Progress, Event | None], None]


def tune_graph(
    graph: Graph,
    target: str | Target = "llvm",
    trials: int | None = None,
    seconds: float | None = None,
    *,
    records: str | Path | Records | None = None,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> TunedNetwork:
    """Tune the kernels of a network, and compile it with the best schedules. The budget is `trials` candidates in all, `seconds`
    of wall time, compilations and final times included, or whichever ends first.

    The network is first compiled with default schedules and timed. The search begins with the kernels that take longest, each as
    good as its default or recorded schedule. `records`, a file or an open `Records`, keeps every candidate as it ends. A killed
    run loses nothing, and the next one goes on from there. At the end both models are timed in turns. A kernel that is slower in
    the network than with its default schedule gets that one, in the records too. Parts that take long are tuned in another form,
    too, such as without minimal filtering or in several kernels (`alternatives`). The form that is faster in the network stays,
    also in the records. Where a `measurer` measures on other devices, nothing is timed here: the first candidate of each task is
    its default schedule, whose time counts.

    `callbacks` get the `Progress`, and the event that changed it (None at the start). `options` are further ones of
    `tir.tune_tasks`. Ctrl-C ends the search and keeps the best so far. Raises ValueError for a bad budget, target or option,
    GraphError for a malformed graph, RecordsError for an unusable file.
    """
    check_budget(trials, seconds)
    started = time.monotonic()

    def left() -> float:
        return math.inf if seconds is None else seconds - (time.monotonic() - started)

    with _opened(records) as known:
        before = compile(graph, target)
        compiling = time.monotonic() - started
        inputs = random_inputs(before.graph)
        device = _device(before.target, options.get("measurer"), known)
        progress = _untuned_tasks(before, inputs, known, device)
        here = device is None and isinstance(before, Model)
        forms = _rivals(progress, graph, before, inputs, known) if here else {}
        compiling = time.monotonic() - started if forms else compiling

        def tell(task: Task, event: Event) -> None:
            progress.note(task, event)
            for callback in callbacks:
                callback(progress, event)

        for callback in callbacks:
            callback(progress, None)
        search = None if seconds is None else max(left() - _ending(seconds, compiling, progress), MIN_SEARCH_SHARE * seconds)
        tasks = [*progress.tasks, *progress.others]
        result = tune_tasks(
            [WeightedFunction(t.func, t.calls, seconds=t.before / t.calls or None) for t in tasks],
            target, trials, search, objective=_objective(progress) if forms else None, records=known, seed=seed, callbacks=[tell],
            **options,
        )  # fmt: skip
        after = formed(graph, before.target, known, {}) if forms else compile(graph, target, records=known)
        if device is not None:
            return TunedNetwork(after, progress.before, progress.seconds, progress, (), result)
        both = (2 + 2 * bool(forms)) * max(progress.before, 1e-9)
        runs = int(max(1, min(PROFILE_RUNS, (left() / both - MIN_RUNS - 1) / COMPARED_PROFILES - 1)))
        kept = tuple(_keep_defaults(progress, before, after, inputs, known, seed, runs))
        others: tuple[str, ...] = ()
        if forms:
            again = formed(graph, before.target, known, {}) if kept else after
            others = tuple(_keep_forms(progress, again, formed(graph, before.target, known, forms), inputs, known, runs))
        if kept or forms:
            after = compile(graph, target, records=known)
        samples = in_turns([before.bind(inputs), after.bind(inputs)], min(SECONDS, left()), MIN_RUNS, MAX_RUNS)
        default, tuned = map(statistics.median, samples)
        return TunedNetwork(after, default, tuned, progress, kept, result, others)


def _rivals(progress: Progress, graph: Graph, model: Model, inputs: Mapping[str, np.ndarray], records: Records) -> dict[str, str]:
    """The other forms of the parts that take long, by the keys of functions. The progress gets them, and their tasks."""
    found, least = [], max(MIN_FORM_SECONDS, MIN_FORM_SHARE * progress.before)
    own = {v.name: (key(g.func), g) for g in model.groups for v in g.outputs}
    if all(t.before < least for t in progress.tasks):
        return {}
    for a in alternatives(optimize(graph, passes_for(model.target)), model.target):
        calls = Counter(own[name][0] for name in a.values if name in own)
        if sum(n * progress.of(k).before / progress.of(k).calls for k, n in calls.items()) >= least:
            found.append((a, calls))
    forms = {a.key: a.form for a, _ in found}
    if not forms:
        return {}
    other = formed(graph, model.target, None, forms)
    tasks = {t.key: t for t in _untuned_tasks(other, inputs, records, None).tasks}
    made = {v.name: key(g.func) for g in other.groups for v in g.outputs}
    pairs = [Rival(a, calls, Counter(made[name] for name in a.values if name in made)) for a, calls in found]
    progress.rivals = tuple(r for r in pairs if r.own != r.other)
    known = {t.key for t in progress.tasks}
    progress.others = tuple(tasks[k] for k in dict.fromkeys(k for r in progress.rivals for k in r.other) if k not in known)
    return {r.alternative.key: r.alternative.form for r in progress.rivals}


def _objective(progress: Progress) -> Objective:
    """The seconds of a network whose parts have the faster form each, as a smooth function of the seconds of its tasks."""
    keys = [t.key for t in (*progress.tasks, *progress.others)]
    calls = np.array([t.calls for t in progress.tasks], float)

    def objective(seconds: Sequence[float]) -> float:
        of = dict(zip(keys, seconds, strict=True))
        return float(calls @ np.asarray(seconds[: len(calls)])) + sum(r.mean(of.__getitem__) for r in progress.rivals)

    return objective


def _keep_forms(
    progress: Progress, own: Model, other: Model, inputs: Mapping[str, np.ndarray], records: Records, runs: int
) -> Iterator[str]:
    """Keep in the records the forms that are faster in each of several profiles of the network; yields their labels."""
    gains: list[list[float]] = []
    for _ in range(COMPARED_PROFILES):
        times: dict[str, float] = {}
        for model in (other, own):
            calls = Counter(key(g.func) for g in model.groups)
            times |= {k: seconds / calls[k] for k, seconds in _by_key(model, inputs, runs).items()}
        gains.append([r.gain(times.__getitem__) for r in progress.rivals])
    for rival, saved in zip(progress.rivals, zip(*gains, strict=True), strict=True):
        faster = min(saved) > 0
        records.keep_form(rival.alternative.key, own.target, rival.alternative.form if faster else None)
        if faster:
            yield f"{', '.join(progress.of(k).label for k in rival.own)}: {rival.alternative.form}"


def _ending(seconds: float, compiling: float, progress: Progress) -> float:
    """Seconds to keep for the end of a run: the compilation of the tuned network, and the times of both models."""
    again = max(compiling, KERNEL_SECONDS * len(progress.tasks))
    if progress.device is not None:
        return again
    both = (2 + 2 * bool(progress.rivals)) * progress.before
    least, most = (COMPARED_PROFILES * (runs + 1) * both + (MIN_RUNS + 1) * both for runs in (1, PROFILE_RUNS))
    return again + max(least, min(most + SECONDS, ENDING_SHARE * seconds))


@contextmanager
def _opened(records: str | Path | Records | None) -> Iterator[Records]:
    """The given records, opened; without any, a file for this run alone."""
    if isinstance(records, Records):
        yield records
        return
    with tempfile.TemporaryDirectory(prefix="tir-tune-") as folder, Records(records or Path(folder) / "records.db") as opened:
        yield opened


def _device(target: Target, measurer: Any, records: Records) -> str | None:
    """The name of the measuring device if it is not this machine's, else None; `records` then hold that device's results."""
    devices = measurer.devices(target_text(target)) if isinstance(measurer, OtherDevices) else ()
    if not devices or devices[0].fingerprint == fingerprint(target):
        return None
    records.devices[target] = devices[0].fingerprint
    return devices[0].device


def _untuned_tasks(
    model: Model | DeviceModel, inputs: Mapping[str, np.ndarray], records: Records, device: str | None
) -> Progress:
    """The tasks of a model with default schedules: the seconds of each in the network, if it runs here, and its records."""
    if device is None:
        profile = model.profile(inputs)
    else:
        calls = Counter(g.func for g in model.groups)
        profile = Profile(tuple(KernelTime(kernel_label(func), 0.0, n, func) for func, n in calls.items()), 0.0)
    tasks: dict[str, TaskProgress] = {}
    for row in profile.kernels:
        if row.func is None:
            continue
        task = Task.of(row.func, model.target)
        if (same := tasks.get(task.key)) is not None:  # a function of another name, equal in structure
            same.calls, same.before = same.calls + row.calls, same.before + row.seconds
            continue
        best = records.best(task.key, task.target)
        default = None if best is None else _default_record(records, task)
        seconds, fastest = (None if r is None else r.measurement.seconds for r in (default, best))
        known = len(records.of(task.key, task.target))
        before = row.seconds if device is None else row.calls * (seconds or 0.0)
        tasks[task.key] = TaskProgress(row.func, task.key, row.calls, before, seconds, fastest, recorded=known)
    longest = sorted(tasks.values(), key=lambda t: -t.before)
    return Progress(model.graph.name, str(model.target), longest, profile.copying, device=device)


def _keep_defaults(
    progress: Progress,
    before: Model | DeviceModel,
    after: Model | DeviceModel,
    inputs: Mapping[str, np.ndarray],
    records: Records,
    seed: int,
    runs: int,
) -> Iterator[str]:
    """Keep the default schedules that are faster in the network: they win a race in the records. Yields their labels."""
    profiles = [(_by_key(before, inputs, runs), _by_key(after, inputs, runs)) for _ in range(COMPARED_PROFILES)]
    for own in progress.tasks:
        times = [tuple(profile[own.key] / own.calls for profile in pair) for pair in profiles]
        if any(tuned <= default for default, tuned in times):
            continue
        task = Task.of(own.func, before.target)
        best, default = records.best(task.key, task.target), _default_record(records, task)
        if best is None or default is None or best.id == default.id:
            continue
        raced = {
            record.id: replace(record.measurement, samples=samples)
            for record, samples in zip((default, best), zip(*times, strict=True), strict=True)
        }
        records.race(records.start(task, seed), raced, default.id)
        own.best = own.default
        yield own.label


def _default_record(records: Records, task: Task) -> Record | None:
    """The record of the default schedule of a task, valid and checked, the one measured last."""
    found = [r for r in records.of(task.key, task.target) if r.measurement.candidate.sketch == "default"]
    valid = [r for r in found if r.measurement.outcome == "ok" and r.measurement.max_error is not None]
    trace = task.default_trace() if valid else None
    return next((r for r in reversed(valid) if r.measurement.candidate.trace == trace), None)


def _by_key(model: Model | DeviceModel, inputs: Mapping[str, np.ndarray], runs: int) -> dict[str, float]:
    """The seconds that the calls of each function, named by its key, take in one run of a network."""
    found: dict[str, float] = {}
    for row in model.profile(inputs, runs=runs).kernels:
        if row.func is not None:
            found[key(row.func)] = found.get(key(row.func), 0.0) + row.seconds
    return found
