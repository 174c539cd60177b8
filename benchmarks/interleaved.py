"""Kernels in turns with calls of other libraries in one process, as in an app: what that takes from them, and from torch's.

A library's idle threads may spin on the cores after its call, and its data pushes that of others out of the caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import tir

from . import cpu, pages, peers, programs
from .options import Options
from .runner import Effort, circumstances, race, warm

THREADED = True

SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "conv-5x5": ("conv2d", (1, 28, 28, 32, 64, 5, 5, 1, 2)),
    "conv-14x256": ("conv2d", (1, 14, 14, 256, 256, 3, 3, 1, 1)),
    "gemm-512": ("gmm", (512, 512, 512)),
    "softmax": ("softmax", (1024, 1024)),
    "attention": ("attention", (12, 128, 64)),
}

ROWS = DEFAULT = tuple(SHAPES)

OTHER = 256  # rows and columns of the matrices that other libraries multiply

ALONE = "alone"

INTRODUCTION = f"""\
# Kernels in turns with other libraries

Made by `python -m benchmarks interleaved --rows all --threads 2 --save DIR`. Ours and torch's are called again and again, and
after a product of {OTHER}×{OTHER} matrices by numpy or torch each time, which is not timed: `x` is how many times as long as
alone a call takes then. What is added after numpy is nearly the same for all, so the shorter a call, the larger its `x`.
"""


class After:
    """A call that is timed, after one of another library that is not."""

    def __init__(self, call: Callable[[], object], other: Callable[[], object]):
        self.call, self.other = call, other

    def __call__(self) -> object:
        self.other()
        return self.call()

    def seconds(self, calls: int) -> float:
        """Seconds of the call, the mean of `calls`."""
        taken = 0.0
        for _ in range(calls):
            self.other()
            start = time.perf_counter()
            self.call()
            taken += time.perf_counter() - start
        return taken / calls


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: of ours and of torch, seconds of a call alone and after each library's, and their ratios."""
    program, shape = SHAPES[row]
    instance = programs.instance(program, shape)
    inputs, outputs = programs.arrays(instance, options.seed)
    rivals = peers.rivals(instance, inputs, outputs, options.threads)
    others = _others(options.seed)
    target = tir.Target("llvm", num_cores=options.threads)
    kernel = tir.build(tir.default_schedule(instance.func, target).func, target)
    calls = {"tir": kernel.bind(*inputs, *outputs), **{name: call for name, call in rivals.items() if name == "torch"}}
    result: dict[str, Any] = {"threads": options.threads, "program": program, "shape": list(shape), **circumstances()}
    check = cpu.checked(calls["tir"], outputs, instance.checker(inputs))
    if not check.ok:
        yield {**result, "error": f"wrong result: {check}"}
        return
    contenders = {
        f"{name} {when}": call if other is None else After(call, other)
        for name, call in calls.items()
        for when, other in {ALONE: None, **others}.items()
    }
    timings = race(contenders, Effort(seconds=options.seconds, warm=warm(options.threads)))
    losses = {
        name: {when: timings[f"{name} {when}"].median / timings[f"{name} {ALONE}"].median for when in others} for name in calls
    }
    result |= {"timings": {name: timing.as_json() for name, timing in timings.items()}, "losses": losses}
    pages.keep(options.save, "interleaved", row, result, write)
    yield result


def _others(seed: int) -> dict[str, Callable[[], object]]:
    """Matrix products of other libraries, by what is said of a call after one."""
    rng = np.random.default_rng(seed)
    a, b = rng.random((2, OTHER, OTHER), "float32")
    c = np.empty_like(a)
    found: dict[str, Callable[[], object]] = {"after numpy": lambda: np.matmul(a, b, out=c)}
    if peers.installed():
        import torch

        x, y, z = map(torch.from_numpy, (a, b, np.empty_like(a)))
        found["after torch"] = lambda: torch.mm(x, y, out=z)
    return found


def lines(results: Sequence[dict[str, Any]]) -> pages.Lines:
    """A line a result: microseconds alone, and how many times as long a call takes after those of others."""
    columns = list(dict.fromkeys((name, when) for r in results for name, of in r.get("losses", {}).items() for when in of))
    names = list(dict.fromkeys(name for name, _ in columns))
    found = []
    for r in results:
        if "losses" not in r:
            found.append(pages.failed(r))
            continue
        alone = [f"{1e6 * r['timings'][f'{n} {ALONE}']['median_s']:.3g} us" if n in r["losses"] else "-" for n in names]
        losses = [f"{r['losses'][n][when]:.2f} x" if when in r["losses"].get(n, {}) else "-" for n, when in columns]
        found.append([r["row"], str(r["threads"]), *alone, *losses])
    return ["row", "threads", *(f"{n} {ALONE}" for n in names), *(f"{n} {when}" for n, when in columns)], found


table, write = pages.both("interleaved", "x: of the time alone", INTRODUCTION, ROWS, lines)
