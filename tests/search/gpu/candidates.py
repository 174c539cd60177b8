"""Random candidates for GPUs, run on this processor: of all workloads against the float64 reference, and of products on tensor
cores, of integers that none of them rounds, against the interpreter.

python -m tests.search.gpu.candidates --rows 10 [--only gmm] [--space full] [--seed 0] [--arch sm_90]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from codegen.cuda import lower_cuda
from codegen.target import Target
from schedule import replay
from search.population.sample import sample
from search.space import generate
from tests import programs
from tests.arrays import copies, integers
from tests.codegen.cuda.emulation import emulate
from tir import workloads
from tir.interpreter import run
from tir.ir import PrimFunc

TARGET = Target("cuda")
SHAPES = {
    "gmm": [(7, 13, 109), (1, 109, 13), (37, 41, 53), (7, 13, 11, 3)],
    "mlp": [(7, 13, 41, 5)],
    "conv1d": [(1, 17, 5, 7, 3, 2, 1)],
    "conv2d": [(1, 13, 9, 5, 7, 3, 3, 2, 1)],
    "conv2d_nhwc": [(1, 7, 5, 4, 6, 3, 1, 2, 2, 2), (1, 7, 9, 5, 7, 3, 1, 1)],
    "conv3d": [(1, 5, 3, 5, 3, 5, 3, 1, 1)],
    "conv_bn_relu": [(1, 7, 5, 3, 5, 3, 1, 1)],
    "depthwise": [(1, 13, 9, 5, 3, 3, 1, 1)],
    "depthwise_nhwc": [(1, 7, 9, 5, 3, 1, 1)],
    "conv2d_transpose": [(1, 5, 5, 3, 7, 4, 2, 1)],
    "capsule": [(1, 5, 5, 3, 5, 3, 1, 1)],
    "softmax": [(7, 109), (1, 40)],
    "layernorm": [(7, 109)],
    "norm": [(3, 17, 40), (1, 37, 41)],
    "attention_weights": [(1, 13, 3, 7)],
}

PRODUCTS = {
    "float16": [(33, 65, 47)],
    "float16 to float16, transposed": [(17, 29, 109)],
    "bfloat16, batch": [(3, 37, 41, 53)],
    "tf32": [(48, 40, 36)],
    "tf32, transposed": [(17, 29, 59)],
    "int8": [(33, 65, 47)],
    "uint8, transposed": [(17, 29, 109)],
    "float64": [(33, 25, 47)],
}


@dataclass(frozen=True)
class Case:
    """A function, its arguments, and what says whether the arrays are right after a call ("" if so)."""

    func: PrimFunc
    arguments: list[np.ndarray]
    problem: Callable[[Sequence[np.ndarray]], str]


def case(name: str, shape: tuple[int, ...]) -> Case:
    """A workload, or one of PRODUCTS."""
    if name in PRODUCTS:
        func = product(name, *shape)
        given = integers(func, 0)
        expected = copies(given)
        run(func, *expected)
        return Case(func, given, lambda got: "" if np.array_equal(got[-1], expected[-1]) else "other numbers")
    instance = workloads.make(name, shape)
    inputs = instance.inputs(np.random.default_rng(0))
    check = instance.checker(inputs)

    def problem(got: Sequence[np.ndarray]) -> str:
        verdict = check(tuple(got[len(inputs) :]))
        return "" if verdict.ok else str(verdict)

    return Case(instance.func, [*inputs, *instance.outputs()], problem)


def product(name: str, *shape: int) -> PrimFunc:
    """A product (batch, M, N, K) summed in float32, int32 or float64: the name begins with the type of the factors, and says whether the result is
    converted to float16, the second factor lies transposed, and there is a batch. Those of tf32 may be rounded."""
    *batch, M, N, K = shape
    factor = "float32" if "tf32" in name else name.split(",")[0].split(" ")[0]
    total = {"int8": "int32", "uint8": "int32", "float64": "float64"}.get(factor, "float32")
    right, attrs = "jk" if "transposed" in name else "kj", {"tf32": True} if "tf32" in name else None
    after = (lambda c, _: c.astype("float16")) if "to float16" in name else None
    return programs.product(M, N, K, "ik", right, (factor, factor), total, tuple(batch), after, attrs=attrs)


def wrong(
    name: str, shape: tuple[int, ...], rows: int, seed: int = 0, space: str = "full", target: Target = TARGET
) -> Iterator[str]:
    """What is wrong with random rows of each sketch, all compiled together; nothing if all are right."""
    rng = np.random.default_rng(seed)
    tried = case(name, shape)
    cases = [
        (sketch, row)
        for sketch in generate(tried.func, target, space=space)
        for row in sample(sketch, target, rows, rng).tolist()
    ]
    programs = [lower_cuda(replay(tried.func, sketch.trace(row)).func, target) for sketch, row in cases]
    for (sketch, row), kernel in zip(cases, emulate(*programs), strict=True):
        arrays = copies(tried.arguments)
        try:
            kernel(*arrays, seed=seed)
        except AssertionError as trap:
            yield f"{name} {shape} {sketch} {row}: {trap}"
            continue
        if problem := tried.problem(arrays):
            yield f"{name} {shape} {sketch} {row}: {problem}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4, help="of each sketch")
    parser.add_argument("--only", help="one workload")
    parser.add_argument("--space", default="full")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--arch", default=TARGET.arch)
    args = parser.parse_args()
    bad = 0
    for name, shapes in (SHAPES | PRODUCTS).items():
        for shape in shapes if args.only in (None, name) else ():
            found = list(wrong(name, shape, args.rows, args.seed, args.space, Target("cuda", arch=args.arch)))
            print(f"{name} {shape}: {len(found)} wrong", *found, sep="\n", flush=True)
            bad += len(found)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
