"""Operators that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tir import dtypes, te
from tir.ir import Expr

from .convolution import pad as padded
from .elementwise import elementwise
from .registry import composite, element, need, operator, shape_of
from .rows import normal_axes, replaced

# --- views: the same elements in the same order ------------------------------------------------------------------------


def _viewed(x: te.Tensor, shape: Sequence[int]) -> te.Tensor:
    """The elements of `x` in their order, in another shape."""
    own = shape_of(x)
    if prod(own) != prod(shape):
        raise ValueError(f"{list(own)} and {list(shape)} have different numbers of elements")

    def formula(*index: Expr) -> Expr:
        if [e for e in own if e > 1] == [e for e in shape if e > 1]:  # dimensions of one element come and go
            rest = (i for i, extent in zip(index, shape, strict=True) if extent > 1)
            return x[tuple(next(rest) if extent > 1 else te.const(0) for extent in own)]
        flat: Expr = te.const(0)
        for i, extent in zip(index, shape, strict=True):
            flat = flat * extent + i
        source = []
        for n, extent in enumerate(own):
            inner = prod(own[n + 1 :])
            source.append(flat // inner % extent if n else flat // inner)
        return x[tuple(source)]

    return te.compute(shape, formula, name="view")


@operator("Reshape", operands={1: "shape"}, view=True, moves=True)
def reshape(x, *, shape, allowzero=0):
    """`x` in `shape`, in which 0 stands for its own extent (unless `allowzero`), and one -1 for the remaining extent."""
    if not allowzero and any(d == 0 and n >= x.ndim for n, d in enumerate(shape)):
        raise ValueError(f"a 0 in {list(shape)} stands for no extent of {list(shape_of(x))}")
    wanted = [shape_of(x)[n] if d == 0 and not allowzero else d for n, d in enumerate(shape)]
    if wanted.count(-1) > 1 or any(d < -1 for d in wanted):
        raise ValueError(f"{list(shape)} is no shape")
    if -1 in wanted:
        known = -prod(wanted)
        wanted[wanted.index(-1)] = prod(shape_of(x)) // known if known else 0
    return _viewed(x, wanted)


@operator("Flatten", view=True, keeps=True)
def flatten(x, *, axis=1):
    """A matrix: dimensions before `axis` are rows."""
    if not -x.ndim <= axis <= x.ndim:
        raise ValueError(f"axis {axis} does not exist; the tensor has {x.ndim} dimension(s)")
    first = axis if axis >= 0 else axis + x.ndim
    return _viewed(x, [prod(shape_of(x)[:first]), prod(shape_of(x)[first:])])


@operator("Squeeze", operands={1: "axes"}, view=True, keeps=True)
def squeeze(x, *, axes=None):
    shape = shape_of(x)
    gone = [n for n, e in enumerate(shape) if e == 1] if axes is None else normal_axes(axes, x.ndim)
    if any(shape[n] != 1 for n in gone):
        raise ValueError(f"axes {gone} of {list(shape)} are not all of extent 1")
    return _viewed(x, [e for n, e in enumerate(shape) if n not in gone])


@operator("Unsqueeze", operands={1: "axes"}, view=True, keeps=True)
def unsqueeze(x, *, axes):
    extents = iter(shape_of(x))
    rank = x.ndim + len(axes)
    new = normal_axes(axes, rank)
    return _viewed(x, [1 if n in new else next(extents) for n in range(rank)])


operator("Identity", view=True, keeps=True)(lambda x: _viewed(x, shape_of(x)))


@operator("BitCast", 26, view=True)
def bit_cast(x, *, to):
    """The same bits as another element type, of the same width."""
    if dtypes.bits(to) != dtypes.bits(x.dtype):
        raise TypeError(f"{x.dtype} and {to} have different widths")
    return te.compute(x.shape, lambda *i: x[i].astype(to), name="view")  # only the type counts: there is no kernel of a view


@composite("Dropout", 10, operands={1: "ratio", 2: "training_mode"})
def dropout(apply, x, ratio=0.5, *, training_mode=0, seed=0):
    """The input, and a mask that keeps all of it."""
    if training_mode and ratio != 0:
        raise ValueError("only inference is supported")
    return x, apply.constant(np.ones(x.shape, bool))


# --- others ------------------------------------------------------------------------------------------------------------


@operator("Transpose", moves=True)
def transpose(x, *, perm=None):
    order = list(range(x.ndim))[::-1] if perm is None else list(perm)
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(f"perm {order} is no order of {x.ndim} dimension(s)")
    shape = [shape_of(x)[n] for n in order]
    return te.compute(shape, lambda *i: x[tuple(i[order.index(n)] for n in range(x.ndim))], name="transpose")


@operator("Concat", 4, keeps=True)
def concat(*xs, axis):
    (along,) = normal_axes([axis], xs[0].ndim)
    shapes = [list(shape_of(x)) for x in xs]
    if len({(replaced(s, along), x.dtype) for s, x in zip(shapes, xs, strict=True)}) > 1:
        raise ValueError(f"{' and '.join(map(str, shapes))} do not lie side by side along axis {axis}")
    ends = [sum(s[along] for s in shapes[: n + 1]) for n in range(len(xs))]

    def formula(*index: Expr) -> Expr:
        def part(n: int) -> Expr:
            begin = ends[n] - shapes[n][along]
            return xs[n][replaced(index, along, index[along] - begin if begin else index[along])]

        def among(first: int, end: int) -> Expr:
            """The element, from one of the parts `first` to `end`."""
            if end == first + 1:
                return part(first)
            middle = (first + end) // 2
            return te.if_then_else(index[along] < ends[middle - 1], among(first, middle), among(middle, end))

        return among(0, len(xs))

    return te.compute(replaced(shapes[0], along, ends[-1]), formula, name="concat")


def _strided(x: te.Tensor, begins: Sequence[int], steps: Sequence[int], shape: Sequence[int], name: str) -> te.Tensor:
    def formula(*index: Expr) -> Expr:
        source = []
        for i, begin, step, extent in zip(index, begins, steps, shape, strict=True):
            moved = i if step == 1 else i * step
            source.append(te.const(begin) if extent == 1 else moved + begin if begin else moved)
        return x[tuple(source)]

    return te.compute(shape, formula, name=name)


@operator("Slice", operands={1: "starts", 2: "ends", 3: "axes", 4: "steps"}, moves=True)
def slice_(x, *, starts, ends, axes=None, steps=None):
    """Slices as in numpy, along the named axes."""
    taken = [slice(0, e, 1) for e in shape_of(x)]
    axes = range(len(starts)) if axes is None else axes
    normal_axes(axes, x.ndim)
    for axis, start, end, step in zip(axes, starts, ends, steps or (1,) * len(starts), strict=True):
        taken[axis] = slice(*_bounds(start, end, step, shape_of(x)[axis]))
    shape = [len(range(s.start, s.stop, s.step)) for s in taken]
    return _strided(x, [s.start for s in taken], [s.step for s in taken], shape, "slice")


def _bounds(start: int, end: int, step: int, extent: int) -> tuple[int, int, int]:
    """Start, end and step of a slice as a range has them: an end of -1 is before the first element."""
    if step == 0:
        raise ValueError("a step must not be 0")
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    start, end = (min(max(i + extent if i < 0 else i, low), high) for i in (start, end))
    return start, end, step


@operator("Split", operands={1: "split"}, moves=True, halves=1)
def split(x, *, axis=0, split=None, num_outputs=None):
    """Parts along an axis, of the extents `split`, or of equal ones, the last perhaps smaller."""
    (along,) = normal_axes([axis], x.ndim)
    extent = shape_of(x)[along]
    if split is None:
        if not num_outputs:
            raise ValueError("neither the extents nor the number of the parts is given")
        each = -(-extent // num_outputs)
        split = [min(each, extent - n * each) for n in range(num_outputs)]
    if sum(split) != extent or min(split) < 0:
        raise ValueError(f"an extent of {extent} cannot be split into {list(split)}")
    parts = []
    for n, size in enumerate(split):
        begins = [sum(split[:n]) if d == along else 0 for d in range(x.ndim)]
        shape = [size if d == along else e for d, e in enumerate(shape_of(x))]
        parts.append(_strided(x, begins, [1] * x.ndim, shape, f"part_{n}"))
    return tuple(parts)


@operator("Expand", 8, operands={1: "shape"}, keeps=True)
def expand(x, *, shape):
    """`x` broadcast with `shape`, in which an extent of 1 keeps that of `x`."""
    like = te.compute(shape, lambda *_: te.const(0, x.dtype), name="like")
    widest = elementwise("widest", lambda a, b: a, x, like)
    rank = widest.ndim - x.ndim

    def formula(*index: Expr) -> Expr:
        own = zip(index[rank:], shape_of(x), strict=True)
        return x[tuple(te.const(0) if e == 1 else i for i, e in own)]

    return te.compute(widest.shape, formula, name="expand")


@operator("Pad", 2, operands={1: "pads", 2: "value", 3: "axes"})
def pad(x, value=0.0, *, pads, axes=None, mode="constant"):
    """`x` padded by `mode` before and after each axis. `pads` has all numbers before, then all after; negative ones crop."""
    named = range(x.ndim) if axes is None else [normal_axes([a], x.ndim)[0] for a in axes]
    if len(pads) != 2 * len(named) or len(set(named)) < len(named):
        raise ValueError(f"{list(pads)} are not two numbers for each of the axes {list(named)}")
    before, after = [0] * x.ndim, [0] * x.ndim
    for n, axis in enumerate(named):
        before[axis], after[axis] = pads[n], pads[len(named) + n]
    if mode == "constant":
        result = padded(x, before, after, element("the value", value, x.dtype))
        return result if result is not x else te.compute(x.shape, lambda *i: x[i], name="copy")
    if mode not in MODES:
        raise ValueError(f"mode must be constant, {', '.join(MODES)}, got {mode!r}")

    if any(not e and (b or a) for b, a, e in zip(before, after, shape_of(x), strict=True)):
        raise ValueError(f"there is nothing to repeat along an axis of {list(shape_of(x))} without elements")

    def formula(*index: Expr) -> Expr:
        parts = zip(index, before, after, shape_of(x), strict=True)
        return x[tuple(MODES[mode](i - b, e) if b or a else i for i, b, a, e in parts)]

    return te.compute([b + e + a for b, e, a in zip(before, shape_of(x), after, strict=True)], formula, name="pad")


def _reflected(index: Expr, extent: int) -> Expr:
    """0 1 2 1 0 1 2 ... of an extent of 3."""
    if extent == 1:
        return te.const(0)
    period = 2 * (extent - 1)
    return te.minimum(index % period, period - index % period)


# The index of the source of an element beyond the ends of an axis.
MODES = {
    "edge": lambda index, extent: te.minimum(te.maximum(index, 0), extent - 1),
    "reflect": _reflected,
    "wrap": lambda index, extent: index % extent,
}


@operator("CenterCropPad", 18, operands={1: "shape"})
def center_crop_pad(x, *, shape, axes=None):
    """`x` cropped to the middle of each axis, or padded around it with zeros, to the extents of `shape`."""
    named = range(x.ndim) if axes is None else [normal_axes([a], x.ndim)[0] for a in axes]
    if len(shape) != len(named):
        raise ValueError(f"{list(shape)} are not the extents of axes {list(named)}")
    before, after = [0] * x.ndim, [0] * x.ndim
    for axis, wanted in zip(named, shape, strict=True):
        more = wanted - shape_of(x)[axis]
        before[axis] = more // 2 if more >= 0 else -(-more // 2)
        after[axis] = more - before[axis]
    return pad(x, pads=(*before, *after))


@operator("Tile", 6, operands={1: "repeats"}, keeps=True)
def tile(x, *, repeats):
    if len(repeats) != x.ndim:
        raise ValueError(f"{list(repeats)} are not numbers for {x.ndim} dimension(s)")
    shape = [e * n for e, n in zip(shape_of(x), repeats, strict=True)]
    return te.compute(shape, lambda *i: x[tuple(j % e for j, e in zip(i, shape_of(x), strict=True))], name="tile")


@operator("Trilu", 14, operands={1: "k"})
def trilu(x, k=0, *, upper=1):
    """The upper, or the lower, triangles of matrices, from the `k`th diagonal above the main one; zeros elsewhere."""
    need("the input", x, ranks=range(2, 9))
    offset = element("k", k, "int64")

    def formula(*i: Expr) -> Expr:
        above = (i[-1] - i[-2]).astype("int64")
        return te.select(above >= offset if upper else above <= offset, x[i], te.const(0, x.dtype))

    return te.compute(x.shape, formula, name="trilu")


@operator("EyeLike", 9)
def eye_like(x, *, dtype=None, k=0):
    """A matrix of the shape of `x` with ones on the `k`th diagonal above the main one."""
    need("the input", x, ranks=(2,))
    kind = dtype or x.dtype
    return te.compute(x.shape, lambda i, j: te.select(te.equal(j - i, k), te.const(1, kind), te.const(0, kind)), name="eye")


@composite("DepthToSpace")
def depth_to_space(apply, x, *, blocksize, mode="DCR"):
    """Channels as blocks of pixels. The place in a block is the outer part of a channel's number, in mode CRD the inner part."""
    need("the input", x, ranks=(4,))
    (images, channels, height, width), b = x.shape, blocksize
    if mode not in ("DCR", "CRD") or channels % (b * b):
        raise ValueError(f"{channels} channels do not make blocks of {b} x {b}, or mode is not DCR or CRD: {mode!r}")
    left = channels // (b * b)
    parts, order = ((b, b, left), (0, 3, 4, 1, 5, 2)) if mode == "DCR" else ((left, b, b), (0, 1, 4, 2, 5, 3))
    blocks = apply("Reshape", x, shape=(images, *parts, height, width), allowzero=1)
    return apply("Reshape", apply("Transpose", blocks, perm=order), shape=(images, left, height * b, width * b), allowzero=1)


@composite("SpaceToDepth", 1, 27)
def space_to_depth(apply, x, *, blocksize):
    """Blocks of pixels as channels. The place in a block is the outer part of a channel's number."""
    need("the input", x, ranks=(4,))
    (images, channels, height, width), b = x.shape, blocksize
    if height % b or width % b:
        raise ValueError(f"{height} x {width} pixels are not blocks of {b} x {b}")
    blocks = apply("Reshape", x, shape=(images, channels, height // b, b, width // b, b), allowzero=1)
    moved = apply("Transpose", blocks, perm=(0, 3, 5, 1, 2, 4))
    return apply("Reshape", moved, shape=(images, channels * b * b, height // b, width // b), allowzero=1)
