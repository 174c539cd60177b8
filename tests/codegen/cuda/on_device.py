"""The kernels of the suite on a real GPU: `python -m tests.codegen.cuda.on_device`. Needs no pytest.

The library's schedules of all workloads at odd sizes, against the float64 references; random programs under random schedules
against the interpreter, each batch in a process of its own; and the driver's errors.
"""

from __future__ import annotations

import sys

import numpy as np

from codegen.cuda.driver import architecture, attribute, devices
from codegen.cuda.isolated import attempt
from schedule import library_cuda
from tests.codegen.cuda.random_schedules import cases
from tests.codegen.harness import copies, integers
from tir import workloads
from tir.interpreter import run

SHAPES = {
    "gmm": [(64, 32, 64), (37, 29, 41), (20, 12, 40, 3), (100, 72, 200), (1, 13, 7), (1000, 1000, 1000)],
    "mlp": [(7, 13, 109, 5), (128, 64, 96, 32)],
    "conv2d": [(1, 13, 9, 5, 7, 3, 3, 2, 1), (2, 9, 9, 8, 16, 3, 3, 1, 1), (1, 56, 56, 64, 64, 3, 3, 1, 1)],
    "depthwise": [(1, 13, 9, 5, 3, 3, 2, 1)],
    "softmax": [(7, 109), (4096, 1024)],
    "layernorm": [(7, 109), (3, 1000)],
}


def library(target: str) -> int:
    """The number of workloads that went wrong."""
    wrong = 0
    for name, shapes in SHAPES.items():
        for shape in shapes:
            instance = workloads.make(name, shape)
            inputs, outputs = instance.inputs(np.random.default_rng(0)), instance.outputs()
            tried = attempt(library_cuda.schedule(instance.func).func, target, [*inputs, *outputs])
            ok = tried.kind == "ok" and instance.check(tried.outputs[-1:], inputs).ok
            wrong += not ok
            print(
                f"{name:10} {','.join(map(str, shape)):30} {'ok' if ok else 'WRONG'} {tried.seconds * 1e6:10.1f} us {tried.message[:300]}"
            )
    return wrong


def candidates(target: str, rows: int = 2) -> int:
    """The number of random rows of the search's sketches, at small odd shapes, that went wrong."""
    from codegen.target import Target
    from schedule import replay
    from search.sample import sample
    from search.space import generate
    from tests.search.gpu.candidates import SHAPES as SMALL

    wrong = done = 0
    rng = np.random.default_rng(0)
    for name, shapes in SMALL.items():
        instance = workloads.make(name, shapes[0])
        inputs = instance.inputs(rng)
        check = instance.checker(inputs)
        for sketch in generate(instance.func, Target(target)):
            for row in sample(sketch, Target(target), rows, rng).tolist():
                func = replay(instance.func, sketch.trace(row)).func
                tried = attempt(func, target, [*inputs, *instance.outputs()])
                ok = tried.kind == "ok" and check(tried.outputs[-1:]).ok
                wrong, done = wrong + (not ok), done + 1
                if not ok:
                    print(f"{name} {shapes[0]} {sketch} {row}: WRONG {tried.kind} {tried.message[:300]}")
    print(f"{done} random candidates of the search, {wrong} wrong")
    return wrong


def tensor_cores(target: str) -> int:
    """The number of products on tensor cores, pipelines and split sums that went wrong: integers, which none of them rounds."""
    from benchmarks.gpu import product

    wrong = 0
    for name, shape in (
        ("float16", (128, 256, 64)), ("float16", (33, 65, 47)), ("bfloat16", (130, 72, 200)), ("tf32", (100, 200, 136)),
        ("float16", (33, 17, 1536)), ("float32", (40, 24, 1024)), ("float32", (131, 259, 136)),
    ):  # fmt: skip
        func = product(name, *shape)
        args = integers(func, 0)
        expected = copies(args)
        run(func, *expected)
        tried = attempt(library_cuda.schedule(func, target.split()[-1], tf32=name == "tf32").func, target, args)
        ok = tried.kind == "ok" and all(np.array_equal(a, b) for a, b in zip(tried.outputs, expected, strict=True))
        wrong += not ok
        print(
            f"{name:10} {','.join(map(str, shape)):30} {'ok' if ok else 'WRONG'} {tried.seconds * 1e6:10.1f} us {tried.message[:300]}"
        )
    return wrong


def random(target: str, count: int) -> int:
    """The number of random programs that went wrong, of `count` seeds."""
    from codegen.cuda.driver import DeviceArray, synchronize
    from tir import build

    wrong = done = 0
    for seed, func, after, program in cases(range(count)):
        if isinstance(program, str):
            continue
        args = integers(func, seed)
        expected = copies(args)
        run(func, *expected)
        given = [DeviceArray.of(a) if isinstance(a, np.ndarray) else a for a in args]
        build(after, target)(*given)
        synchronize()
        got = [a.numpy() if isinstance(a, DeviceArray) else a for a in given]
        same = all(np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True) for a, b in zip(got, expected, strict=True))
        wrong += not same
        done += 1
        if not same:
            print(f"seed {seed}: WRONG\n{after.script()}")
    print(f"{done} random programs, {wrong} wrong")
    return wrong


def main() -> int:
    if not devices():
        print("there is no GPU here", file=sys.stderr)
        return 2
    target = f"cuda -arch {architecture()}"
    print(f"{target}, {attribute('MULTIPROCESSOR_COUNT')} multiprocessors")
    return int(library(target) + tensor_cores(target) + candidates(target) + random(target, 60) > 0)


if __name__ == "__main__":
    sys.exit(main())
