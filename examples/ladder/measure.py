"""Checks and times the rungs of the ladder and prints a table, a line as each is done."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

import tir
from tir import workloads

from . import DEFAULT, RUNGS, Rung, Shape, rung
from .compare import difference

NUMPY = 0.105  # the published seconds of numpy, one thread
SLOW = 0.5  # seconds: a call that takes longer is timed once


class Wrong(Exception):
    """A rung whose two forms differ, or that does not compute F."""


def seconds(call: Callable[[], object]) -> float:
    """The median of five calls after a first one; the first one alone where it is slow."""
    samples: list[float] = []
    while len(samples) < 6:
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
        if samples[0] > SLOW:
            return samples[0]
    return float(np.median(samples[1:]))


def measure(r: Rung, shape: Shape, instance: workloads.Instance, inputs: workloads.Arrays) -> tuple[float, float]:
    """The seconds of a call on one thread, and the largest error as a share of the bound; raises Wrong."""
    program = r.program(shape)
    if where := difference(r.scheduled(shape).func, program):
        raise Wrong(f"{r.name}: the schedule does not make the script: {where}")
    kernel = tir.build(program, tir.Target("llvm", num_cores=1))
    outputs = instance.outputs()
    taken = seconds(kernel.bind(*inputs, *outputs))
    check = instance.check(outputs, inputs)
    if not check.ok:
        raise Wrong(f"{r.name}: the largest error is {check.max_error:.2g}, the bound {check.tolerance:.2g}")
    return taken, check.max_error / check.tolerance


def ladder(rungs: Sequence[Rung], shape: Shape) -> None:
    """Print the table of the given rungs at a shape. The naive program is always measured, since the ratios are to it."""
    instance = workloads.make("mlp", shape)
    inputs = instance.inputs(np.random.default_rng(0))
    first = RUNGS[0]
    published = shape == DEFAULT
    print(f"F = exp(A·B)·E, float32, M,K,L,N = {','.join(map(str, shape))}, one thread")
    print(f"{'rung':<12}{'seconds':>10}{'GFLOP/s':>10}{'to naive':>10}{'published':>11}{'error':>9}", flush=True)

    naive = 0.0
    for r in (first, *(r for r in rungs if r is not first)):
        taken, error = measure(r, shape, instance, inputs)
        naive = naive or taken
        _row(r.name, taken, instance.flop, naive, r.published if published else None, f"{error:.1%}")
    outputs = instance.outputs()
    taken = seconds(lambda: instance.numpy(inputs, outputs))
    _row("numpy", taken, instance.flop, naive, NUMPY if published else None, "")
    print("to naive: how many times faster than the naive program, here and as published; error: the largest, of its bound")


def _fits(r: Rung, shape: Shape) -> bool:
    try:
        r.check(shape)
    except ValueError as error:
        print(f"left out: {error}")
        return False
    return True


def _row(name: str, taken: float, flop: int, naive: float, published: float | None, error: str) -> None:
    ratio = "" if published is None else f"{RUNGS[0].published / published:.1f}x"  # type: ignore[operator]
    print(f"{name:<12}{taken:>10.4f}{flop / taken / 1e9:>10.1f}{naive / taken:>9.1f}x{ratio:>11}{error:>9}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    p = argparse.ArgumentParser(prog="python -m examples.ladder", description="Programs for F = exp(A·B)·E, from slow to fast.")
    p.add_argument("--shape", default=",".join(map(str, DEFAULT)), metavar="M,K,L,N", help="the sizes (default: %(default)s)")
    p.add_argument("--rungs", metavar="NAMES", help=f"some rungs only, of {','.join(r.name for r in RUNGS)}")
    p.add_argument("--show", action="store_true", help="print the steps and the program of each rung instead of measuring")
    options = p.parse_args(arguments)
    try:
        sizes = [int(size) for size in options.shape.split(",")]
        if len(sizes) != len(Shape._fields):
            raise ValueError(f"--shape takes four sizes M,K,L,N, got {options.shape}")
        shape = Shape(*sizes)
        rungs = [rung(name) for name in options.rungs.split(",")] if options.rungs else list(RUNGS)
        if options.rungs:
            for r in rungs:
                r.check(shape)
    except ValueError as error:
        p.error(str(error))
    if not options.rungs:
        rungs = [r for r in rungs if _fits(r, shape)]
    if options.show:
        for r in rungs:
            s = r.scheduled(shape)
            print(f"# {r.name}: {r.summary}\n\n{s.trace}\n{r.program(shape).script()}")
        return 0
    try:
        ladder(rungs, shape)
    except Wrong as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
