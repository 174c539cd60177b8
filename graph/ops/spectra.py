"""Fourier transforms, as products by matrices of cosines and sines."""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from .registry import composite, need
from .rows import normal_axes

MAX_MATRIX_NUMBERS = 1 << 27  # most numbers of a matrix, half a GB of float32: complex signals of 5,800 elements


def dft(apply, x, *, dft_length=None, axis=-2, inverse=0, onesided=0):
    """The discrete Fourier transform of x (..., 1 or 2), real or complex numbers, along an axis: one product.

        y[k] = sum over n of x[n] e^(-2 pi i k n / length),    inverse: x[n] = sum over k of y[k] e^(2 pi i k n / length) / length

    `length`, by default that of the axis, cuts it or fills it up with zeros. With `onesided`, a spectrum is the first half of its
    elements, and its inverse is real."""
    (along,), last = normal_axes([axis], len(x.shape)), len(x.shape) - 1
    if x.shape[-1] not in (1, 2):
        raise ValueError(f"the last dimension, of real and imaginary parts, must be 1 or 2, got {x.shape[-1]}")
    if along == last:
        raise ValueError("the last axis, of real and imaginary parts, has no transform")
    if onesided and not inverse and x.shape[-1] == 2:
        raise ValueError("a spectrum of complex numbers is not one-sided: onesided must be 0")
    given, parts, real = x.shape[along], x.shape[-1], bool(inverse and onesided)
    length = 2 * (given - 1) if real else given
    length = length if dft_length is None else int(np.ravel(dft_length)[0])
    half = length // 2 + 1
    made = half if onesided and not inverse else length
    if min(given, length) < 1 or 2 * given * parts * made > MAX_MATRIX_NUMBERS:
        raise ValueError(f"a transform of {given} elements to {made} is not supported")
    rows = np.arange(given)[:, None]
    turns = np.exp((2j if inverse else -2j) * np.pi / length * (rows * np.arange(made) % length))
    turns *= np.where(rows < (half if real else length), 1 / length if inverse else 1, 0)
    if real:  # the other half of the spectrum is conjugate
        turns *= np.where((rows % length == 0) | (2 * rows == length), 1, 2)
    turns = np.stack([turns, 1j * turns][:parts], axis=1)
    matrix = np.stack([turns.real, turns.imag][: 1 if real else 2], axis=-1).reshape(given * parts, -1)
    order = [*(d for d in range(last) if d != along), along, last]
    rest = [x.shape[d] for d in order[:-2]]
    flat = apply("Reshape", apply("Transpose", x, perm=tuple(order)), shape=(prod(rest), given * parts), allowzero=1)
    product = apply("MatMul", flat, apply.constant(matrix, x.dtype))
    found = apply("Reshape", product, shape=(*rest, made, 1 if real else 2), allowzero=1)
    return apply("Transpose", found, perm=tuple(np.argsort(order).tolist()))


composite("DFT", 20, operands={1: "dft_length", 2: "axis"})(dft)
composite("DFT", 17, 19, operands={1: "dft_length"})(partial(dft, axis=1))


@composite("STFT", 17, operands={1: "frame_step", 3: "frame_length"})
def stft(apply, x, window=None, *, frame_step, frame_length=None, onesided=1):
    """The transforms of frames of x (batch, elements, 1 or 2), or real ones (batch, elements), times a window."""
    if len(x.shape) == 2:
        x = apply("Reshape", x, shape=(*x.shape, 1), allowzero=1)
    need("the signal", x, ranks=(3,))
    length = x.shape[1] if window is None else window.shape[0]
    length = length if frame_length is None else int(np.ravel(frame_length)[0])
    step = int(np.ravel(frame_step)[0])
    if step < 1 or not 0 < length <= x.shape[1]:
        raise ValueError(f"frames of {length} of {x.shape[1]} elements, {step} apart, are not supported")
    places = np.arange(0, x.shape[1] - length + 1, step)[:, None] + np.arange(length)
    frames = apply("Gather", x, apply.constant(places), axis=1)
    if window is not None:
        frames = apply("Mul", frames, apply("Reshape", window, shape=(length, 1)))
    return dft(apply, frames, onesided=onesided)
