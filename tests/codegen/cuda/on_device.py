"""The kernels of the suite on a real GPU: `python -m tests.codegen.cuda.on_device [--seconds 180]`. Needs no pytest.

The library's schedules of all workloads at odd sizes, against the float64 references; products on tensor cores, pipelines and split
sums; random rows of the search's sketches; random programs under random schedules, against the interpreter. Each has a process of
its own, some at a time: what poisons its context, or hangs, is wrong by itself.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.cuda.isolated import Tried, attempt
from codegen.target import Target
from schedule import library_cuda, replay
from search.sample import sample
from search.space import generate
from tests.arrays import copies, integers
from tests.codegen.cuda.random_schedules import cases
from tests.search.gpu.candidates import PRODUCTS
from tests.search.gpu.candidates import SHAPES as SMALL
from tests.search.gpu.candidates import case as candidate
from tir import workloads
from tir.interpreter import run
from tir.ir import PrimFunc

SHAPES = {
    "gmm": [(64, 32, 64), (37, 29, 41), (20, 12, 40, 3), (100, 72, 200), (1, 13, 7), (1000, 1000, 1000)],
    "mlp": [(7, 13, 109, 5), (128, 64, 96, 32)],
    "conv2d": [(1, 13, 9, 5, 7, 3, 3, 2, 1), (2, 9, 9, 8, 16, 3, 3, 1, 1), (1, 56, 56, 64, 64, 3, 3, 1, 1)],
    "depthwise": [(1, 13, 9, 5, 3, 3, 2, 1)],
    "softmax": [(7, 109), (4096, 1024)],
    "layernorm": [(7, 109), (3, 1000)],
}


@dataclass(frozen=True)
class Case:
    """A scheduled function with its arguments, and what says whether the arrays are right after a call ("" if so)."""

    name: str
    func: PrimFunc
    arguments: Sequence[Any]
    problem: Callable[[Sequence[Any]], str]


def exact(name: str, func: PrimFunc, scheduled: PrimFunc, seed: int) -> Case:
    """A case whose arguments are integers, which nothing rounds, held against the interpreter."""
    given = integers(func, seed)
    expected = copies(given)
    run(func, *expected)

    def problem(got: Sequence[Any]) -> str:
        same = all(np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True) for a, b in zip(got, expected, strict=True))
        return "" if same else "other numbers"

    return Case(name, scheduled, given, problem)


def library(target: Target) -> Iterator[Case]:
    """The library's schedules of workloads."""
    for name, shapes in SHAPES.items():
        for shape in shapes:
            tried = candidate(name, shape)
            yield Case(f"{name} {shape}", library_cuda.schedule(tried.func, target.arch).func, tried.arguments, tried.problem)
    for name in set(workloads.names()) - set(SHAPES):
        tried = candidate(name, SMALL[name][0])
        yield Case(
            f"{name} {SMALL[name][0]}", library_cuda.schedule(tried.func, target.arch).func, tried.arguments, tried.problem
        )


def products(target: Target) -> Iterator[Case]:
    """The library's schedules on tensor cores, of pipelines and of split sums."""
    from benchmarks.gpu_row import product

    for name, shape in (
        ("float16", (128, 256, 64)), ("float16", (33, 65, 47)), ("bfloat16", (130, 72, 200)), ("tf32", (100, 200, 136)),
        ("float16", (33, 17, 1536)), ("float32", (40, 24, 1024)), ("float32", (131, 259, 136)),
    ):  # fmt: skip
        func = product(name, *shape)
        yield exact(f"{name} {shape}", func, library_cuda.schedule(func, target.arch, tf32=name == "tf32").func, 0)


def candidates(target: Target, rows: int = 2) -> Iterator[Case]:
    """Random rows of the search's sketches, at small odd shapes."""
    rng = np.random.default_rng(0)
    for name, shapes in (SMALL | PRODUCTS).items():
        tried = candidate(name, shapes[0])
        for sketch in generate(tried.func, target):
            for row in sample(sketch, target, rows, rng).tolist():
                func = replay(tried.func, sketch.trace(row)).func
                yield Case(f"{name} {shapes[0]} {sketch} {row}", func, tried.arguments, tried.problem)


def programs(count: int = 60) -> Iterator[Case]:
    """Random programs under random schedules."""
    for seed, func, after, program in cases(range(count)):
        if not isinstance(program, str):
            yield exact(f"random program {seed}", func, after, seed)


def check(groups: dict[str, Iterator[Case]], tries: Callable[[Case], Tried], workers: int, end: float) -> int:
    """The number of cases that are wrong. Those that are not reached before `end` (of `time.monotonic`) are counted apart."""

    def tried(one: Case) -> tuple[Case, str | None]:
        if time.monotonic() > end:
            return one, None
        found = tries(one)
        return one, one.problem(found.outputs) if found.kind == "ok" else f"{found.kind}: {found.message[:300]}"

    wrong = 0
    with ThreadPoolExecutor(workers) as pool:
        for group, made in groups.items():
            results = [future.result() for future in [pool.submit(tried, one) for one in made if time.monotonic() < end]]
            bad = [(one, problem) for one, problem in results if problem]
            late = sum(problem is None for _, problem in results)
            for one, problem in bad:
                print(f"WRONG {one.name}: {problem}\n{one.func.script()}")
            more = ", not all reached" if late or time.monotonic() > end else ""
            print(f"{group}: {len(results) - late - len(bad)} right, {len(bad)} wrong{more}", flush=True)
            wrong += len(bad)
    return wrong


def main() -> int:
    from codegen.cuda.driver import architecture, attribute, devices

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0, help="after which no case is started")
    options = parser.parse_args()
    if not devices():
        print("there is no GPU here", file=sys.stderr)
        return 2
    target = Target("cuda", arch=architecture())
    workers = max(1, min(8, (os.cpu_count() or 1) - 2))
    print(f"{target}, {attribute('MULTIPROCESSOR_COUNT')} multiprocessors; {workers} processes at a time", flush=True)
    groups = {
        "schedules of the library": library(target), "tensor cores, pipelines, split sums": products(target),
        "random rows of sketches": candidates(target), "random programs": programs(),
    }  # fmt: skip
    end = time.monotonic() + options.seconds
    return int(check(groups, lambda c: attempt(c.func, str(target), c.arguments), workers, end) > 0)


if __name__ == "__main__":
    sys.exit(main())
