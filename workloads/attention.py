"""The weights of attention: transposes, a batch of matrix products, softmax (Ansor, OSDI 2020, appendix C: TBS)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tir import te
from tir.ir import PrimFunc

from .rows import exact_softmax, softmax
from .workload import INTRINSIC_ROUNDINGS, Arrays, Bounded, Parameter, Workload


def _build(dtype: str, N: int, S: int, heads: int, D: int) -> PrimFunc:
    Q, K = (te.placeholder((N, S, heads, D), dtype, name=name) for name in "QK")
    query = te.compute((N, heads, S, D), lambda n, h, i, d: Q[n, i, h, d], name="query")
    key = te.compute((N, heads, D, S), lambda n, h, d, j: K[n, j, h, d], name="key")
    d, k = te.reduce_axis((0, D), "d"), te.reduce_axis((0, S), "k")
    shape = (N, heads, S, S)
    score = te.compute(shape, lambda n, h, i, j: te.sum(query[n, h, i, d] * key[n, h, d, j], axis=d), name="score")
    top = te.compute(shape[:-1], lambda n, h, i: te.max(score[n, h, i, k], axis=k), name="top")
    power = te.compute(shape, lambda n, h, i, j: te.exp(score[n, h, i, j] - top[n, h, i]), name="power")
    total = te.compute(shape[:-1], lambda n, h, i: te.sum(power[n, h, i, k], axis=k), name="total")
    Y = te.compute(shape, lambda n, h, i, j: power[n, h, i, j] / total[n, h, i], name="Y")
    return te.create_prim_func([Q, K, Y], name="attention_weights")


def _draw(rng: np.random.Generator, N: int, S: int, heads: int, D: int) -> Arrays:
    """Values for which scores are of the order of 1 to 10 for every D, so that the weights differ."""
    Q, K = (rng.uniform(-1, 1, (N, S, heads, D)) for _ in range(2))
    return 6 / np.sqrt(D) * Q, K


def _numpy(dtype: str, N: int, S: int, heads: int, D: int) -> Callable[[Arrays, Arrays], None]:
    def run(inputs: Arrays, outputs: Arrays) -> None:
        Q, K = inputs
        np.matmul(Q.transpose(0, 2, 1, 3), K.transpose(0, 2, 3, 1), out=outputs[0])
        scores = outputs[0].reshape(-1, S)
        softmax(scores, scores)

    return run


def _reference(inputs: Arrays, N: int, S: int, heads: int, D: int) -> tuple[Bounded, ...]:
    """With m the largest sum of the absolute values of a score's terms, a score is off by at most gamma(D) m. Its difference from
    the largest, below 2 m, is off by 2 m u more. exp makes a relative error of that, and adds its own. It occurs in the
    numerator and in the sum of S positive terms; the quotient is one rounding."""
    Q, K = (a.transpose(0, 2, 1, 3) for a in inputs)
    magnitude = float(np.max(np.abs(Q) @ np.abs(K).swapaxes(2, 3)))
    value = exact_softmax(Q @ K.swapaxes(2, 3))
    return (Bounded(value, value, 2 * ((D + 2) * magnitude + INTRINSIC_ROUNDINGS) + S + 1),)


WORKLOADS = (
    Workload(
        name="attention_weights",
        summary="softmax(Q·Kᵀ), head by head, of Q and K (N, S, heads, D), without the customary factor",
        parameters=(
            Parameter("N", 1, "number of sequences"),
            Parameter("S", 128, "length of a sequence"),
            Parameter("heads", 12, "number of heads"),
            Parameter("D", 64, "length of a head's vectors"),
        ),
        build=_build,
        draw=_draw,
        numpy=_numpy,
        reference=_reference,
        flop=lambda N, S, heads, D: N * heads * S * S * (2 * D + 5),
    ),
)
