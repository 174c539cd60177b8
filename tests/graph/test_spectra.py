"""Fourier transforms by the interpreter against numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from graph.ir import GraphError
from graph.onnx import load_onnx
from graph.ops import spectra
from graph.reference import evaluate

from .models import model, node


def found(operator, inputs, constants, opset, **attributes):
    names = [n if n in inputs or n in constants else '""' for n in ("x", "a", "b", "c")[: 4 if "c" in constants else 3]]
    proto = model([node(operator, " ".join(names), "y", **attributes)], inputs, ["y"], constants, opset=opset)
    for n in proto.graph.node:
        n.input[:] = ["" if name == '""' else name for name in n.input]
    return evaluate(load_onnx(proto), inputs)[0]


def close(array, expected, length):
    """Within the bound of a sum of `length` complex numbers of parts up to 1, times factors that are rounded (Higham 2002, 3.1)."""
    assert array.shape == expected.shape
    n = 2 * length  # products of real numbers
    np.testing.assert_allclose(array, expected, rtol=0, atol=(n + 2) * np.finfo("float32").eps / 2 * n)


def pairs(x):
    return np.stack([x.real, x.imag], -1)


@pytest.mark.parametrize("seed", range(12))
def test_transforms(seed):
    rng = np.random.default_rng(seed)
    shape, inverse, onesided = rng.integers(1, 9, rng.integers(1, 4)), int(rng.integers(2)), int(rng.integers(2))
    axis, opset = int(rng.integers(len(shape))), int(rng.choice([17, 20]))
    if inverse and onesided and opset == 17:
        opset = 20
    parts = 2 if inverse and onesided else 1 if onesided else int(rng.integers(1, 3))
    length = None if rng.random() < 0.5 and not (onesided and inverse and shape[axis] < 2) else int(rng.integers(1, 12))
    x = rng.uniform(-1, 1, (*shape, parts)).astype("float32")
    whole = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    if onesided:
        expected = np.fft.irfft(whole, length, axis) if inverse else np.fft.rfft(whole.real, length, axis)
    else:
        expected = (np.fft.ifft if inverse else np.fft.fft)(whole, length, axis)
    constants = {} if length is None else {"a": np.array(length)}
    if opset == 20:
        constants["b"] = np.array(axis - len(shape) - 1 if rng.random() < 0.5 else axis)
    more = {} if opset == 20 else {"axis": axis}
    y = found("DFT", {"x": x}, constants, opset, inverse=inverse, onesided=onesided, **more)
    close(y, expected[..., None] if inverse and onesided else pairs(expected), length or max(shape[axis], expected.shape[axis]))


@pytest.mark.parametrize(("step", "length", "windowed", "onesided"), [(3, 8, True, 1), (5, 7, False, 0), (2, None, True, 1)])
def test_transforms_of_frames(step, length, windowed, onesided):
    rng = np.random.default_rng(0)
    x, window = rng.uniform(-1, 1, (2, 29, 1)).astype("float32"), rng.uniform(0, 1, length or 8).astype("float32")
    constants = {"a": np.array(step)} | ({"c": np.array(length)} if length else {})
    y = found("STFT", {"x": x} | ({"b": window} if windowed else {}), constants, 17, onesided=onesided)
    frames = np.lib.stride_tricks.sliding_window_view(x[..., 0], length or 8, 1)[:, ::step] * (window if windowed else 1)
    close(y, pairs((np.fft.rfft if onesided else np.fft.fft)(frames)), frames.shape[-1])


def test_signals_of_no_batch():
    x = np.zeros((0, 5, 1), "float32")
    assert found("DFT", {"x": x}, {}, 17, onesided=1).shape == (0, 3, 2)


def test_transforms_that_are_too_long_or_of_nothing_are_refused(monkeypatch):
    monkeypatch.setattr(spectra, "MAX_MATRIX_NUMBERS", 4 * 8 * 8 - 1)
    x = np.zeros((8, 2), "float32")
    with pytest.raises(GraphError, match="a transform of 8 elements to 8 is not supported"):
        found("DFT", {"x": x}, {}, 17, axis=0)
    with pytest.raises(GraphError, match="a transform of 1 elements to 0 is not supported"):  # the default length of an inverse
        found("DFT", {"x": x[:1]}, {}, 20, inverse=1, onesided=1)


@pytest.mark.parametrize(
    ("operator", "shape", "constants", "attributes", "message"),
    [("DFT", (8, 2), {}, {"axis": 1}, "the last axis, of real and imaginary parts, has no transform"),
     ("DFT", (8, 3), {}, {"axis": 0}, "the last dimension, of real and imaginary parts, must be 1 or 2, got 3"),
     ("DFT", (8, 2), {}, {"axis": 0, "onesided": 1}, "a spectrum of complex numbers is not one-sided: onesided must be 0"),
     ("STFT", (1, 8, 1), {"a": 0, "c": 4}, {}, "frames of 4 of 8 elements, 0 apart, are not supported"),
     ("STFT", (1, 8, 1), {"a": -1, "c": 4}, {}, "frames of 4 of 8 elements, -1 apart, are not supported"),
     ("STFT", (1, 8, 1), {"a": 1, "c": 9}, {}, "frames of 9 of 8 elements, 1 apart, are not supported"),
     ("STFT", (8,), {"a": 1, "c": 4}, {}, "the signal has 1 dimension")],
)  # fmt: skip
def test_signals_that_have_no_transform_are_refused(operator, shape, constants, attributes, message):
    with pytest.raises(GraphError, match=message):
        found(operator, {"x": np.zeros(shape, "f4")}, {n: np.array(v) for n, v in constants.items()}, 17, **attributes)


def test_frames_of_a_matrix_are_those_of_real_signals():
    x, constants = np.random.default_rng(0).uniform(-1, 1, (2, 29)).astype("f4"), {"a": np.array(3), "c": np.array(8)}
    np.testing.assert_array_equal(*(found("STFT", {"x": given}, constants, 17) for given in (x, x[..., None])))
