"""Contractions over windows, as convolutions are, written as products of matrices (implicit GEMM).

The axes of a group (rows, columns, steps of the sum) become one, and the factors are read at places computed from it. No matrix
is made in memory, since the copies are inlined where tiles are loaded into shared memory.

Elements of one or two bytes are copied asynchronously only where several lie together for all windows. Channels do, if they are
the last dimension. Where they are another, an image is copied first, with its channels last, by a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from schedule.machine import MAX_ACCESS_BYTES
from schedule.open_schedule import Continuation, OpenSchedule, Stage, extent
from schedule.primitive import find_block
from schedule.schedule import Schedule
from tir import dtypes
from tir.ir import Const, Iter, Load, Var
from tir.traverse import blocks, loads, variables

from ..block_analysis import Contraction, at_axes, counted, epilogue, is_elementwise, store_last, stored
from ..template import Template, Verdict
from .launch import LEAST_COPY_BYTES, inline_producers, innermost
from .products import is_matrices, matched_product, product

MAX_NARROW_BYTES = 2  # bytes of an element that `cp.async` does not copy alone


class WindowsAsMatrices(Template):
    """A convolution of any layout becomes a product of matrices that are read at computed places, which later rules tile."""

    name = "windows as matrices"

    def ways(self, s: OpenSchedule, block: str) -> Iterator[tuple[str, Continuation]]:
        if channels(s, block) is not None:
            yield f"{self.name}, channels last", lambda new: self._write(new, with_channels_last(new, block), True)
        yield self.name, lambda new: self._write(new, product(new, block))

    def applies(self, s: OpenSchedule, block: str) -> Verdict:
        if block in s.scheduled or not s.own_loops(block):
            return Verdict.SKIP
        c = matched_product(s.block(block))
        return Verdict.SKIP if c is None or is_matrices(c) else Verdict.APPLY

    def _write(self, s: OpenSchedule, c: Contraction, steps_last: bool = False) -> None:
        """Write a block as a product of matrices, and leave that to later rules, with the copies that it reads."""
        block = c.block
        known = {b.name for b in blocks(s.func)}
        _, result = as_matrices(s, c, inlined_epilogue(s, block), steps_last)
        s.made[block] = s.block(block)
        s.partial.add(block)  # so that its sum is not split: other ways are for that
        s.pending += [b.name for b in blocks(s.func) if b.name not in (*known, result)] + [block]


def channels(s: OpenSchedule, block: str) -> str | None:
    """The longest axis of a sum that is an index of both factors alone, if its elements fill whole asynchronous copies and are
    too narrow to be copied one by one; None where the device has no such copies, and where they suit the factors as they are:
    of matrices, windows of one element in rows that consist of copies, and taps that lie by such rows of results."""
    c = matched_product(s.block(block))
    if c is None or not s.target.machine.modern or is_matrices(c):
        return None
    nbytes = max(dtypes.nbytes(x.dtype) for x in (c.left, c.right))
    axes = [it for it in c.reduction if all(it.var in x.indices for x in (c.left, c.right)) and extent(it) > 1]
    widest = max(axes, key=extent, default=None)
    if widest is None or nbytes > MAX_NARROW_BYTES or extent(widest) * nbytes % MAX_ACCESS_BYTES:
        return None
    others = [x for x in (c.left, c.right) if innermost(x) != widest.var]
    plain = all(extent(it) == 1 for it in c.reduction if it is not widest)
    rows = [d.value for x in others for d in x.buffer.shape[-1:] if isinstance(d, Const)]
    apart = plain or not {innermost(x) for x in others} & {it.var for it in c.reduction}
    if not others or (apart and all(at_axes(x) for x in others) and not any(n * nbytes % LEAST_COPY_BYTES for n in rows)):
        return None
    return widest.var.name


def with_channels_last(s: OpenSchedule, block: str) -> Contraction:
    """A contraction after its factors were copied to arrays with their channels last; the last axis of its sum are these."""
    c, channel = product(s, block), channels(s, block)
    assert channel is not None
    for factor in (c.left, c.right):
        put_last(s, block, factor, channel)
    c = product(s, block)
    inner = next(it for it in c.reduction if it.var.name == channel)
    return replace(c, reduction=(*(it for it in c.reduction if it is not inner), inner))


def put_last(s: OpenSchedule, block: str, factor: Load, axis: str) -> None:
    """Copy what a factor is computed from, element by element, to an array with the dimension of an axis last, if it is not."""
    reader, x, index = block, factor, next(i for i in factor.indices if isinstance(i, Var) and i.name == axis)
    while True:
        makers = [p for p in s.get_producers(reader) if stored(s.block(p)).buffer == x.buffer]
        if len(makers) != 1 or makers[0] in s.scheduled or s.get_consumers(makers[0]) != [reader]:
            break
        maker = s.block(makers[0])
        own, read = stored(maker).indices[x.indices.index(index)], list(dict.fromkeys(loads(maker.body)))
        if not is_elementwise(maker) or not isinstance(own, Var) or len(read) != 1 or own not in read[0].indices:
            break
        reader, x, index = maker.name, read[0], own
    if innermost(x) == index:
        return
    copy = s.cache_read(reader, x.buffer.name, "global")
    store_last(s, copy, x.indices, index.name)
    s.scheduled[copy] = Stage.BOUND  # in a kernel of its own


def inlined_epilogue(s: OpenSchedule, block: str) -> str | None:
    """The epilogue of a block, where no other rule has scheduled it; what else it reads is inlined into it here."""
    after = epilogue(s, block, anywhere=True)
    if after is None or after in s.scheduled:
        return None
    inline_producers(s, after)
    return after


def as_matrices(s: Schedule, c: Contraction, after: str | None, steps_last: bool = False) -> tuple[Contraction, str]:
    """Rewrite   C[n, h, w, o] += A[n, h + r, w + s, c] * B[r, s, c, o]
              => A'[(n, h, w), (r, s, c)] = A[...];   B'[(r, s, c), o] = B[...]
                 C'[(n, h, w), o] += A'[(n, h, w), (r, s, c)] * B'[(r, s, c), o];   C[n, h, w, o] = C'[(n, h, w), o]

    and returns the product with the block that writes its result, of which the elementwise block `after` has become part. Axes of
    a batch stay as they are, but for those of one element, which no product has. A factor whose memory the other group of axes
    walks lies transposed, so that its neighbours stay neighbours; with `steps_last` the sum walks that of both.
    """
    block, axes = c.block, find_block(s.func, c.block).iters
    batch = tuple(it for it in c.batch if extent(it) > 1)
    single = tuple(it for it in c.batch if extent(it) == 1)
    rows, columns = (*single, *c.rows), (*single, *c.columns)
    copies: list[tuple[str, Load, Sequence[Sequence[Iter]]]] = []
    for factor, groups in ((c.left, (rows, c.reduction)), (c.right, (c.reduction, columns))):
        used = variables(*factor.indices)  # an axis of one element may be in one factor only
        walked = c.reduction if steps_last else _walked(factor, groups)
        order = [*(group for group in groups if group is not walked), walked]
        read = [[it for it in group if it.var.name in used] for group in order]
        copy = s.reindex_cache_read(block, factor.buffer.name, "global", counted(axes, batch, *read))
        copies.append((copy, factor, read))
    result = s.reindex_cache_write(block, c.store.buffer.name, "global", counted(axes, batch, rows, c.columns))
    if after is not None:
        s.reverse_compute_inline(after)
    s.transform_block_layout(block, counted(axes, batch, rows, c.columns, c.reduction))
    copies.append((result, Load(c.store.buffer, c.store.indices), (rows, c.columns)))
    for copy, place, own_groups in copies:
        own = [it for it in axes if it.var.name in variables(*place.indices)]
        s.transform_block_layout(copy, counted(own, batch, *own_groups))
    return product(s, block), result


def _walked(factor: Load, groups: tuple[Sequence[Iter], Sequence[Iter]]) -> Sequence[Iter]:
    """The first of two groups of axes where it alone walks the memory of a factor, else the second."""
    first, second = ({it.var.name for it in group} & variables(innermost(factor)) for group in groups)
    return groups[0] if first and not second else groups[1]
