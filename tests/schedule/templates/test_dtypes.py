"""Products and convolutions drawn at random, in all types that templates know, against numpy: bit by bit, as their values are small
integers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product as pairs_of

import numpy as np
import pytest

import tir
from tests.arrays import narrowed
from tests.sweeps import quick
from tir import te
from tir.ir import const_shape

# Types of the factors and of their sum.
TYPES = [
    ("float32", "float32", "float32"), ("float64", "float64", "float64"), ("float16", "float16", "float32"),
    ("bfloat16", "bfloat16", "float32"), ("float16", "float32", "float32"), ("int8", "int8", "int32"), ("uint8", "int8", "int32"),
    ("int8", "uint8", "int32"), ("uint8", "uint8", "int32"), ("int16", "int16", "int32"), ("int32", "int32", "int32"),
    ("int64", "int64", "int64"), ("int8", "int8", "float32"),
]  # fmt: skip
EXTENTS = (0, 1, 1, 2, 3, 5, 7, 13, 16, 17, 24, 31, 33, 64, 67, 109)
PIXELS = (1, 4, 5, 9, 13, 16, 17, 28, 33)
CHANNELS = (1, 2, 3, 7, 8, 16, 17, 33)
CASES = 16  # of each kind and target; all take about fifteen seconds of a core of a Zen 4

Drawn = tuple[list[te.Tensor], Callable[..., np.ndarray]]


def product(rng: np.random.Generator) -> Drawn:
    """The tensors of a product, each factor transposed or not, alone or in a batch, and numpy's function of their values."""
    left, right, total = TYPES[rng.integers(len(TYPES))]
    M, N, K, batch = (int(rng.choice(options)) for options in (EXTENTS, (*EXTENTS, 515), (*EXTENTS, 515), (0, 0, 1, 3)))
    turned, across, shared = (bool(x) for x in rng.integers(2, size=3))
    outer = (batch,) if batch else ()
    A = te.placeholder((*outer, *((K, M) if turned else (M, K))), left, name="A")
    B = te.placeholder((*(() if shared else outer), *((N, K) if across else (K, N))), right, name="B")
    k = te.reduce_axis((0, K), name="k")

    def term(*i):
        *b, row, column = i
        x = A[(*b, k, row) if turned else (*b, row, k)]
        y = B[(*(() if shared else b), *((column, k) if across else (k, column)))]
        return te.sum(x.astype(total) * y.astype(total), axis=k)

    C = te.compute((*outer, M, N), term, name="C")

    def value(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.matmul(a.swapaxes(-1, -2) if turned else a, b.swapaxes(-1, -2) if across else b)

    return [A, B, C], value


def convolution(rng: np.random.Generator) -> Drawn:
    """The same for a convolution in groups, channels first or last, with padding, and strides up to those of large patches."""
    left, right, total = TYPES[rng.integers(len(TYPES))]
    N, CI, CO, groups = (int(rng.choice(options)) for options in ((1, 1, 2), CHANNELS, CHANNELS, (1, 1, 1, 3, 8)))
    KH, KW, down, along = (int(rng.choice(options)) for options in ((1, 2, 3, 5), (1, 2, 3, 5), (1, 1, 2, 3), (1, 1, 2, 3, 31)))
    dilation, pad, last, first = (
        int(rng.choice((1, 1, 2))),
        int(rng.choice((0, 1, 2))),
        *(bool(x) for x in rng.integers(2, size=2)),
    )
    H, W = (max(int(rng.choice(PIXELS)), dilation * (n - 1) + 1) for n in (KH, KW))
    OH, OW = ((n + 2 * pad - dilation * (k - 1) - 1) // step + 1 for n, k, step in ((H, KH, down), (W, KW, along)))
    X = te.placeholder((N, H, W, groups * CI) if last else (N, groups * CI, H, W), left, name="X")
    F = te.placeholder((groups * CO, CI, KH, KW) if first else (KH, KW, CI, groups * CO), right, name="F")

    def at(n, c, h, w):
        return (n, h, w, c) if last else (n, c, h, w)

    def padded(*i):
        n, c, h, w = (i[0], i[3], i[1], i[2]) if last else i
        inside = te.all(h >= pad, h < H + pad, w >= pad, w < W + pad)
        return te.if_then_else(inside, X[at(n, c, h - pad, w - pad)], te.const(0, left))

    P = te.compute(at(N, groups * CI, H + 2 * pad, W + 2 * pad), padded, name="P") if pad else X
    c, r, q = (te.reduce_axis((0, n), name=name) for n, name in ((CI, "c"), (KH, "r"), (KW, "q")))

    def term(*i):
        n, o, h, w = (i[0], i[3], i[1], i[2]) if last else i
        x = P[at(n, o // CO * CI + c if groups > 1 else c, h * down + r * dilation, w * along + q * dilation)]
        return te.sum(x.astype(total) * F[(o, c, r, q) if first else (r, q, c, o)].astype(total), axis=[c, r, q])

    Y = te.compute(at(N, groups * CO, OH, OW), term, name="Y")

    def value(x: np.ndarray, f: np.ndarray) -> np.ndarray:
        x, f = np.moveaxis(x, 3, 1) if last else x, f if first else f.transpose(3, 2, 0, 1)
        x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))).reshape(N, groups, CI, H + 2 * pad, W + 2 * pad)
        f, y = f.reshape(groups, CO, CI, KH, KW), np.zeros((N, groups, CO, OH, OW))
        for row, column in pairs_of(range(KH), range(KW)):
            seen = x[..., row * dilation :: down, column * dilation :: along][..., :OH, :OW]
            y += np.einsum("ngchw,goc->ngohw", seen, f[..., row, column])
        y = y.reshape(N, groups * CO, OH, OW)
        return np.moveaxis(y, 1, 3) if last else y

    return [X, F, Y], value


@quick(lambda seed: seed == 0)
@pytest.mark.parametrize("seed", range(CASES))
@pytest.mark.parametrize("draw", [product, convolution])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu x86-64-v3"])
def test_random_types(target, draw, seed):
    """No template is refused, either."""
    if not tir.Target(target).features <= tir.Target("llvm").features:
        pytest.skip("this processor does not run its code")
    rng = np.random.default_rng((seed, len(target)))
    tensors, value = draw(rng)
    func = te.create_prim_func(tensors)
    *factors, out = func.buffers
    given = [rng.integers(0 if b.dtype.startswith("u") else -5, 6, const_shape(b)) for b in factors]
    result = np.full(const_shape(out), 99, out.dtype)
    kernel = tir.compile(func, target, cache=None)
    kernel(*(narrowed(x, b.dtype) for x, b in zip(given, factors, strict=True)), result)
    assert np.array_equal(result, value(*given).astype(out.dtype)), func.script()
