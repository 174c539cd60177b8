"""Contractions over windows, as convolutions are, written as products of matrices (implicit GEMM).

The axes of a group (rows, columns, steps of the sum) become one, and the factors are read at places computed from it. No matrix
is made in memory, since the copies are inlined where tiles are loaded into shared memory.
"""

from __future__ import annotations

from schedule.open_schedule import OpenSchedule, extent
from schedule.primitive import find_block
from schedule.schedule import Schedule
from tir.ir import Load
from tir.traverse import blocks, variables

from ..block_analysis import Contraction, counted, epilogue
from ..template import Template, Verdict
from .products import is_matrices, matches


class WindowsAsMatrices(Template):
    """A convolution of any layout becomes a product of matrices that are read at computed places, which later rules tile."""

    name = "windows as matrices"

    def applies(self, s: OpenSchedule, block: str) -> Verdict:
        if block in s.scheduled or not s.own_loops(block):
            return Verdict.SKIP
        c = matches(s.block(block))
        return Verdict.SKIP if c is None or is_matrices(c) else Verdict.APPLY

    def change(self, s: OpenSchedule, block: str) -> None:
        """Write a block as a product of matrices, and leave that to later rules, with the copies that it reads."""
        c = matches(s.block(block))
        assert c is not None
        known = {b.name for b in blocks(s.func)}
        _, result = as_matrices(s, c, unscheduled_epilogue(s, block))
        s.made[block] = s.block(block)
        s.partial.add(block)  # so that its sum is not split: other ways are for that
        s.pending += [b.name for b in blocks(s.func) if b.name not in (*known, result)] + [block]


def unscheduled_epilogue(s: OpenSchedule, block: str) -> str | None:
    """The epilogue of a block, where no other rule has scheduled it."""
    after = epilogue(s, block, anywhere=True)
    return None if after in s.scheduled else after


def as_matrices(s: Schedule, c: Contraction, after: str | None) -> tuple[Contraction, str]:
    """Rewrite   C[n, h, w, o] += A[n, h + r, w + s, c] * B[r, s, c, o]
              => A'[(n, h, w), (r, s, c)] = A[...];   B'[(r, s, c), o] = B[...]
                 C'[(n, h, w), o] += A'[(n, h, w), (r, s, c)] * B'[(r, s, c), o];   C[n, h, w, o] = C'[(n, h, w), o]

    and returns the product with the block that writes its result, of which the elementwise block `after` has become part. Axes of
    a batch stay as they are, but for those of one element, which no product has.
    """
    block, axes = c.block, find_block(s.func, c.block).iters
    batch = tuple(it for it in c.batch if extent(it) > 1)
    single = tuple(it for it in c.batch if extent(it) == 1)
    rows, columns = (*single, *c.rows), (*single, *c.columns)
    copies = []
    for factor, groups in ((c.left, (rows, c.reduction)), (c.right, (c.reduction, columns))):
        copy = s.reindex_cache_read(block, factor.buffer.name, "global", counted(axes, batch, *groups))
        copies.append((copy, factor, groups))
    result = s.reindex_cache_write(block, c.store.buffer.name, "global", counted(axes, batch, rows, c.columns))
    if after is not None:
        s.reverse_compute_inline(after)
    s.transform_block_layout(block, counted(axes, batch, rows, c.columns, c.reduction))
    for copy, place, groups in (*copies, (result, Load(c.store.buffer, c.store.indices), (rows, c.columns))):
        own = [it for it in axes if it.var.name in variables(*place.indices)]
        s.transform_block_layout(copy, counted(own, batch, *groups))
    product = matches(find_block(s.func, block))
    assert product is not None
    return product, result
