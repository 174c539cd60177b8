"""Matrix products fused with their consumers by blocks of rows: another product, a softmax, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from schedule.open_schedule import OpenSchedule, Stage, Tiled
from schedule.templates import SumOfProducts, Template, gemm
from schedule.templates.block_analysis import Contraction, epilogue
from tir.ir import Block, Const, Var
from tir.traverse import loads, loops_to, stored_names, stores

from .rule import Verdict

PACKING = SumOfProducts(gemm)


class FuseProducts(Template):
    """Compute a matrix product by blocks of rows, and its consumers in the same loops.

    One consumer is another product with this one as its left operand, perhaps after an elementwise stage (matmul, exp, matmul).
    Others are stages that work row by row, as the softmax of attention. The intermediate rows stay in the second-level cache. The
    rows of two products are tiled in the same way, and their loops over batches and blocks of rows are merged. Ansor does not
    fuse two reductions. Chimera (HPCA 2023) measures the gain.
    """

    name = "fuse products"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        if PACKING.applies(state, block) is Verdict.SKIP:
            return Verdict.SKIP
        c = PACKING.found(state, block)
        plain = c is not None and not c.rows[:-1] and not c.columns[:-1] and not state.is_output(block)
        return Verdict.APPLY if c is not None and plain and self._consumers(state, c) else Verdict.SKIP

    def change(self, new: OpenSchedule, block: str) -> None:
        c = PACKING.found(new, block)
        assert c is not None
        depth, consumers = len(c.batch) + 1, self._consumers(new, c)
        after = host(new, consumers[0])
        if after is not None:
            gemm.build(new, c, gemm.Sum.WHOLE, like=after)
            outer = new.tiling(after).levels[0][-1]
        else:
            gemm.build(new, c, gemm.Sum.WHOLE)
            nest = [s.name for s in loops_to(new.func.body, consumers[0])]
            outer, _ = new.split(nest[depth - 1], [None, prod(block_of_rows(new, block))])
        new.merge(new.tiling(block).levels[0][-1], outer)
        for b in (block, after):
            if b is not None:
                levels = tuple(new.get_loops(b)[:depth]), *new.tiling(b).levels[1:]
                new.scheduled[b] = replace(new.scheduled[b], levels=levels)  # type: ignore[type-var]

    def _consumers(self, state: OpenSchedule, c: Contraction) -> list[str]:
        """The consumers whose loops over blocks of rows can be merged with those of the product; empty if none."""
        depth, last = len(c.batch) + 1, c.block
        elementwise = epilogue(state, last)
        if elementwise is not None:
            last = elementwise
        consumers = state.get_consumers(last)
        row_major = (*c.batch, c.rows[-1], c.columns[-1])
        if c.store.indices != tuple(it.var for it in row_major) or state.is_output(last):
            return []
        if not by_rows(state, last, consumers, depth):
            return []
        hosts = {host(state, b) for b in consumers}
        if len(hosts) != 1:
            return []
        (after,) = hosts
        if after is not None:
            outermost, parts, *_ = state.tiling(after).levels
            return consumers if len(outermost) == depth and not parts else []
        nests = [loops_to(state.func.body, b) for b in consumers]
        shared = nests[0][:depth]
        stages = all(state.scheduled.get(b) in (None, Stage.ROW, Stage.LANES) for b in consumers)
        own = all(len(nest) > depth and all(x is y for x, y in zip(nest, shared, strict=False)) for nest in nests)
        lengths = [x.extent for x in shared] == [it.extent for it in (*c.batch, c.rows[-1])]
        return consumers if elementwise is None and stages and own and lengths else []


def host(state: OpenSchedule, block: str) -> str | None:
    """The packed product around a block, or the block itself if it is one; else None."""
    around = {s.name for s in loops_to(state.func.body, block)}
    packed = [
        b for b, t in state.scheduled.items()
        if isinstance(t, Tiled) and t.operands is not None and t.operands.by_blocks and t.levels[0][-1] in around
    ]  # fmt: skip
    return packed[0] if packed else None


def block_of_rows(state: OpenSchedule, block: str) -> list[int]:
    """The tile sizes of the rows of a packed product; multiplied, the number of rows in a block."""
    return next(lengths for (b, _), lengths in state.lengths.items() if b == block)


def by_rows(state: OpenSchedule, block: str, consumers: Sequence[str], depth: int) -> bool:
    """True if each consumer reads only the rows of a block that it writes itself, by their first `depth` indices."""
    written = stored_names(state.block(block))

    def own(consumer: Block) -> bool:
        rows = stores(consumer.body)[0].indices[:depth]
        read = [x.indices[:depth] for x in loads(consumer.body) if x.buffer.name in written]
        return all(indices == rows and all(isinstance(i, Var | Const) for i in indices) for indices in read)

    return bool(consumers) and all(own(state.block(b)) for b in consumers)
