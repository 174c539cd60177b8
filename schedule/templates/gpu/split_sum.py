"""Long reductions with few results: parts of them are reduced by one kernel, and their results by another one (`rfactor`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial as having

from schedule.machine import GPU
from schedule.open_schedule import Continuation, OpenSchedule, Stage, extent, is_spatial
from schedule.primitive import find_block, loops_of
from schedule.schedule import Schedule
from tir.ir import Const
from tir.traverse import blocks

from ..block_analysis import Contraction, loop_of, size
from ..template import Template, Verdict
from . import rows
from .launch import reduces_along_memory
from .products import matched_product, product
from .windows import as_matrices, channels, inlined_epilogue, with_channels_last

GOOD_TILE_EDGE = 64  # rows and columns of a tile that uses an SM well
SEED_PART_STEPS = 256  # steps of a part of a product, at the seed
STEPS_PER_THREAD = 64  # steps of a part of any other reduction, for each thread
PART_MULTIPLE = 32  # steps of a part are a multiple of it, as those of tiles are


class SplitSum(Template):
    """Split-K: a product, or a convolution, with too few results for all SMs becomes a batch of products, one for each part of
    its sum. Other rules tile these; then the parts are added up (`rfactor`).

    Each number of parts is a way, as it decides the length of the sum when that is filled up to whole parts. The ways are the
    number of the formula, half of it, and twice as many.
    """

    name = "split sum"

    def applies(self, s: OpenSchedule, block: str) -> Verdict:
        known = block in s.scheduled or block in s.partial or not s.own_loops(block)
        return Verdict.APPLY if not known and self._part_counts(s, block) else Verdict.SKIP

    def ways(self, s: OpenSchedule, block: str) -> Iterator[tuple[str, Continuation]]:
        for n in self._part_counts(s, block):
            yield f"{self.name} in {n}", having(build, block=block, n=n)

    def _part_counts(self, s: OpenSchedule, block: str) -> list[int]:
        """The numbers of parts to cut a sum into, the formula's first; none if it is short, or there are results enough."""
        c = matched_product(s.block(block))
        n = 1 if c is None else seed(c, s.target.machine)
        if c is None or n == 1:
            return []
        return [k for k in dict.fromkeys((n, n // 2, 2 * n)) if k > 1]


def build(s: OpenSchedule, block: str, n: int) -> None:
    """Split the sum of a product in n parts, and leave the batch of their products to later rules."""
    inner = channels(s, block) is not None
    c = with_channels_last(s, block) if inner else product(s, block)
    known = {b.name for b in blocks(s.func)}
    whole, result = as_matrices(s, c, inlined_epilogue(s, block), inner)
    batch, partial = as_matrices(s, split(s, whole, n), None, inner)
    s.made |= {name: s.block(name) for name in (block, batch.block)}
    s.scheduled[block] = Stage.COMBINED
    s.partial.add(batch.block)
    s.pending += [b.name for b in blocks(s.func) if b.name not in (*known, result, partial)]


class SumInStages(Template):
    """A reduction that is no product, in two stages where one would leave SMs idle: parts of its outermost reduction axis, then
    their sum. It may be one of the stages of rows."""

    name = "sum in stages"

    def applies(self, s: OpenSchedule, block: str) -> Verdict:
        return Verdict.APPLY if self._long_sums(s, block) else Verdict.SKIP

    def ways(self, s: OpenSchedule, block: str) -> Iterator[tuple[str, Continuation]]:
        yield self.name, lambda new: in_stages(new, block, self._long_sums(s, block))

    def _long_sums(self, s: OpenSchedule, block: str) -> list[str]:
        """The block, and the stages by its rows, that are worth two stages each."""
        group = rows.group(s, block)
        names = [block] if group is None else [*group.stages, block]
        return [name for name in names if stages(s, name, s.target.machine) > 1]


def stages(s: OpenSchedule, block: str, gpu: GPU) -> int:
    """The number of parts of a block's outermost sum; 1 for a product, enough results, few or a prime number of steps."""
    b = s.block(block)
    if b.init is None or block in s.scheduled or block in s.partial or matched_product(b) is not None:
        return 1
    if not s.own_loops(block) or not all(isinstance(it.extent, Const) for it in b.iters):
        return 1
    results = size(b.spatial)
    reduce_axes = tuple(it for it in b.iters if not is_spatial(it))
    together = rows.STREAMING_THREADS if reduces_along_memory(b) else 1  # threads that reduce one result
    most = min(
        gpu.sms * rows.STREAMING_THREADS // (results * together),
        size(reduce_axes) // (STEPS_PER_THREAD * together),
        extent(reduce_axes[0]),
    )
    return max((d for d in range(2, most + 1) if extent(reduce_axes[0]) % d == 0), default=1)


def in_stages(s: OpenSchedule, block: str, names: list[str]) -> None:
    """Reduce some blocks in two stages, the last of which is `block`; all are left to later rules."""
    for name in names:
        b = s.block(name)
        n = stages(s, name, s.target.machine)
        reduce_axes = tuple(it for it in b.iters if not is_spatial(it))
        outer, _ = s.split(loop_of(reduce_axes[0]), [n, None])
        partial = s.rfactor(outer, len(b.iters) - len(reduce_axes) if reduces_along_memory(b) else 0)
        order = {x.name: i for i, x in enumerate(loops_of(s.func, partial))}
        axes = s.block(partial).iters
        s.reorder_block_iter_var(partial, sorted(range(len(axes)), key=lambda i: order[loop_of(axes[i])]))
        s.partial |= {name, partial}
        s.pending.insert(s.pending.index(name) if name in s.pending else len(s.pending), partial)
    s.pending.append(block)


def seed(c: Contraction, gpu: GPU) -> int:
    """The number of parts to split the sum of a product into, so that there is work for all SMs."""
    blocks = -(-size(c.rows) // GOOD_TILE_EDGE) * -(-size(c.columns) // GOOD_TILE_EDGE) * size(c.batch)
    if blocks >= gpu.sms // 2:
        return 1
    return max(1, min(2 * gpu.sms // blocks, size(c.reduction) // SEED_PART_STEPS))


def split(s: Schedule, c: Contraction, n: int) -> Contraction:
    """Make n parts of the sum of a product of temporaries a batch of products, which one kernel computes; another adds their
    results. Returns the batch.

    Rewrite   C[i, j] += A[i, k] * B[k, j]
           => C_rf[p, i, j] += A[i, p * m + k] * B[p * m + k, j];   C[i, j] += C_rf[p, i, j]   # the sum filled up to n * m steps
    """
    (step,) = c.reduction
    length = -(-extent(step) // (n * PART_MULTIPLE)) * PART_MULTIPLE
    n = -(-extent(step) // length)
    if extent(step) % length:
        s.pad_einsum(c.block, [length * n if it.var.name == step.var.name else 1 for it in find_block(s.func, c.block).iters])
    part, _ = s.split(loop_of(step), [n, None])
    return product(s, s.rfactor(part))
