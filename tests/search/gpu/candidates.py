"""Random candidates for GPUs of all workloads, run on this processor and held against the float64 reference.

python -m tests.search.gpu.candidates --rows 10 [--only gmm] [--space full] [--seed 0]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from codegen.cuda import lower_cuda
from codegen.target import Target
from schedule import replay
from search.sample import sample
from search.space import generate
from tests.codegen.cuda.emulation import emulate
from tir import workloads

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


def wrong(name: str, shape: tuple[int, ...], rows: int, seed: int = 0, space: str = "full") -> Iterator[str]:
    """What is wrong with random rows of each sketch, all compiled together; nothing if all are right."""
    rng = np.random.default_rng(seed)
    instance = workloads.make(name, shape)
    inputs = instance.inputs(rng)
    check = instance.checker(inputs)
    cases = [
        (sketch, row)
        for sketch in generate(instance.func, TARGET, space=space)
        for row in sample(sketch, TARGET, rows, rng).tolist()
    ]
    programs = [lower_cuda(replay(instance.func, sketch.trace(row)).func, TARGET) for sketch, row in cases]
    for (sketch, row), kernel in zip(cases, emulate(*programs), strict=True):
        outputs = instance.outputs()
        try:
            kernel(*inputs, *outputs, seed=seed)
        except AssertionError as trap:
            yield f"{name} {shape} {sketch} {row}: {trap}"
            continue
        verdict = check(outputs)
        if not verdict.ok:
            yield f"{name} {shape} {sketch} {row}: {verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4, help="of each sketch")
    parser.add_argument("--only", help="one workload")
    parser.add_argument("--space", default="full")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    bad = 0
    for name, shapes in SHAPES.items():
        for shape in shapes if args.only in (None, name) else ():
            found = list(wrong(name, shape, args.rows, args.seed, args.space))
            print(f"{name} {shape}: {len(found)} wrong", *found, sep="\n", flush=True)
            bad += len(found)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
