"""Studies of the search: several searches and models, each with several seeds, as curves with bands."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen import Target
from codegen.cache import data_key
from codegen.runtime.timing import duration
from tir import display
from tir.files import write_atomically
from tir.ir import PrimFunc, need_func

from ..drawing.curves import plot
from ..drawing.html import alone, document, table
from ..keys import key
from ..measure.provenance import fingerprint, versions
from ..names import SEED_LIMIT
from ..tuning.autotune import autotune
from ..tuning.options import Options, check_options
from ..tuning.result import NothingFound

if TYPE_CHECKING:
    from pandas import DataFrame

Named = Sequence[str] | Mapping[str, Any]  # names of autotune, or arguments of it by a label


@dataclass(frozen=True)
class SearchRun:
    """One search: the seconds of the best checked candidate so far after each trial, infinite before the first."""

    policy: str
    model: str
    seed: int
    best: tuple[float, ...]

    @property
    def label(self) -> str:
        return ", ".join(filter(None, (self.policy, self.model)))


@dataclass(frozen=True)
class Study:
    """The runs of a study of one function. `curves` has a matrix for each search and model: a row a seed, a column a trial."""

    name: str
    target: str
    runs: tuple[SearchRun, ...]

    @property
    def curves(self) -> dict[str, np.ndarray]:
        length = max((len(r.best) for r in self.runs), default=0)
        found: dict[str, list[list[float]]] = {}
        for r in self.runs:
            last = r.best[-1] if r.best else inf
            found.setdefault(r.label, []).append([*r.best, *[last] * (length - len(r.best))])
        return {label: np.array(rows) for label, rows in found.items()}

    def frame(self) -> DataFrame:
        """The runs as a pandas frame, a row for each trial: policy, model, seed, trial, and the seconds of the best so far.

        ModuleNotFoundError without pandas.
        """
        from pandas import DataFrame

        rows = [(r.policy, r.model, r.seed, n, best) for r in self.runs for n, best in enumerate(r.best, 1)]
        return DataFrame(rows, columns=["policy", "model", "seed", "trial", "best"])

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for label, curves in self.curves.items():
            half = curves[:, max(0, curves.shape[1] // 2 - 1)]
            cells = (
                _time(np.median(half)),
                _time(np.median(curves[:, -1])),
                _time(curves[:, -1].min()),
                _time(curves[:, -1].max()),
            )
            rows.append((label, str(len(curves)), *cells))
        return rows

    def __str__(self) -> str:
        return f"{self.name} for {self.target}\n{display.aligned_columns([_HEAD, *self._rows()])}\n"

    def __repr__(self) -> str:
        return f"<Study of {self.name}, {len(self.runs)} runs>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> display.Bundle:
        return display.bundle(str(self), display.html_table(_HEAD, self._rows()) + alone(plot(self.curves)))

    def write(self, path: str | Path) -> None:
        """Write the study as one self-contained page of HTML."""
        title = f"{self.name}: a study of the search"
        said = "The line is the median over seeds, the band goes from the fastest to the slowest of them."
        sections = [table(_HEAD, self._rows()), f"<p>{said}</p>{plot(self.curves)}"]
        write_atomically(Path(path), document(title, title, self.target, sections))


_HEAD = ("", "seeds", "after half", "at the end", "fastest", "slowest")


def study(
    func: PrimFunc,
    target: str | Target = "llvm",
    *,
    policies: Named = ("evolution",),
    models: Named = ("",),
    seeds: int | Sequence[int] = 5,
    trials: int = 64,
    file: str | Path | None = None,
    **options: Any,
) -> Study:
    """Search for schedules of `func` with each of `policies`, each of `models` and each seed, `trials` candidates a run.

    Policies and models are those of `autotune`: names, or a dict of its arguments by a label; an empty model is the policy's own.
    A policy of one's own brings its model, so it runs once, without those of `models`.
    Runs take turns by seed, so that a disturbance of the machine affects all. With `file`, each run is kept as a line of JSON,
    and a stopped study goes on after the last one. Runs with other options, on another processor, or under other versions of the
    compiler belong to another study. `options` are others of `autotune`, except `records`. Ctrl-C ends the study, with the runs
    so far. ValueError for an unknown name, and the errors of `autotune`.
    """
    func, target = need_func(func, "study"), Target(target)
    parts = [values if isinstance(values, Mapping) else {v: v for v in values} for values in (policies, models)]
    wanted = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not all(parts) or not wanted or not all(isinstance(s, int) and 0 <= s < SEED_LIMIT for s in wanted) or trials < 1:
        raise ValueError("a study needs a policy, a model, seeds of at least 0, and at least one trial a run")
    pairs = list(dict.fromkeys((s, m if isinstance(parts[0][s], str) else "") for s in parts[0] for m in parts[1]))
    makers, scorers = parts[0], {"": None, **parts[1]}
    known = {k: v for k, v in options.items() if k in {f.name for f in fields(Options)}}
    for policy, model in pairs:
        check_options(Options(**{**known, "policy": makers[policy], "model": scorers[model] or None}))
    if options.get("records") is not None:
        raise ValueError("a study takes no records: each of its runs would learn from those before it; file= keeps the runs")
    described = [key(func), fingerprint(target), versions(), trials, sorted((k, _described(v)) for k, v in options.items())]
    of = data_key(described)[:16]
    runs = dict(_kept_runs(file, of))
    chosen = [(s, m, seed) for seed in wanted for s, m in pairs]
    try:
        for policy, model, seed in chosen:
            if (policy, model, seed) not in runs:
                run = _run(func, target, (policy, makers[policy]), (model, scorers[model] or None), seed, trials, options)
                runs[policy, model, seed] = run
                if file is not None:
                    _append(Path(file), json.dumps({"of": of, **asdict(run)}))
    except KeyboardInterrupt:
        pass
    return Study(func.name, str(target), tuple(runs[c] for c in chosen if c in runs))


def _described(value: Any) -> str:
    """An option as text, the same in each process; functions, and objects without a `__repr__` of their own, by their names."""
    if isinstance(value, np.ndarray):
        return hashlib.sha256(value.tobytes()).hexdigest()
    if isinstance(value, Mapping):
        return str({k: _described(v) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        return str([_described(v) for v in value])
    if type(value).__repr__ is not object.__repr__ and not callable(value):
        return repr(value)
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _append(file: Path, line: str) -> None:
    """Add a line to a file, whose last line may lack its end."""
    with file.open("ab+") as lines:
        if lines.tell():
            lines.seek(-1, os.SEEK_END)
            line = line if lines.read(1) == b"\n" else "\n" + line
        lines.write(f"{line}\n".encode())


def _run(
    func: PrimFunc,
    target: Target,
    policy: tuple[str, Any],
    model: tuple[str, Any],
    seed: int,
    trials: int,
    options: dict[str, Any],
) -> SearchRun:
    """The run of one search; KeyboardInterrupt for an interrupted one."""
    best: tuple[float, ...] = ()
    try:
        result = autotune(func, target, trials, seed=seed, policy=policy[1], model=model[1], **options)
    except NothingFound:
        return SearchRun(policy[0], model[0], seed, best)
    if result.interrupted:
        raise KeyboardInterrupt
    seconds = [m.seconds if m.outcome == "ok" and m.max_error is not None else inf for m in result.measurements]
    return SearchRun(policy[0], model[0], seed, tuple(np.minimum.accumulate(seconds).tolist()))


def _kept_runs(file: str | Path | None, of: str) -> Iterator[tuple[tuple[str, str, int], SearchRun]]:
    """The runs in a file that belong to the study `of`; an unfinished line does not count."""
    if file is None or not Path(file).exists():
        return
    for line in Path(file).read_text().splitlines():
        try:
            data = json.loads(line)
            if data.pop("of") == of:
                run = SearchRun(data["policy"], data["model"], int(data["seed"]), tuple(map(float, data["best"])))
                yield (run.policy, run.model, run.seed), run
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
            continue


def _time(seconds: float) -> str:
    return duration(float(seconds), 3) if np.isfinite(seconds) else "nothing"
