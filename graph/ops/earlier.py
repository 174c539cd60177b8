"""Operators of early versions of the operator set whose attributes differ: composites of today's."""

from __future__ import annotations

import numpy as np

from ..ir import Value
from .control import scan
from .registry import Apply, composite
from .resize import upsample
from .sequences import joined


def _with_axis(name: str) -> None:
    """Register an operator of two tensors whose attributes allow broadcasting of the second, and name its first axis."""

    @composite(name, 1, 6)
    def define(apply: Apply, x, y, *, axis=None, broadcast=0):
        behind = 0 if axis is None else len(x.shape) - len(y.shape) - axis % max(1, len(x.shape))
        shape = (*y.shape, *(1,) * behind)
        fits = 0 <= behind and all(e in (1, f) for e, f in zip(shape[::-1], x.shape[::-1], strict=False))
        if not fits or len(shape) > len(x.shape) or (not broadcast and x.shape != y.shape):
            raise ValueError(f"an operand of {list(y.shape)} is not broadcast to {list(x.shape)}, with axis {axis}")
        return apply(name, x, apply("Reshape", y, shape=shape) if behind else y)


for _name in ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"):
    _with_axis(_name)


@composite("PRelu", 1, 6)
def prelu(apply, x, slope):
    """PRelu with a slope of each channel, or one."""
    return apply("PRelu", x, apply("Reshape", slope, shape=(-1, *(1,) * (len(x.shape) - 2))))


composite("Gemm", 1, 6)(lambda apply, a, b, c, *, broadcast=0, **attributes: apply("Gemm", a, b, c, **attributes))
composite("Selu", 1, 5)(lambda apply, x, *, alpha=1.6732, gamma=1.0507: apply("Selu", x, alpha=alpha, gamma=gamma))
composite("Pad", 1, 1)(
    lambda apply, x, *, paddings, mode="constant", value=0.0: apply("Pad", x, pads=paddings, mode=mode, value=value)
)
composite("Concat", 1, 3)(lambda apply, *xs, axis=1: apply("Concat", *xs, axis=axis))


@composite("Tile", 1, 5, operands={1: "tiles", 2: "axis"})
def tile(apply, x, *, tiles, axis):
    """Copies along one axis."""
    counts = dict.fromkeys(range(len(x.shape)), 1) | {int(np.ravel(axis)[0]): int(np.ravel(tiles)[0])}
    return apply("Tile", x, repeats=tuple(counts.values()))


@composite("Upsample", 1, 6)
def upsample_image(apply, x, *, height_scale, width_scale, mode="nearest"):
    return upsample(apply, x, scales=(1.0, 1.0, height_scale, width_scale), mode=mode.replace("bilinear", "linear"))


@composite("BatchNormalization", 1, 6)
def batch_normalization(apply, *inputs, is_test=0, **attributes):
    if not is_test:
        raise ValueError("only inference is supported, and is_test is 0")
    return apply("BatchNormalization", *inputs, **attributes)


@composite("Dropout", 1, 6)
def dropout_of_test(apply, x, *, is_test=0, ratio=0.5):
    if not is_test and ratio:
        raise ValueError("only inference is supported, and is_test is 0")
    return dropout(apply, x, ratio=ratio)


@composite("Dropout", 7, 9)
def dropout(apply, x, *, ratio=0.5):
    """The input, and a mask of its element type that keeps all of it."""
    return x, apply.constant(np.ones(x.shape, x.dtype))


@composite("Scan", 8, 8)
def batched_scan(apply, lengths, *inputs, body, num_scan_inputs, directions=None):
    """A scan of each batch, along axis 1 of all inputs."""
    if lengths is not None:
        raise ValueError("sequence_lens is not supported")

    def scanned(batch: int) -> tuple[Value, ...]:
        index = apply.constant(batch, "int64")
        parts = [apply("Gather", x, index, axis=0) for x in inputs]
        return scan(apply, *parts, body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions)

    return tuple(joined(apply, parts, 0) for parts in zip(*map(scanned, range(inputs[0].shape[0])), strict=True))
