"""Operators that read images at places between their elements."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tir import dtypes, te
from tir.ir import Expr

from .convolution import windows
from .registry import NEWEST, composite, narrow, need, operator, shape_of, wide
from .rows import normal_axes, replaced


@operator("Resample", NEWEST)
def resample(x, indices, weights, *, axis):
    """Sums along an axis of the elements of `x` at `indices` (extent, taps) times `weights`. Resize is a composite of these."""
    (along,) = normal_axes([axis], x.ndim)
    need("the indices", indices, (None, None), "int32")
    need("the input", x, dtype="float")
    need("the weights", weights, shape_of(indices), dtypes.computed(x.dtype))
    extent, taps = shape_of(indices)
    tap = te.reduce_axis((0, taps), "tap")

    def formula(*i: Expr) -> Expr:
        o = i[along]
        return te.sum(weights[o, tap] * wide(x[replaced(i, along, indices[o, tap])]), axis=tap)

    return narrow(te.compute(replaced(shape_of(x), along, extent), formula, name="resample"), x.dtype)


@operator("AffineGrid", 20, operands={1: "size"})
def affine_grid(theta, *, size, align_corners=0):
    """theta (N, r, r + 1) -> (N, extents ..., r): places from -1 to 1, transformed by each batch's matrix."""
    rank = len(size) - 2
    need("theta", theta, (size[0], rank, rank + 1), "float")
    kind = dtypes.computed(theta.dtype)

    def formula(*i: Expr) -> Expr:
        n, row = i[0], i[-1]
        value = wide(theta[n, row, te.const(rank)])
        for column, (position, extent) in enumerate(zip(reversed(i[1:-1]), reversed(size[2:]), strict=True)):
            first, step = (-1.0, 2 / (extent - 1) if extent > 1 else 0.0) if align_corners else (1 / extent - 1, 2 / extent)
            value = value + wide(theta[n, row, te.const(column)]) * (
                position.astype(kind) * te.const(step, kind) + te.const(first, kind)
            )
        return value.astype(theta.dtype)

    return te.compute((size[0], *size[2:], rank), formula, name="affine_grid")


@operator("GridSample", 20)
@operator("GridSample", 16, 19)
def grid_sample(x, grid, *, mode="linear", padding_mode="zeros", align_corners=0):
    """x (N, C, extents ...) at the places (N, places ..., r) of `grid`, from -1 to 1 along each axis, the last axis first. Gives
    the nearest element, or an interpolation of the nearest 2 or 4 along each axis."""
    need("the input", x, dtype="float", ranks=range(3, 6))
    rank = x.ndim - 2
    need("the grid", grid, [shape_of(x)[0], *(None for _ in range(rank)), rank], "float")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if mode not in ("linear", "nearest", "cubic") or padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"mode {mode!r} with padding_mode {padding_mode!r} is not supported")
    axes = [SampledAxis(e, bool(align_corners), padding_mode) for e in shape_of(x)[2:]]

    if padding_mode == "zeros" and 0 in shape_of(x)[2:]:
        return te.compute([*shape_of(x)[:2], *shape_of(grid)[1:-1]], lambda *_: te.const(0, x.dtype), name="zeros")

    def position(*i: Expr) -> Expr:
        """The coordinate along each axis of `x`, in its elements."""
        found: Expr = te.const(0.0)
        for n, axis in enumerate(axes):
            at = axis.coordinate(wide(grid[(*i[:-1], te.const(rank - 1 - n))]), mode)
            found = at if n == 0 else te.select(te.equal(i[-1], n), at, found)
        return found

    where = te.compute(shape_of(grid), position, name="where")

    def formula(*i: Expr) -> Expr:
        taps = [axis.taps(where[(i[0], *i[2:], te.const(n))], mode) for n, axis in enumerate(axes)]

        def along(n: int, at: tuple[Expr, ...], inside: tuple[Expr, ...]) -> Expr:
            if n == rank:
                element = wide(x[(*i[:2], *at)])
                return te.if_then_else(te.all(*inside), element, te.const(0, element.dtype)) if inside else element
            value: Expr | None = None
            for index, there, weight in taps[n]:
                term = along(n + 1, (*at, index), (*inside, *there))
                term = term if weight is None else term * weight.astype(term.dtype)
                value = term if value is None else value + term
            assert value is not None
            return value

        return along(0, (), ()).astype(x.dtype)

    return te.compute([*shape_of(x)[:2], *shape_of(grid)[1:-1]], formula, name="grid_sample")


Tap = tuple[Expr, tuple[Expr, ...], Expr | None]


@dataclass(frozen=True)
class SampledAxis:
    """One axis of a sampled image: its extent, the alignment of -1 to 1 on it, and the padding beyond its ends."""

    extent: int
    align_corners: bool
    padding: str

    @property
    def ends(self) -> tuple[float, float]:
        return (0.0, self.extent - 1.0) if self.align_corners else (-0.5, self.extent - 0.5)

    def coordinate(self, position: Expr, mode: str) -> Expr:
        """The coordinate, in elements, of a place from -1 to 1: in the image where padding brings it there, else close to it. For
        cubic sums `_tap` brings each element into the image."""
        low, high = self.ends
        real = (position + 1.0) * ((high - low) / 2) + low
        at: Expr = te.nearbyint(real) if mode == "nearest" else real
        if self.padding == "reflection":
            outside = te.any(at < low, at > high)
            return at if mode == "cubic" else te.select(outside, self._reflected(at), at)
        beyond = 0.0 if self.padding == "border" and mode != "cubic" else 4.0  # no element counts that is further out
        return te.minimum(te.maximum(-beyond, at), self.extent - 1.0 + beyond)

    def _reflected(self, at: Expr) -> Expr:
        """A coordinate reflected at the ends."""
        low, high = self.ends
        width = high - low
        if width == 0:
            return te.const(low, at.dtype)
        far = te.abs(at - low)
        rest = far - te.floor(far / (2 * width)) * (2 * width)
        return te.minimum(rest, 2 * width - rest) + low

    def taps(self, at: Expr, mode: str) -> list[Tap]:
        """The terms of the sum at a coordinate: elements, the conditions that they are in the image, and weights."""
        if mode == "nearest":
            return [self._tap(at, None)]
        first = te.floor(at)
        ratio = at - first
        if mode == "linear":
            return [self._tap(first, 1.0 - ratio), self._tap(first + 1.0, ratio)]
        return [self._tap(first + (n - 1.0), _cubic(ratio, n)) for n in range(4)]

    def _tap(self, at: Expr, weight: Expr | None) -> Tap:
        index = (te.floor(self._reflected(at)) if self.padding == "reflection" else at).astype("int32")
        if self.padding == "zeros":
            return index, (index >= 0, index < self.extent), weight
        return te.minimum(te.maximum(index, 0), self.extent - 1), (), weight


def _cubic(ratio: Expr, tap: int) -> Expr:
    """The weight of one of four elements around a place: Keys' piecewise cubic (IEEE ASSP 29(6), 1981) with -0.75."""
    a = -0.75
    d = ratio + 1.0 if tap == 0 else ratio if tap == 1 else 1.0 - ratio if tap == 2 else 2.0 - ratio
    if tap in (1, 2):
        return ((a + 2) * d - (a + 3)) * d * d + 1.0
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


@composite("DeformConv", 19)
def deform_conv(
    apply, x, weights, offset, bias=None, mask=None, *, kernel_shape=None, strides=None, dilations=None, pads=None, group=1,
    offset_group=1,
):  # fmt: skip
    """A convolution of images (N, C, H, W) that reads each tap of each window at a place moved by `offset` (N, offset groups and
    taps and 2, OH, OW), down and right, interpolated, and times a mask."""
    need("the input", x, ranks=(4,))
    need("the weights", weights, ranks=(4,))
    (n, channels, *extents), (out, each, *kernel) = x.shape, weights.shape
    kind = dtypes.computed(x.dtype)  # of places, which halves do not tell apart
    fit = min(group, offset_group) > 0 and channels == each * group and not (channels % offset_group or out % group)
    if not fit or tuple(kernel_shape or kernel) != tuple(kernel):
        raise ValueError(
            f"weights of {list(weights.shape)} with {group} and {offset_group} groups and kernel_shape={kernel_shape} do not fit"
            f" {channels} channels"
        )
    taps, moved = prod(kernel), windows(extents, kernel, strides, dilations, pads)
    places = [w.outputs for w in moved]
    images, pixels = n * offset_group, prod(places)
    need("the offsets", offset, (n, 2 * offset_group * taps, *places), x.dtype)
    need("the mask", mask, (n, offset_group * taps, *places), x.dtype)
    need("the bias", bias, (out,), x.dtype)
    down, right = (  # (taps, places)
        np.add.outer(np.arange(w.kernel) * w.dilation, np.arange(w.outputs) * w.stride - w.before) for w in moved
    )
    still = np.stack(np.broadcast_arrays(right[None, :, None], down[:, None, :, None]), axis=-1).reshape(taps, *places, 2)
    at = apply("Reshape", apply("Cast", offset, to=kind), shape=(images, taps, 2, *places))
    at = apply("Gather", apply("Transpose", at, perm=(0, 1, 3, 4, 2)), apply.constant([1, 0], "int64"), axis=4)
    at = apply("Add", at, apply.constant(still, kind))
    step, first = (apply.constant(f / np.array(extents[::-1]) + s, kind) for f, s in ((2, 0), (1, -1)))  # from -1 to 1
    grid = apply("Reshape", apply("Add", apply("Mul", at, step), first), shape=(images, taps * places[0], places[1], 2))
    read = apply("GridSample", apply("Reshape", x, shape=(images, channels // offset_group, *extents)), grid)
    if mask is not None:
        read = apply("Reshape", read, shape=(images, channels // offset_group, taps, pixels))
        read = apply("Mul", read, apply("Reshape", mask, shape=(images, 1, taps, pixels)))
    columns = apply("Reshape", read, shape=(n, group, channels // group * taps, pixels))
    found = apply("MatMul", apply("Reshape", weights, shape=(group, out // group, -1)), columns)
    found = apply("Reshape", found, shape=(n, out, *places))
    return found if bias is None else apply("Add", found, apply("Reshape", bias, shape=(out, 1, 1)))
