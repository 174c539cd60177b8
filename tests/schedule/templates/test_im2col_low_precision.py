"""Convolutions of bytes by the instructions that add a few products at once: exact, with strides and odd sums."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from schedule import templates
from schedule.templates import im2col_low_precision
from tests.schedule.templates.patterns import check_estimates
from tests.sweeps import one_in
from tir import te

TARGET = tir.Target("llvm", num_cores=1)
SHAPES = [(24, 33, 13, 3, 1), (3, 20, 21, 5, 2), (16, 7, 9, 1, 1), (5, 60, 9, 3, 1)]  # channels, outputs, extent, kernel, stride


@one_in(2)
@pytest.mark.skipif("avx2" not in TARGET.features, reason="this processor has no vectors of 256 bits")
@pytest.mark.parametrize("pair", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")])
@pytest.mark.parametrize("shape", SHAPES)
def test_convolutions_of_bytes(pair, shape):
    channels, outputs, extent, kernel, stride = shape
    pixels = (extent - kernel) // stride + 1
    X = te.placeholder((1, channels, extent, extent), pair[0], name="X")
    W = te.placeholder((outputs, channels, kernel, kernel), pair[1], name="W")
    axes = [te.reduce_axis((0, n), name) for n, name in ((channels, "c"), (kernel, "r"), (kernel, "q"))]

    def term(n, o, h, w):
        c, r, q = axes
        x, weight = X[n, c, h * stride + r, w * stride + q], W[o, c, r, q]
        return te.sum(x.astype("int32") * weight.astype("int32"), axis=axes)

    func = te.create_prim_func([X, W, te.compute((1, outputs, pixels, pixels), term, name="Y")])
    s = templates.decided(func, TARGET)
    assert s is not None and "Y: pixels by dot products" in s.rules
    rng = np.random.default_rng(0)
    x, w = (
        rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, size, endpoint=True).astype(kind)
        for kind, size in zip(pair, ((1, channels, extent, extent), (outputs, channels, kernel, kernel)), strict=True)
    )
    found = np.zeros((1, outputs, pixels, pixels), "int32")
    tir.build(s.func, TARGET)(x, w, found)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("int64"), (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]
    assert np.array_equal(found, np.einsum("nchwrq,ocrq->nohw", windows, w.astype("int64")))


# Programs, and on which targets the template suits them.
SUITED = [
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 8, "o": 40, "h": 12, "w": 19, "kind": "int32", "kinds": ("uint8", "int8")}, (), [True, True, True]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 8, "o": 5, "h": 5, "w": 9, "kind": "int32", "kinds": ("uint8", "int8")}, ("B",), [True, True, True]),
    ("nchw oc -> nohw", {"n": 1, "c": 16, "o": 9, "h": 5, "w": 9, "kind": "int32", "kinds": ("uint8", "int8")}, (), [False, False, False]),
    ("nc(h+r)(w+q) ocrq -> nohw", {"n": 1, "c": 8, "o": 5, "h": 1, "w": 3, "kind": "int32", "kinds": ("uint8", "int8")}, (), [False, False, False]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "about", "constants", "suits"), SUITED)
def test_estimated_cycles(rule, about, constants, suits):
    check_estimates(im2col_low_precision, rule, about, constants, suits, at_once=32)
