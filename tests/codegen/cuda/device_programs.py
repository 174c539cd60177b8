"""Programs that GPUs are tested by: convolutions, permutations, open sizes, attention. Needs no pytest."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from benchmarks.gpu_static import SCALE, SUMS
from tests import programs
from tests.arrays import narrowed, widened
from tir import dtypes, te
from tir.ir import PrimFunc, const_shape

ORDERS = [
    ((72, 100), (1, 0)), ((109, 7), (1, 0)), ((7, 1030), (1, 0)), ((2, 13, 9, 5), (0, 3, 1, 2)), ((2, 5, 13, 9), (0, 2, 3, 1)),
    ((3, 4, 5, 1, 6), (4, 3, 0, 2, 1)), ((33, 3, 70), (1, 2, 0)), ((64, 128), (1, 0)),
]  # fmt: skip

CONVOLUTIONS = [
    ((2, 16, 5, 7), 24, 3, 1, 1),
    ((1, 24, 7, 7), 40, 1, 1, 0),
    ((1, 3, 9, 9), 16, 3, 2, 1),
    ((1, 64, 5, 5), 16, 3, 1, 1),
]


def einsum(text: str, extents: dict[str, int]) -> PrimFunc:
    """A sum of products of float32, of letters as `numpy.einsum` reads them."""
    inputs, output = text.split("->")
    given = [te.placeholder([extents[c] for c in x], name=f"X{n}") for n, x in enumerate(inputs.split(","))]
    steps = {c: te.reduce_axis((0, extents[c]), c) for c in dict.fromkeys(inputs) if c not in f"{output},"}

    def element(*at):
        index = {**steps, **dict(zip(output, at, strict=True))}
        factors = [X[tuple(index[c] for c in x)] for X, x in zip(given, inputs.split(","), strict=True)]
        return te.sum(prod(factors[1:], start=factors[0]), axis=[*steps.values()])

    return te.create_prim_func([*given, te.compute([extents[c] for c in output], element, name="Y")])


def permute(shape: tuple[int, ...], order: tuple[int, ...], dtype: str = "float32") -> PrimFunc:
    A = te.placeholder(shape, dtype, name="A")
    result = te.compute(
        tuple(shape[n] for n in order), lambda *i: A[tuple(i[order.index(n)] for n in range(len(shape)))], name="B"
    )
    return te.create_prim_func([A, result])


def sizes_of(*names: int | str) -> tuple[list[Any], list[Any]]:
    """Sizes, a variable for each name, and the variables."""
    made = {name: te.var(name) for name in names if isinstance(name, str)}
    return [made.get(name, name) for name in names], [*made.values()]  # type: ignore[arg-type]


def open_product(
    rows: int | str, columns: int | str, steps: int | str, dtype: str = "float32", transposed: bool = False
) -> PrimFunc:
    extents, given = sizes_of(rows, columns, steps)
    return programs.product(*extents, right="jk" if transposed else "kj", dtypes=(dtype, dtype), sizes=given)


def softmax(rows: int | str, columns: int | str) -> PrimFunc:
    (n, m), given = sizes_of(rows, columns)
    X, k, r = te.placeholder((n, m), name="X"), te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "r")
    most = te.compute((n,), lambda i: te.max(X[i, k], axis=k), name="most")
    power = te.compute((n, m), lambda i, j: te.exp(X[i, j] - most[i]), name="power")
    total = te.compute((n,), lambda i: te.sum(power[i, r], axis=r), name="total")
    return te.create_prim_func([*given, X, te.compute((n, m), lambda i, j: power[i, j] / total[i], name="Y")])


def sum_of_all(rows: int | str, columns: int | str) -> PrimFunc:
    (n, m), given = sizes_of(rows, columns)
    X, k, r = te.placeholder((n, m), name="X"), te.reduce_axis((0, n), "k"), te.reduce_axis((0, m), "r")
    return te.create_prim_func([*given, X, te.compute((), lambda: te.sum(X[k, r], axis=[k, r]), name="S")])


def transposed(planes: int | str, rows: int | str, columns: int | str) -> PrimFunc:
    (p, n, m), given = sizes_of(planes, rows, columns)
    X = te.placeholder((p, n, m), "int8", name="X")
    return te.create_prim_func([*given, X, te.compute((m, p, n), lambda i, j, k: X[j, k, i], name="Y")])


def open_convolution(images: int | str, width: int | str, dtype: str = "float32") -> PrimFunc:
    """Windows of 3 x 3 over images of 7 rows."""
    (n, w), given = sizes_of(images, width)
    X, F = te.placeholder((n, 5, 9, w + 2), dtype, name="X"), te.placeholder((6, 5, 3, 3), dtype, name="F")
    c, r, q = (te.reduce_axis((0, extent), name) for extent, name in ((5, "c"), (3, "r"), (3, "q")))

    def element(n, o, y, x):
        return te.sum(X[n, c, y + r, x + q].astype("float32") * F[o, c, r, q].astype("float32"), axis=[c, r, q])

    return te.create_prim_func([*given, X, F, te.compute((n, 6, 7, w), element, name="Y")])


def norm(rows: int | str, columns: int | str) -> PrimFunc:
    """Rows less their mean, over the root of their mean square."""
    (n, m), given = sizes_of(rows, columns)
    X, k, r = te.placeholder((n, m), name="X"), te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "r")
    total = te.compute((n,), lambda i: te.sum(X[i, k], axis=k), name="total")
    apart = te.compute((n, m), lambda i, j: X[i, j] - total[i] / m, name="apart")
    square = te.compute((n,), lambda i: te.sum(apart[i, r] * apart[i, r], axis=r), name="square")
    Y = te.compute((n, m), lambda i, j: apart[i, j] / te.sqrt(square[i] / m + 0.5), name="Y")
    return te.create_prim_func([*given, X, Y])


def open_argmax(rows: int | str, columns: int | str) -> PrimFunc:
    (n, m), given = sizes_of(rows, columns)
    X, k = te.placeholder((n, m), name="X"), te.reduce_axis((0, m), "k")
    return te.create_prim_func([*given, X, *te.compute((n,), lambda i: te.argmax((k, X[i, k]), axis=k), name="place")])


OPEN = {
    "rows": open_product("n", 40, 24), "rows of halves": open_product("n", 40, 24, "float16"), "rows, across": open_product("n", 40, 24, transposed=True),
    "columns": open_product(40, "m", 24), "columns of halves": open_product(40, "m", 24, "bfloat16"), "steps": open_product(24, 40, "k"),
    "all": open_product("n", "m", "k"), "all halves": open_product("n", "m", "k", "float16"), "softmax": softmax("n", "m"),
    "rows of softmax": softmax("n", 40), "columns of softmax": softmax(7, "m"), "sum": sum_of_all("n", "m"), "columns summed": sum_of_all(7, "m"),
    "images": open_convolution("n", 11), "widths": open_convolution(2, "w"), "images of halves": open_convolution("n", "w", "float16"),
    "norm": norm("n", "m"), "rows of norm": norm("n", 40), "columns of norm": norm(7, "m"),
    "argmax": open_argmax("n", "m"), "rows of argmax": open_argmax("n", 40), "columns of argmax": open_argmax(7, "m"),
    "transposed": transposed("p", "n", "m"), "transposed rows": transposed(3, "n", 5), "transposed columns": transposed(3, 5, "m"),
}  # fmt: skip
VALUES = (1, 13, 50)


def tolerance(name: str, func: PrimFunc, expected: np.ndarray) -> Any:
    """The largest error of elements that follow from integers: of a softmax 8 units in the last place, of a norm those of its sums,
    at its largest element; else none."""
    eps = np.finfo("float32").eps
    if "norm" in name:
        return (const_shape(func.buffers[0])[1] + 8) * eps * abs(expected).max()
    return 8 * eps * abs(expected) if "softmax" in name else 0.0


ATTENTION = [
    ("float16", 33, 70, 17, (2, 1), False), ("bfloat16", 70, 83, 16, (4, 2), True), ("float16", 16, 16, 24, (1, 1), True),
    ("float16", 130, 65, 32, (1, 1), False), ("float32", 70, 83, 17, (2, 1), True), ("float64", 33, 70, 24, (1, 1), False),
    ("float32", 17, 33, 136, (1, 1), False), ("float16", 200, 200, 16, (2, 1), True),
]  # fmt: skip


def draw(func: PrimFunc, seed: int) -> list[np.ndarray]:
    """Normal numbers for the inputs of attention, and zeros for its result."""
    rng = np.random.default_rng(seed)
    shapes = [tuple(int(d.value) for d in b.shape) for b in func.buffers]  # type: ignore[attr-defined]
    storage = [dtypes.storage(b.dtype) for b in func.buffers]
    arrays = [narrowed(rng.normal(0, 1.5, x), b.dtype) for x, b in zip(shapes[:-1], func.buffers, strict=False)]
    return [*arrays, np.zeros(shapes[-1], storage[-1])]


def is_attention(func: PrimFunc, arrays: Sequence[np.ndarray], causal: bool) -> bool:
    """True where the result is that in float64 but for roundings: of a weight and of the result in the type of the arrays, and of sums and
    scores in that of sums, of which exp makes relative errors. Weights may lie below the normal numbers of the type."""
    dtype = func.buffers[0].dtype
    q, k, v, got = (widened(a, dtype).astype(np.float64) for a in arrays)
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores, sizes = q @ k.swapaxes(2, 3) * SCALE, abs(q) @ abs(k).swapaxes(2, 3) * SCALE
    rows, keys = scores.shape[2:]
    if causal:
        scores = np.where(np.arange(keys) <= np.arange(rows)[:, None] + (keys - rows), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    unit, total = dtypes.unit(dtype), dtypes.unit(SUMS[dtype])
    bound = (2 * unit + (2 * (q.shape[3] + 2) * sizes.max() + 2 * keys) * total) * (weights @ abs(v))
    bound += keys * 2.0**-24 * abs(v).max() + unit * 2.0**-14 if dtype == "float16" else 0
    return bool(np.isfinite(got).all() and (abs(got - weights @ v) <= bound).all())
