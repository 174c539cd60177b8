"""Operators that read or write elements at indices which are elements of a tensor; negative ones count from the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tir import te
from tir.ir import Expr

from .elementwise import larger, smaller
from .registry import composite, need, operator, scalar, shape_of
from .rows import normal_axes, replaced


def from_front(index: Expr, extent: int) -> Expr:
    """An index counted from the front."""
    return te.select(index < te.const(0, index.dtype), index + te.const(extent, index.dtype), index)


def nearest(index: Expr, extent: int) -> Expr:
    """An index counted from the front and clamped, so that a read is in bounds."""
    first, last = te.const(0, index.dtype), te.const(extent - 1, index.dtype)
    return te.minimum(te.maximum(from_front(index, extent), first), last)


@operator("Gather", moves=True)
def gather(x, indices, *, axis=0):
    """The elements of `x` whose index along `axis` is an element of `indices`."""
    need("the indices", indices, dtype="integer")
    (along,) = normal_axes([axis], x.ndim)
    extent, rank = shape_of(x)[along], indices.ndim
    shape = replaced(shape_of(x), along, *shape_of(indices))

    def formula(*index: Expr) -> Expr:
        chosen = nearest(indices[index[along : along + rank]], extent)
        return x[(*index[:along], chosen, *index[along + rank :])]

    return te.compute(shape, formula, name="gather")


@composite("Compress", 9, operands={1: "condition"})
def compress(apply, x, *, condition, axis=None):
    """The elements along an axis for which a constant condition holds; without an axis, of the tensor as a vector."""
    indices = apply.constant(np.flatnonzero(condition), "int64")
    return apply("Gather", apply("Reshape", x, shape=(-1,)) if axis is None else x, indices, axis=axis or 0)


@operator("GatherElements", 11, keeps=True)
def gather_elements(x, indices, *, axis=0):
    """The elements of `x` at the places of `indices`, with its elements as the indices along `axis`."""
    (along,) = normal_axes([axis], x.ndim)
    need("the indices", indices, [e if n == along else None for n, e in enumerate(shape_of(indices))], "integer", [x.ndim])
    _inside("the indices", indices, x, [along])
    extent = shape_of(x)[along]
    return te.compute(indices.shape, lambda *i: x[replaced(i, along, nearest(indices[i], extent))], name="gather_elements")


def _inside(what: str, x: te.Tensor, other: te.Tensor, but: Sequence[int]) -> None:
    """Refuse a tensor that is larger than another along an axis that is not in `but`."""
    if x.ndim != other.ndim or any(
        e > o for n, (e, o) in enumerate(zip(shape_of(x), shape_of(other), strict=True)) if n not in but
    ):
        raise ValueError(f"{what} of {list(shape_of(x))} do not lie in {list(shape_of(other))}")


@operator("GatherND", 11, keeps=True)
def gather_nd(x, indices, *, batch_dims=0):
    """The parts of `x` at the indices that are rows of `indices`, within each batch."""
    need("the indices", indices, dtype="integer", ranks=range(batch_dims + 1, 9))
    *lead, depth = shape_of(indices)
    if not 0 <= batch_dims < x.ndim or batch_dims + depth > x.ndim or tuple(lead[:batch_dims]) != shape_of(x)[:batch_dims]:
        raise ValueError(
            f"indices of {list(shape_of(indices))} do not fit {list(shape_of(x))} in {batch_dims} batch dimension(s)"
        )
    shape = [*lead, *shape_of(x)[batch_dims + depth :]]

    def formula(*i: Expr) -> Expr:
        row, rest = i[: len(lead)], i[len(lead) :]
        chosen = [nearest(indices[(*row, te.const(n))], shape_of(x)[batch_dims + n]) for n in range(depth)]
        return x[(*row[:batch_dims], *chosen, *rest)]

    return te.compute(shape, formula, name="gather_nd")


# --- scattering --------------------------------------------------------------------------------------------------------

# The new value of an element x by an update y.
REDUCTIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda x, y: y, "add": lambda x, y: x + y, "mul": lambda x, y: x * y, "max": larger, "min": smaller,
}  # fmt: skip


def scattered(
    x: te.Tensor,
    domain: Sequence[int],
    target: Callable[[Sequence[Expr]], Sequence[Expr]],
    update: Callable[[Sequence[Expr]], Expr],
    reduction: str,
) -> te.Tensor:
    """`x` with an update for each point of a domain, in order. `place(k)` gives an index of each dimension of `x`. Indices from a
    tensor may count from the end; an update out of bounds is skipped."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be {', '.join(REDUCTIONS)}, got {reduction!r}")

    def formula(result: te.Tensor, *k: Expr) -> tuple[Sequence[Expr], Expr, Expr]:
        inside, indices = list[Expr](), list[Expr]()
        for index, extent in zip(target(k), shape_of(x), strict=True):
            if index in k:
                indices.append(index)
                continue
            first = from_front(index, extent)
            inside += [first >= te.const(0, index.dtype), first < te.const(extent, index.dtype)]
            indices.append(nearest(index, extent))
        old = result[tuple(indices)]
        return indices, REDUCTIONS[reduction](old, update(k)), te.all(*inside)

    return te.scatter(x, domain, formula)


@operator("Scatter", 9, changes=True)
@operator("ScatterElements", 11, changes=True)
def scatter_elements(x, indices, updates, *, axis=0, reduction="none"):
    """`x` with each update at its own place, with elements of `indices` as the indices along `axis`."""
    (along,) = normal_axes([axis], x.ndim)
    need("the indices", indices, dtype="integer", ranks=[x.ndim])
    need("the updates", updates, shape_of(indices), x.dtype)
    _inside("the indices", indices, x, [along])
    return scattered(
        x, shape_of(indices), lambda k: replaced(k, along, indices[tuple(k)]), lambda k: updates[tuple(k)], reduction
    )


@operator("ScatterND", 11, changes=True)
def scatter_nd(x, indices, updates, *, reduction="none"):
    """`x` with updates at the indices that are rows of `indices`."""
    need("the indices", indices, dtype="integer", ranks=range(1, 9))
    *lead, depth = shape_of(indices)
    if depth > x.ndim:
        raise ValueError(f"indices of {depth} number(s) do not fit {list(shape_of(x))}")
    need("the updates", updates, [*lead, *shape_of(x)[depth:]], x.dtype)

    def target(k: Sequence[Expr]) -> tuple[Expr, ...]:
        row, rest = k[: len(lead)], k[len(lead) :]
        return (*(indices[(*row, te.const(n))] for n in range(depth)), *rest)

    return scattered(x, shape_of(updates), target, lambda k: updates[tuple(k)], reduction)


@operator("TensorScatter", 24, changes=True)
def tensor_scatter(past, update, start=None, *, axis=-2, mode="linear", begin=0):
    """A cache with new elements along an axis, from each batch's `start` on, without that from `begin` on; `circular` wraps at
    the end. Files do not have `begin` (see `graph.growth`)."""
    (along,) = normal_axes([axis], past.ndim)
    new, extent = shape_of(update)[along], shape_of(past)[along]
    need("the update", update, [new if n == along else e for n, e in enumerate(shape_of(past))], past.dtype)
    need("the start", start, shape_of(past)[:1], "integer")
    if mode not in ("linear", "circular") or new > extent or along == 0:
        raise ValueError(f"{new} elements along axis {axis} do not fit {list(shape_of(past))}, or mode {mode!r} is not supported")

    if not new:
        return te.compute(past.shape, lambda *i: past[i], name="copy")

    def formula(*i: Expr) -> Expr:
        offset = i[along].astype("int64") - (te.const(begin, "int64") if start is None else start[i[0]].astype("int64"))
        offset = offset % extent if mode == "circular" else offset
        inside = te.all(offset >= te.const(0, "int64"), offset < te.const(new, "int64"))
        return te.if_then_else(inside, update[replaced(i, along, offset)], past[i])

    return te.compute(past.shape, formula, name="tensor_scatter")


def rows_scattered(past, update, start=None, *, axis=-2, mode="linear", begin=0) -> te.Tensor:
    """The result of TensorScatter as a copy of the cache in which the new elements are stored, one after the other."""
    (along,) = normal_axes([axis], past.ndim)
    extent = shape_of(past)[along]

    def formula(_: te.Tensor, *k: Expr) -> tuple[Sequence[Expr], Expr, Expr]:
        row = (te.const(begin, "int64") if start is None else start[k[0]].astype("int64")) + k[along].astype("int64")
        row = row % extent if mode == "circular" else row
        inside = te.all(row >= te.const(0, "int64"), row < te.const(extent, "int64"))
        return replaced(k, along, nearest(row, extent)), update[k], inside

    return te.scatter(past, shape_of(update), formula)


@operator("OneHot", 9, operands={1: "depth"})
def one_hot(indices, values, *, depth, axis=-1):
    """`values[1]` where the index along a new axis is an element of `indices`, `values[0]` elsewhere."""
    need("the indices", indices, dtype="number")
    need("the values", values, (2,))
    depth = int(scalar("the depth", depth))
    (along,) = normal_axes([axis], indices.ndim + 1)
    shape = [*shape_of(indices)[:along], depth, *shape_of(indices)[along:]]

    def formula(*i: Expr) -> Expr:
        index = from_front(indices[replaced(i, along)].astype("int64"), depth)
        return te.select(te.equal(index, i[along].astype("int64")), values[te.const(1)], values[te.const(0)])

    return te.compute(shape, formula, name="one_hot")


@operator("ReverseSequence", 10)
def reverse_sequence(x, lengths, *, batch_axis=1, time_axis=0):
    """Each batch with its first `lengths` elements in time in reverse order."""
    batch, time = (normal_axes([a], x.ndim)[0] for a in (batch_axis, time_axis))
    need("the lengths", lengths, [shape_of(x)[batch]], "integer")

    def formula(*i: Expr) -> Expr:
        length = lengths[i[batch]]
        now = i[time].astype(length.dtype)
        then = te.select(now < length, length - te.const(1, length.dtype) - now, now)
        return x[replaced(i, time, then)]

    return te.compute(x.shape, formula, name="reverse_sequence")
