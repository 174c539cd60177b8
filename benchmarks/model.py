"""How well the cost model orders candidates that it has not learned from, by how many it has learned from.

For each row candidates are measured first, half of them drawn at random and half proposed by the search; with `--save DIR` they
are kept in `DIR/ROW.db`, so that a second run only learns. Then, for a few draws, those held out are ordered by a formula (the
tile model), by models that learned from so many of the others, and by one that learned only from the other rows that `DIR` holds,
as a warm start does. Each learns with both losses: `times` add up over the statements of a program, or `throughputs`, as in the
Ansor paper.

`pairs` is the share of pairs of candidates more than 2 per cent apart in the right order, `of a sketch` that of pairs from one
sketch; `top 5%` the share of the fastest twentieth among as many that score highest; `best of 8` the speed of the best of the
eight highest relative to the best of all; means over the draws. `fit_ms` is how long the trees took.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tir
from costmodel import Boosting, CostModel, GBDTModel, Loss, SketchPrograms, ThroughputSum, TimeSum
from costmodel.metrics import count_pairs, pair_accuracy
from search.backends import search_backend
from search.policy.warm_start import by_sketch
from search.population.programs import sketch_programs
from search.records import Records
from search.space import generate
from search.task import Task
from search.tuning.autotune import autotune

from . import programs
from .ablation import DEFAULT, LIMITS, ROWS, TABLE
from .budget import trials
from .options import Options
from .runner import circumstances

TRIALS = 512  # candidates to measure

TAUGHT = (32, 64, 128, 256)  # of them

LOSSES: dict[str, Loss] = {"times": TimeSum(), "throughputs": ThroughputSum()}

HELD = 1 / 3  # the share of them that is held out

DRAWS = 3

APART = 0.02

__all__ = ["DEFAULT", "ROWS", "measure"]


class Known(NamedTuple):
    """Measured candidates of one sketch, a row each, with their seconds."""

    programs: SketchPrograms
    rows: np.ndarray
    seconds: np.ndarray


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """A result for the formula; by loss, one for each number of candidates taught, and one for those of other rows."""
    target = tir.Target("llvm", num_cores=options.threads)
    with options.folder() as folder:
        mine = gathered(row, target, folder, options)
        there = [name for name in ROWS if name != row and (folder / f"{name}.db").exists()]
        others = [known for name in there for known in kept(name, target, folder)]
    total = sum(len(known.seconds) for known in mine)
    draws = [np.random.default_rng([options.seed, n]).permutation(total) for n in range(DRAWS)]
    held = [order[: max(1, round(HELD * total))] for order in draws]

    def result(name: str, taught: Sequence[Sequence[Known]], loss: str = "-") -> dict[str, Any]:
        found, took = [], []
        for seed, (test, lessons) in enumerate(zip(held, taught, strict=True)):
            model: CostModel = search_backend(target).prior(target)
            if lessons:
                model = GBDTModel(target.machine, seed, Boosting(loss=LOSSES[loss]))
                for known in lessons:
                    model.update(*known)
            begin = time.perf_counter()
            model.score(mine[0].programs, mine[0].rows[:1])  # what is new is learned when it is first asked for
            took.append(time.perf_counter() - begin)
            found.append(figures([(model.score(k.programs, k.rows), k.seconds) for k in chosen(mine, test)]))
        means = {name: float(np.mean([f[name] for f in found])) for name in found[0]}
        return {
            "taught": name,
            "loss": loss,
            "held_out": len(held[0]),
            **means,
            "fit_ms": 1e3 * float(np.median(took)),
            **circumstances(),
        }

    yield result("a formula", [()] * DRAWS)
    for count in TAUGHT:
        if count <= total - len(held[0]):
            parts = [chosen(mine, order[len(test) : len(test) + count]) for order, test in zip(draws, held, strict=True)]
            yield from (result(str(count), parts, loss) for loss in LOSSES)
    if others:
        yield from (result("other rows", [others] * DRAWS, loss) for loss in LOSSES)


def figures(judged: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """How well candidates are ordered, given as scores and seconds for each sketch."""
    scores, seconds = (np.concatenate(parts) for parts in zip(*judged, strict=True))
    right, wrong, tied = np.sum([count_pairs(x, s, APART) for x, s in judged], axis=0).tolist()
    return {
        "pairs": float(np.nan_to_num(pair_accuracy(scores, seconds, APART))),
        "of_a_sketch": (right + tied / 2) / max(1, right + wrong + tied),
        "top_5%": top_recall(scores, seconds, max(1, len(seconds) // 20)),
        "best_of_8": best_of_top(scores, seconds, 8),
    }


def chosen(known: Sequence[Known], places: np.ndarray) -> list[Known]:
    """The candidates at some places of all, counted through, of the sketches that have any."""
    found, start = [], 0
    for k in known:
        mine = places[(start <= places) & (places < start + len(k.rows))] - start
        start += len(k.rows)
        if len(mine):
            found.append(Known(k.programs, k.rows[mine], k.seconds[mine]))
    return found


# --- the candidates ----------------------------------------------------------------------------------------------------


def gathered(row: str, target: tir.Target, folder: Path, options: Options) -> list[Known]:
    """The candidates of a row, those that are missing measured first."""
    task = _task(row, target)
    with Records(folder / f"{row}.db") as records:
        for policy, share in (("random", 0.5), ("evolution", 1.0)):
            missing = round(share * options.trials) - len(trials(records, task))
            if missing > 0:
                autotune(
                    task.func, task.target, missing, records=records, seed=options.seed, first=(), workload=task.workload,
                    limits=LIMITS, policy=policy,
                )  # fmt: skip
    return kept(row, target, folder)


def kept(row: str, target: tir.Target, folder: Path) -> list[Known]:
    """The recorded candidates of a row that its sketches make."""
    task = _task(row, target)
    with Records(folder / f"{row}.db") as records:
        measured = [r.measurement for r in records.of(task.key, task.target)]
    examples = by_sketch(measured, generate(task.func, target))
    return [Known(sketch_programs(sketch), rows, seconds) for sketch, rows, seconds in examples]


def _task(row: str, target: tir.Target) -> Task:
    program, shape = TABLE[row]
    instance = programs.instance(program, shape)
    return programs.task_of(instance, target)


def top_recall(scores: np.ndarray, seconds: np.ndarray, k: int) -> float:
    """The share of the k fastest among the k highest scores (Ansor, section 7.4: |G and P| / k)."""
    k = min(k, len(scores))
    if not k:
        return float("nan")
    fastest = np.argsort(seconds, kind="stable")[:k]
    highest = np.argsort(-scores, kind="stable")[:k]
    return len(np.intersect1d(fastest, highest)) / k


def best_of_top(scores: np.ndarray, seconds: np.ndarray, k: int) -> float:
    """The speed of the fastest of the k highest scores, relative to the fastest of all: at most 1."""
    if not len(scores):
        return float("nan")
    return float(seconds.min() / seconds[np.argsort(-scores, kind="stable")[:k]].min())
