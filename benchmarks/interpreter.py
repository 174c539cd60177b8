"""How fast the interpreter runs, in plain Python and compiled by numba, on small programs of odd sizes: both in turns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from tir import interpreter

from . import programs
from .options import Options
from .runner import Effort, circumstances, race

SHAPES = {"gmm": (13, 37, 31), "conv2d": (1, 9, 7, 5, 3, 3, 3, 1, 1), "softmax": (31, 109), "attention": (2, 13, 7)}

ROWS = tuple(SHAPES)

DEFAULT = ("gmm", "softmax")


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """A result for each way: the first call, which translates and compiles, and floating-point operations a second after that."""
    instance = programs.instance(row, SHAPES[row])
    inputs, outputs = instance.inputs(np.random.default_rng(options.seed)), instance.outputs()
    ways = {"python": False, "numba": True}
    calls, firsts = {}, {}
    for name, fast in ways.items():
        start = time.perf_counter()
        compiled = interpreter.compile(instance.func, fast=fast)
        compiled(*inputs, *outputs)
        firsts[name] = time.perf_counter() - start
        calls[name] = lambda compiled=compiled: compiled(*inputs, *outputs)
        if not (found := instance.check(outputs, inputs)).ok:
            raise ArithmeticError(f"{name}: {found}")
    for name, timing in race(calls, Effort(seconds=options.seconds / 2)).items():
        low, median, high = (1e3 * s for s in (timing.quartiles[0], timing.median, timing.quartiles[1]))
        speed = instance.flop / timing.median / 1e6
        yield {
            "way": name,
            "first_s": firsts[name],
            "median_ms": median,
            "quartiles_ms": [low, high],
            "mflops": speed,
            **circumstances(),
        }
