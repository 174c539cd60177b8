"""Matrix products, and two with an exponential between them."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from tir import te
from tir.ir import PrimFunc

from .workload import INTRINSIC_ROUNDINGS, Arrays, Bounded, Parameter, Shape, Workload, sums_of_products

# --- mlp: F = exp(A·B)·E -----------------------------------------------------------------------------------------------


def _mlp_build(dtype: str, M: int, K: int, L: int, N: int) -> PrimFunc:
    A = te.placeholder((M, K), dtype, name="A")
    B = te.placeholder((K, L), dtype, name="B")
    E = te.placeholder((L, N), dtype, name="E")
    rk = te.reduce_axis((0, K), name="rk")
    rl = te.reduce_axis((0, L), name="rl")
    C = te.compute((M, L), lambda m, l: te.sum(A[m, rk] * B[rk, l], axis=rk), name="C")
    D = te.compute((M, L), lambda m, l: te.exp(C[m, l]), name="D")
    F = te.compute((M, N), lambda m, n: te.sum(D[m, rl] * E[rl, n], axis=rl), name="F")
    return te.create_prim_func([A, B, E, F], name="mlp")


def _mlp_draw(rng: np.random.Generator, M: int, K: int, L: int, N: int) -> Arrays:
    """Nonnegative values, so that errors do not cancel; A·B lies around 0.25 to 2.25 at any K."""
    top = 2 / sqrt(K)
    A = rng.uniform(0, top, (M, K)) * rng.uniform(0.5, 1.5, (M, 1))
    B = rng.uniform(0, top, (K, L)) * rng.uniform(0.5, 1.5, (1, L))
    return A, B, rng.uniform(0, 1, (L, N))


def _mlp_numpy(dtype: str, M: int, K: int, L: int, N: int) -> Callable[[Arrays, Arrays], None]:
    D = np.empty((M, L), dtype)

    def run(inputs: Arrays, outputs: Arrays) -> None:
        A, B, E = inputs
        np.matmul(A, B, out=D)
        np.exp(D, out=D)
        np.matmul(D, E, out=outputs[0])

    return run


def _mlp_reference(inputs: Arrays, M: int, K: int, L: int, N: int) -> tuple[Bounded, ...]:
    """C is off by at most gamma(K) |A||B|, which exp makes a relative error of D; exp itself and the sum over L add theirs."""
    A, B, E = inputs
    D = np.exp(A @ B)
    magnitude = float(np.max(np.abs(A) @ np.abs(B)))
    return (Bounded(D @ E, D @ np.abs(E), K * magnitude + INTRINSIC_ROUNDINGS + L),)


# --- gmm: C = A·B ------------------------------------------------------------------------------------------------------


def _gmm_shapes(M: int, K: int, N: int, *batch: int) -> tuple[Shape, Shape, Shape]:
    return (*batch, M, K), (*batch, K, N), (*batch, M, N)


def _gmm_build(dtype: str, *sizes: int) -> PrimFunc:
    left, right, output = _gmm_shapes(*sizes)
    A, B = te.placeholder(left, dtype, name="A"), te.placeholder(right, dtype, name="B")
    k = te.reduce_axis((0, left[-1]), name="k")
    if len(output) == 2:
        C = te.compute(output, lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    else:
        C = te.compute(output, lambda b, i, j: te.sum(A[b, i, k] * B[b, k, j], axis=k), name="C")
    return te.create_prim_func([A, B, C], name="gmm")


WORKLOADS = (
    Workload(
        name="mlp",
        summary="F = exp(A·B)·E: two matrix products with an exponential between them",
        parameters=(
            Parameter("M", 1024, "number of rows of A and F"),
            Parameter("K", 2048, "number of columns of A"),
            Parameter("L", 1024, "number of columns of B"),
            Parameter("N", 3072, "number of columns of E and F"),
        ),
        build=_mlp_build,
        draw=_mlp_draw,
        numpy=_mlp_numpy,
        reference=_mlp_reference,
        flop=lambda M, K, L, N: 2 * M * K * L + M * L + 2 * M * L * N,
    ),
    sums_of_products(
        name="gmm",
        summary="C = A·B: a matrix product, or a batch of them",
        parameters=(
            Parameter("M", 1024, "number of rows of A and C"),
            Parameter("K", 1024, "number of columns of A"),
            Parameter("N", 1024, "number of columns of B and C"),
            Parameter("batch", 1, "number of matrix products", optional=True),
        ),
        build=_gmm_build,
        shapes=_gmm_shapes,
        multiply=lambda *sizes: np.matmul,
        terms=lambda M, K, *more: K,
        flop=lambda M, K, N, batch=1: 2 * M * K * N * batch,
    ),
)
