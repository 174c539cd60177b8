"""Random candidates of the workloads, each built, run between canaries, and held against a float64 reference.

    python -m tests.search.candidates --count 1000 [--space full] [--seed 0]

Shapes are odd and small, so that a run of 1,000 candidates takes some minutes. Each shape and number of threads has a process of
its own, for wrong code may bring it down: a candidate is printed before it is tried.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

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
        words = [directory, name, ",".join(map(str, shape)), threads, count, seed, space]
        command = [sys.executable, "-c", f"from {__spec__.name} import check; check()", *map(str, words)]
        root = Path(__file__).parents[2]
        found = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=timeout)
    return found.returncode, found.stdout.splitlines(), found.stderr[-2000:]


def failures(status: int, lines: list[str], errors: str, count: int) -> list[str]:
    """The lines of candidates that are not right; where the process ended early, the last one with what it said."""
    failed = [line for line in lines if not line.endswith(": ok ")]
    return [*failed, f"exit status {status}, {len(lines)} of {count} candidates: {errors}"] if status else failed


def check() -> None:
    """Check candidates as the command line says, one line each; runs in a process of its own."""
    import numpy as np

    import codegen
    from codegen.target import Target
    from schedule import replay
    from search.measure.reference import Arrays, Workload, make_reference
    from search.sample import sample
    from search.space import generate

    directory, name, shape, threads, count, seed, space = sys.argv[1:]
    workload = Workload(name, tuple(map(int, shape.split(","))))
    func, target = workload.instance().func, Target("llvm", num_cores=int(threads))
    make_reference(func, workload, int(seed), 0, Path(directory))
    arrays = Arrays(func, Path(directory))
    sketches, rng = generate(func, target, space=space), np.random.default_rng(int(seed))
    for _ in range(int(count)):
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
