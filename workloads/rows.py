"""Computations on the rows of a matrix: softmax, layer normalisation; and the norm of a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tir import te
from tir.ir import PrimFunc

from .workload import EPSILON, INTRINSIC_ROUNDINGS, Arrays, Bounded, Parameter, Workload, rows_of

# --- softmax -----------------------------------------------------------------------------------------------------------


def _softmax_build(dtype: str, rows: int, columns: int) -> PrimFunc:
    X = te.placeholder((rows, columns), dtype, name="X")
    k = te.reduce_axis((0, columns), name="k")
    top = te.compute((rows,), lambda i: te.max(X[i, k], axis=k), name="top")
    power = te.compute((rows, columns), lambda i, j: te.exp(X[i, j] - top[i]), name="power")
    total = te.compute((rows,), lambda i: te.sum(power[i, k], axis=k), name="total")
    Y = te.compute((rows, columns), lambda i, j: power[i, j] / total[i], name="Y")
    return te.create_prim_func([X, Y], name="softmax")


def _softmax_draw(rng: np.random.Generator, rows: int, columns: int) -> Arrays:
    """Rows of different magnitudes, some so large that exp overflows in float32 unless the largest element is subtracted."""
    return (rng.uniform(-4, 4, (rows, columns)) + rng.uniform(-200, 200, (rows, 1)),)


def softmax(X: np.ndarray, out: np.ndarray) -> None:
    """softmax of each row of `X`, written to `out`, which may be `X`."""
    for group in rows_of(*X.shape):
        x, y = X[group], out[group]
        np.subtract(x, np.max(x, axis=1, keepdims=True), out=y)
        np.exp(y, out=y)
        np.divide(y, np.sum(y, axis=1, keepdims=True), out=y)


def exact_softmax(X: np.ndarray) -> np.ndarray:
    power = np.exp(X - np.max(X, axis=-1, keepdims=True))
    return power / np.sum(power, axis=-1, keepdims=True)


def _softmax_reference(inputs: Arrays, rows: int, columns: int) -> tuple[Bounded, ...]:
    """The difference d is rounded once. exp turns that into a relative error of |d| u, and adds an intrinsic's. Both errors occur
    in the numerator and in the sum of positive terms, which adds gamma(columns). The division is one rounding."""
    value, largest = exact_softmax(inputs[0]), float(np.max(np.ptp(inputs[0], axis=1)))
    return (Bounded(value, value, 2 * (largest + INTRINSIC_ROUNDINGS) + columns + 1),)


# --- layernorm ---------------------------------------------------------------------------------------------------------


def _layernorm_build(dtype: str, rows: int, columns: int) -> PrimFunc:
    X = te.placeholder((rows, columns), dtype, name="X")
    weight = te.placeholder((columns,), dtype, name="weight")
    bias = te.placeholder((columns,), dtype, name="bias")
    k = te.reduce_axis((0, columns), name="k")
    size, epsilon = te.const(columns, dtype), te.const(EPSILON, dtype)
    total = te.compute((rows,), lambda i: te.sum(X[i, k], axis=k), name="total")
    mean = te.compute((rows,), lambda i: total[i] / size, name="mean")
    centred = te.compute((rows, columns), lambda i, j: X[i, j] - mean[i], name="centred")
    squares = te.compute((rows,), lambda i: te.sum(centred[i, k] * centred[i, k], axis=k), name="squares")
    factor = te.compute((rows,), lambda i: te.rsqrt(squares[i] / size + epsilon), name="factor")
    Y = te.compute((rows, columns), lambda i, j: centred[i, j] * factor[i] * weight[j] + bias[j], name="Y")
    return te.create_prim_func([X, weight, bias, Y], name="layernorm")


def _layernorm_draw(rng: np.random.Generator, rows: int, columns: int) -> Arrays:
    """Values of both signs, with a nonzero mean."""
    return rng.uniform(-1, 2, (rows, columns)), rng.uniform(0.5, 1.5, columns), rng.uniform(-1, 1, columns)


def _layernorm_numpy(dtype: str, rows: int, columns: int) -> Callable[[Arrays, Arrays], None]:
    def run(inputs: Arrays, outputs: Arrays) -> None:
        X, weight, bias = inputs
        for group in rows_of(rows, columns):
            x, y = X[group], outputs[0][group]
            np.subtract(x, np.mean(x, axis=1, keepdims=True), out=y)
            squares = np.einsum("ij,ij->i", y, y)
            np.multiply(y, (1 / np.sqrt(squares / columns + EPSILON)).astype(dtype)[:, None], out=y)
            np.multiply(y, weight, out=y)
            np.add(y, bias, out=y)

    return run


def _layernorm_reference(inputs: Arrays, rows: int, columns: int) -> tuple[Bounded, ...]:
    """To first order in u, for c columns, with a = mean |x|, d = x - mean, f = 1/sqrt(variance + epsilon), t = d f weight:

    mean       off by (c + 1) a u, so d by (c + 1) a u + |d| u;
    variance   off, relative to variance + epsilon, by (c + 6) u of its own roundings and by 2 (c + 1) a f u from the mean;
    f          relatively off by half of that and an intrinsic's error;
    t + bias   |weight| f (c + 1) a u + |t| (1 + (c + 6)/2 + (c + 1) a f + INTRINSIC_ROUNDINGS + 2) u + |t + bias| u.

    The coefficients of |t|, |bias| and |weight| f a are each at most the n returned.
    """
    X, weight, bias = inputs
    centred = X - X.mean(axis=1, keepdims=True)
    factor = 1 / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + EPSILON)
    spread = factor * np.mean(np.abs(X), axis=1, keepdims=True) * (columns > 1)  # the mean of one column is exact
    term = centred * factor * weight
    scale = np.abs(term) + np.abs(bias) + np.abs(weight) * spread
    roundings = (columns + 6) * (0.5 + float(np.max(spread))) + columns / 2 + INTRINSIC_ROUNDINGS + 4
    return (Bounded(term + bias, scale, roundings),)


# --- norm --------------------------------------------------------------------------------------------------------------

MAX_EXACT_INTEGER = 1 << 24  # float32 represents every integer up to here


def _norm_build(dtype: str, batch: int, M: int, N: int) -> PrimFunc:
    A = te.placeholder((batch, M, N), dtype, name="A")
    i, j = te.reduce_axis((0, M), name="i"), te.reduce_axis((0, N), name="j")
    squares = te.compute((batch,), lambda b: te.sum(A[b, i, j] * A[b, i, j], axis=[i, j]), name="squares")
    Y = te.compute((batch,), lambda b: te.sqrt(squares[b]), name="Y")
    return te.create_prim_func([A, Y], name="norm")


def _norm_draw(rng: np.random.Generator, batch: int, M: int, N: int) -> Arrays:
    """Values of both signs, none small. They are integers if float32 sums their squares exactly: any wrong sum shows."""
    largest = min(16, math.isqrt(MAX_EXACT_INTEGER // (M * N)))
    sizes = rng.integers(1, largest, (batch, M, N), endpoint=True) if largest else rng.uniform(0.5, 1, (batch, M, N))
    return (sizes * rng.choice((-1.0, 1.0), (batch, M, N)),)


def _norm_numpy(dtype: str, batch: int, M: int, N: int) -> Callable[[Arrays, Arrays], None]:
    def run(inputs: Arrays, outputs: Arrays) -> None:
        for n, matrix in enumerate(inputs[0].reshape(batch, M * N)):
            outputs[0][n] = np.sqrt(np.dot(matrix, matrix))

    return run


def _norm_reference(inputs: Arrays, batch: int, M: int, N: int) -> tuple[Bounded, ...]:
    """A sum of M·N positive terms errs by gamma(M·N), exact integers by nothing; the root halves that and adds its own."""
    squares = np.einsum("bij,bij->b", inputs[0], inputs[0])
    exact = squares.max() <= MAX_EXACT_INTEGER and bool((inputs[0] == np.rint(inputs[0])).all())
    value = np.sqrt(squares)
    return (Bounded(value, value, (0 if exact else M * N / 2) + INTRINSIC_ROUNDINGS),)


_MATRIX = (Parameter("rows", 1024, "number of rows"), Parameter("columns", 1024, "number of columns"))

WORKLOADS = (
    Workload(
        name="softmax",
        summary="softmax of each row, numerically stable: largest element, exponentials, their sum, quotient",
        parameters=_MATRIX,
        build=_softmax_build,
        draw=_softmax_draw,
        numpy=lambda *sizes: lambda inputs, outputs: softmax(inputs[0], outputs[0]),
        reference=_softmax_reference,
        flop=lambda rows, columns: 5 * rows * columns,
    ),
    Workload(
        name="layernorm",
        summary="each row minus its mean, over its standard deviation, times a weight, plus a bias",
        parameters=_MATRIX,
        build=_layernorm_build,
        draw=_layernorm_draw,
        numpy=_layernorm_numpy,
        reference=_layernorm_reference,
        flop=lambda rows, columns: rows * (7 * columns + 4),
    ),
    Workload(
        name="norm",
        summary="the Frobenius norm of each matrix of a batch",
        parameters=(
            Parameter("batch", 1, "number of matrices"),
            Parameter("M", 1024, "number of rows"),
            Parameter("N", 1024, "number of columns"),
        ),
        build=_norm_build,
        draw=_norm_draw,
        numpy=_norm_numpy,
        reference=_norm_reference,
        flop=lambda batch, M, N: batch * (2 * M * N + 1),
    ),
)
