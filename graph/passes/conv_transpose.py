"""Transposed convolutions as convolutions.

With the stride s, the outputs s m + r for all m, a phase, use every s-th element of the kernel alone: a convolution of stride 1.
All phases are one convolution with s times as many channels for each dimension, those of a phase side by side where there is one
group. No element of the input or the kernel is multiplied by a zero between elements (Shi et al., arXiv 1609.07009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..ir import Call, Value
from ..ops.convolution import SlidingWindow, transposed_windows
from .rewriting import Rewriting, each_call


@dataclass(frozen=True)
class Phases:
    """The `stride` phases of a transposed convolution along one axis. Each has `taps` elements of the kernel, and `count` outputs
    from the input padded by `before` and `after`. `crop` of the interleaved outputs come before the first."""

    stride: int
    taps: int
    count: int
    before: int
    after: int
    crop: int

    @classmethod
    def of(cls, w: SlidingWindow) -> Phases | None:
        """The phases for windows over the output; None where the input would be cut."""
        stride = w.kernel if w.outputs == 1 else w.stride  # one window takes no step
        taps, first, last = -(-w.kernel // stride), w.before // stride, (w.before + w.extent - 1) // stride
        before, after = taps - 1 - first, last + 1 - w.outputs
        if w.dilation != 1 or min(before, after) < 0:
            return None
        return cls(stride, taps, last - first + 1, before, after, w.before - stride * first)


@each_call
def expand_transposed(r: Rewriting, call: Call) -> Value | None:
    """ConvTranspose with a constant weight becomes Conv and the moves that interleave its phases."""
    if call.operator != "ConvTranspose" or any(r.known(v) is None for v in call.values[1:]):
        return None
    x, weight, *bias = call.values
    given: dict[str, Any] = {n: a for n, a in call.attributes if n not in ("group", "kernel_shape")}
    axes = [Phases.of(w) for w in transposed_windows(x.shape[2:], weight.shape[2:], **given)]
    phases = [p for p in axes if p is not None]
    if len(phases) < len(axes):
        return None
    groups = call.attribute("group", 1)
    size = prod(p.stride for p in phases)
    operands = [x, r.constant(_by_phase(r.constants[weight.name], phases, groups), name=f"{weight.name}_phases")]
    repeat = np.tile if groups == 1 else np.repeat
    operands += [r.constant(repeat(r.constants[b.name], size), name=f"{b.name}_phases") for b in bias]
    pads = (*(p.before for p in phases), *(p.after for p in phases))
    attributes = {"pads": pads, "group": groups}
    conv = r("Conv", *operands, **attributes)
    return conv if size == 1 else _side_by_side(r, conv, phases, groups, call.outputs[0])


def _by_phase(weight: np.ndarray, phases: Sequence[Phases], groups: int) -> np.ndarray:
    """The weight (C, M / groups, kernel ...) by phases, taps reversed: (M strides, C / groups, taps ...) or (strides M, ...)."""
    d = len(phases)
    channels, each, *kernel = weight.shape
    more = [(0, p.taps * p.stride - k) for p, k in zip(phases, kernel, strict=True)]
    split = np.pad(weight, [(0, 0), (0, 0), *more]).reshape(
        groups, channels // groups, each, *(e for p in phases for e in (p.taps, p.stride))
    )
    taps, steps = [3 + 2 * n for n in range(d)], [4 + 2 * n for n in range(d)]
    outputs = (2, *steps) if groups > 1 else (*steps, 2)
    ordered = np.flip(split, tuple(taps)).transpose(0, *outputs, 1, *taps)
    return np.ascontiguousarray(ordered).reshape(-1, channels // groups, *(p.taps for p in phases))


def _side_by_side(r: Rewriting, conv: Value, phases: Sequence[Phases], groups: int, result: Value) -> Value:
    """The outputs of the phases, interleaved."""
    d = len(phases)
    images, channels = result.shape[:2]
    strides, counts = [p.stride for p in phases], [p.count for p in phases]
    one = groups == 1
    split = r("Reshape", conv, shape=(images, *strides, channels, *counts) if one else (images, channels, *strides, *counts))
    order = (0, 1 + d * one, *(n for axis in range(d) for n in (2 + d + axis, 2 - one + axis)))
    shape = (images, channels, *(p.stride * p.count for p in phases))
    whole = r("Reshape", r("Transpose", split, perm=order), shape=shape)
    if shape == result.shape:
        return whole
    starts = tuple(p.crop for p in phases)
    ends = tuple(p.crop + extent for p, extent in zip(phases, result.shape[2:], strict=True))
    return r("Slice", whole, starts=starts, ends=ends, axes=tuple(range(2, 2 + d)))
