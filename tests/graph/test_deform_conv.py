"""Convolutions that read moved elements, beside a loop in numpy."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from graph.ir import GraphError
from graph.onnx import load_onnx
from graph.reference import evaluate

from .models import model


def moved(x, w, offset, mask, strides, dilations, pads, group, offset_group):
    (n, c, high, wide), (out, each, kh, kw), (oh, ow) = x.shape, w.shape, offset.shape[2:]
    offset, mask = offset.reshape(n, offset_group, kh, kw, 2, oh, ow), mask.reshape(n, offset_group, kh, kw, oh, ow)
    y = np.zeros((n, out, oh, ow))
    for b, m, k, i, j, p, q in np.ndindex(n, out, each, kh, kw, oh, ow):
        channel = m // (out // group) * each + k
        o = channel // (c // offset_group)
        at = [f * s - pad + t * d + offset[b, o, i, j, a, p, q]
              for a, (f, s, pad, t, d) in enumerate(zip((p, q), strides, pads, (i, j), dilations, strict=False))]  # fmt: skip
        low = np.floor(at).astype(int)
        for u, v in np.ndindex(2, 2):
            row, column = low[0] + u, low[1] + v
            if 0 <= row < high and 0 <= column < wide:
                share = (1 - abs(at[0] - row)) * (1 - abs(at[1] - column))
                y[b, m, p, q] += w[m, k, i, j] * mask[b, o, i, j, p, q] * share * x[b, channel, row, column]
    return y


@pytest.mark.parametrize("seed", range(6))
def test_moved_taps(seed):
    rng = np.random.default_rng(seed)
    group, offset_group = (int(e) for e in rng.choice([1, 2], 2))
    n, extents, kernel = int(rng.integers(1, 3)), rng.integers(1, 7, 2), rng.integers(1, 4, 2)
    strides, dilations, pads = (rng.integers(a, b, k).tolist() for a, b, k in ((1, 3, 2), (1, 3, 2), (2, 4, 4)))
    room = extents + pads[:2] + pads[2:] - dilations * (kernel - 1) - 1
    places = (np.maximum(room, 0) // strides + 1).tolist()
    x, w = rng.uniform(-1, 1, (n, 4, *extents)).astype("f4"), rng.uniform(-1, 1, (6, 4 // group, *kernel)).astype("f4")
    taps = offset_group * int(kernel.prod())
    offset = rng.uniform(-3, 3, (n, 2 * taps, *places)).astype("f4")
    mask = rng.uniform(0, 1, (n, taps, *places)).astype("f4") if seed % 2 else None
    bias = rng.uniform(-1, 1, 6).astype("f4") if seed % 3 else None
    given = {"x": x, "w": w, "o": offset, "b": bias, "m": mask}
    names = [name if a is not None else "" for name, a in given.items()]
    window = {"strides": strides, "dilations": dilations, "pads": pads, "group": group, "offset_group": offset_group}
    inputs = {name: a for name, a in given.items() if a is not None}
    (found,) = evaluate(
        load_onnx(model([helper.make_node("DeformConv", names, ["y"], **window)], inputs, ["y"], opset=19)), inputs
    )
    ones = np.ones((n, taps, *places)) if mask is None else mask
    wanted = moved(x, w, offset, ones, strides, dilations, pads, group, offset_group)
    wanted = wanted if bias is None else wanted + bias[:, None, None]
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=256 * np.finfo("f4").eps * max(1.0, np.abs(wanted).max()))


def run(inputs, **attributes):
    node = helper.make_node("DeformConv", list(inputs), ["y"], **attributes)
    return evaluate(load_onnx(model([node], inputs, ["y"], opset=19)), inputs)[0]


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_places_of_halves_are_those_of_float32(dtype):
    rng = np.random.default_rng(0)
    given = {"x": (1, 1, 63, 63), "w": (1, 1, 1, 1), "o": (1, 2, 63, 63)}
    inputs = {name: rng.uniform(-1, 1, shape).astype(dtype) for name, shape in given.items()}
    wanted = run({name: a.astype("f4") for name, a in inputs.items()})
    np.testing.assert_allclose(run(inputs).view(dtype).astype("f4"), wanted, atol=2 * float(ml_dtypes.finfo(dtype).eps))


@pytest.mark.parametrize(
    ("shapes", "attributes", "message"),
    [({"o": (1, 17, 4, 4)}, {}, "the offsets must have the shape [1, 18, 4, 4], got [1, 17, 4, 4]"),
     ({"o": (1, 18, 4, 5)}, {}, "the offsets must have the shape [1, 18, 4, 4], got [1, 18, 4, 5]"),
     ({}, {"kernel_shape": [3, 2]}, "weights of [6, 4, 3, 3] with 1 and 1 groups and kernel_shape=(3, 2) do not fit 4 channels"),
     ({}, {"offset_group": 3}, "weights of [6, 4, 3, 3] with 1 and 3 groups and kernel_shape=None do not fit 4 channels"),
     ({}, {"group": 2}, "weights of [6, 4, 3, 3] with 2 and 1 groups and kernel_shape=None do not fit 4 channels"),
     ({}, {"strides": [0, 1]}, "sizes, strides and dilations must be at least 1, and pads at least 0"),
     ({}, {"pads": [0, 0]}, "an image of 2 dimension(s) needs as many sizes, strides and dilations, and twice as many pads"),
     ({}, {"group": 0}, "weights of [6, 4, 3, 3] with 0 and 1 groups and kernel_shape=None do not fit 4 channels")],
)  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(shapes, attributes, message):
    shapes = {"x": (1, 4, 6, 6), "w": (6, 4, 3, 3), "o": (1, 18, 4, 4)} | shapes
    with pytest.raises(GraphError, match=re.escape(message)):
        run({name: np.zeros(shape, "f4") for name, shape in shapes.items()}, **attributes)
