"""Factored reductions, whose partial results can be computed in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from schedule.open_schedule import Continuation, OpenSchedule, Stage, element_bits, extent, is_spatial
from schedule.open_trace import Role
from schedule.templates import Template
from schedule.templates.block_analysis import divisible, size
from schedule.templates.marks import fuse_all
from tir.ir import Block, Iter

from .rule import Verdict
from .tiling import needs_tiling


def spatial_size(block: Block) -> int:
    """The number of results of a block."""
    return size(block.spatial)


def reduce_size(block: Block) -> int:
    """The number of terms of each result of a block."""
    return size(it for it in block.iters if not is_spatial(it))


@dataclass(frozen=True)
class Rfactor(Template):
    """Rule 6 of Ansor (table 1): a reduction with little spatial parallelism is factored. All its reduction axes are fused and
    split by an open factor. One sketch has partial results for the outer loop, which may then run in parallel. Another sketch has
    them for the inner loop, which may then be vectorised.

    `needed(block, threads)` is true for a reduction with too little parallelism.
    """

    name = "rfactor"

    needed: Callable[[Block, int], bool]
    perfect: bool = False
    limit: int | None = None

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        b = state.block(block)
        untouched = block not in state.scheduled and block not in state.copies
        if b.init is None or not untouched or len(state.axes(block)) != len(b.iters):
            return Verdict.SKIP
        needed = b.is_reduction and self.needed(b, state.target.num_cores) and divisible(b, reordered=False)
        return Verdict.APPLY if needed else Verdict.SKIP

    def ways(self, s: OpenSchedule, block: str) -> Iterator[tuple[str, Continuation]]:
        for which in (0, 1) if divisible(s.block(block)) else (0,):  # the inner loop takes the terms in another order
            yield f"{self.name} {('outer', 'inner')[which]}", partial(self._factor, block=block, which=which)

    def _factor(self, new: OpenSchedule, block: str, which: int) -> None:
        b = new.block(block)
        loops = [loop for it, loop in new.axes(block) if not is_spatial(it)]
        fused = fuse_all(new, loops)
        described: dict[str, Any] = {"extent": reduce_size(b), "reduce": True, "bits": element_bits(b)}
        pair = new.split(fused, [None, *new.sizes(block, fused, perfect=self.perfect, limit=self.limit, **described)])
        factored = new.rfactor(pair[which], -1)
        if which:
            new.reorder(*(x for x in new.get_loops(factored) if x != pair[1]), pair[1])
        new.scheduled[block] = new.scheduled[factored] = Stage.FACTORED


def ansor_needs_rfactor(block: Block, threads: int) -> bool:
    """Ansor's NeedsRfactor (HasMoreReductionParallel). True for a tiled block with at most as many results as terms of each, and
    at most 16 results a thread. For another block: true with more terms than threads."""
    spatial, reduce = spatial_size(block), reduce_size(block)
    if needs_tiling(block):
        return spatial <= reduce and spatial <= threads * 16
    return reduce > max(1, threads)


PARTS_A_THREAD = (1, 2, 3, 4, 5, 6, 7, 8)  # of a reduction axis, a thread; the number of all parts must divide the axis


class ReduceInThreads(Template):
    """Rule 6 of Ansor (table 1) for several threads: the longest axis of a reduction with few results is split into parts for the
    threads. The rules schedule the block of partial results like any other. At the end the partial results are combined. Later
    rules are not tried for large work with fewer results than threads."""

    name = "reduce in threads"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        b, machine = state.block(block), state.target.machine
        untouched = block not in state.scheduled and block not in state.copies and block not in state.partial
        if b.init is None or not b.is_reduction or not untouched or len(state.axes(block)) != len(b.iters):
            return Verdict.SKIP
        if not divisible(b, reordered=False):
            return Verdict.SKIP
        work = spatial_size(b) * reduce_size(b)
        threads = machine.threads(work * machine.core.latency)  # as if each step waited for the one before
        if spatial_size(b) >= 16 * threads or threads == 1 or not self._parts(state, block):
            return Verdict.SKIP
        surely = machine.threads(work * machine.read_cycles(32)) > 1  # even at the speed of memory
        return Verdict.ONLY if spatial_size(b) < threads and surely else Verdict.APPLY

    def change(self, new: OpenSchedule, block: str) -> None:
        axes = new.axes(block)
        longest = self._longest(new, block)
        parts = new.choose(f"{block} parts", self._parts(new, block), block=block, role=Role.PARALLEL)
        part, _ = new.split(longest[1], [parts, None])
        factored = new.rfactor(part, 0)
        others = [loop for it, loop in axes if is_spatial(it)]
        if others:
            new.reorder(part, *others)
        new.scheduled[block] = Stage.COMBINED
        new.partial.add(factored)
        new.pending.append(factored)

    def _longest(self, state: OpenSchedule, block: str) -> tuple[Iter, str]:
        return max((pair for pair in state.axes(block) if not is_spatial(pair[0])), key=lambda pair: extent(pair[0]))

    def _parts(self, state: OpenSchedule, block: str) -> tuple[int, ...]:
        """Numbers of parts: multiples of the threads that divide the axis, with at least two steps in each part."""
        length = extent(self._longest(state, block)[0])
        counts = [n * state.target.num_cores for n in PARTS_A_THREAD]
        return tuple(n for n in counts if 2 * n <= length and length % n == 0)
