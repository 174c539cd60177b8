"""Candidates a second that the search draws and scores, proposes, instantiates (replays their traces) and builds, in one process.

`sampled` draws rows; `described` evaluates the features of populations from symbolic sketches, `judged` the trees on features,
`scored` is both and all between, by a model trained on pretended times; `by_formula` is the tile model. `proposed` is the whole
of `propose`, batch after batch; `instantiated` replays traces into programs; `built` lowers and compiles those too. `fit_ms` is
how long the trees take to be grown for 256 measured programs, `sketch_ms` how long deriving the sketches takes, `symbolic_ms` how
long building their symbolic programs, once for each variant among a thousand rows. `statements` is how many a program has.

At last the row is tuned for ten times `--seconds`: `tuned_scored_per_s` is how many candidates were scored a second, what comes
before included (symbolic programs are built, trees grown); `trials_per_s` how many were measured, `measuring` the share of the
time in which the machine ran and checked candidates, the start and the final race included, and `measuring_rounds` the same of
the rounds between these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np

import tir
from costmodel import GBDTModel, TileModel
from costmodel.features import chunks
from schedule import Trace, replay
from search.policy.named import make_policy
from search.population.programs import sketch_programs
from search.population.sample import sample
from search.space import generate
from search.task import Task

from . import programs
from .options import Options
from .runner import circumstances

ROWS = (
    "mlp", "gmm", "conv1d", "conv2d", "conv2d_nhwc", "conv2d_transpose", "conv3d", "conv_bn_relu", "depthwise", "depthwise_nhwc",
    "capsule", "softmax", "layernorm", "norm", "attention_weights", "attention",
)  # fmt: skip

DEFAULT = ("mlp", "conv2d", "softmax")

POPULATION = 8192  # rows that are scored at a time

TRAINED = 256  # programs that the model learned from

SKETCHES = 8  # whose rows are scored in turn

BATCH = 16  # candidates that are proposed at a time


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result. Each rate is measured for an equal share of the time."""
    func = programs.instance(row).func
    target = tir.Target("llvm", num_cores=options.threads)
    rng = np.random.default_rng(options.seed)
    start = time.perf_counter()
    sketches = generate(func, target)
    sketch_seconds = time.perf_counter() - start
    judged = sketches[:SKETCHES]
    populations = {s.name: sample(s, target, POPULATION, rng) for s in judged}
    start = time.perf_counter()
    for s in judged:
        list(sketch_programs(s).programs(populations[s.name]))
    symbolic_seconds = time.perf_counter() - start
    model, formula = GBDTModel(target.machine), TileModel(target.machine)
    for s in judged:
        rows = populations[s.name][: TRAINED // len(judged)]
        model.update(sketch_programs(s), rows, np.exp(rng.standard_normal(len(rows)) - formula.score(sketch_programs(s), rows)))
    start = time.perf_counter()
    model.score(sketch_programs(judged[0]), populations[judged[0].name][:1])
    fit_seconds = time.perf_counter() - start
    search = make_policy(Task.of(func, target))
    traces = cycle([Trace.from_json(c.trace) for c in search.propose(BATCH, rng)])
    turns = {name: cycle(judged) for name in ("sampled", "described", "judged", "scored", "by_formula")}

    def draw() -> int:
        return len(sample(next(turns["sampled"]), target, POPULATION, rng))

    def describe() -> int:
        s = next(turns["described"])
        for members, program in sketch_programs(s).programs(populations[s.name]):
            for statement in program.statements:
                for _ in chunks(statement, populations[s.name][members], model.machine):
                    pass
        return POPULATION

    described = [
        [
            next(chunks(statement, populations[s.name][members], model.machine, extra=1))[1].copy()
            for statement in program.statements
        ]
        for s in judged
        for members, program in [next(iter(sketch_programs(s).programs(populations[s.name])))]
    ]
    turn = cycle(described)

    def judge() -> int:
        matrices = next(turn)
        for matrix in matrices:
            model.forest.predict(matrix)
        return matrices[0].shape[1]

    def score() -> int:
        s = next(turns["scored"])
        return len(model.score(sketch_programs(s), populations[s.name]))

    def by_formula() -> int:
        s = next(turns["by_formula"])
        return len(formula.score(sketch_programs(s), populations[s.name]))

    def instantiate() -> int:
        try:
            replay(func, next(traces))
        except tir.ScheduleError:
            return 0
        return 1

    def build() -> int:
        try:
            tir.build(replay(func, next(traces)).func, target)
        except tir.ScheduleError:
            return 0
        return 1

    rates = {
        "sampled_per_s": draw,
        "described_per_s": describe,
        "judged_per_s": judge,
        "scored_per_s": score,
        "by_formula_per_s": by_formula,
        "proposed_per_s": lambda: len(search.propose(BATCH, rng)),
        "instantiated_per_s": instantiate,
        "built_per_s": build,
    }
    found = {name: rate(work, options.seconds / len(rates)) for name, work in rates.items()}
    found |= tuned(func, target, 10 * options.seconds, options.seed)
    yield {
        "sketches": len(sketches),
        "statements": float(np.mean([len(m) for m in described])),
        "sketch_ms": 1e3 * sketch_seconds,
        "symbolic_ms": 1e3 * symbolic_seconds,
        "fit_ms": 1e3 * fit_seconds,
        **found,
        **circumstances(),
    }


def tuned(func: tir.PrimFunc, target: tir.Target, seconds: float, seed: int) -> dict[str, float]:
    """What a search with a budget in seconds does with its time."""
    try:
        result = tir.autotune(func, target, trials=None, seconds=seconds, seed=seed)
    except tir.NothingFound:
        return dict.fromkeys(("tuned_scored_per_s", "trials_per_s", "measuring", "measuring_rounds"), 0.0)
    phases = result.phases
    rounds = sum(phases[name] for name in ("propose", "build", "run"))
    return {
        "tuned_scored_per_s": result.scored_per_second or 0.0,
        "trials_per_s": len(result.measurements) / result.elapsed,
        "measuring": (phases["run"] + phases["race"]) / result.elapsed,
        "measuring_rounds": phases["run"] / rounds if rounds else 0.0,
    }


def rate(work: Callable[[], int], seconds: float) -> float:
    """How many a second, where a call returns how many it did; at least two calls, the first of which does not count."""
    work()
    done, begin = 0, time.perf_counter()
    while True:
        done += work()
        if (elapsed := time.perf_counter() - begin) >= seconds:
            return done / elapsed
