"""Convolutions by Winograd's minimal filtering: fewer multiplications, by transforms of small tiles.

F(m, r) computes m neighbouring outputs of a filter of r taps by m + r - 1 multiplications, in place of m r (Winograd, Arithmetic
Complexity of Computations, SIAM 1980; Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016):

    y = A^T ((G g) * (B^T d))        # d: m + r - 1 inputs, g: r taps, * element by element

In more dimensions each axis is transformed on its own. The sums over channels are matrix products, one for each pair of points.

Of bytes all this is exact. For integer points B and A are integers, and so is G times a common denominator. Transformed operands
have 16 bits. Sums wrap around modulo 2^32: the denominator's odd part has an inverse there, its powers of two are shifted out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import lcm, prod
from typing import Any

import numpy as np

from tir import dtypes, te
from tir.ir import Expr

from .convolution import SlidingWindow, pad, windows
from .registry import NEWEST, need, operator, shape_of, wide

# The finite points, by their number, in pairs of opposite signs, so that their polynomials share terms. The three need no
# multiplications in the transforms of F(2, 3). The five have few bits, and half the error in F(4, 3) of 0, 1, -1, 2, -2.
POINTS = {3: (0, 1, -1), 5: (0, Fraction(3, 4), Fraction(-3, 4), Fraction(3, 2), Fraction(-3, 2))}
INTEGER_POINTS = {3: (0, 1, -1), 5: (0, 1, -1, 2, -2)}  # for integers, whose transforms are exact

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Filtering:
    """The matrices of F(m, r): A^T, G and B^T, for m + r - 2 finite `points` and infinity. Outputs are `scale` times as large."""

    points: tuple[Fraction, ...]
    outputs: Matrix
    taps: Matrix
    inputs: Matrix
    scale: int = 1


@cache
def filtering(m: int, r: int, integral: bool = False) -> Filtering:
    """The matrices of F(m, r), by the construction of Cook and Toom (Blahut, Fast Algorithms for Signal Processing, 2010, chapter
    5): the coefficients of a product of polynomials from its values at points, transposed. `integral` ones are of integers."""
    points = tuple(map(Fraction, (INTEGER_POINTS if integral else POINTS)[m + r - 2]))
    one = Fraction(1)
    outputs = tuple((*(p**i for p in points), Fraction(i == m - 1)) for i in range(m))
    taps, inputs = [], []
    for p in points:
        others = [q for q in points if q != p]
        row = _from_roots(others)
        divisor = one
        for q in others:
            divisor *= p - q
        taps.append(tuple(p**k / divisor for k in range(r)))
        inputs.append((*row, Fraction(0)))
    scale = lcm(*(t.denominator for row in taps for t in row)) if integral else 1
    taps = [*(tuple(scale * t for t in row) for row in taps), tuple(Fraction(k == r - 1) for k in range(r))]
    inputs.append(_from_roots(points))
    outputs = tuple((*row[:-1], scale * row[-1]) for row in outputs)
    return Filtering(points, outputs, tuple(taps), tuple(inputs), scale)


def _from_roots(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients of the polynomial with these roots, the constant one first."""
    found = [Fraction(1)]
    for root in roots:
        found = [a - root * b for a, b in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return tuple(found)


def transformed_weights(weight: np.ndarray, tile: Sequence[int]) -> np.ndarray:
    """Weights (M, C, kernel ...) as `WinogradConv` takes them, (points ..., C, M): in float64, rounded once; for halves to
    float32, as their transforms take more digits. Those of bytes, for `WinogradSums`, are exact, and their channels even."""
    kind, integral = weight.dtype.name, dtypes.is_int(weight.dtype.name)
    found = weight.astype(np.float32 if integral else np.float64)  # integers of up to 24 bits
    for m, r in zip(tile, weight.shape[2:], strict=True):
        found = np.moveaxis(found, 2, -1)
        found = found @ np.array(filtering(m, r, integral).taps, found.dtype).T if m > 1 else found[..., 0]
    found = np.moveaxis(found, (0, 1), (-1, -2))
    even = [*[(0, 0)] * (found.ndim - 2), (0, found.shape[-2] % 2 * integral), (0, 0)]
    return np.ascontiguousarray(np.pad(found, even)).astype("int16" if integral else dtypes.computed(kind))


def exact_for(weight: np.ndarray, tile: Sequence[int], kind: str) -> bool:
    """True where `WinogradSums` by a tile is exact for weights (M, C, kernel ...) of bytes and images of this type. 16 bits must
    hold both when transformed, and sums must be small enough to be told from what they wrap around to."""
    used = [filtering(m, r, True) for m, r in zip(tile, weight.shape[2:], strict=True) if m > 1]
    images, taps = _limits([[1]], dtypes.limits(kind)), _limits([[1]], dtypes.limits(weight.dtype.name))
    for f in used:
        images, taps = _limits(f.inputs, images), _limits(f.taps, taps)
    sums = _limits(weight.reshape(len(weight), -1).astype(np.int64), dtypes.limits(kind))
    low, high = (limit << _shift(used)[0] for limit in sums)
    held = (*images, "int16"), (*taps, "int16"), (low, high, "int32")
    return all(least >= dtypes.limits(t)[0] and most <= dtypes.limits(t)[1] for least, most, t in held)


def _limits(rows: Any, elements: tuple[float, float]) -> tuple[int, int]:
    """The least and the largest sum by the coefficients of one of the rows, of elements between two limits."""
    above, below = (np.maximum(sign * np.array(rows), 0).sum(axis=1) for sign in (1, -1))
    low, high = elements
    return int((low * above - high * below).min()), int((high * above - low * below).max())


def _shift(used: Sequence[Filtering]) -> tuple[int, int]:
    """The power of two in the scale of filters, and its odd part's inverse modulo 2^32, as an int32."""
    scale = prod(f.scale for f in used)
    power = (scale & -scale).bit_length() - 1
    inverse = pow(scale >> power, -1, 1 << 32)
    return power, inverse - (inverse >> 31 << 32)


@operator("WinogradConv", NEWEST)
def winograd_conv(x, weight, bias=None, *, tile, kernel, pads=None, output_dtype=None):
    """x (N, C, ...), weight (points ..., C, M), bias (M) -> (N, M, ...): a convolution of stride 1 with a kernel of this size, by
    tiles of `tile` outputs. An axis along which both are 1 is not transformed, and has no points. Halves are computed in
    float32, in which the weights are. The result is of x's type, or `output_dtype`."""
    need("the input", x, dtype="float")
    images, channels, *extents = shape_of(x)
    need("the weight", weight, [*_points(tile, kernel), channels, None], dtypes.computed(x.dtype))
    outputs = shape_of(weight)[-1]
    need("the bias", bias, [outputs], x.dtype)
    moved = windows(extents, kernel, None, None, pads, "NOTSET")
    padded = pad(x, (0, 0, *(w.before for w in moved)), (0, 0, *_after(moved, tile)), te.const(0, x.dtype))
    pixels = shape_of(padded)[2:]
    source = te.compute([images, *pixels, channels], lambda n, *i: wide(padded[(n, i[-1], *i[:-1])]), name="channels_last")
    result = _filtered(source, weight, tile, moved)

    def formula(n: Expr, k: Expr, *position: Expr) -> Expr:
        value = result(n, k, *position)
        return (value if bias is None else value + wide(bias[k])).astype(output_dtype or x.dtype)

    return te.compute([images, outputs, *(w.outputs for w in moved)], lambda *i: formula(*i), name="conv")


@operator("WinogradSums", NEWEST)
def winograd_sums(x, weight, *, tile, kernel, pads, zero):
    """x (N, ..., C) of bytes, weight (points ..., C, M) of int16 -> (N, ..., M): the sums of a convolution of stride 1 with a
    kernel of this size, exactly, in int32. The elements around the image are `zero`. The weight has a row of zeros for an odd
    number of channels."""
    need("the input", x, dtype="integer")
    images, *extents, channels = shape_of(x)
    need("the weight", weight, [*_points(tile, kernel), channels + channels % 2, None], "int16")
    moved = windows(extents, kernel, None, None, pads, "NOTSET")
    after = (0, *_after(moved, tile), channels % 2)
    source = pad(x, (0, *(w.before for w in moved), 0), after, te.const(zero, x.dtype), lambda e: e.astype("int16"))
    result = _filtered(source, weight, tile, moved)
    power, inverse = _shift([filtering(m, w.kernel, True) for m, w in zip(tile, moved, strict=True) if m > 1])

    def formula(n: Expr, *i: Expr) -> Expr:
        value = result(n, i[-1], *i[:-1])
        return te.shift_right(value if inverse == 1 else value * te.const(inverse, "int32"), te.const(power, "int32"))

    return te.compute([images, *(w.outputs for w in moved), shape_of(weight)[-1]], formula, name="conv")


def _after(moved: Sequence[SlidingWindow], tile: Sequence[int]) -> list[int]:
    """Elements after the image along each axis, for whole tiles."""
    return [-(-w.outputs // m) * m + w.kernel - 1 - w.before - w.extent for m, w in zip(tile, moved, strict=True)]


def _filtered(x: te.Tensor, weight: te.Tensor, tile: Sequence[int], moved: Sequence[SlidingWindow]) -> Callable[..., Expr]:
    """The formula of an output of x (N, ..., C) at an image, a channel and a place: transformed, multiplied, transformed back."""
    integral = dtypes.is_int(x.dtype)
    used = [(n, w, filtering(m, w.kernel, integral)) for n, (m, w) in enumerate(zip(tile, moved, strict=True)) if m > 1]
    for point, (axis, w, f) in enumerate(used):
        x = _inputs(x, point, point + 1 + axis, -(-w.outputs // tile[axis]), f)
    made = _products(x, weight, len(used))
    for point, (axis, _, f) in reversed(list(enumerate(used))):
        made = _outputs(made, point, point + 2 + axis, f)

    def formula(n: Expr, k: Expr, *position: Expr) -> Expr:
        inner = [e for p, m in zip(position, tile, strict=True) for e in ((p // m, p % m) if m > 1 else (p,))]
        return made[(n, *inner, k)]

    return formula


def _points(tile: Sequence[int], kernel: Sequence[int]) -> list[int]:
    """The number of points along each axis that is transformed. Raises ValueError for an F(m, r) that is not supported."""
    pairs = [(m, r) for m, r in zip(tile, kernel, strict=True) if (m, r) != (1, 1)]
    for m, r in pairs:
        if min(m, r) < 2 or m + r - 2 not in POINTS:
            raise ValueError(f"F({m}, {r}) is not supported")
    return [m + r - 1 for m, r in pairs]


def _inputs(x: te.Tensor, point: int, along: int, count: int, f: Filtering) -> te.Tensor:
    """A stage that transforms the inputs of `count` tiles along the axis `along` of `x` (points ..., images, tiles ..., pixels
    ..., channels). The new points are axis `point` of the result."""
    shape, m = list(shape_of(x)), len(f.outputs)
    shape[along] = count
    parities = [range(first, len(f.inputs), 2) for first in (0, 1)]

    def formula(*index: Expr) -> Expr:
        inner = [*index[:point], *index[point + 1 :]]
        elements = [x[(*inner[:along], inner[along] * m + j, *inner[along + 1 :])] for j in range(len(f.inputs))]
        return _selected(index[point], [_combination(row, parities, elements) for row in f.inputs])

    return te.compute([*shape[:point], len(f.inputs), *shape[point:]], formula, name="inputs")


def _products(x: te.Tensor, weight: te.Tensor, points: int) -> te.Tensor:
    """The stage of the products, one for each of so many axes of points."""
    *outer, channels = shape_of(x)
    channel = te.reduce_axis((0, channels), "rc")

    def formula(*index: Expr) -> Expr:
        position, k = index[:-1], index[-1]
        terms = (x[(*position, channel)], weight[(*position[:points], channel, k)])
        a, b = (e.astype("int32") for e in terms) if dtypes.is_int(x.dtype) else terms
        return te.sum(a * b, axis=channel)

    return te.compute([*outer, weight.shape[-1]], formula, name="products")


def _outputs(x: te.Tensor, point: int, along: int, f: Filtering) -> te.Tensor:
    """A stage that transforms the products at the points, axis `point` of `x`, to the outputs of tiles, axis `along`."""
    shape, sizes = list(shape_of(x)), [abs(p) for p in f.points]
    pairs = [[j for j, other in enumerate(sizes) if other == size] for size in dict.fromkeys(sizes)]
    del shape[point]

    def formula(*index: Expr) -> Expr:
        inner = [*index[:along], *index[along + 1 :]]
        elements = [x[(*inner[:point], te.const(j), *inner[point:])] for j in range(len(f.inputs))]
        return _selected(index[along], [_combination(row, [*pairs, [len(sizes)]], elements) for row in f.outputs])

    return te.compute([*shape[:along], len(f.outputs), *shape[along:]], formula, name="outputs")


def _selected(number: Expr, values: Sequence[Expr]) -> Expr:
    """The value of that number."""
    found = values[-1]
    for n, value in reversed(list(enumerate(values[:-1]))):
        found = te.select(te.equal(number, n), value, found)
    return found


def _combination(row: Sequence[Fraction], groups: Sequence[Sequence[int]], elements: Sequence[Expr]) -> Expr:
    """The sum of elements by a row's coefficients, grouped up to a factor, so that like rows share it."""
    terms = []
    for group in groups:
        used = [j for j in group if row[j]]
        if used:
            inner = _sum([(row[j] / row[used[-1]], elements[j]) for j in reversed(used)])
            terms.append((row[used[-1]], inner))
    return _sum(terms)


def _number(factor: Fraction, dtype: str) -> float:
    return factor.numerator if dtypes.is_int(dtype) else float(factor)


def _sum(terms: Sequence[tuple[Fraction, Expr]]) -> Expr:
    found: Expr | None = None
    for factor, element in terms:
        scaled = element if abs(factor) == 1 else element * te.const(_number(abs(factor), element.dtype), element.dtype)
        if found is None:
            found = scaled if factor > 0 else -scaled
        else:
            found = found + scaled if factor > 0 else found - scaled
    assert found is not None
    return found
