"""Seconds to make a kernel of a random candidate: replay of its trace, lowering, LLVM IR, machine code, loading.

Candidates are drawn from all sketches of a workload as the search draws them, without looking at how promising they are; so many
that the time is used up, at least LEAST. Each is built once and the object cache is not used. CPU time is that of all threads of
this process. One result more is for the program under `tir.default_schedule`, which stands in the place of the replay.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np

import tir
from codegen import lower
from codegen.llvm.compile import Library, object_code
from codegen.llvm.emit import emit, symbol
from schedule import replay
from search.population.sample import sample
from search.space import generate
from tir.ir import PrimFunc

from . import programs
from .options import Options
from .runner import circumstances, spread

T = TypeVar("T")

ROWS = ("mlp", "gmm", "conv2d", "depthwise", "softmax", "layernorm")

DEFAULT = ROWS

LEAST = 5

PHASES = ("replay", "lower", "emit", "llvm", "load")


class Stopwatch:
    """Wall and CPU seconds by phase; `total` is their sum."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    def time(self, phase: str, work: Callable[[], T]) -> T:
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        self.cpu[phase] = time.process_time() - cpu
        self.wall[phase] = time.perf_counter() - wall
        return result


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """Two results: random candidates, and the default schedule."""
    func = programs.instance(row).func
    target = tir.Target("llvm", num_cores=options.threads)
    rng = np.random.default_rng(options.seed)
    about = circumstances()
    sketches = generate(func, target)
    built(Stopwatch(), lambda: func, target)  # loads and initialises the compiler
    illegal = 0
    watches: list[Stopwatch] = []
    begin = time.perf_counter()
    while len(watches) < LEAST or time.perf_counter() - begin < options.seconds:
        sketch = sketches[(len(watches) + illegal) % len(sketches)]
        trace = sketch.trace(sample(sketch, target, 1, rng)[0].tolist())
        watch = Stopwatch()
        try:
            built(watch, lambda: replay(func, trace).func, target)  # noqa: B023
        except tir.ScheduleError:
            illegal += 1
            if illegal > 10 * (len(watches) + LEAST):
                raise
            continue
        watches.append(watch)
    yield {"candidates": "random", "illegal": illegal, **_summary(watches), **about}

    watches = []
    begin = time.perf_counter()
    while len(watches) < LEAST or time.perf_counter() - begin < options.seconds / 4:
        watches.append(Stopwatch())
        built(watches[-1], lambda: tir.default_schedule(func, target).func, target)
    yield {"candidates": "default", "illegal": 0, **_summary(watches), **about}


def built(watch: Stopwatch, schedule: Callable[[], PrimFunc], target: tir.Target) -> None:
    """Make a kernel step by step, as `tir.build` and the first call do; the time of `schedule` counts as replay."""
    func = watch.time("replay", schedule)
    lowered = watch.time("lower", partial(lower, func, target))
    text = watch.time("emit", partial(emit, lowered, target))
    code = watch.time("llvm", partial(object_code, text, target))
    watch.time("load", lambda: Library([code], [symbol(func)], target).function(symbol(func), len(func.params)))


def _summary(watches: list[Stopwatch]) -> dict[str, Any]:
    """Medians over the kernels, of each phase and of the sum, in milliseconds."""
    wall, cpu = ([getattr(w, kind) for w in watches] for kind in ("wall", "cpu"))
    low, median, high = spread([1e3 * sum(w.values()) for w in wall])
    result: dict[str, Any] = {"kernels": len(watches), "total_ms": median, "quartiles_ms": [low, high]}
    result["cpu_ms"] = spread([1e3 * sum(w.values()) for w in cpu])[1]
    return result | {f"{phase}_ms": ms for phase, ms in _medians(wall).items()}


def _medians(times: list[Mapping[str, float]]) -> dict[str, float]:
    by_phase = defaultdict(list)
    for t in times:
        for phase in PHASES:
            by_phase[phase].append(1e3 * t[phase])
    return {phase: spread(found)[1] for phase, found in by_phase.items()}
