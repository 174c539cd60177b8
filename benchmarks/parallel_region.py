"""Microseconds from the beginning to the end of a parallel loop of two threads with next to nothing to do.

Each thread writes one line. A row is a way to share out iterations; a call has REGIONS such loops, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tir
from tir import te

from .options import Options
from .runner import Effort, circumstances, race, warm

ROWS = ("static", "dynamic")

DEFAULT = ROWS

THREADS = 2

REGIONS = 1000

LINE = 16  # floats


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: the time of a region, on average over a call."""
    target = tir.Target("llvm", num_cores=THREADS)
    zeros = te.compute((REGIONS, THREADS, LINE), lambda r, t, lane: te.const(0.0, "float32"), name="zeros")
    s = tir.Schedule(te.create_prim_func([zeros]))
    _, thread, lane = s.get_loops("zeros")
    s.vectorize(lane)
    s.parallel(thread)
    if row == "dynamic":
        s.annotate(thread, "schedule", row)
    call = tir.build(s.func, target).bind(np.empty((REGIONS, THREADS, LINE), "float32"))
    timing = race({"tir": call}, Effort(seconds=options.seconds, warm=warm(THREADS)))["tir"]
    low, high = (1e6 * q / REGIONS for q in timing.quartiles)
    yield {"threads": THREADS, "region_us": 1e6 * timing.median / REGIONS, "quartiles_us": [low, high], **circumstances()}
