"""Products with long sums and few results: parts of the sum are products of their own, and another kernel adds them up."""

from __future__ import annotations

from math import prod

from schedule import ScheduleError
from schedule.library_cuda import products, split_sum, windows
from schedule.library_cuda.products import matches
from schedule.machine import GPU
from schedule.open_schedule import OpenSchedule, Stage
from schedule.templates.structure import Contraction, epilogue, extent
from tir.traverse import blocks

from ..rules.rule import Verdict

LEAST = 64  # steps of a part


class SplitSum:
    """Split-K: a product, or a convolution, whose results are too few for all processors is rewritten as a batch of products of
    matrices, one for each part of its sum, which the other rules tile; then the parts are added up (`rfactor`).

    One sketch for each number of parts, since it decides how long the sum is after it is filled up to whole parts: as many as the
    library takes, half of them, and twice as many.
    """

    name = "split sum"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        known = block in state.scheduled or block in state.partial
        if known or state.get_loops(block) != [loop for _, loop in state.axes(block)]:
            return Verdict.SKIP
        c = matches(state.block(block))
        return Verdict.APPLY if c is not None and products.suits(c) and _parts(c, state.target.machine) else Verdict.SKIP

    def apply(self, state: OpenSchedule, block: str) -> list[OpenSchedule]:
        results = []
        c = matches(state.block(block))
        assert c is not None
        after = None if state.is_output(block) else epilogue(state, block)
        for n in _parts(c, state.target.machine):
            new = state.fired(f"{self.name} in {n}", block)
            known = {b.name for b in blocks(new.func)}
            try:
                product, result = windows.as_matrices(new, c, None if after in state.scheduled else after)
                parts, partial = windows.as_matrices(new, split_sum.apply(new, product, n), None)
            except ScheduleError:
                continue
            new.made |= {name: new.block(name) for name in (block, parts.block)}
            new.scheduled[block] = Stage.COMBINED
            new.partial.add(parts.block)
            new.pending += [b.name for b in blocks(new.func) if b.name not in (*known, result, partial)]
            results.append(new)
        return results


def _parts(c: Contraction, gpu: GPU) -> list[int]:
    """Into how many parts a sum may be cut, the library's number first; none if it is short, or there are results enough."""
    n = split_sum.parts(c, gpu)
    steps = prod(extent(it) for it in c.sums)
    return [k for k in dict.fromkeys((n, n // 2, 2 * n)) if n > 1 < k and steps >= LEAST * k]
