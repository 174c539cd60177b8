"""Random networks of open sizes, for all of which one plan must serve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph import Builder, Graph, OpenGraph, Value
from graph.sizes import Dimension, OpenInput

WIDTH = 6
BATCH, ROWS = "batch", "rows"
STEPS = (
    "product",
    "scores",
    "softmax",
    "norm",
    "add",
    "scaled",
    "transposed",
    "joined",
    "split",
    "merged",
    "counted",
    "masked",
    "table",
    "sum",
)


def drawn(seed: int) -> OpenGraph:
    """A network of `batch` matrices of `rows` rows: some steps on two inputs, two outputs."""
    rng = np.random.default_rng(seed)
    steps = rng.choice(STEPS, size=rng.integers(2, 7)).tolist()
    weights = rng.uniform(-1, 1, (8, WIDTH, WIDTH)).astype("float32")
    table = rng.uniform(-1, 1, (64, WIDTH)).astype("float32")

    def read(shapes: dict[str, Sequence[int]]) -> Graph:
        builder, choices = Builder(f"random{seed}"), np.random.default_rng(seed + 1)
        x = builder.input("x", shapes["x"], "float32")
        z = builder.input("z", shapes["z"], "float32")
        made = [x, z]
        for n, step in enumerate(steps):
            made.append(_step(builder, step, made[int(choices.integers(len(made)))], made[-1], weights[n], table))
        return builder.graph(made[-1], builder("Mul", made[len(made) // 2], made[-2]))

    shape: tuple[Dimension, ...] = (BATCH, ROWS, WIDTH)
    inputs = tuple(OpenInput(name, shape, "float32") for name in "xz")
    return OpenGraph(f"random{seed}", inputs, ("y", "both"), read)


def _step(b: Builder, step: str, x: Value, y: Value, weights: np.ndarray, table: np.ndarray) -> Value:
    """A matrix for each of a batch, made from two of them."""
    batch, rows, width = x.shape
    w = b.constant(weights)
    match step:
        case "product":
            return b("MatMul", x, w)
        case "scores":
            scores = b("MatMul", x, b("Transpose", y, perm=(0, 2, 1)))
            return b("MatMul", b("Softmax", scores, axis=-1), x)
        case "softmax":
            return b("Softmax", x, axis=-1)
        case "norm":
            return b("RMSNormalization", x, b.constant(weights[0, 0]))
        case "add":
            return b("Relu", b("Add", x, y))
        case "scaled":
            return b("Mul", b("Tanh", x), b.constant(weights[2, 0]))
        case "transposed":
            t = b("Transpose", x, perm=(1, 0, 2))
            return b("Transpose", b("MatMul", t, w), perm=(1, 0, 2))
        case "joined":
            both = b("Concat", x, y, axis=0)
            return b("Slice", b("Sigmoid", both), starts=(0,), ends=(batch,), axes=(0,))
        case "split":
            half = b("Reshape", x, shape=(batch, rows, 2, width // 2), allowzero=1)
            return b("Reshape", b("Transpose", half, perm=(0, 1, 3, 2)), shape=(batch, rows, width), allowzero=1)
        case "merged":
            flat = b("MatMul", b("Reshape", x, shape=(batch * rows, width), allowzero=1), w)
            return b("Reshape", flat, shape=(batch, rows, width), allowzero=1)
        case "counted":
            return b("Mul", x, b.constant(np.array([rows + 2 * batch], "float32")))
        case "masked":
            mask = np.triu(np.full((rows, rows), -2, "float32"), 1)
            scores = b("Add", b("MatMul", x, b("Transpose", y, perm=(0, 2, 1))), b.constant(mask))
            return b("MatMul", b("Softmax", scores, axis=-1), y)
        case "table":
            return b("Add", x, b.constant(table[:rows]))
        case _:
            return b("Sub", x, b("ReduceSum", y, axes=(1,), keepdims=1))
