"""Convolutions by Winograd's minimal filtering: fewer multiplications, by transforms of small tiles.

F(m, r) computes m neighbouring outputs of a filter of r taps by m + r - 1 multiplications, in place of m r (Winograd, Arithmetic
Complexity of Computations, SIAM 1980; Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016):

    y = A^T ((G g) * (B^T d))        # d: m + r - 1 inputs, g: r taps, * element by element

In more dimensions each axis is transformed on its own. The sums over channels are matrix products, one for each pair of points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from tir import dtypes, te
from tir.ir import Expr

from .convolution import pad, windows
from .registry import NEWEST, need, operator, shape_of, wide

# The finite points, by their number, in pairs of opposite signs, so that their polynomials share terms. The three need no
# multiplications in the transforms of F(2, 3). The five have few bits, and half the error in F(4, 3) of 0, 1, -1, 2, -2.
POINTS = {3: (0, 1, -1), 5: (0, Fraction(3, 4), Fraction(-3, 4), Fraction(3, 2), Fraction(-3, 2))}

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Filtering:
    """The matrices of F(m, r): A^T, G and B^T, for m + r - 2 finite `points` and infinity."""

    points: tuple[Fraction, ...]
    outputs: Matrix
    taps: Matrix
    inputs: Matrix


@cache
def filtering(m: int, r: int) -> Filtering:
    """The matrices of F(m, r), by the construction of Cook and Toom (Blahut, Fast Algorithms for Signal Processing, 2010, chapter
    5): the coefficients of a product of polynomials from its values at points, transposed."""
    points = tuple(map(Fraction, POINTS[m + r - 2]))
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
    taps.append(tuple(Fraction(k == r - 1) for k in range(r)))
    inputs.append(_from_roots(points))
    return Filtering(points, outputs, tuple(taps), tuple(inputs))


def _from_roots(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients of the polynomial with these roots, the constant one first."""
    found = [Fraction(1)]
    for root in roots:
        found = [a - root * b for a, b in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return tuple(found)


def transformed_weights(weight: np.ndarray, tile: Sequence[int]) -> np.ndarray:
    """Weights (M, C, kernel ...) as `WinogradConv` takes them, (points ..., C, M): in float64, rounded once; for halves to
    float32, as their transforms take more digits."""
    found = weight.astype(np.float64)
    for m, r in zip(tile, weight.shape[2:], strict=True):
        found = np.moveaxis(found, 2, -1)
        found = found @ np.array(filtering(m, r).taps, np.float64).T if m > 1 else found[..., 0]
    return np.ascontiguousarray(np.moveaxis(found, (0, 1), (-1, -2))).astype(dtypes.computed(weight.dtype.name))


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
    counts = [-(-w.outputs // m) for w, m in zip(moved, tile, strict=True)]
    before = [w.before for w in moved]
    after = [t * m + w.kernel - 1 - w.before - w.extent for t, m, w in zip(counts, tile, moved, strict=True)]
    padded = pad(x, (0, 0, *before), (0, 0, *after), te.const(0, x.dtype))
    pixels = shape_of(padded)[2:]
    found = te.compute([images, *pixels, channels], lambda n, *i: wide(padded[(n, i[-1], *i[:-1])]), name="channels_last")
    points = 0
    for axis, (m, r) in enumerate(zip(tile, kernel, strict=True)):
        if m > 1:
            found = _inputs(found, points, points + 1 + axis, counts[axis], filtering(m, r))
            points += 1
    made = _products(found, weight, points)
    for axis, (m, r) in reversed(list(enumerate(zip(tile, kernel, strict=True)))):
        if m > 1:
            points -= 1
            made = _outputs(made, points, points + 2 + axis, filtering(m, r))

    def formula(n: Expr, k: Expr, *position: Expr) -> Expr:
        inner = [e for p, m in zip(position, tile, strict=True) for e in ((p // m, p % m) if m > 1 else (p,))]
        result = made[(n, *inner, k)]
        return (result if bias is None else result + wide(bias[k])).astype(output_dtype or x.dtype)

    return te.compute([images, outputs, *(w.outputs for w in moved)], lambda *i: formula(*i), name="conv")


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
        return te.sum(x[(*position, channel)] * weight[(*position[:points], channel, k)], axis=channel)

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


def _sum(terms: Sequence[tuple[Fraction, Expr]]) -> Expr:
    found: Expr | None = None
    for factor, element in terms:
        scaled = element if abs(factor) == 1 else element * te.const(float(abs(factor)), element.dtype)
        if found is None:
            found = scaled if factor > 0 else -scaled
        else:
            found = found + scaled if factor > 0 else found - scaled
    assert found is not None
    return found
