"""Random candidates of the workloads, each built, run between canaries, and held against a float64 reference.

    python -m tests.search.population.candidates --count 1000 [--space full] [--seed 0]

Shapes are odd and small, so that a run of 1,000 candidates takes some minutes. Each shape and number of threads has a process of
its own, for wrong code may bring it down: a candidate is printed before it is tried. They are forks of one that has imported what
they need.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import codegen
from codegen.target import Target
from schedule import replay
from search.measure.reference import Arrays, NamedWorkload, make_reference
from search.population.sample import sample
from search.space import generate

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "gmm": [(7, 13, 109), (33, 65, 70), (1, 109, 70), (16, 600, 48), (7, 13, 40, 3)],
    "mlp": [(7, 13, 109, 5), (17, 33, 40, 65)],
    "conv2d": [(1, 7, 13, 3, 5, 3, 3, 1, 1), (2, 7, 7, 5, 17, 3, 3, 2, 0)],
    "depthwise": [(1, 7, 13, 5, 3, 3, 1, 1)],
    "conv1d": [(1, 17, 5, 19, 3, 2, 1)],
    "conv2d_nhwc": [(1, 7, 9, 6, 34, 3, 1, 1, 1, 2)],
    "conv3d": [(1, 5, 3, 5, 3, 18, 3, 1, 1)],
    "conv_bn_relu": [(1, 7, 5, 3, 13, 3, 2, 1)],
    "depthwise_nhwc": [(1, 7, 9, 19, 3, 2, 1)],
    "conv2d_transpose": [(1, 3, 5, 7, 18, 4, 2, 1)],
    "capsule": [(1, 3, 5, 2, 3, 3, 1, 1)],
    "norm": [(3, 7, 109), (1, 77, 130)],
    "attention_weights": [(1, 13, 3, 7)],
    "softmax": [(7, 109), (1, 1000)],
    "layernorm": [(13, 70), (109, 40)],
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Check candidates and print those that fail; the exit status is 1 if any does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="candidates in all")
    parser.add_argument("--space", default="full", help="full, ansor or limited")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for the candidates of one shape")
    args = parser.parse_args(arguments)
    cases = [(name, shape, threads) for name, shapes in SHAPES.items() for shape in shapes for threads in (1, 2)]
    good, bad = 0, []
    for n, (name, shape, threads) in enumerate(cases):
        count = args.count * (n + 1) // len(cases) - args.count * n // len(cases)
        if count:
            status, lines, errors = in_process(name, shape, threads, count, args.seed, args.space, args.timeout)
            failed = failures(status, lines, errors, count)
            good += count - len(failed)
            bad += [f"{name} {shape} threads={threads} {line}" for line in failed]
            print(f"{name} {shape} {threads} thread(s): {count - len(failed)} of {count} right", flush=True)
    print(f"{good} of {args.count} candidates equal the reference", *bad, sep="\n")
    return 1 if bad else 0


def in_process(
    name: str, shape: tuple[int, ...], threads: int, count: int, seed: int, space: str, timeout: float
) -> tuple[int, list[str], str]:
    """Check `count` random candidates in a process of their own: its exit status, a line for each, and the end of its errors."""
    with tempfile.TemporaryDirectory() as directory:
        process = FORKS.Process(target=check, args=(Path(directory), name, shape, threads, count, seed, space))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
        assert process.exitcode is not None
        lines = Path(directory, "lines").read_text().splitlines()
        return process.exitcode, lines, Path(directory, "errors").read_text()[-2000:]


def failures(status: int, lines: list[str], errors: str, count: int) -> list[str]:
    """The lines of candidates that are not right; where the process ended early, the last one with what it said."""
    failed = [line for line in lines if not line.endswith(": ok ")]
    return [*failed, f"exit status {status}, {len(lines)} of {count} candidates: {errors}"] if status else failed


def check(directory: Path, name: str, shape: tuple[int, ...], threads: int, count: int, seed: int, space: str) -> None:
    """Check candidates, one line each in the file `lines` of a folder; runs in a process of its own, whose errors are there, too."""
    for number, file in ((1, "lines"), (2, "errors")):
        os.dup2(os.open(directory / file, os.O_WRONLY | os.O_CREAT), number)
    workload = NamedWorkload(name, shape)
    func, target = workload.instance().func, Target("llvm", num_cores=threads)
    make_reference(func, workload, seed, 0, directory)
    arrays = Arrays(func, directory)
    sketches, rng = generate(func, target, space=space), np.random.default_rng(seed)
    for _ in range(count):
        sketch = sketches[rng.integers(len(sketches))]
        (row,) = sample(sketch, target, 1, rng).tolist()
        print(sketch, row, end=": ", flush=True)
        kernel = codegen.build(replay(func, sketch.trace(row)).func, target)
        arrays.reset()
        kernel(*arrays.working)
        verdict = arrays.verdict()
        print(verdict["outcome"], verdict.get("message", ""), flush=True)


if __name__ == "__main__":
    sys.exit(main())
