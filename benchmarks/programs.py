"""Computations that are measured and that `tir.workloads` doesn't have, with formula, inputs, numpy implementation and reference.

    instance("gemv", (4096, 4096))

They are workloads of the same kind, errors bounded in the same way; see there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from schedule.machine import PAGE_BYTES
from tir import te, workloads
from tir.ir import PrimFunc
from tir.workloads import CACHE_ELEMENTS, INTRINSIC_ROUNDINGS, Arrays, Bounded, Instance, Parameter, Workload
from workloads.workload import sums_of_products

if TYPE_CHECKING:
    from codegen import Target
    from search.task import Task

# --- gemv: y = A·x -----------------------------------------------------------------------------------------------------


def _gemv_build(dtype: str, M: int, K: int) -> PrimFunc:
    A = te.placeholder((M, K), dtype, name="A")
    x = te.placeholder((K,), dtype, name="x")
    k = te.reduce_axis((0, K), name="k")
    y = te.compute((M,), lambda i: te.sum(A[i, k] * x[k], axis=k), name="y")
    return te.create_prim_func([A, x, y], name="gemv")


# --- add_relu: Y = max(A + B, 0) ---------------------------------------------------------------------------------------


def _add_relu_build(dtype: str, n: int) -> PrimFunc:
    A = te.placeholder((n,), dtype, name="A")
    B = te.placeholder((n,), dtype, name="B")
    added = te.compute((n,), lambda i: A[i] + B[i], name="added")
    Y = te.compute((n,), lambda i: te.maximum(added[i], te.const(0, dtype)), name="Y")
    return te.create_prim_func([A, B, Y], name="add_relu")


def _add_relu_draw(rng: np.random.Generator, n: int) -> Arrays:
    return rng.uniform(-1, 1, n), rng.uniform(-1, 1, n)


def _add_relu_numpy(dtype: str, n: int) -> Callable[[Arrays, Arrays], None]:
    """Two passes over so much at a time as stays in the cache."""

    def run(inputs: Arrays, outputs: Arrays) -> None:
        A, B = inputs
        for start in range(0, n, CACHE_ELEMENTS):
            y = outputs[0][start : start + CACHE_ELEMENTS]
            np.add(A[start : start + CACHE_ELEMENTS], B[start : start + CACHE_ELEMENTS], out=y)
            np.maximum(y, 0, out=y)

    return run


def _add_relu_reference(inputs: Arrays, n: int) -> tuple[Bounded, ...]:
    """One rounding, of the sum."""
    A, B = inputs
    return (Bounded(np.maximum(A + B, 0), np.abs(A) + np.abs(B), 1),)


# --- attention: O = softmax(Q·Kᵀ / sqrt(D))·V, head by head ------------------------------------------------------------


def _attention_build(dtype: str, heads: int, S: int, D: int) -> PrimFunc:
    Q, K, V = (te.placeholder((heads, S, D), dtype, name=name) for name in "QKV")
    d, k = te.reduce_axis((0, D), name="d"), te.reduce_axis((0, S), name="k")
    factor = te.const(1 / sqrt(D), dtype)
    product = te.compute((heads, S, S), lambda h, i, j: te.sum(Q[h, i, d] * K[h, j, d], axis=d), name="product")
    score = te.compute((heads, S, S), lambda h, i, j: product[h, i, j] * factor, name="score")
    top = te.compute((heads, S), lambda h, i: te.max(score[h, i, k], axis=k), name="top")
    power = te.compute((heads, S, S), lambda h, i, j: te.exp(score[h, i, j] - top[h, i]), name="power")
    total = te.compute((heads, S), lambda h, i: te.sum(power[h, i, k], axis=k), name="total")
    share = te.compute((heads, S, S), lambda h, i, j: power[h, i, j] / total[h, i], name="share")
    value = te.reduce_axis((0, S), name="value")
    O = te.compute((heads, S, D), lambda h, i, c: te.sum(share[h, i, value] * V[h, value, c], axis=value), name="O")
    return te.create_prim_func([Q, K, V, O], name="attention")


def _attention_draw(rng: np.random.Generator, heads: int, S: int, D: int) -> Arrays:
    """Scores of some units, so that the weights differ."""
    Q, K, V = (rng.uniform(-1, 1, (heads, S, D)) for _ in range(3))
    return 3 * Q, K, V


def _attention_numpy(dtype: str, heads: int, S: int, D: int) -> Callable[[Arrays, Arrays], None]:
    scores = np.empty((heads, S, S), dtype)
    factor = np.dtype(dtype).type(1 / sqrt(D))

    def run(inputs: Arrays, outputs: Arrays) -> None:
        Q, K, V = inputs
        np.matmul(Q, K.transpose(0, 2, 1), out=scores)
        np.multiply(scores, factor, out=scores)
        np.subtract(scores, np.max(scores, axis=2, keepdims=True), out=scores)
        np.exp(scores, out=scores)
        np.divide(scores, np.sum(scores, axis=2, keepdims=True), out=scores)
        np.matmul(scores, V, out=outputs[0])

    return run


def _attention_reference(inputs: Arrays, heads: int, S: int, D: int) -> tuple[Bounded, ...]:
    """With m the largest sum of the absolute values of the terms of a score: a score is off by at most (D + 2) m u (the factor
    is rounded, and so is the product with it), its difference from the largest, below 2 m, by 2 m u more, and exp makes a
    relative error of that and adds its own. It occurs in the numerator and in the sum of S positive terms; the quotient is
    one rounding, and the sum over the values adds gamma(S)."""
    Q, K, V = inputs
    scores = Q @ K.transpose(0, 2, 1) / sqrt(D)
    magnitude = float(np.max(np.abs(Q) @ np.abs(K).transpose(0, 2, 1))) / sqrt(D)
    power = np.exp(scores - np.max(scores, axis=2, keepdims=True))
    share = power / np.sum(power, axis=2, keepdims=True)
    return (Bounded(share @ V, share @ np.abs(V), 2 * ((D + 4) * magnitude + INTRINSIC_ROUNDINGS) + 2 * S + 1),)


# --- the registry ------------------------------------------------------------------------------------------------------

_PROGRAMS = {
    w.name: w
    for w in (
        sums_of_products(
            name="gemv",
            summary="y = A·x: a matrix times a vector",
            parameters=(Parameter("M", 4096, "number of rows"), Parameter("K", 4096, "number of columns")),
            build=_gemv_build,
            shapes=lambda M, K: ((M, K), (K,), (M,)),
            multiply=lambda dtype, M, K: lambda A, x, y: np.matmul(A, x, out=y),
            terms=lambda M, K: K,
            flop=lambda M, K: 2 * M * K,
        ),
        Workload(
            name="add_relu",
            summary="Y = max(A + B, 0), element by element",
            parameters=(Parameter("n", 1 << 24, "number of elements"),),
            build=_add_relu_build,
            draw=_add_relu_draw,
            numpy=_add_relu_numpy,
            reference=_add_relu_reference,
            flop=lambda n: 2 * n,
        ),
        Workload(
            name="attention",
            summary="softmax(Q·Kᵀ / sqrt(D))·V, head by head",
            parameters=(
                Parameter("heads", 12, "number of heads"),
                Parameter("S", 128, "length of the sequence"),
                Parameter("D", 64, "length of a head's vectors"),
            ),
            build=_attention_build,
            draw=_attention_draw,
            numpy=_attention_numpy,
            reference=_attention_reference,
            flop=lambda heads, S, D: heads * S * S * (4 * D + 6),
        ),
    )
}


def instance(name: str, shape: Sequence[int] | None = None, dtype: str = "float32") -> Instance:
    """The program of that name, one of these or of `tir.workloads`, at a shape. ValueError for an unknown name or a bad shape."""
    if name not in _PROGRAMS:
        return workloads.make(name, shape, dtype)
    w = _PROGRAMS[name]
    sizes = w.sizes(shape)
    return Instance(w, sizes, dtype, w.build(dtype, *sizes), w.flop(*sizes), w.numpy(dtype, *sizes))


def task_of(instance: Instance, target: Target) -> Task:
    """The task to tune a program; its candidates are compared with the reference of `tir.workloads`, where that has it."""
    from search.measure.reference import NamedWorkload
    from search.task import Task

    known = instance.name in workloads.names()
    workload = NamedWorkload(instance.name, instance.shape, instance.dtype) if known else None
    return Task.of(instance.func, target, workload=workload)


def arrays(instance: Instance, seed: int) -> tuple[Arrays, Arrays]:
    """Random inputs, and outputs to write, aligned."""
    inputs = tuple(map(aligned, instance.inputs(np.random.default_rng(seed))))
    return inputs, tuple(map(aligned, instance.outputs()))


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that starts 64 bytes after the start of a page, as all contenders get: a load waits for a store whose address has
    the same last twelve bits, so times would change with addresses. Users' arrays, which numpy begins 16 bytes after a line, take
    up to a tenth longer: see `codegen.llvm.streams`."""
    storage = np.empty(array.nbytes + PAGE_BYTES, np.uint8)
    start = (64 - storage.ctypes.data) % PAGE_BYTES
    result = storage[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result
