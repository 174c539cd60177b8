"""Convolutions (Ansor, OSDI 2020, appendix C): with channels first or last, of one to three dimensions, dilated or in groups,
depthwise, of capsules, and with batch normalisation.

The names of the axes of its arrays define a convolution: see `ConvolutionLayout`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tir import te
from tir.ir import Expr, PrimFunc

from .workload import Arrays, Bounded, Parameter, Shape, Workload, rows_of, sums_of_products

MAX_COLUMN_ELEMENTS = 1 << 20  # in the im2col matrix that numpy multiplies at a time: 4 MiB of float32

CAPSULE_SIDE = 4  # rows and columns of a capsule: each element is a small matrix

IMAGE_AXES = ("l", "d", "h", "w")  # the axes of an image, along which a kernel moves


class ConvolutionLayout:
    """The names of the axes of images, kernels and outputs, in order. `n` counts images, `c` and `co` are input and output
    channels, IMAGE_AXES those of an image or a kernel. Any other axis is CAPSULE_SIDE long.

    An output is a sum over the axes of IMAGE_AXES and over those axes of the kernel that the output does not have. `padded` and
    `named` are the names of the axes of the padding stage and of the output in the program, where they differ.
    """

    def __init__(self, image: str, kernel: str, output: str, padded: str = "", named: str = ""):
        self.image, self.kernel, self.output = image.split(), kernel.split(), output.split()
        self.padded, self.named = (padded or image).split(), (named or output).split()
        self.moving = [axis for axis in self.image if axis in IMAGE_AXES]
        self.summed = [axis for axis in self.kernel if axis in self.moving or axis not in self.output]


FIRST = ConvolutionLayout("n c h w", "co c h w", "n co h w", named="n co oh ow")
FIRST_EACH = ConvolutionLayout("n c h w", "c h w", "n c h w", named="n c oh ow")
LAST = {len(axes.split()): ConvolutionLayout(f"n {axes} c", f"{axes} c co", f"n {axes} co") for axes in ("l", "h w", "d h w")}
LAST_EACH = ConvolutionLayout("n h w c", "h w c", "n h w c")
CAPSULES = ConvolutionLayout("n h w ci k c", "h w k cj c co", "n h w ci cj co", padded="n h w ci cj c")


@dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution; `dilation` is None for a workload without this parameter, `relu` is True if relu follows."""

    layout: ConvolutionLayout
    N: int
    image: Shape
    CI: int
    CO: int
    kernel: Shape
    stride: int
    padding: int
    dilation: int | None = None
    groups: int = 1
    relu: bool = field(default=False, kw_only=True)

    def _shape(self, axes: Sequence[str], extents: Shape, channels: int) -> Shape:
        sizes = {"n": self.N, "c": channels, "co": self.CO} | dict(zip(self.layout.moving, extents, strict=True))
        return tuple(sizes.get(axis, CAPSULE_SIDE) for axis in axes)

    @property
    def reach(self) -> Shape:
        """The extent of a dilated kernel along each axis, in elements of an image."""
        return tuple((self.dilation or 1) * (k - 1) + 1 for k in self.kernel)

    @property
    def padded(self) -> Shape:
        return tuple(s + 2 * self.padding for s in self.image)

    @property
    def outputs(self) -> Shape:
        """The number of positions of a kernel along each axis of an image."""
        return tuple((p - r) // self.stride + 1 for p, r in zip(self.padded, self.reach, strict=True))

    @property
    def shapes(self) -> tuple[Shape, Shape, Shape]:
        """The shapes of the images, the kernels and the outputs."""
        return (
            self._shape(self.layout.image, self.image, self.CI),
            self._shape(self.layout.kernel, self.kernel, self.CI // self.groups),
            self._shape(self.layout.output, self.outputs, self.CI),
        )

    @property
    def terms(self) -> int:
        """The number of products in an element of the result."""
        kernel = self.shapes[1]
        return prod(n for axis, n in zip(self.layout.kernel, kernel, strict=True) if axis in self.layout.summed)

    @property
    def flop(self) -> int:
        return prod(self.shapes[2]) * (2 * self.terms + self.relu)

    @property
    def border(self) -> tuple[int, int]:
        """The number of zeros before and after an image, along each of its axes."""
        return self.padding, self.padding

    def meeting(self, place: Expr, step: Expr) -> tuple[Expr, Expr, Expr | None]:
        """The indices of image and kernel along an axis that meet at a step of an output's sum; and the condition or None."""
        return place * self.stride + (step if self.dilation is None else step * self.dilation), step, None

    @property
    def conflict(self) -> str:
        if any(r > p for r, p in zip(self.reach, self.padded, strict=True)):
            reach, padded = ("x".join(map(str, sizes)) for sizes in (self.reach, self.padded))
            return f"a kernel that reaches over {reach} elements does not fit the padded image of {padded}"
        if self.CI % self.groups or self.CO % self.groups:
            return f"{self.CI} and {self.CO} channels can't be divided into {self.groups} groups"
        return ""

    def build(self, dtype: str, name: str) -> PrimFunc:
        X, K, Y = convolved(self, dtype, "conv" if self.relu else "Y")
        return te.create_prim_func([X, K, _relu(Y, self.layout.named) if self.relu else Y], name=name)

    def multiply(self, dtype: str) -> Callable[..., None]:
        """A function of (images, kernels, outputs) that fills the outputs, as fast as numpy can."""
        return (by_columns if "co" in self.layout.output else by_elements)(self, dtype)


# --- as a program ------------------------------------------------------------------------------------------------------


def named(names: Sequence[str], formula: Callable[..., Any]) -> Callable[..., Any]:
    """A function of any number of indices with names for them, as `te.compute` takes the names of axes from it."""

    def value(*index: Expr) -> Any:
        return formula(*index)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    vars(value)["__signature__"] = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return value


def padded(X: te.Tensor, names: Sequence[str], before: int, after: int) -> te.Tensor:
    """A stage that pads the axes of images with zeros, with axes called `names`; X itself if there is no padding."""
    if before == after == 0:
        return X
    images = [n for n, name in enumerate(names) if name in IMAGE_AXES]
    extents = [int(s) for s in X.shape]  # type: ignore[arg-type]

    def value(*index: Expr) -> Expr:
        limits = [limit for n in images for limit in (index[n] >= before, index[n] < before + extents[n])]
        inner = tuple(i - before if n in images else i for n, i in enumerate(index))
        return te.if_then_else(te.all(*limits), X[inner], te.const(0, X.dtype))

    shape = [s + before + after if n in images else s for n, s in enumerate(extents)]
    return te.compute(shape, named(names, value), name="pad")


def convolved(c: Convolution, dtype: str, name: str) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """The images, the kernels, and the stage that convolves them."""
    layout, (images, kernels, output) = c.layout, c.shapes
    X, K = te.placeholder(images, dtype, name="X"), te.placeholder(kernels, dtype, name="K")
    pad = padded(X, layout.padded, *c.border)
    extents = dict(zip(layout.kernel, kernels, strict=True))
    steps = {axis: te.reduce_axis((0, extents[axis]), f"r{axis}") for axis in layout.summed}

    def value(*index: Expr) -> Expr:
        position = dict(zip(layout.output, index, strict=True))
        seen: dict[str, Expr] = {**position, **steps}
        inner = dict(seen)
        conditions = []
        for axis in layout.moving:
            seen[axis], inner[axis], condition = c.meeting(position[axis], steps[axis])
            conditions += [] if condition is None else [condition]
        if c.groups > 1:
            seen["c"] = position["co"] // (c.CO // c.groups) * (c.CI // c.groups) + steps["c"]
        product = pad[tuple(seen[axis] for axis in layout.image)] * K[tuple(inner[axis] for axis in layout.kernel)]
        return te.sum(product, axis=[*steps.values()], where=te.all(*conditions) if conditions else None)

    return X, K, te.compute(output, named(layout.named, value), name=name)


def _relu(x: te.Tensor, names: Sequence[str]) -> te.Tensor:
    return te.compute(x.shape, named(names, lambda *i: te.maximum(x[i], te.const(0, x.dtype))), name="Y")


# --- in numpy ----------------------------------------------------------------------------------------------------------


def windows(c: Convolution, dtype: str) -> Callable[[np.ndarray], np.ndarray]:
    """A function from an image to the window of each output: a view whose axes are those of the image, then of the kernel."""
    axes, moving = c.layout.image[1:], c.layout.moving

    def along(part: slice) -> tuple[slice, ...]:
        """`part` of the axes that a kernel moves along, all of the others."""
        return tuple(part if axis in moving else slice(None) for axis in axes)

    padded = np.zeros(c._shape(axes, c.padded, c.CI), dtype)
    interior = padded[along(slice(c.padding, -c.padding or None))]
    positions = [axes.index(axis) for axis in moving]
    steps = (*along(slice(None, None, c.stride)), *[slice(None, None, c.dilation)] * len(moving))

    def view(image: np.ndarray) -> np.ndarray:
        if c.padding:
            interior[...] = image
            image = padded
        return sliding_window_view(image, c.reach, axis=positions)[steps]  # type: ignore[call-overload]

    return view


def by_columns(c: Convolution, dtype: str) -> Callable[..., None]:
    """Convolution by im2col, image by image: some rows of the result at a time, with one matrix product for each group.

    Where channels come first, the kernel is the left factor, and the columns of an image are made at once.
    """
    layout, seen_by = c.layout, windows(c, dtype)
    kernel_first = layout.output[1] == "co"
    outer = [axis for axis in layout.kernel if axis not in layout.summed]
    places = [axis for axis in layout.image[1:] if axis not in layout.summed or axis in layout.moving]
    inner = [f"r{axis}" if axis in layout.moving else axis for axis in layout.summed]
    names = [*layout.image[1:], *(f"r{axis}" for axis in layout.moving)]
    order = [names.index(axis) for axis in (inner + places if kernel_first else places + inner)]
    kernel_order = [layout.kernel.index(axis) for axis in (outer + layout.summed if kernel_first else layout.summed + outer)]
    extents = dict(zip(layout.output, c.shapes[2], strict=True))
    count, line = extents[places[0]], prod(extents[axis] for axis in places[1:]) * c.terms
    rows = count if kernel_first else min(max(1, MAX_COLUMN_ELEMENTS // line), count)
    columns = np.empty(rows * line, dtype)
    width = prod(extents[axis] for axis in outer)
    groups = [tuple(slice(g * n // c.groups, (g + 1) * n // c.groups) for n in (c.CI, width)) for g in range(c.groups)]

    def as_columns(seen: np.ndarray) -> np.ndarray:
        """The windows as contiguous columns; a view where they are contiguous already."""
        if seen.flags.c_contiguous:
            return seen
        copy = columns[: seen.size].reshape(seen.shape)
        copy[...] = seen
        return copy

    def run(X: np.ndarray, K: np.ndarray, out: np.ndarray) -> None:
        kernel = np.ascontiguousarray(K.transpose(kernel_order)).reshape((width, c.terms) if kernel_first else (-1, width))
        for image, result in zip(X, out, strict=True):
            seen = seen_by(image).transpose(order)
            if kernel_first:
                np.matmul(kernel, as_columns(seen).reshape(c.terms, -1), out=result.reshape(width, -1))
            else:
                for start in range(0, count, rows):
                    part, target = seen[start : start + rows], result[start : start + rows].reshape(-1, width)
                    for inputs, outputs in groups:
                        matrix = as_columns(part[..., inputs]).reshape(-1, c.terms)
                        np.matmul(matrix, kernel[:, outputs], out=target[:, outputs])
            if c.relu:
                np.maximum(result, 0, out=result)

    return run


def by_elements(c: Convolution, dtype: str) -> Callable[..., None]:
    """Depthwise convolution: a multiplication and an addition for each kernel element, on one part of the result at a time."""
    seen_by, output = windows(c, dtype), c.shapes[2][1:]
    groups = list(rows_of(output[0], prod(output[1:])))
    product = np.empty((groups[0].stop, *output[1:]), dtype)

    def run(X: np.ndarray, K: np.ndarray, out: np.ndarray) -> None:
        last = np.moveaxis(K, c.layout.kernel.index("c"), -1)
        kernel = last.reshape(*c.kernel, *(c.CI if axis == "c" else 1 for axis in c.layout.output[1:]))
        for image, result in zip(X, out, strict=True):
            seen = seen_by(image)
            for group in groups:
                part = result[group]
                term = product[: len(part)]
                for n, place in enumerate(np.ndindex(*c.kernel)):
                    factor = np.broadcast_to(kernel[place], output)[group]
                    np.multiply(seen[group][(..., *place)], factor, out=term if n else part)
                    if n:
                        np.add(part, term, out=part)
                if c.relu:
                    np.maximum(part, 0, out=part)

    return run


# --- workloads ---------------------------------------------------------------------------------------------------------

MEANINGS = {
    "N": "number of images",
    "L": "length of an image",
    "D": "depth of an image",
    "H": "height of an image",
    "W": "width of an image",
    "C": "number of channels",
    "CI": "number of input channels",
    "CO": "number of output channels",
    "K": "extent of the kernel along each axis",
    "KH": "height of the kernel",
    "KW": "width of the kernel",
    "stride": "stride",
    "padding": "padding on each side",
}


def parameters(**defaults: int) -> tuple[Parameter, ...]:
    """The parameters of a convolution of one image, in order, with their defaults; the number of images comes first."""
    sizes = {"N": 1, **defaults}
    return tuple(Parameter(name, size, MEANINGS[name], minimum=0 if name == "padding" else 1) for name, size in sizes.items())


def workload(name: str, summary: str, of: Callable[..., Convolution], sizes: tuple[Parameter, ...]) -> Workload:
    """The convolution that `of` makes of the sizes."""
    return sums_of_products(
        name=name,
        summary=summary,
        parameters=sizes,
        build=lambda dtype, *sizes: of(*sizes).build(dtype, name),
        shapes=lambda *sizes: of(*sizes).shapes,
        multiply=lambda dtype, *sizes: of(*sizes).multiply(dtype),
        terms=lambda *sizes: of(*sizes).terms,
        flop=lambda *sizes: of(*sizes).flop,
        conflict=lambda *sizes: of(*sizes).conflict,
    )


def _last(dims: int) -> Callable[..., Convolution]:
    """A convolution with channels last, from N, the sizes of an image of so many dimensions, and the others in order."""

    def of(N: int, *sizes: int) -> Convolution:
        CI, CO, K, stride, padding, *more = sizes[dims:]
        dilation, groups = (*more, 1, 1)[:2]
        return Convolution(LAST[dims], N, sizes[:dims], CI, CO, (K,) * dims, stride, padding, dilation, groups)

    return of


_CONV2D_NHWC = workload(
    "conv2d_nhwc",
    "a convolution of images (N, H, W, CI) with zero padding, optionally dilated or in groups",
    _last(2),
    (
        *parameters(H=14, W=14, CI=256, CO=256, K=3, stride=1, padding=1),
        Parameter("dilation", 1, "dilation", optional=True),
        Parameter("groups", 1, "number of groups", optional=True),
    ),
)


# A convolution, batch normalisation and relu.


def _layer_build(dtype: str, *sizes: int) -> PrimFunc:
    c = _last(2)(*sizes)
    X, K, conv = convolved(c, dtype, "conv")
    bias, scale, offset = (te.placeholder((c.CO,), dtype, name=name) for name in ("bias", "scale", "offset"))
    biased = te.compute(conv.shape, lambda n, h, w, co: conv[n, h, w, co] + bias[co], name="biased")
    scaled = te.compute(conv.shape, lambda n, h, w, co: biased[n, h, w, co] * scale[co], name="scaled")
    shifted = te.compute(conv.shape, lambda n, h, w, co: scaled[n, h, w, co] + offset[co], name="shifted")
    return te.create_prim_func([X, K, bias, scale, offset, _relu(shifted, c.layout.named)], name="conv_bn_relu")


def _layer_draw(rng: np.random.Generator, *sizes: int) -> Arrays:
    c = _last(2)(*sizes)
    X, K = (rng.uniform(-1, 1, shape) for shape in c.shapes[:2])
    return X, K, rng.uniform(-1, 1, c.CO), rng.uniform(0.5, 1.5, c.CO), rng.uniform(-1, 1, c.CO)


def _layer_numpy(dtype: str, *sizes: int) -> Callable[[Arrays, Arrays], None]:
    c = _last(2)(*sizes)
    convolve = by_columns(c, dtype)

    def run(inputs: Arrays, outputs: Arrays) -> None:
        X, K, bias, scale, offset = inputs
        convolve(X, K, outputs[0])
        pixels = outputs[0].reshape(-1, c.CO)
        for group in rows_of(*pixels.shape):
            y = pixels[group]
            np.add(y, bias, out=y)
            np.multiply(y, scale, out=y)
            np.add(y, offset, out=y)
            np.maximum(y, 0, out=y)

    return run


def _layer_reference(inputs: Arrays, *sizes: int) -> tuple[Bounded, ...]:
    """An inner product, and three roundings more; relu enlarges no error."""
    X, K, bias, scale, offset = inputs
    (conv,) = _CONV2D_NHWC.reference((X, K), *sizes)
    value = (conv.value + bias) * scale + offset
    size = (conv.scale + np.abs(bias)) * np.abs(scale) + np.abs(offset)
    return (Bounded(np.maximum(value, 0), size, conv.roundings + 3),)


WORKLOADS = (
    workload(
        "conv2d",
        "a convolution of NCHW images with zero padding, then relu",
        lambda N, H, W, CI, CO, KH, KW, *more: Convolution(FIRST, N, (H, W), CI, CO, (KH, KW), *more, relu=True),
        parameters(H=56, W=56, CI=64, CO=64, KH=3, KW=3, stride=1, padding=1),
    ),
    workload(
        "depthwise",
        "a convolution of each channel with a kernel of its own, with zero padding, then relu",
        lambda N, H, W, C, KH, KW, *more: Convolution(FIRST_EACH, N, (H, W), C, C, (KH, KW), *more, relu=True),
        parameters(H=112, W=112, C=32, KH=3, KW=3, stride=1, padding=1),
    ),
    workload(
        "conv1d",
        "a convolution of signals (N, L, CI) with zero padding",
        _last(1),
        parameters(L=256, CI=64, CO=128, K=3, stride=2, padding=1),
    ),
    _CONV2D_NHWC,
    workload(
        "conv3d",
        "a convolution of volumes (N, D, H, W, CI) with zero padding",
        _last(3),
        parameters(D=16, H=14, W=14, CI=256, CO=256, K=3, stride=1, padding=1),
    ),
    Workload(
        name="conv_bn_relu",
        summary="a convolution of images (N, H, W, CI), plus a bias, batch normalisation as scale and offset, then relu",
        parameters=parameters(H=7, W=7, CI=512, CO=512, K=3, stride=1, padding=1),
        build=_layer_build,
        draw=_layer_draw,
        numpy=_layer_numpy,
        reference=_layer_reference,
        flop=lambda *sizes: (c := _last(2)(*sizes)).flop + 4 * prod(c.shapes[2]),
        conflict=_CONV2D_NHWC.conflict,
    ),
    workload(
        "depthwise_nhwc",
        "a convolution of each channel of images (N, H, W, C) with a kernel of its own, with zero padding",
        lambda N, H, W, C, K, *more: Convolution(LAST_EACH, N, (H, W), C, C, (K, K), *more),
        parameters(H=112, W=112, C=32, K=3, stride=1, padding=1),
    ),
)

CAPSULE = workload(
    "capsule",
    "a convolution of images (N, H, W, 4, 4, CI), of which each element is a matrix of 4 by 4",
    lambda N, H, W, CI, CO, K, *more: Convolution(CAPSULES, N, (H, W), CI, CO, (K, K), *more),
    parameters(H=8, W=8, CI=32, CO=32, K=3, stride=1, padding=1),
)
