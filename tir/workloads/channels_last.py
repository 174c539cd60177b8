"""Convolutions of images with their channels last, of one to three dimensions, dilated or in groups; the same with batch
normalisation; and of each channel by itself (Ansor, OSDI 2020, appendix C)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .. import te
from ..ir import Expr, PrimFunc
from .padding import AXES, extent, named, padded, reach, windows
from .workload import Arrays, Bounded, Parameter, Shape, Workload, rows_of

COLUMNS = 1 << 20  # elements of windows that numpy lays out at a time for a matrix product


@dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution: images (N, *image, CI), kernels (K, ..., K, CI / groups, CO)."""

    N: int
    image: Shape
    CI: int
    CO: int
    K: int
    stride: int
    padding: int
    dilation: int = 1
    groups: int = 1

    @classmethod
    def of(cls, dims: int, sizes: Shape) -> Convolution:
        """From the sizes of a workload: N, those of an image, and the others in order."""
        return cls(sizes[0], sizes[1 : 1 + dims], *sizes[1 + dims :])

    @property
    def dims(self) -> int:
        return len(self.image)

    @property
    def output(self) -> Shape:
        return tuple(extent(s, self.K, self.stride, self.padding, self.dilation) for s in self.image)

    @property
    def terms(self) -> int:
        """How many products make an element of the result."""
        return self.K**self.dims * self.CI // self.groups

    @property
    def kernel(self) -> Shape:
        return (*(self.K,) * self.dims, self.CI // self.groups, self.CO)

    @property
    def conflict(self) -> str:
        most = min(self.image) + 2 * self.padding
        if reach(self.K, self.dilation) > most:
            return f"a kernel that reaches over {reach(self.K, self.dilation)} elements does not fit the padded {most}"
        if self.CI % self.groups or self.CO % self.groups:
            return f"{self.CI} and {self.CO} channels can't be divided into {self.groups} groups"
        return ""

    def flop(self) -> int:
        return 2 * self.N * int(np.prod(self.output)) * self.CO * self.terms


def _convolved(c: Convolution, dtype: str, name: str) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """The images, the kernels, and the stage that convolves them."""
    axes = AXES[c.dims]
    X = te.placeholder((c.N, *c.image, c.CI), dtype, name="X")
    K = te.placeholder(c.kernel, dtype, name="K")
    pad = padded(X, ("n", *axes, "c"), c.padding, c.padding, dtype)
    steps = [te.reduce_axis((0, c.K), f"r{axis}") for axis in axes]
    rc = te.reduce_axis((0, c.CI // c.groups), "rc")

    def value(n: Expr, *index: Expr) -> Expr:
        *place, co = index
        seen = [i * c.stride + r * c.dilation for i, r in zip(place, steps, strict=True)]
        channel = rc if c.groups == 1 else co // (c.CO // c.groups) * (c.CI // c.groups) + rc
        return te.sum(pad[(n, *seen, channel)] * K[(*steps, rc, co)], axis=[*steps, rc])

    return X, K, te.compute((c.N, *c.output, c.CO), named(("n", *axes, "co"), value), name=name)


def _draw(rng: np.random.Generator, c: Convolution) -> Arrays:
    return rng.uniform(-1, 1, (c.N, *c.image, c.CI)), rng.uniform(-1, 1, c.kernel)


class _Columns:
    """Convolves image by image: windows to columns, some rows of the result at a time, and a matrix product for each group."""

    def __init__(self, c: Convolution, dtype: str):
        self._c = c
        self._padded = np.zeros((*(s + 2 * c.padding for s in c.image), c.CI), dtype)
        line = int(np.prod(c.output[1:])) * c.terms
        rows = min(max(1, COLUMNS // line), c.output[0])
        self._columns = np.empty(rows * line, dtype)
        self._slices = [slice(start, min(start + rows, c.output[0])) for start in range(0, c.output[0], rows)]

    def __call__(self, X: np.ndarray, K: np.ndarray, out: np.ndarray) -> None:
        c = self._c
        interior = self._padded[tuple(slice(c.padding, c.padding + s) for s in c.image)]
        for image, result in zip(X, out, strict=True):
            source = image
            if c.padding:
                interior[...] = image
                source = self._padded
            for group in range(c.groups):
                inputs, outputs = (slice(group * n // c.groups, (group + 1) * n // c.groups) for n in (c.CI, c.CO))
                kernel = K[..., outputs].reshape(c.terms, -1)
                seen = np.moveaxis(windows(source[..., inputs], c.dims, c.K, c.stride, c.dilation), c.dims, -1)
                for rows in self._slices:
                    matrix = self._laid_out(seen[rows])
                    target = result[rows][..., outputs]
                    if c.groups == 1:
                        np.matmul(matrix, kernel, out=target.reshape(len(matrix), -1))
                    else:
                        target[...] = np.matmul(matrix, kernel).reshape(target.shape)

    def _laid_out(self, seen: np.ndarray) -> np.ndarray:
        """The windows as the rows of a matrix; a view where they lie like that."""
        if self._c.K == self._c.stride == 1 and seen.flags.c_contiguous:
            return seen.reshape(-1, self._c.terms)
        columns = self._columns[: seen.size].reshape(seen.shape)
        columns[...] = seen
        return columns.reshape(-1, self._c.terms)


def _exact(c: Convolution, X: np.ndarray, K: np.ndarray) -> np.ndarray:
    out = np.empty((c.N, *c.output, c.CO))
    _Columns(c, "float64")(X, K, out)
    return out


def _convolution(name: str, summary: str, dims: int, default: Shape, optional: bool = False) -> Workload:
    """The convolution of images of so many dimensions as a workload; `optional` are dilation and groups."""

    def build(dtype: str, *sizes: int) -> PrimFunc:
        X, K, Y = _convolved(Convolution.of(dims, sizes), dtype, "Y")
        return te.create_prim_func([X, K, Y], name=name)

    def fast(dtype: str, *sizes: int) -> Callable[[Arrays, Arrays], None]:
        columns = _Columns(Convolution.of(dims, sizes), dtype)
        return lambda inputs, outputs: columns(inputs[0], inputs[1], outputs[0])

    def reference(inputs: Arrays, *sizes: int) -> tuple[Bounded, ...]:
        """An inner product of as many terms as a kernel has for an output."""
        c, (X, K) = Convolution.of(dims, sizes), inputs
        return (Bounded(_exact(c, X, K), _exact(c, np.abs(X), np.abs(K)), c.terms),)

    more = (Parameter("dilation", 1, "dilation", optional=True), Parameter("groups", 1, "number of groups", optional=True))
    return Workload(
        name=name,
        summary=summary,
        parameters=(*_parameters(dims, default), *(more if optional else ())),
        build=build,
        draw=lambda rng, *sizes: _draw(rng, Convolution.of(dims, sizes)),
        numpy=fast,
        reference=reference,
        flop=lambda *sizes: Convolution.of(dims, sizes).flop(),
        conflict=lambda *sizes: Convolution.of(dims, sizes).conflict,
    )


MEANINGS = {"l": ("L", "length of an image"), "d": ("D", "depth of an image"), "h": ("H", "height of an image"),
            "w": ("W", "width of an image")}  # fmt: skip


def _parameters(dims: int, default: Shape) -> tuple[Parameter, ...]:
    *image, CI, CO, K, stride, padding = default
    sizes = [Parameter(MEANINGS[a][0], size, MEANINGS[a][1]) for a, size in zip(AXES[dims], image, strict=True)]
    return (
        Parameter("N", 1, "number of images"),
        *sizes,
        Parameter("CI", CI, "number of input channels"),
        Parameter("CO", CO, "number of output channels"),
        *_steps(K, stride, padding),
    )


def _steps(K: int, stride: int, padding: int) -> tuple[Parameter, ...]:
    return (
        Parameter("K", K, "extent of the kernel along each axis"),
        Parameter("stride", stride, "stride"),
        Parameter("padding", padding, "padding on each side", least=0),
    )


# --- a convolution, batch normalisation and relu -----------------------------------------------------------------------


def _layer_build(dtype: str, *sizes: int) -> PrimFunc:
    c = Convolution.of(2, sizes)
    X, K, conv = _convolved(c, dtype, "conv")
    bias, scale, offset = (te.placeholder((c.CO,), dtype, name=name) for name in ("bias", "scale", "offset"))
    shape = (c.N, *c.output, c.CO)
    biased = te.compute(shape, lambda n, h, w, co: conv[n, h, w, co] + bias[co], name="biased")
    scaled = te.compute(shape, lambda n, h, w, co: biased[n, h, w, co] * scale[co], name="scaled")
    shifted = te.compute(shape, lambda n, h, w, co: scaled[n, h, w, co] + offset[co], name="shifted")
    Y = te.compute(shape, lambda n, h, w, co: te.maximum(shifted[n, h, w, co], te.const(0, dtype)), name="Y")
    return te.create_prim_func([X, K, bias, scale, offset, Y], name="conv_bn_relu")


def _layer_draw(rng: np.random.Generator, *sizes: int) -> Arrays:
    c = Convolution.of(2, sizes)
    return *_draw(rng, c), rng.uniform(-1, 1, c.CO), rng.uniform(0.5, 1.5, c.CO), rng.uniform(-1, 1, c.CO)


def _layer_numpy(dtype: str, *sizes: int) -> Callable[[Arrays, Arrays], None]:
    c = Convolution.of(2, sizes)
    columns = _Columns(c, dtype)

    def run(inputs: Arrays, outputs: Arrays) -> None:
        X, K, bias, scale, offset = inputs
        columns(X, K, outputs[0])
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
    c, (X, K, bias, scale, offset) = Convolution.of(2, sizes), inputs
    value = (_exact(c, X, K) + bias) * scale + offset
    size = (_exact(c, np.abs(X), np.abs(K)) + np.abs(bias)) * np.abs(scale) + np.abs(offset)
    return (Bounded(np.maximum(value, 0), size, c.terms + 3),)


def _layer_flop(*sizes: int) -> int:
    c = Convolution.of(2, sizes)
    return c.flop() + 4 * c.N * int(np.prod(c.output)) * c.CO


# --- each channel by itself --------------------------------------------------------------------------------------------


def _depthwise_build(dtype: str, N: int, H: int, W: int, C: int, K: int, stride: int, padding: int) -> PrimFunc:
    X = te.placeholder((N, H, W, C), dtype, name="X")
    kernel = te.placeholder((K, K, C), dtype, name="K")
    pad = padded(X, ("n", "h", "w", "c"), padding, padding, dtype)
    rh, rw = te.reduce_axis((0, K), "rh"), te.reduce_axis((0, K), "rw")

    def value(n, h, w, c):
        return te.sum(pad[n, h * stride + rh, w * stride + rw, c] * kernel[rh, rw, c], axis=[rh, rw])

    shape = (N, extent(H, K, stride, padding), extent(W, K, stride, padding), C)
    return te.create_prim_func([X, kernel, te.compute(shape, value, name="Y")], name="depthwise_nhwc")


def _depthwise_draw(rng: np.random.Generator, N: int, H: int, W: int, C: int, K: int, *_: int) -> Arrays:
    return rng.uniform(-1, 1, (N, H, W, C)), rng.uniform(-1, 1, (K, K, C))


def _depthwise_numpy(
    dtype: str, N: int, H: int, W: int, C: int, K: int, stride: int, padding: int
) -> Callable[[Arrays, Arrays], None]:
    """One multiplication and addition for each kernel element, some rows of the result at a time."""
    OH, OW = extent(H, K, stride, padding), extent(W, K, stride, padding)
    groups = list(rows_of(OH, OW * C))
    source = np.zeros((H + 2 * padding, W + 2 * padding, C), dtype)
    product = np.empty((groups[0].stop, OW, C), dtype)

    def run(inputs: Arrays, outputs: Arrays) -> None:
        X, kernel = inputs
        for image, result in zip(X, outputs[0], strict=True):
            source[padding : padding + H, padding : padding + W] = image
            seen = windows(source, 2, K, stride)
            for group in groups:
                out = result[group]
                term = product[: len(out)]
                np.multiply(seen[group][..., 0, 0], kernel[0, 0], out=out)
                for i, j in list(np.ndindex(K, K))[1:]:
                    np.multiply(seen[group][..., i, j], kernel[i, j], out=term)
                    np.add(out, term, out=out)

    return run


def _depthwise_reference(
    inputs: Arrays, N: int, H: int, W: int, C: int, K: int, stride: int, padding: int
) -> tuple[Bounded, ...]:
    """An inner product of length K·K."""

    def images(x: np.ndarray) -> Iterator[np.ndarray]:
        return (windows(np.pad(i, ((padding, padding), (padding, padding), (0, 0))), 2, K, stride) for i in x)

    def convolve(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        return np.stack([np.einsum("hwcij,ijc->hwc", seen, kernel) for seen in images(x)])

    X, kernel = inputs
    return (Bounded(convolve(X, kernel), convolve(np.abs(X), np.abs(kernel)), K * K),)


def _depthwise_flop(N: int, H: int, W: int, C: int, K: int, stride: int, padding: int) -> int:
    return 2 * N * C * extent(H, K, stride, padding) * extent(W, K, stride, padding) * K * K


WORKLOADS = (
    _convolution("conv1d", "a convolution of signals (N, L, CI) with zero padding", 1, (256, 64, 128, 3, 2, 1)),
    _convolution(
        "conv2d_nhwc",
        "a convolution of images (N, H, W, CI) with zero padding, dilated or in groups if asked to",
        2,
        (14, 14, 256, 256, 3, 1, 1),
        optional=True,
    ),
    _convolution("conv3d", "a convolution of volumes (N, D, H, W, CI) with zero padding", 3, (16, 14, 14, 256, 256, 3, 1, 1)),
    Workload(
        name="conv_bn_relu",
        summary="a convolution of images (N, H, W, CI), plus a bias, batch normalisation as scale and offset, then relu",
        parameters=_parameters(2, (7, 7, 512, 512, 3, 1, 1)),
        build=_layer_build,
        draw=_layer_draw,
        numpy=_layer_numpy,
        reference=_layer_reference,
        flop=_layer_flop,
        conflict=lambda *sizes: Convolution.of(2, sizes).conflict,
    ),
    Workload(
        name="depthwise_nhwc",
        summary="a convolution of each channel of images (N, H, W, C) with a kernel of its own, with zero padding",
        parameters=(
            Parameter("N", 1, "number of images"),
            Parameter("H", 112, "height of an image"),
            Parameter("W", 112, "width of an image"),
            Parameter("C", 32, "number of channels"),
            *_steps(3, 1, 1),
        ),
        build=_depthwise_build,
        draw=_depthwise_draw,
        numpy=_depthwise_numpy,
        reference=_depthwise_reference,
        flop=_depthwise_flop,
        conflict=lambda N, H, W, C, K, stride, padding: Convolution(N, (H, W), 1, 1, K, stride, padding).conflict,
    ),
)
