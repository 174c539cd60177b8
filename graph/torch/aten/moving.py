"""Operators that move elements: views, parts, joins and padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ...ir import Value
from ...ops.registry import Apply
from .types import Table, aten, axes_of, axis_of, cast, integers, promoted


def reshaped(apply: Apply, x: Value, shape: Sequence[int]) -> Value:
    """The elements of `x` in their order, in another shape."""
    return x if x.shape == tuple(shape) else apply("Reshape", x, shape=tuple(map(int, shape)), allowzero=1)


@aten("view", "reshape", "_unsafe_view", "view_copy", "_reshape_copy")
def view(apply, x, shape):
    shape = list(shape)
    if -1 in shape:
        known = prod(e for e in shape if e != -1)
        shape[shape.index(-1)] = prod(x.shape) // known if known else 0
    return reshaped(apply, x, shape)


@aten("flatten.using_ints")
def flatten(apply, x, first=0, last=-1):
    first, last = axis_of(x, first), axis_of(x, last)
    return reshaped(apply, x, (*x.shape[:first], prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


@aten("permute", "permute_copy")
def permute(apply, x, dims):
    order = tuple(axis_of(x, d) for d in dims)
    return x if order == tuple(range(len(order))) else apply("Transpose", x, perm=order)


@aten("transpose.int", "transpose_copy.int")
def transpose(apply, x, a, b):
    order = list(range(len(x.shape)))
    if order:
        a, b = axis_of(x, a), axis_of(x, b)
        order[a], order[b] = order[b], order[a]
    return permute(apply, x, order)


@aten("unsqueeze", "unsqueeze_copy")
def unsqueeze(apply, x, dim):
    place = dim % (len(x.shape) + 1)
    return reshaped(apply, x, (*x.shape[:place], 1, *x.shape[place:]))


@aten("squeeze", "squeeze.dim", "squeeze.dims", "squeeze_copy.dims")
def squeeze(apply, x, dims=None):
    """Without dimensions of extent 1, of the named ones or of all; others stay."""
    gone = range(len(x.shape)) if dims is None else axes_of(x, dims) if dims != () and dims != [] else ()
    return reshaped(apply, x, [e for n, e in enumerate(x.shape) if n not in gone or e != 1])


@aten("expand", "expand_copy")
def expand(apply, x, shape, *, implicit=False):
    own = (*(1,) * (len(shape) - len(x.shape)), *x.shape)
    wanted = tuple(e if s == -1 else int(s) for s, e in zip(shape, own, strict=True))
    return x if wanted == x.shape else apply("Expand", x, shape=wanted)


@aten("repeat")
def repeat(apply, x, counts):
    x = reshaped(apply, x, (*(1,) * (len(counts) - len(x.shape)), *x.shape))
    return x if all(n == 1 for n in counts) else apply("Tile", x, repeats=tuple(counts))


@aten("slice.Tensor", "slice_copy.Tensor")
def slice_(apply, x, dim=0, start=None, end=None, step=1):
    axis = axis_of(x, dim)
    begin, stop, _ = slice(start, end, step).indices(x.shape[axis])
    if (begin, step) == (0, 1) and stop == x.shape[axis]:
        return x
    return apply("Slice", x, starts=(begin,), ends=(max(begin, stop),), axes=(axis,), steps=(step,))


@aten("select.int", "select_copy.int")
def select(apply, x, dim, index):
    """The part at an index, a number or an element of a tensor."""
    axis = axis_of(x, dim)
    if isinstance(index, Value):
        return apply("Gather", x, index, axis=axis)
    if not -x.shape[axis] <= index < x.shape[axis]:
        raise ValueError(f"index {index} is out of an extent of {x.shape[axis]}")
    return apply("Gather", x, apply.constant(index % x.shape[axis], "int64"), axis=axis)


@aten("split_with_sizes", "split_with_sizes_copy")
def split_with_sizes(apply, x, sizes, dim=0):
    parts = apply("Split", x, axis=axis_of(x, dim), split=tuple(sizes))
    return parts if isinstance(parts, tuple) else (parts,)


@aten("split.Tensor")
def split(apply, x, size, dim=0):
    extent = x.shape[axis_of(x, dim)]
    return split_with_sizes(apply, x, [min(size, extent - n) for n in range(0, extent, size)] or [0], dim)


@aten("cat")
def concatenate(apply, tensors, dim=0):
    """Tensors side by side; a vector without elements has any shape."""
    dtype = promoted(*tensors)
    parts = [cast(apply, x, dtype) for x in tensors if x.shape != (0,)] or [cast(apply, tensors[0], dtype)]
    return parts[0] if len(parts) == 1 else apply("Concat", *parts, axis=axis_of(parts[0], dim))


@aten("flip")
def flip(apply, x, dims):
    axes = axes_of(x, dims) if dims else ()
    for axis in axes:
        x = apply("Gather", x, integers(apply, range(x.shape[axis])[::-1]), axis=axis) if x.shape else x
    return x


@aten("roll")
def roll(apply, x, shifts, dims=()):
    """Elements moved along dimensions, those beyond the end to the beginning; without dimensions, of the tensor as a vector."""
    if not dims:
        return reshaped(apply, roll(apply, reshaped(apply, x, (prod(x.shape),)), shifts, (0,)), x.shape)
    for shift, dim in zip(
        (shifts,) if isinstance(shifts, int) else shifts, (dims,) if isinstance(dims, int) else dims, strict=True
    ):
        extent = x.shape[axis_of(x, dim)]
        if extent and (place := shift % extent):
            x = concatenate(apply, [slice_(apply, x, dim, extent - place), slice_(apply, x, dim, 0, extent - place)], dim)
    return x


@aten("diagonal", "diagonal_copy")
def diagonal(apply, x, offset=0, first=0, second=1):
    """The diagonals of matrices along two dimensions, as a last dimension."""
    a, b = axis_of(x, first), axis_of(x, second)
    rest = [n for n in range(len(x.shape)) if n not in (a, b)]
    moved = permute(apply, x, [*rest, a, b])
    *outer, rows, columns = moved.shape
    begin = max(0, -offset) * columns + max(0, offset)
    count = max(0, min(rows - max(0, -offset), columns - max(0, offset)))
    flat = reshaped(apply, moved, (*outer, rows * columns))
    return apply("Gather", flat, integers(apply, range(begin, begin + count * (columns + 1), columns + 1)), axis=len(outer))


@aten("as_strided", "as_strided_copy")
def as_strided(apply, x, size, stride, offset=None):
    """The elements at places of the memory of a tensor without gaps."""
    places = np.full(size, offset or 0)
    for n, (extent, step) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(extent) * step).reshape(-1, *(1,) * (len(size) - 1 - n))
    if places.size and (places.min() < 0 or places.max() >= prod(x.shape)):
        raise ValueError(f"it reads beyond the {prod(x.shape)} elements of its input")
    return apply("Gather", reshaped(apply, x, (prod(x.shape),)), apply.constant(places.astype(np.int64)), axis=0)


@aten("unfold", "unfold_copy")
def unfold(apply, x, dim, size, step):
    """Windows along a dimension, their elements as a last dimension."""
    axis = axis_of(x, dim)
    x = x if x.shape else reshaped(apply, x, (1,))
    places = np.arange(0, x.shape[axis] - size + 1, step)[:, None] + np.arange(size)
    found = apply("Gather", x, apply.constant(places.astype(np.int64)), axis=axis)
    order = [n for n in range(len(found.shape)) if n != axis + 1]
    return permute(apply, found, [*order, axis + 1])


@aten("pixel_unshuffle")
def pixel_unshuffle(apply, x, factor):
    *outer, c, h, w = x.shape
    split = reshaped(apply, x, (prod(outer), c, h // factor, factor, w // factor, factor))
    moved = permute(apply, split, (0, 1, 3, 5, 2, 4))
    return reshaped(apply, moved, (*outer, c * factor * factor, h // factor, w // factor))


def of_images(apply: Apply, x: Value, dims: int, function: Callable[[Value], Any]) -> Any:
    """A function of images of `dims` dimensions, of each channel, for tensors with any dimensions before the channels."""
    outer = x.shape[: -dims - 1]
    if len(outer) == 1:
        return function(x)
    results = function(reshaped(apply, x, (prod(outer), *x.shape[-dims - 1 :])))
    found = results if isinstance(results, tuple) else (results,)
    found = tuple(reshaped(apply, r, (*outer, *r.shape[1:])) for r in found)
    return found if isinstance(results, tuple) else found[0]


@aten("channel_shuffle")
def channel_shuffle(apply, x, groups):
    n, c, *rest = x.shape
    split = reshaped(apply, x, (n, groups, c // groups, *rest))
    return reshaped(apply, permute(apply, split, (0, 2, 1, *range(3, len(x.shape) + 1))), x.shape)


# --- padding -----------------------------------------------------------------------------------------------------------


def padded(apply: Apply, x: Value, pads: Sequence[int], mode: str, value: float = 0) -> Value:
    """A tensor padded, or cropped, by numbers before and after each dimension, the last dimension first."""
    rank, count = len(x.shape), len(pads) // 2
    before, after = [0] * rank, [0] * rank
    for n in range(count):
        before[rank - 1 - n], after[rank - 1 - n] = pads[2 * n], pads[2 * n + 1]
    if not any(pads):
        return x
    attributes = {"value": cast(apply, value, x.dtype)} if mode == "constant" else {}
    given = [attributes["value"]] if attributes else []
    return apply("Pad", x, *given, pads=(*before, *after), mode=mode)


# --- parts put back ----------------------------------------------------------------------------------------------------


@aten("slice_scatter")
def slice_scatter(apply, x, source, dim=0, start=None, end=None, step=1):
    """`x` with other elements in a slice: taken from both, side by side."""
    axis = axis_of(x, dim)
    extent = x.shape[axis]
    places = range(extent)[slice(start, end, step)]
    if not len(places):
        return x
    source = cast(apply, source, x.dtype)
    if step == 1:
        parts = [slice_(apply, x, axis, 0, places.start), source, slice_(apply, x, axis, places.stop)]
        parts = [p for p in parts if p.shape[axis]]
        return parts[0] if len(parts) == 1 else apply("Concat", *parts, axis=axis)
    chosen = np.arange(extent)
    chosen[list(places)] = extent + np.arange(len(places))
    return apply("Gather", apply("Concat", x, source, axis=axis), integers(apply, chosen), axis=axis)


@aten("select_scatter")
def select_scatter(apply, x, source, dim, index):
    place = index % x.shape[axis_of(x, dim)]
    return slice_scatter(apply, x, unsqueeze(apply, source, axis_of(x, dim)), dim, place, place + 1)


@aten("diagonal_scatter")
def diagonal_scatter(apply, x, source, offset=0, first=0, second=1):
    """`x` with other elements on diagonals."""
    a, b = axis_of(x, first), axis_of(x, second)
    rest = [n for n in range(len(x.shape)) if n not in (a, b)]
    order = [*rest, a, b]
    moved = permute(apply, x, order)
    *outer, rows, columns = moved.shape
    row, column = np.arange(rows)[:, None], np.arange(columns)
    on = column - row == offset
    place = np.clip(np.where(on, np.minimum(row, column), 0), 0, max(0, source.shape[-1] - 1))
    spread = apply("Gather", cast(apply, source, x.dtype), apply.constant(place.astype(np.int64)), axis=len(outer))
    result = apply("Where", apply.constant(on), spread, moved)
    return permute(apply, result, np.argsort(order).tolist())


OPERATORS: Table = {
    "sym_size.int": lambda apply, x, dim: x.shape[axis_of(x, dim)],
    "sym_numel": lambda apply, x: prod(x.shape),
    "sym_stride.int": lambda apply, x, dim: prod(x.shape[axis_of(x, dim) + 1 :]),
    "alias clone contiguous detach lift_fresh lift_fresh_copy prims.device_put resolve_conj resolve_neg": lambda apply, x: x,
    "t t_copy numpy_T": lambda apply, x: permute(apply, x, range(len(x.shape))[::-1]),
    "narrow narrow_copy": lambda apply, x, dim, start, length: slice_(apply, x, dim, start, start + length),
    # The only element of a tensor, as a tensor: what takes a number takes that too, but for sizes.
    "_local_scalar_dense item": lambda apply, x: reshaped(apply, x, ()),
    "chunk": lambda apply, x, count, dim=0: split(apply, x, max(1, -(-x.shape[axis_of(x, dim)] // count)), dim),
    "unbind.int": lambda apply, x, dim=0: tuple(select(apply, x, dim, n) for n in range(x.shape[axis_of(x, dim)])),
    "stack": lambda apply, tensors, dim=0: concatenate(
        apply, [unsqueeze(apply, x, dim) for x in tensors], dim % (len(tensors[0].shape) + 1)
    ),
    "pixel_shuffle": lambda apply, x, factor: of_images(
        apply, x, 2, lambda image: apply("DepthToSpace", image, blocksize=factor, mode="CRD")
    ),
    "constant_pad_nd": lambda apply, x, pad, value=0: padded(apply, x, pad, "constant", value),
    "reflection_pad1d reflection_pad2d reflection_pad3d": lambda apply, x, padding: padded(apply, x, padding, "reflect"),
    "replication_pad1d replication_pad2d replication_pad3d": lambda apply, x, padding: padded(apply, x, padding, "edge"),
    "tril": lambda apply, x, diagonal=0: apply("Trilu", x, k=diagonal, upper=0),
    "triu": lambda apply, x, diagonal=0: apply("Trilu", x, k=diagonal, upper=1),
    "copy": lambda apply, x, source, non_blocking=False: expand(apply, cast(apply, source, x.dtype), x.shape),
}
