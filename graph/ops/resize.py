"""Resizing: along each axis, an element of the result is a weighted sum of a few elements of the input. Their indices and weights
follow from the extents and are constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tir import dtypes

from ..ir import Value
from .registry import Apply, composite
from .rows import normal_axes


@dataclass(frozen=True)
class ResizedAxis:
    """One axis: its number, its extents before and after, its scale, and the part of it that is resized (0 to 1)."""

    number: int
    before: int
    after: int
    scale: float
    begin: float = 0.0
    end: float = 1.0


def coordinates(axis: ResizedAxis, mode: str) -> np.ndarray:
    """The places in the input of the elements of the result, for a `coordinate_transformation_mode` of ONNX."""
    position, resized = np.arange(axis.after, dtype=np.float64), axis.before * axis.scale
    half = (position + 0.5) / axis.scale - 0.5
    match mode:
        case "half_pixel":
            return half
        case "half_pixel_symmetric":
            return axis.before / 2 * (1 - axis.after / resized) + half
        case "pytorch_half_pixel":
            return half if resized > 1 else position * 0
        case "asymmetric":
            return position / axis.scale
        case "align_corners":
            return position * (axis.before - 1) / (resized - 1) if resized != 1 else position * 0
        case "tf_crop_and_resize":
            last, width = axis.before - 1, axis.end - axis.begin
            step = position * width * last / (resized - 1) if resized != 1 else position * 0 + width * last / 2
            return axis.begin * last + step
        case _:
            raise ValueError(f"coordinate_transformation_mode {mode!r} is not supported")


def nearest(position: np.ndarray, mode: str) -> np.ndarray:
    """The indices that are nearest to coordinates, by a `nearest_mode` of ONNX."""
    match mode:
        case "round_prefer_floor":
            return np.ceil(position - 0.5).astype(np.int64)
        case "round_prefer_ceil":
            return np.floor(position + 0.5).astype(np.int64)
        case "floor":
            return np.floor(position).astype(np.int64)
        case "ceil":
            return np.ceil(position).astype(np.int64)
        case _:
            raise ValueError(f"nearest_mode {mode!r} is not supported")


def linear(distance: np.ndarray) -> np.ndarray:
    """The weight of an element at a distance: a triangle."""
    return np.maximum(0, 1 - np.abs(distance))


def cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """The weight of an element at a distance: Keys' piecewise cubic (IEEE ASSP 29(6), 1981), of coefficient `a`."""
    d = np.abs(distance)
    near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


@dataclass(frozen=True)
class Interpolation:
    """The weighting of elements, in ONNX's words: `mode` is linear or cubic."""

    mode: str
    antialias: bool
    cubic_coeff_a: float
    exclude_outside: bool

    def taps(self, axis: ResizedAxis, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The indices and the weights of the terms of each element of the result: arrays of (after, taps)."""
        stretch = min(axis.scale, 1.0) if self.antialias else 1.0
        reach = int(np.ceil({"linear": 1, "cubic": 2}[self.mode] / stretch))
        indices = np.floor(position).astype(np.int64)[:, None] + 1 - reach + np.arange(2 * reach)
        distance = (indices - position[:, None]) * stretch
        weights = linear(distance) if self.mode == "linear" else cubic(distance, self.cubic_coeff_a)
        if self.exclude_outside:
            weights = np.where((indices < 0) | (indices >= axis.before), 0, weights)
        if self.exclude_outside or self.antialias:
            weights = weights / weights.sum(axis=1, keepdims=True)
        return np.clip(indices, 0, axis.before - 1), weights


def axes_of(
    shape: Sequence[int],
    axes: Sequence[int] | None,
    policy: str,
    roi: Sequence[float],
    scales: Sequence[float],
    sizes: Sequence[int],
) -> list[ResizedAxis]:
    """The axes that are resized. Raises ValueError where neither scales nor sizes are given, or not one for each axis."""
    numbers = [normal_axes([a], len(shape))[0] for a in (range(len(shape)) if axes is None else axes)]
    if len(numbers) not in (len(scales), len(sizes)) or (scales and sizes):
        raise ValueError(f"either scales or sizes must be given, one for each of the axes {numbers}")
    before = [shape[n] for n in numbers]
    if sizes:
        for n, e, s in zip(numbers, before, sizes, strict=True):
            if s and not e:
                raise ValueError(f"axis {n} has no elements, and cannot be resized to {s}")
        scales = [s / e if e else 1.0 for s, e in zip(sizes, before, strict=True)]
        if policy != "stretch":
            one = min(scales) if policy == "not_larger" else max(scales)
            scales, sizes = [one] * len(before), [int(np.floor(one * e + 0.5)) for e in before]
    else:
        sizes = [int(np.floor(e * s)) for e, s in zip(before, scales, strict=True)]
    part = roi or [0.0] * len(numbers) + [1.0] * len(numbers)
    rows = zip(numbers, before, sizes, scales, part[: len(numbers)], part[len(numbers) :], strict=True)
    return [ResizedAxis(*row) for row in rows]


@composite("Resize", 11, operands={1: "roi", 2: "scales", 3: "sizes"})
def resize(
    apply: Apply, x: Value, roi=(), *, scales=(), sizes=(), antialias=0, axes=None, coordinate_transformation_mode="half_pixel",
    cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0, keep_aspect_ratio_policy="stretch", mode="nearest",
    nearest_mode="round_prefer_floor",
):  # fmt: skip
    """Resize along one axis after the other; places outside of the input become `extrapolation_value` if the mode asks for it."""
    if mode not in ("nearest", "linear", "cubic"):
        raise ValueError(f"mode {mode!r} is not supported")
    cropped = coordinate_transformation_mode == "tf_crop_and_resize"
    if cropped and isinstance(roi, Value):
        raise ValueError(f"its roi, `{roi.name}`, must be constant")
    part = roi if cropped else ()
    weighted = Interpolation(mode, bool(antialias), cubic_coeff_a, bool(exclude_outside))
    for axis in axes_of(x.shape, axes, keep_aspect_ratio_policy, part, scales, sizes):
        if axis.before == axis.after and axis.scale == 1 and not cropped:
            continue
        position = coordinates(axis, coordinate_transformation_mode)
        if mode == "nearest":
            indices = np.clip(nearest(position, nearest_mode), 0, axis.before - 1)
            x = apply("Gather", x, apply.constant(indices), axis=axis.number)
        else:
            indices, weights = weighted.taps(axis, position)
            x = apply(
                "Resample",
                x,
                apply.constant(indices, "int32"),
                apply.constant(weights, dtypes.computed(x.dtype)),
                axis=axis.number,
            )
        outside = (position < 0) | (position > axis.before - 1)
        if cropped and outside.any():
            shape = [-1 if n == axis.number else 1 for n in range(len(x.shape))]
            x = apply("Where", apply.constant(outside.reshape(shape)), apply.constant(extrapolation_value, x.dtype), x)
    return x


@composite("Resize", 10, 10, operands={1: "scales"})
@composite("Upsample", 7, 10, operands={1: "scales"})
def upsample(apply, x, *, scales, mode="nearest"):
    return resize(apply, x, scales=scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
