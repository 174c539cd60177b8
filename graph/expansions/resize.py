"""Resizing: along each axis, every element of the result is a sum of a few elements of the input, whose places and weights follow
from the extents and are constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir import Value
from .body import Body, attributes, expansion


@dataclass(frozen=True)
class Axis:
    """One axis: its number, its extents before and after, what scales it, and the part of it that is looked at."""

    number: int
    before: int
    after: int
    scale: float
    begin: float = 0.0
    end: float = 1.0


def coordinates(axis: Axis, mode: str) -> np.ndarray:
    """Where the elements of the result lie in the input, for a `coordinate_transformation_mode` of ONNX."""
    place, resized = np.arange(axis.after, dtype=np.float64), axis.before * axis.scale
    half = (place + 0.5) / axis.scale - 0.5
    match mode:
        case "half_pixel":
            return half
        case "half_pixel_symmetric":
            return axis.before / 2 * (1 - axis.after / resized) + half
        case "pytorch_half_pixel":
            return half if resized > 1 else np.full(axis.after, -0.5)
        case "asymmetric":
            return place / axis.scale
        case "align_corners":
            return place * (axis.before - 1) / (resized - 1) if resized != 1 else place * 0
        case "tf_crop_and_resize":
            last, width = axis.before - 1, axis.end - axis.begin
            step = place * width * last / (resized - 1) if resized != 1 else place * 0 + width * last / 2
            return axis.begin * last + step
        case _:
            raise ValueError(f"coordinate_transformation_mode {mode!r} is not there")


def nearest(place: np.ndarray, mode: str) -> np.ndarray:
    """The indices that are nearest to coordinates, by a `nearest_mode` of ONNX."""
    match mode:
        case "round_prefer_floor":
            return np.ceil(place - 0.5).astype(np.int64)
        case "round_prefer_ceil":
            return np.floor(place + 0.5).astype(np.int64)
        case "floor":
            return np.floor(place).astype(np.int64)
        case "ceil":
            return np.ceil(place).astype(np.int64)
        case _:
            raise ValueError(f"nearest_mode {mode!r} is not there")


def linear(distance: np.ndarray) -> np.ndarray:
    """The weight of an element at a distance: a triangle."""
    return np.maximum(0, 1 - np.abs(distance))


def cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """The weight of an element at a distance: Keys' piecewise cubic (IEEE ASSP 29(6), 1981), of coefficient `a`."""
    d = np.abs(distance)
    near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def taps(axis: Axis, place: np.ndarray, given: dict) -> tuple[np.ndarray, np.ndarray]:
    """The indices and the weights of the elements that each element of the result is a sum of: arrays of (after, taps)."""
    mode = given.get("mode", "nearest")
    stretch = min(axis.scale, 1.0) if given.get("antialias") else 1.0
    reach = {"linear": 1, "cubic": 2}[mode] / stretch
    first = np.floor(place).astype(np.int64) + 1 - int(np.ceil(reach))
    indices = first[:, None] + np.arange(2 * int(np.ceil(reach)))
    distance = (indices - place[:, None]) * stretch
    weights = linear(distance) if mode == "linear" else cubic(distance, given.get("cubic_coeff_a", -0.75))
    if given.get("exclude_outside"):
        weights = np.where((indices < 0) | (indices >= axis.before), 0, weights)
    if given.get("exclude_outside") or given.get("antialias"):
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(indices, 0, axis.before - 1), weights


def axes_of(shape: tuple[int, ...], given: dict, roi: np.ndarray, scales: np.ndarray, sizes: Sequence[int]) -> list[Axis]:
    """The axes that are resized. Raises ValueError where neither scales nor sizes are given, or not one for each axis."""
    numbers = [a % len(shape) for a in given.get("axes", range(len(shape)))]
    if len(numbers) not in (len(scales), len(sizes)) or (len(scales) and len(sizes)):
        raise ValueError(f"either scales or sizes must be given, one for each of the axes {numbers}")
    before = [shape[n] for n in numbers]
    if len(sizes):
        factors = [s / e for s, e in zip(sizes, before, strict=True)]
        policy = given.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = min(factors) if policy == "not_larger" else max(factors)
            factors, sizes = [one] * len(before), [int(np.floor(one * e + 0.5)) for e in before]
    else:
        factors, sizes = [float(s) for s in scales], [int(np.floor(e * s)) for e, s in zip(before, scales, strict=True)]
    part = list(roi) if len(roi) else [0.0] * len(numbers) + [1.0] * len(numbers)
    rows = zip(numbers, before, sizes, factors, part[: len(numbers)], part[len(numbers) :], strict=True)
    return [Axis(n, b, int(s), f, float(begin), float(end)) for n, b, s, f, begin, end in rows]


def write_resize(body: Body, node, axes: list[Axis], value: Value, given: dict) -> None:
    """Resize along one axis after the other; places outside of the input become `extrapolation_value` where that mode asks."""
    x, mode = node.input[0], given.get("coordinate_transformation_mode", "half_pixel")
    cropped = mode == "tf_crop_and_resize"
    for axis in axes:
        if axis.before == axis.after and axis.scale == 1 and not cropped:
            continue
        place = coordinates(axis, mode)
        if given.get("mode", "nearest") == "nearest":
            indices = np.clip(nearest(place, given.get("nearest_mode", "round_prefer_floor")), 0, axis.before - 1)
            x = body.add("Gather", x, body.constant(indices), axis=axis.number)
        else:
            indices, weights = taps(axis, place, given)
            x = body.add("Resample", x, body.constant(indices, "int32"), body.constant(weights, value.dtype), axis=axis.number)
        outside = (place < 0) | (place > axis.before - 1)
        if cropped and outside.any():
            shape = [-1 if n == axis.number else 1 for n in range(len(value.shape))]
            other = body.constant(given.get("extrapolation_value", 0.0), value.dtype)
            x = body.add("Where", body.constant(outside.reshape(shape)), other, x)
    body.add("Identity", x, output=node.output[0])


@expansion("Resize", 11, operands={1: "roi", 2: "scales", 3: "sizes"})
def resize(body, node, values, *, roi=(), scales=(), sizes=()):
    given = attributes(node)
    if given.get("mode", "nearest") not in ("nearest", "linear", "cubic"):
        raise ValueError(f"mode {given['mode']!r} is not there")
    write_resize(body, node, axes_of(values[0].shape, given, roi, scales, sizes), values[0], given)


@expansion("Resize", 10, 10, operands={1: "scales"})
@expansion("Upsample", 9, 10, operands={1: "scales"})
def upsample(body, node, values, *, scales=()):
    given = attributes(node) | {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    write_resize(body, node, axes_of(values[0].shape, given, np.empty(0), scales, ()), values[0], given)
