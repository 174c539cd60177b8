"""Operators that reduce along axes: sums and their like, softmax, layer normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tir import dtypes, te
from tir.ir import Expr

from .elementwise import at
from .registry import need, operator, shape_of


def normal_axes(axes: Sequence[int], rank: int) -> list[int]:
    """Axes counted from the front, in ascending order. Raises ValueError for one that is not there, or is named twice."""
    for axis in axes:
        if not -rank <= axis < rank:
            raise ValueError(f"axis {axis} is not there; the tensor has {rank} dimension(s)")
    found = sorted(axis % rank for axis in axes)
    if len(set(found)) < len(found):
        raise ValueError(f"an axis is named twice in {list(axes)}")
    return found


class Rows:
    """The elements of a tensor along some axes: what is reduced, for each place along the others."""

    def __init__(self, x: te.Tensor, axes: Sequence[int]):
        self.x, self.axes = x, normal_axes(axes, x.ndim)
        self.kept = [n for n in range(x.ndim) if n not in self.axes]
        self.count = prod(shape_of(x)[n] for n in self.axes)

    def reduce(self, reducer: Callable[..., Expr], formula: Callable[..., Expr], name: str, keepdims: bool = False) -> te.Tensor:
        """The reduction of `formula(place)`, a function of indices of the tensor; reduced axes stay with extent 1, or go."""
        shape = shape_of(self.x)
        steps = {n: te.reduce_axis((0, shape[n]), f"r{n}") for n in self.axes}

        def value(*index: Expr) -> Expr:
            own = iter(n for i, n in enumerate(index) if not keepdims or i in self.kept)
            place = tuple(steps[n] if n in steps else next(own) for n in range(len(shape)))
            return reducer(formula(*place), axis=[*steps.values()])

        kept = [1 if n in steps else e for n, e in enumerate(shape) if keepdims or n not in steps]
        return te.compute(kept, value, name=name)

    def outer(self, index: Sequence[Expr]) -> tuple[Expr, ...]:
        """The indices along the axes that are kept."""
        return tuple(index[n] for n in self.kept)


def _same(value: Expr) -> Expr:
    return value


def _reduction(
    name: str, reducer: Callable[..., Expr], each: Callable[[Expr], Expr] = _same, last: Callable[..., Expr] | None = None
) -> None:
    """An operator that reduces `each(element)`, and applies `last(result, count)` where there is one, to floats alone."""
    label = name.lower()

    @operator(name, operands={1: "axes"})
    def define(x, *, axes=None, keepdims=1, noop_with_empty_axes=0):
        if last is not None and not dtypes.is_float(x.dtype):
            raise TypeError(f"floats are needed, got {x.dtype}")
        rows = Rows(x, axes or ([] if noop_with_empty_axes else range(x.ndim)))
        count = te.const(rows.count, x.dtype)
        if not rows.axes:
            return te.compute(x.shape, lambda *i: each(x[i]) if last is None else last(each(x[i]), count), name="copy")
        result = rows.reduce(reducer, lambda *i: each(x[i]), label, bool(keepdims))
        return result if last is None else te.compute(result.shape, lambda *i: last(result[i], count), name=f"{label}_last")


_reduction("ReduceSum", te.sum)
_reduction("ReduceMean", te.sum, last=lambda total, count: total / count)
_reduction("ReduceMax", te.max)
_reduction("ReduceMin", te.min)
_reduction("ReduceProd", te.prod)
_reduction("ReduceL1", te.sum, each=te.abs)
_reduction("ReduceL2", te.sum, each=lambda x: x * x, last=lambda total, _: te.sqrt(total))
_reduction("ReduceSumSquare", te.sum, each=lambda x: x * x)
_reduction("ReduceLogSum", te.sum, last=lambda total, _: te.log(total))


def _softmax(x: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    """exp(x - max) / sum(exp(x - max)) along axes."""
    rows = Rows(x, axes)
    top = rows.reduce(te.max, lambda *i: x[i], "top")
    power = te.compute(x.shape, lambda *i: te.exp(x[i] - top[rows.outer(i)]), name="power")
    total = rows.reduce(te.sum, lambda *i: power[i], "sum")
    return te.compute(x.shape, lambda *i: power[i] / total[rows.outer(i)], name="softmax")


@operator("Softmax", 13)
def softmax(x, *, axis=-1):
    return _softmax(x, [axis])


@operator("Softmax", 1, 12)
def flat_softmax(x, *, axis=1):
    """Along all axes from `axis` on, as the operator was before version 13."""
    (first,) = normal_axes([axis], x.ndim)
    return _softmax(x, range(first, x.ndim))


@operator("LogSoftmax", 13)
def log_softmax(x, *, axis=-1):
    """x - max - log(sum(exp(x - max))) along an axis."""
    rows = Rows(x, [axis])
    top = rows.reduce(te.max, lambda *i: x[i], "top")
    total = rows.reduce(te.sum, lambda *i: te.exp(x[i] - top[rows.outer(i)]), "sum")
    return te.compute(x.shape, lambda *i: x[i] - top[rows.outer(i)] - te.log(total[rows.outer(i)]), name="log_softmax")


@operator("LayerNormalization", 17)
def layer_normalization(x, scale, bias=None, *, axis=-1, epsilon=1e-5, stash_type=1):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias along the axes from `axis` on; the mean; and 1 / sqrt(variance +
    epsilon). All are computed in the type of `x`."""
    need("the input", x, dtype="float")
    if dtypes.is_half(x.dtype):
        raise TypeError(f"statistics in {x.dtype} would be too coarse")
    (first,) = normal_axes([axis], x.ndim)
    rows = Rows(x, range(first, x.ndim))
    need("the scale", scale, dtype=x.dtype, broadcast=shape_of(x))
    need("the bias", bias, dtype=x.dtype, broadcast=shape_of(x))
    size, eps = te.const(rows.count, x.dtype), te.const(epsilon, x.dtype)
    total = rows.reduce(te.sum, lambda *i: x[i], "total")
    mean = te.compute(total.shape, lambda *i: total[i] / size, name="mean")
    centred = te.compute(x.shape, lambda *i: x[i] - mean[rows.outer(i)], name="centred")
    squares = rows.reduce(te.sum, lambda *i: centred[i] * centred[i], "squares")
    factor = te.compute(total.shape, lambda *i: te.rsqrt(squares[i] / size + eps), name="factor")

    def formula(*i: Expr) -> Expr:
        value = centred[i] * factor[rows.outer(i)] * at(scale, i)
        return value if bias is None else value + at(bias, i)

    kept = [*shape_of(x)[:first], *(1 for _ in shape_of(x)[first:])]
    means = te.compute(kept, lambda *i: mean[rows.outer(i)], name="means")
    factors = te.compute(kept, lambda *i: factor[rows.outer(i)], name="factors")
    return te.compute(x.shape, formula, name="layer_norm"), means, factors


@operator("RMSNormalization", 23)
def rms_normalization(x, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    """x / sqrt(mean of squares + epsilon) * scale along the axes from `axis` on, computed in the type of `x`."""
    need("the input", x, dtype="float")
    if dtypes.is_half(x.dtype):
        raise TypeError(f"statistics in {x.dtype} would be too coarse")
    (first,) = normal_axes([axis], x.ndim)
    need("the scale", scale, dtype=x.dtype, broadcast=shape_of(x))
    rows = Rows(x, range(first, x.ndim))
    size, eps = te.const(rows.count, x.dtype), te.const(epsilon, x.dtype)
    squares = rows.reduce(te.sum, lambda *i: x[i] * x[i], "squares")
    factor = te.compute(squares.shape, lambda *i: te.rsqrt(squares[i] / size + eps), name="factor")
    return te.compute(x.shape, lambda *i: x[i] * factor[rows.outer(i)] * at(scale, i), name="rms_norm")
