"""Candidates a second that the search draws and scores, proposes, instantiates (replays their traces) and builds, in one process.

`scored` draws populations and lets the cost model judge them; `proposed` is the whole of `propose`, batch after batch;
`instantiated` replays traces into programs; `built` lowers and compiles those too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np

import tir
from costmodel import TileModel
from schedule import Trace, replay
from search.family import family
from search.geometry import machine
from search.sample import sample
from search.space import generate
from search.strategies import search as named_search
from search.task import Task

from . import programs
from .options import Options
from .runner import circumstances

ROWS = ("mlp", "gmm", "conv2d", "depthwise", "softmax", "layernorm")

DEFAULT = ("mlp", "conv2d", "softmax")

POPULATION = 1024  # rows that are drawn and scored at a time

BATCH = 16  # candidates that are proposed at a time


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result. Each rate is measured for a quarter of the time."""
    func = programs.instance(row).func
    target = tir.Target("llvm", num_cores=options.threads)
    rng = np.random.default_rng(options.seed)
    start = time.perf_counter()
    sketches = generate(func, target)
    sketch_seconds = time.perf_counter() - start
    model = TileModel(machine(target))
    families = {s.name: family(s) for s in sketches}
    search = named_search(Task.of(func, target))
    turn = cycle(sketches)

    def score() -> int:
        sketch = next(turn)
        rows = sample(sketch, target, POPULATION, rng)
        model.score(families[sketch.name], rows)
        return len(rows)

    traces = cycle([Trace.from_json(c.trace) for c in search.propose(BATCH, rng)])

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
        "scored_per_s": score,
        "proposed_per_s": lambda: len(search.propose(BATCH, rng)),
        "instantiated_per_s": instantiate,
        "built_per_s": build,
    }
    found = {name: rate(work, options.seconds / len(rates)) for name, work in rates.items()}
    yield {"sketches": len(sketches), "sketch_ms": 1e3 * sketch_seconds, **found, **circumstances()}


def rate(work: Callable[[], int], seconds: float) -> float:
    """How many a second, where a call returns how many it did; at least two calls, the first of which does not count."""
    work()
    done, begin = 0, time.perf_counter()
    while True:
        done += work()
        if (elapsed := time.perf_counter() - begin) >= seconds:
            return done / elapsed
