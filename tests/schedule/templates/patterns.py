"""Programs of the kinds that the library knows, at any shape, with float64 references and bounds of their errors.

Each function draws extents from `rng` and returns a Case. Bounds are those of sums in any order: n roundings of float32 are at most
gamma(n) = n u / (1 - n u) of the sum of the absolute values (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import inf, prod
from typing import Any

import numpy as np

import tir
from schedule import templates
from schedule.open_schedule import OpenSchedule
from schedule.primitive import find_block
from schedule.templates.block_analysis import Contraction
from schedule.templates.conv2d import Convolution
from schedule.templates.depthwise import Windows
from search.space import generate
from tests import programs
from tests.arrays import integers
from tests.codegen.harness import ONE, TWO, same
from tir import te
from tir.constants import with_constants
from tir.interpreter import run
from tir.ir import Block, Expr, For, Iter, Kind, PrimFunc
from tir.traverse import blocks, loops_to, walk_stmts

UNIT = float(np.finfo("float32").eps) / 2
ODD = (1, 2, 3, 5, 7, 13, 16, 17, 31, 33, 64, 97, 109)


@dataclass(frozen=True)
class Case:
    """A function, its inputs, what it should give, and by how much it may differ."""

    func: PrimFunc
    inputs: tuple[np.ndarray, ...]
    expected: np.ndarray
    bound: np.ndarray


def gamma(n: int) -> float:
    return n * UNIT / (1 - n * UNIT)


def _sizes(rng: np.random.Generator, n: int, options: tuple[int, ...] = ODD) -> list[int]:
    return [int(x) for x in rng.choice(options, n)]


def _data(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(-1, 1, shape).astype("float32")


def _einsum(rule: str, a: np.ndarray, b: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    a, b = a.astype("float64"), b.astype("float64")
    return np.einsum(rule, a, b), gamma(steps) * np.einsum(rule, abs(a), abs(b))


def product(rng: np.random.Generator) -> Case:
    """C = A·B, with either operand transposed or not, and sometimes relu after it."""
    M, K, N = _sizes(rng, 3)
    left, right, relu = rng.integers(2, size=3)
    lie = "ki" if left else "ik", "jk" if right else "kj"
    func = programs.product(M, N, K, *lie, after=(lambda c, _: te.maximum(c, te.const(0.0, "float32"))) if relu else None)
    a, b = _data(rng, *((K, M) if left else (M, K))), _data(rng, *((N, K) if right else (K, N)))
    value, bound = _einsum(f"{lie[0]},{lie[1]}->ij", a, b, K)
    return Case(func, (a, b), np.maximum(value, 0) if relu else value, bound)


def batched(rng: np.random.Generator) -> Case:
    """C[b] = A[b]·B[b], or with two axes of rows and one matrix B for all."""
    batch, M, K, N = _sizes(rng, 4, (1, 2, 3, 5, 13, 17, 40))
    shared = bool(rng.integers(2))
    A = te.placeholder((batch, M, K), name="A")
    B = te.placeholder((K, N) if shared else (batch, K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((batch, M, N), lambda b, i, j: te.sum(A[b, i, k] * (B[k, j] if shared else B[b, k, j]), axis=k), name="C")
    a, b = _data(rng, batch, M, K), _data(rng, *((K, N) if shared else (batch, K, N)))
    value, bound = _einsum(f"bik,{'kj' if shared else 'bkj'}->bij", a, b, K)
    return Case(te.create_prim_func([A, B, C]), (a, b), value, bound)


def pairs(rng: np.random.Generator) -> Case:
    """Reductions that have the form of a product: squared distances, or least sums (as in shortest paths), of rows of A and B."""
    M, K, N = _sizes(rng, 3)
    least, right = rng.integers(2, size=2)
    A, B = te.placeholder((M, K), name="A"), te.placeholder((N, K) if right else (K, N), name="B")
    k = te.reduce_axis((0, K), name="k")

    def pair(i, j):
        a, b = A[i, k], B[j, k] if right else B[k, j]
        return a + b if least else (a - b) * (a - b)

    C = te.compute((M, N), lambda i, j: (te.min if least else te.sum)(pair(i, j), axis=k), name="C")
    a, b = _data(rng, M, K), _data(rng, *((N, K) if right else (K, N)))
    x, y = a.astype("float64")[:, None], (b if right else b.T).astype("float64")[None]
    if least:
        value, bound = (x + y).min(-1), gamma(1) * (abs(x) + abs(y)).max(-1)
    else:
        value, bound = ((x - y) ** 2).sum(-1), gamma(K + 2) * ((x - y) ** 2).sum(-1)
    return Case(te.create_prim_func([A, B, C]), (a, b), value, bound)


def few(rng: np.random.Generator) -> Case:
    """A product of a few rows or a few columns with a sum long enough for vectors, either operand transposed or not, batched."""
    batch, small, large = int(rng.integers(1, 4)), int(rng.integers(1, 25)), int(rng.integers(24, 70))
    M, N = (small, large) if rng.integers(2) else (large, small)
    K = int(rng.integers(120, 300))
    left, right = rng.integers(2, size=2)
    shapes = (batch, *((K, M) if left else (M, K))), (batch, *((N, K) if right else (K, N)))
    A, B = te.placeholder(shapes[0], name="A"), te.placeholder(shapes[1], name="B")
    k = te.reduce_axis((0, K), name="k")

    def term(b, i, j):
        return (A[b, k, i] if left else A[b, i, k]) * (B[b, j, k] if right else B[b, k, j])

    C = te.compute((batch, M, N), lambda b, i, j: te.sum(term(b, i, j), axis=k), name="C")
    a, b = _data(rng, *shapes[0]), _data(rng, *shapes[1])
    value, bound = _einsum(f"b{'ki' if left else 'ik'},b{'jk' if right else 'kj'}->bij", a, b, K)
    return Case(te.create_prim_func([A, B, C]), (a, b), value, bound)


def vector(rng: np.random.Generator) -> Case:
    """y = A·x or y = x·A, x a vector or a matrix of one row, y a vector or a matrix of one row or column."""
    M, K = _sizes(rng, 2, (*ODD, 128, 256, 300))
    across, row = rng.integers(2, size=2)
    shape = ((M,), (M, 1), (1, M))[rng.integers(3)]
    A = te.placeholder((K, M) if across else (M, K), name="A")
    x = te.placeholder((1, K) if row else (K,), name="x")
    k = te.reduce_axis((0, K), name="k")

    def term(i):
        return (A[k, i] if across else A[i, k]) * (x[0, k] if row else x[k])

    y = te.compute(shape, lambda *i: te.sum(term(i[shape.index(M)]), axis=k), name="y")
    a, v = _data(rng, *((K, M) if across else (M, K))), _data(rng, *((1, K) if row else (K,)))
    value, bound = _einsum("ki,k->i" if across else "ik,k->i", a, v.reshape(K), K)
    return Case(te.create_prim_func([A, x, y]), (a, v), value.reshape(shape), bound.reshape(shape))


def outer(M: int, N: int, left: bool) -> PrimFunc:
    """C[i, j] = A[i] * B[j], a sum over an axis of one element, which is one of A where it is in the `left` factor."""
    A, B = te.placeholder((M, 1) if left else (M,), name="A"), te.placeholder((N,), name="B")
    k = te.reduce_axis((0, 1), name="k")
    C = te.compute((M, N), lambda i, j: te.sum((A[i, k] if left else A[i]) * B[j], axis=k), name="C")
    return te.create_prim_func([A, B, C])


def convolution(rng: np.random.Generator) -> Case:
    """A convolution with stride, padding and dilation, in NCHW or NHWC, with relu after it or not; groups in NCHW."""
    (N,), (groups,) = _sizes(rng, 1, (1, 2)), _sizes(rng, 1, (1, 1, 3))
    CI, CO = _sizes(rng, 2, (3, 16, 17, 33, 64))
    KH, KW = _sizes(rng, 2, (2, 3, 3, 5))
    stride, padding, dilation = (int(rng.integers(low, high)) for low, high in ((1, 3), (0, 3), (1, 3)))
    reach = dilation * (max(KH, KW) - 1) + 1
    H, W = (int(rng.integers(reach, reach + 14)) for _ in range(2))
    relu, last = bool(rng.integers(2)), bool(rng.integers(2)) and groups == 1
    shape = (N, H, W, CI) if last else (N, groups, CI, H, W)
    weights = (KH, KW, CI, CO) if last else (groups, CO, CI, KH, KW)
    X, K = te.placeholder(shape, name="X"), te.placeholder(weights, name="K")
    OH, OW = ((size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for size, kernel in ((H, KH), (W, KW)))

    def padded(n, g, c, h, w):
        inside = te.all(h >= padding, h < H + padding, w >= padding, w < W + padding)
        at = (n, h - padding, w - padding, c) if last else (n, g, c, h - padding, w - padding)
        return te.if_then_else(inside, X[at], te.const(0.0, "float32"))

    if last:
        P = te.compute((N, H + 2 * padding, W + 2 * padding, CI), lambda n, h, w, c: padded(n, 0, c, h, w), name="P")
    else:
        P = te.compute((N, groups, CI, H + 2 * padding, W + 2 * padding), padded, name="P")
    P = P if padding else X
    c, r, q = te.reduce_axis((0, CI), name="c"), te.reduce_axis((0, KH), name="r"), te.reduce_axis((0, KW), name="q")

    def value(n, g, o, h, w):
        y, x = h * stride + r * dilation, w * stride + q * dilation
        return te.sum(P[n, y, x, c] * K[r, q, c, o] if last else P[n, g, c, y, x] * K[g, o, c, r, q], axis=[c, r, q])

    if last:
        Y = te.compute((N, OH, OW, CO), lambda n, h, w, o: value(n, 0, o, h, w), name="Y")
    else:
        Y = te.compute((N, groups, CO, OH, OW), value, name="Y")
    out = Y
    if relu:
        out = te.compute(Y.shape, lambda *i: te.maximum(Y[i], te.const(0.0, "float32")), name="Z")
    image, kernel = _data(rng, *shape), _data(rng, *weights)
    x5 = np.moveaxis(image, 3, 1)[:, None] if last else image
    k5 = np.transpose(kernel, (3, 2, 0, 1))[None] if last else kernel
    x5 = np.pad(x5, ((0, 0),) * 3 + ((padding, padding),) * 2)
    windows = _windows(x5, KH, KW, stride, dilation)
    expected, bound = _einsum("ngchwrq,gocrq->ngohw", windows, k5, CI * KH * KW)
    if last:
        expected, bound = (np.moveaxis(a[:, 0], 1, 3) for a in (expected, bound))
    return Case(te.create_prim_func([X, K, out]), (image, kernel), np.maximum(expected, 0) if relu else expected, bound)


def grouped(groups: int, each: int, own: int, size: int, kernel: int, stride: int, relu: bool) -> Case:
    """A convolution in NCHW whose output channels say by a quotient which `own` channels they see; `each` see the same ones."""
    rng, padding, O, C = np.random.default_rng(groups), kernel // 2, groups * each, groups * own
    X, K = te.placeholder((1, C, size, size), name="X"), te.placeholder((O, own, kernel, kernel), name="K")

    def padded(n, c, h, w):
        inside = te.all(h >= padding, h < size + padding, w >= padding, w < size + padding)
        return te.if_then_else(inside, X[n, c, h - padding, w - padding], te.const(0.0, "float32"))

    P = te.compute((1, C, size + 2 * padding, size + 2 * padding), padded, name="P") if padding else X
    c, r, q = (te.reduce_axis((0, n), name=name) for n, name in ((own, "c"), (kernel, "r"), (kernel, "q")))
    OH = (size + 2 * padding - kernel) // stride + 1

    def value(n, o, h, w):
        return te.sum(P[n, o // each * own + c, h * stride + r, w * stride + q] * K[o, c, r, q], axis=[c, r, q])

    out = Y = te.compute((1, O, OH, OH), value, name="Y")
    if relu:
        out = te.compute(Y.shape, lambda *i: te.maximum(Y[i], te.const(0.0, "float32")), name="Z")
    image, weights = _data(rng, 1, C, size, size), _data(rng, O, own, kernel, kernel)
    x5 = np.pad(image, ((0, 0),) * 2 + ((padding, padding),) * 2).reshape(1, groups, own, *P.shape[2:])
    seen, k5 = _windows(x5, kernel, kernel, stride, 1), weights.reshape(groups, each, own, kernel, kernel)
    expected, bound = (a.reshape(1, O, OH, OH) for a in _einsum("ngchwrq,gocrq->ngohw", seen, k5, own * kernel**2))
    return Case(te.create_prim_func([X, K, out]), (image, weights), np.maximum(expected, 0) if relu else expected, bound)


def _windows(x: np.ndarray, KH: int, KW: int, stride: int, dilation: int) -> np.ndarray:
    """What each output sees of the last two axes: (..., OH, OW, KH, KW)."""
    seen = np.lib.stride_tricks.sliding_window_view(x, (dilation * (KH - 1) + 1, dilation * (KW - 1) + 1), axis=(-2, -1))
    return seen[..., ::stride, ::stride, ::dilation, ::dilation]


def channels(rng: np.random.Generator) -> Case:
    """A depthwise convolution in NCHW or NHWC, with relu after it or not."""
    N, C = _sizes(rng, 2, (1, 2, 5, 16, 19))
    KH, KW = _sizes(rng, 2, (1, 3, 5))
    stride, padding = int(rng.integers(1, 3)), int(rng.integers(0, 3))
    H, W = (int(rng.integers(5, 40)) for _ in range(2))
    relu, last = rng.integers(2, size=2)
    shape = (N, H, W, C) if last else (N, C, H, W)
    weights = (KH, KW, C) if last else (C, KH, KW)
    X, K = te.placeholder(shape, name="X"), te.placeholder(weights, name="K")
    OH, OW = ((size + 2 * padding - kernel) // stride + 1 for size, kernel in ((H, KH), (W, KW)))

    def padded(n, c, h, w):
        inside = te.all(h >= padding, h < H + padding, w >= padding, w < W + padding)
        at = (n, h - padding, w - padding, c) if last else (n, c, h - padding, w - padding)
        return te.if_then_else(inside, X[at], te.const(0.0, "float32"))

    larger = (N, H + 2 * padding, W + 2 * padding, C) if last else (N, C, H + 2 * padding, W + 2 * padding)
    P = te.compute(larger, (lambda n, h, w, c: padded(n, c, h, w)) if last else padded, name="P") if padding else X
    r, q = te.reduce_axis((0, KH), name="r"), te.reduce_axis((0, KW), name="q")

    def value(n, c, h, w):
        y, x = h * stride + r, w * stride + q
        return te.sum(P[n, y, x, c] * K[r, q, c] if last else P[n, c, y, x] * K[c, r, q], axis=[r, q])

    Y = te.compute(
        (N, OH, OW, C) if last else (N, C, OH, OW), (lambda n, h, w, c: value(n, c, h, w)) if last else value, name="Y"
    )
    out = te.compute(Y.shape, lambda *i: te.maximum(Y[i], te.const(0.0, "float32")), name="Z") if relu else Y
    image, kernel = _data(rng, *shape), _data(rng, *weights)
    x4, k4 = (np.moveaxis(image, 3, 1), np.moveaxis(kernel, 2, 0)) if last else (image, kernel)
    windows = _windows(np.pad(x4, ((0, 0),) * 2 + ((padding, padding),) * 2), KH, KW, stride, 1)
    expected, bound = _einsum("nchwrq,crq->nchw", windows, k4, KH * KW)
    if last:
        expected, bound = (np.moveaxis(a, 1, 3) for a in (expected, bound))
    return Case(te.create_prim_func([X, K, out]), (image, kernel), np.maximum(expected, 0) if relu else expected, bound)


def pools(rng: np.random.Generator) -> Case:
    """Largest elements or sums of windows, in NCHW or NHWC, padded with what changes neither, and twice that, or not."""
    N, C = _sizes(rng, 2, (1, 2, 5, 16, 19))
    kernel, stride, dilation, padding = (int(rng.integers(low, high)) for low, high in ((2, 4), (1, 4), (1, 3), (0, 2)))
    H, W = (int(rng.integers(7, 40)) for _ in range(2))
    largest, after, last = rng.integers(2, size=3)
    extents, moved = ((N, H, W, C), (1, 2)) if last else ((N, C, H, W), (2, 3))
    X = te.placeholder(extents, name="X")
    OH, OW = ((n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for n in (H, W))
    nothing = -np.inf if largest else 0.0

    def padded(*i):
        inside = te.all(*(te.all(i[d] >= padding, i[d] < extents[d] + padding) for d in moved))
        at = tuple(v - padding if d in moved else v for d, v in enumerate(i))
        return te.if_then_else(inside, X[at], te.const(nothing, "float32"))

    larger = [n + 2 * padding if d in moved else n for d, n in enumerate(extents)]
    P = te.compute(larger, padded, name="P") if padding else X
    r, q = te.reduce_axis((0, kernel), name="r"), te.reduce_axis((0, kernel), name="q")

    def value(n, c, h, w):
        y, x = h * stride + r * dilation, w * stride + q * dilation
        return (te.max if largest else te.sum)(P[n, y, x, c] if last else P[n, c, y, x], axis=[r, q])

    shape = (N, OH, OW, C) if last else (N, C, OH, OW)
    Y = te.compute(shape, (lambda n, h, w, c: value(n, c, h, w)) if last else value, name="Y")
    out = te.compute(shape, lambda *i: Y[i] * te.const(2.0, "float32"), name="Z") if after else Y
    image = _data(rng, *extents)
    x4 = np.moveaxis(image, 3, 1) if last else image
    edges = ((0, 0),) * 2 + ((padding, padding),) * 2
    seen = _windows(np.pad(x4.astype("float64"), edges, constant_values=nothing), kernel, kernel, stride, dilation)
    expected = (seen.max((-2, -1)) if largest else seen.sum((-2, -1))) * (2 if after else 1)
    bound = np.zeros_like(expected) if largest else 2 * gamma(kernel**2) * abs(seen).sum((-2, -1))
    if last:
        expected, bound = (np.moveaxis(a, 1, 3) for a in (expected, bound))
    return Case(te.create_prim_func([X, out]), (image,), expected, bound)


def centred(rng: np.random.Generator) -> Case:
    """Each row minus its mean, over one or two axes of rows: a sum of a row, and a use of the row after it."""
    lead, rows, columns = _sizes(rng, 3, (1, 2, 7, 33, 64, 109, 256))
    two = bool(rng.integers(2))
    shape = (min(lead, 7), rows, columns) if two else (rows, columns)
    X = te.placeholder(shape, name="X")
    k = te.reduce_axis((0, columns), name="k")
    total = te.compute(shape[:-1], lambda *i: te.sum(X[(*i, k)], axis=k), name="total")
    mean = te.compute(shape[:-1], lambda *i: total[i] / te.const(float(columns), "float32"), name="mean")
    Y = te.compute(shape, lambda *i: X[i] - mean[i[:-1]], name="Y")
    x = _data(rng, *shape)
    wide = x.astype("float64")
    average = wide.mean(-1, keepdims=True)
    bound = gamma(columns + 2) * (abs(wide) + abs(wide).mean(-1, keepdims=True))
    return Case(te.create_prim_func([X, Y]), (x,), wide - average, np.broadcast_to(bound, shape))


def chain(rng: np.random.Generator) -> Case:
    """Elementwise stages over one, two or three axes, one of them read in another order or repeated along an axis."""
    shape = tuple(_sizes(rng, int(rng.integers(1, 4)), (1, 2, 7, 16, 33, 109)))
    A, B = te.placeholder(shape, name="A"), te.placeholder(shape[-1:], name="B")
    S = te.compute(shape, lambda *i: A[i] + B[i[-1]], name="S")
    T = te.compute(shape, lambda *i: S[i] * S[i], name="T")
    Y = te.compute(shape[::-1], lambda *i: T[i[::-1]] - te.const(1.0, "float32"), name="Y")
    a, b = _data(rng, *shape), _data(rng, shape[-1])
    s = a.astype("float64") + b
    magnitude = (abs(a) + abs(b)).astype("float64") ** 2 + 1
    return Case(te.create_prim_func([A, B, Y]), (a, b), (s * s - 1).T, gamma(4) * magnitude.T)


def permuted(rng: np.random.Generator) -> Case:
    """An array with its dimensions in another order, plus one in this order."""
    shape = tuple(_sizes(rng, int(rng.integers(2, 5)), (1, 3, 7, 16, 19, 33, 65)))
    order = [int(n) for n in rng.permutation(len(shape))]
    inverse = [order.index(n) for n in range(len(shape))]
    result = tuple(shape[n] for n in order)
    A, B = te.placeholder(shape, name="A"), te.placeholder(result, name="B")
    Y = te.compute(result, lambda *i: A[tuple(i[n] for n in inverse)] + B[i], name="Y")
    a, b = _data(rng, *shape), _data(rng, *result)
    value = a.transpose(order).astype("float64") + b
    return Case(te.create_prim_func([A, B, Y]), (a, b), value, gamma(1) * abs(value))


def pieces(rng: np.random.Generator) -> Case:
    """Rows of two matrices one after the other, with zeros around them."""
    rows, first, second, left, right = (int(n) for n in rng.integers(1, 60, 5))
    A, B = te.placeholder((rows, first), name="A"), te.placeholder((rows, second), name="B")
    zero, width = te.const(0.0, "float32"), left + first + second + right

    def value(i, j):
        inner = te.if_then_else(j < left + first, A[i, j - left], B[i, j - left - first])
        return te.if_then_else(te.all(left <= j, j < width - right), inner, zero)

    Y = te.compute((rows, width), value, name="Y")
    a, b = _data(rng, rows, first), _data(rng, rows, second)
    expected = np.pad(np.concatenate([a, b], 1), ((0, 0), (left, right)))
    return Case(te.create_prim_func([A, B, Y]), (a, b), expected, np.zeros_like(expected))


def total(rng: np.random.Generator) -> Case:
    """The sum of a matrix along its rows, across them, or both."""
    M, N = _sizes(rng, 2, (*ODD, 256, 600))
    rows, columns = ((0, 1), (1, 0), (1, 1))[rng.integers(3)]
    A = te.placeholder((M, N), name="A")
    i, j = te.reduce_axis((0, M), name="i"), te.reduce_axis((0, N), name="j")
    if rows and columns:
        S = te.compute((1,), lambda o: te.sum(A[i, j], axis=[i, j]), name="S")
    elif rows:
        S = te.compute((N,), lambda o: te.sum(A[i, o], axis=i), name="S")
    else:
        S = te.compute((M,), lambda o: te.sum(A[o, j], axis=j), name="S")
    a = _data(rng, M, N)
    axes = tuple(n for n, reduced in enumerate((rows, columns)) if reduced)
    wide = a.astype("float64")
    count = (M if rows else 1) * (N if columns else 1)
    expected, bound = wide.sum(axes), gamma(count) * abs(wide).sum(axes)
    return Case(te.create_prim_func([A, S]), (a,), expected.reshape(-1), bound.reshape(-1))


PATTERNS: dict[str, Callable[[np.random.Generator], Case]] = {
    f.__name__: f
    for f in (product, batched, pairs, few, vector, convolution, channels, pools, centred, chain, permuted, pieces, total)
}

# --- programs by rules -----------------------------------------------------------------------------------------------------

EXTENTS = {
    "b": 3,
    "g": 2,
    "i": 7,
    "j": 13,
    "k": 5,
    "n": 2,
    "c": 6,
    "o": 10,
    "h": 9,
    "w": 11,
    "r": 3,
    "q": 3,
    "z": 1,
    "y": 1,
    "x": 1,
}
PAIRS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "a*b": lambda a, b: a * b,
    "b*a": lambda a, b: b * a,
    "a+b": lambda a, b: a + b,
    "(a-b)^2": lambda a, b: (a - b) * (a - b),
    "a*a": lambda a, b: a * a + b * 0,
}


def by_rule(
    rule: str, pair: str = "a*b", total: Callable[..., Any] = te.sum, kind: str = "float32", kinds: tuple[str, str] | None = None,
    where: Callable[[dict[str, Any]], Expr] | None = None, after: Callable[..., Expr] | None = None,
    constants: Iterable[str] = (), **extents: int,
) -> PrimFunc:  # fmt: skip
    """Y = the total over pairs of elements of A and B, or over elements of A, whose indices a rule gives: `"ik kj -> ij"` is a
    product of matrices. An index is a letter, a sum as in `(2h+r)`, a quotient as in `(o/5)`, or 0; axes that are not in the
    result are summed, in the order of the alphabet. `where` keeps some terms only; Z is `after` of the elements of Y."""
    left, _, right = rule.partition("->")
    factors, result = [_indices(f) for f in left.split()], _indices(right.strip())
    sizes = EXTENTS | extents
    letters = sorted({c for f in factors for i in f for c in re.findall("[a-z]", i)})
    summed = {c: te.reduce_axis((0, sizes[c]), name=c) for c in letters if c not in "".join(result)}
    shape = tuple(_reach(i, sizes) for i in result)
    tensors = [
        te.placeholder([_reach(i, sizes) for i in f], type_, name=name)
        for f, name, type_ in zip(factors, "AB", kinds or (kind, kind), strict=False)
    ]

    def value(*at: Any) -> Expr:
        axes = summed | dict(zip(result, at, strict=True))
        read = [X[tuple(_at(i, axes) for i in f)].astype(kind) for X, f in zip(tensors, factors, strict=True)]
        term = read[0] if len(read) == 1 else PAIRS[pair](*read)
        return total(term, axis=[*summed.values()], where=None if where is None else where(axes)) if summed else term

    axes = ", ".join(result)
    own = eval(f"lambda {axes}: value({axes})", {"value": value})  # names of arguments are those of axes
    Y = te.compute(shape, own, name="Y")
    out = Y if after is None else te.compute(shape, lambda *i: after(Y[i], *i), name="Z")
    return with_constants(te.create_prim_func([*tensors, out]), [*constants])


def _indices(text: str) -> list[str]:
    return re.findall(r"\((?:[^()]|\([^()]*\))*\)|.", text)


def _reach(index: str, sizes: dict[str, int]) -> int:
    """The extent of a dimension with an index that only grows with its axes."""
    return int(_at(index, {c: sizes[c] - 1 for c in re.findall("[a-z]", index)})) + 1


def _at(index: str, axes: dict[str, Any]) -> Any:
    text = re.sub(r"(\d)([a-z(])", r"\1*\2", index).replace("/", "//")
    return eval(text, {}, axes)


def only_block(func: PrimFunc, name: str = "Y") -> Block:
    """A block of a function, by its name."""
    return find_block(func, name)


def names(axes: Iterable[Iter]) -> str:
    """The letters of some axes, in order."""
    return "".join(it.var.name.removeprefix("v_").removeprefix("v") for it in axes)


def parts(c: Any) -> str | None:
    """The axes of a contraction: of the batch, rows, columns and the sum, and the factors' buffers."""
    if c is None:
        return None
    return f"{names(c.batch)} {names(c.rows)} {names(c.columns)} {names(c.reduction)} {c.left.buffer.name}{c.right.buffer.name}"


LETTERS = {Kind.SERIAL: ".", Kind.PARALLEL: "p", Kind.VECTORIZED: "v", Kind.UNROLLED: "u"}
EAGER = "2,6,14/2,6,18+0x4~1,1"  # memory of a machine on which a thread is woken for a few cycles
TARGETS = {  # with small caches, which small programs fill
    "znver2": tir.Target("llvm -mcpu znver2 -num-cores 1 -l1 4096 -l2 32768 -l3 262144"),
    "znver4": tir.Target("llvm -mcpu znver4 -num-cores 2 -l1 4096 -l2 32768 -l3 262144", memory=EAGER),
    "sapphirerapids": tir.Target("llvm -mcpu sapphirerapids -num-cores 3", memory=EAGER),
}


def nests(func: PrimFunc) -> str:
    """The blocks of a function in order, each with the kinds of the loops around it, the outermost first: `.` for a serial one,
    and the letters of parallel, unrolled and vectorised ones. A loop of one iteration is left out. Then the annotations of loops."""

    def kinds(block: str) -> str:
        return "".join(_letter(x) for x in loops_to(func.body, block) if not x.extent.is_one)

    found = [
        f"{key}={value}".replace('"', "") for x in walk_stmts(func.body) if isinstance(x, For) for key, value in x.annotations
    ]
    marks = ", ".join(f"{mark} x{n}" if n > 1 else mark for mark, n in Counter(found).items())
    return ", ".join(f"{b.name} {kinds(b.name)}".rstrip() for b in blocks(func)) + (f" | {marks}" if marks else "")


def _letter(loop: For) -> str:
    """The kind of a loop; on a GPU `x` for a block, `t` for a thread and `V` for a virtual one."""
    return {"b": "x", "t": "t", "v": "V"}[loop.thread[0]] if loop.thread else LETTERS[loop.kind]


def gpu_outcome(func: PrimFunc, arch: str = "sm_90", roundings: int = 0) -> str:
    """The first rules of all sketches on a GPU, and the nests of the default schedule, which computes in the interpreter what the
    function does, but for some roundings of the largest result."""
    target = tir.Target(f"cuda -arch {arch}")
    with warnings.catch_warnings():
        warnings.simplefilter("error", templates.RefusedRule)
        rules = dict.fromkeys(s.rules[0] for s in generate(func, target))
        made = tir.default_schedule(func, target).func
    found, expected = integers(func, 0), integers(func, 0)
    run(made, *found)
    run(func, *expected)
    for x, y in zip(found, expected, strict=True):
        assert np.all(np.abs(x - y) <= gamma(roundings) * np.abs(y).max())
    return f"{'; '.join(rules)} | {nests(made)}"


def scheduled(func: PrimFunc, target: tir.Target, decisions: dict[str, Any] | None = None) -> OpenSchedule:
    """The templates' schedule of a function, without warnings of steps refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", templates.RefusedRule)
        found = templates.decided(func, target, decisions)
    assert found is not None
    return found


def outcome(rule: str, about: dict[str, Any], where: str) -> str:
    """The rules and the nests of the templates' schedule of a program by a rule, which computes here what the program does. `where`
    names a target, and may ask for a template: "znver4: dot products"."""
    name, _, template = where.partition(": ")
    return outcome_of(by_rule(rule, **about), name, template)


def planned(func: PrimFunc, name: str, decisions: dict[str, Any] | None = None) -> str:
    """The rules and the nests of the templates' schedule on a target, at some decisions."""
    s = scheduled(func, TARGETS[name], decisions)
    return f"{'; '.join(s.rules)} | {nests(s.func)}"


def outcome_of(func: PrimFunc, name: str, template: str = "", roundings: int = 0) -> str:
    """`outcome` of a function, whose results may be off by some roundings of the largest."""
    s = scheduled(func, TARGETS[name], {"template of Y": template} if template else None)
    off = (lambda _, expected: gamma(roundings) * np.abs(expected).max()) if roundings else None
    same(s.func, targets=(ONE if TARGETS[name].num_cores == 1 else TWO,), tolerance=off, reference=func)
    return f"{'; '.join(s.rules)} | {nests(s.func)}"


def check_estimates(
    template: Any, rule: str, about: dict[str, Any], constants: Iterable[str], suits: Sequence[bool], at_once: int = 1
) -> None:
    """On each target a template suits a program by a rule or not. Where it does, its cycles are at least those of the terms at the
    peak, `at_once` for each multiply-add of float32, and at most some for each term and element. No constant weight costs more
    on one core, and twice as much of all axes costs more."""
    letters = sorted({*re.findall("[a-z]", rule)})
    sizes = {c: (EXTENTS | about)[c] for c in letters}
    func = by_rule(rule, **about)
    elements = sum(prod(d.value for d in b.shape) for b in func.buffers)  # type: ignore[union-attr]
    for (name, target), suitable in zip(TARGETS.items(), suits, strict=True):
        found = _cycles(template, func, name, constants)
        assert (found is not None) == suitable, name
        if found is None:
            continue
        terms, machine = prod(sizes.values()), target.machine
        assert terms * machine.fma_cycles(32) / (at_once * target.num_cores) <= found < 4 * (terms + elements), name
        fixed = _cycles(template, func, name, {*constants, "B"})
        assert fixed is None or fixed <= found or target.num_cores > 1, name
        larger = _cycles(template, by_rule(rule, **about | {c: 2 * n for c, n in sizes.items()}), name, constants)
        assert larger is None or larger > found, name


def _cycles(template: Any, func: PrimFunc, name: str, constants: Iterable[str]) -> float | None:
    """The cycles that a template estimates for a program on a target; None where it does not match, or never wins."""
    found, machine = template.matches(find_block(func, "Y")), TARGETS[name].machine
    if found is None or not template.suits(found, machine):
        return None
    cycles = float(template.cycles(found, machine, frozenset(constants)))
    return cycles if cycles < inf else None


def relu(value: Expr, *_: Any) -> Expr:
    return te.maximum(value, te.const(0.0, value.dtype))


def _of(axes: Iterable[Iter], letter: str) -> str:
    return f"{letter}={names(axes)}" if names(axes) else ""


def described(found: Any) -> str:
    """The axes of a match by their roles: of products, convolutions, and windows of single channels."""
    match found:
        case Contraction():
            roles = _of(found.batch, "batch"), _of(found.rows, "rows"), _of(found.columns, "columns"), _of(found.reduction, "sum")
            return " ".join(filter(None, (f"{found.left.buffer.name}{found.right.buffer.name}", *roles)))
        case Convolution():
            roles = _of(found.groups, "groups"), _of(found.pixels, "pixels"), _of(found.channels, "channels")
            classes = [f"{names((x.pixel,))}{names((x.kernel,))}%{x.stride}" for x in found.classes]
            members = f"members={found.members}" if found.members else ""
            return " ".join(filter(None, (found.image.buffer.name, *roles, _of(found.reduction, "sum"), members, *classes)))
        case Windows():
            roles = _of(found.channels, "channels"), _of(found.pixels, "pixels"), _of(found.reduction, "window")
            weights = "weights" if found.weights is not None else ""
            return " ".join(filter(None, (found.image.buffer.name, *roles, _of([found.vector], "vector"), weights)))
        case _:
            return str(found)


def odd_pixels(x: dict[str, Any]) -> Expr:
    """A transposed convolution of stride 2: half of the terms along each axis."""
    return te.all(te.equal((x["h"] + x["r"]) % 2, 0), te.equal((x["w"] + x["q"]) % 2, 0))


RULES: dict[str, Callable[[], PrimFunc]] = {
    **{rule: partial(by_rule, rule) for rule in (
        "ik kj -> ij", "ki kj -> ij", "ik jk -> ij", "ik kj -> ji", "bik bkj -> bij", "bik kj -> bij", "bki bjk -> bij",
        "zik zkj -> zij", "zik kj -> zij", "ik kj -> yij", "ik kj -> ijx", "ikr krj -> ij", "ikr jkr -> ij", "bi kj -> bij",
        "gik kbj -> gibj", "gik bjk -> gibj", "ikz kj -> ij", "iz zj -> ij", "xk kj -> xj", "ik kx -> ix", "bxk bkj -> bxj",
        "kj k -> j", "jk k -> j", "k kj -> j", "k kj -> zj", "zk kj -> zj", "bk bkj -> bj", "jkr kr -> j", "ik ik -> i", "ij ij -> i",
        "iik kj -> ij", "(i+k) kj -> ij", "(2i+k) kj -> ij", "i(j+k) kj -> ij", "0k kj -> j", "(k/2)j k -> j",
        "nc(h+r)(w+q) ocrq -> nohw", "nc(2h+r)(2w+q) ocrq -> nohw", "nc(h+r)(w+2q) ocrq -> nohw", "nchw ochw -> no",
        "n(h+r)(w+q)c rqco -> nhwo", "n(h+r)(w+q)c orqc -> nhwo", "n(h+r)(w+q)c rqoc -> nhwo", "nc(w+q) ocq -> now",
        "ngc(h+r)(w+q) gocrq -> ngohw", "nchw oc -> nohw", "nhwc co -> nhwo", "z(h+r)(w+q)c rqco -> zhwo",
        "n(h+r)(w+q)(o/5) rqo -> nhwo", "n(h+r)(w+q)(5(o/5)+c) rqco -> nhwo", "n(o/5)(h+r)(w+q) orq -> nohw", "n(h+r)(w+q)(o/1) rqo -> nhwo",
        "nc(h+r)(w+q) crq -> nchw", "n(h+r)(w+q)c rqc -> nhwc", "nc(2h+r)(2w+q) crq -> nchw", "nc(w+q) cq -> ncw", "(h+r)(w+q) rq -> hw",
        "nc(h+r)(w+q) -> nchw", "n(h+r)(w+q)c -> nhwc", "nc(3h+r)(3w+q) -> nchw", "nc(w+q) -> ncw", "nchw -> nc", "nchw -> ch", "ik -> i",
        "ki -> i", "k -> x", "kr -> x", "ij -> ij", "(h+r) -> h", "(h+r)c -> ch",
    )},
    "sums of squares": partial(by_rule, "ik ik -> i"),
    "squares of one factor": partial(by_rule, "ik kj -> ij", "a*a"),
    "products turned": partial(by_rule, "ik kj -> ij", "b*a"),
    "distances": partial(by_rule, "ik kj -> ij", "(a-b)^2"),
    "distances of rows": partial(by_rule, "ik jk -> ij", "(a-b)^2"),
    "shortest paths": partial(by_rule, "ik kj -> ij", "a+b", te.min),
    "largest products": partial(by_rule, "ik kj -> ij", total=te.max),
    "products of halves": partial(by_rule, "ik kj -> ij", kinds=("float16", "float16")),
    "products of a half": partial(by_rule, "ik jk -> ij", kinds=("float32", "float16")),
    "products of bytes": partial(by_rule, "ik kj -> ij", kind="int32", kinds=("uint8", "int8")),
    "products of doubles": partial(by_rule, "ik kj -> ij", kind="float64"),
    "convolution of bytes": partial(by_rule, "nc(h+r)(w+q) ocrq -> nohw", kind="int32", kinds=("uint8", "int8")),
    "matrix of doubles and vector": partial(by_rule, "jk k -> j", kind="float64"),
    "largest of windows": partial(by_rule, "nc(h+r)(w+q) -> nchw", total=te.max),
    "one pixel": partial(by_rule, "nc(h+r)(w+q) ocrq -> nohw", h=1, w=1, n=1),
    "one channel": partial(by_rule, "nc(h+r)(w+q) ocrq -> nohw", o=1),
    "one step": partial(by_rule, "ik kj -> ij", k=1),
    "one row": partial(by_rule, "ik kj -> ij", i=1),
    "one column": partial(by_rule, "ik kj -> ij", j=1),
    "transposed": partial(by_rule, "n((h+r)/2)((w+q)/2)c rqco -> nhwo", where=odd_pixels),
    "transposed, one class": partial(by_rule, "n((h+r)/2)(w+q)c rqco -> nhwo", where=lambda x: te.equal((x["h"] + x["r"]) % 2, 0)),
    "transposed by 3h": partial(by_rule, "n((h+r)/2)(w+q)c rqco -> nhwo", where=lambda x: te.equal((x["h"] + 3 * x["r"]) % 2, 0)),
    "transposed, remainder 1": partial(by_rule, "n((h+r)/2)(w+q)c rqco -> nhwo", where=lambda x: te.equal((x["h"] + x["r"]) % 2, 1)),
    "transposed, two conditions on an axis": partial(
        by_rule, "n((h+r)/2)(w+q)c rqco -> nhwo", where=lambda x: te.all(te.equal((x["h"] + x["r"]) % 2, 0), te.equal((x["h"] + x["q"]) % 3, 0))
    ),
    "transposed by pixels alone": partial(by_rule, "n((h+r)/2)(w+q)c rqco -> nhwo", where=lambda x: te.equal((x["h"] + x["w"]) % 2, 0)),
    "transposed by three axes": partial(
        by_rule, "n((h+r)/2)(w+q)c rqco -> nhwo", where=lambda x: te.equal((x["h"] + x["r"] + x["q"]) % 2, 0)
    ),
    "some terms": partial(by_rule, "ik kj -> ij", where=lambda x: x["k"] < x["i"]),
}  # fmt: skip


@cache
def rule_block(name: str) -> Block:
    return find_block(RULES[name](), "Y")


def matched(matches: Callable[[Block], Any]) -> dict[str, str]:
    """The matches of a template among the programs by rules, described."""
    found = {name: matches(rule_block(name)) for name in RULES}
    return {name: described(x) for name, x in found.items() if x is not None and x is not False}
