"""Reduction of contiguous elements in vector lanes."""

from __future__ import annotations

from schedule.open_schedule import OpenSchedule, Stage, element_bits, extent, is_spatial
from schedule.templates import Template
from schedule.templates.block_analysis import divisible
from tir.arith.polynomial import coefficient, polynomial
from tir.ir import Var
from tir.traverse import loads

from .rule import Verdict

RESULT_REGISTERS = (4, 1, 2, 3, 8)  # vector registers of partial results
ROWS_AT_ONCE = (1, 2, 4)  # rows that are reduced at once


class ReduceInLanes(Template):
    """Rule 6 of Ansor (table 1) for one thread: a reduction along the last dimension of an input is factored. The lanes of some
    vector registers hold partial results, which are reduced at the end.

    If the reduction has its own loops, they are merged with those of its partial results, and several rows may be reduced at
    once. Each row is then a separate stream from memory, and other operands are loaded once for all. If the reduction is in the
    loops of its consumers, it stays there. Later rules are not tried: for an axis long enough for lanes, nothing else is worth a
    trial.
    """

    name = "reduce in lanes"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        if state.scheduled.get(block, Stage.ROW) != Stage.ROW or self._loop(state, block) is None:
            return Verdict.SKIP
        return Verdict.ONLY if divisible(state.block(block)) else Verdict.SKIP

    def change(self, new: OpenSchedule, block: str) -> None:
        partial = self._in_row(new, block) if block in new.scheduled else self._at_root(new, block)
        new.scheduled[block] = new.scheduled[partial] = Stage.LANES

    def _in_row(self, state: OpenSchedule, block: str) -> str:
        loop = self._loop(state, block)
        assert loop is not None
        _, inner = state.split(loop, [None, state.choose(f"{block} lanes", self._widths(state, block), block=block)])
        return state.rfactor(inner, -1)

    def _at_root(self, state: OpenSchedule, block: str) -> str:
        axes, along = state.axes(block), self._loop(state, block)
        assert along is not None
        kept = [loop for it, loop in axes if is_spatial(it)]
        others = [loop for it, loop in axes if not is_spatial(it) and loop != along]
        if len(axes) > 1:
            state.reorder(*kept, *others, along)
        row = next((loop for it, loop in axes if is_spatial(it) and extent(it) > 1 and loop == kept[-1]), None)
        widths = self._widths(state, block)
        if row is not None:
            kept[-1], row = state.split(row, [None, state.choose(f"{block} rows", ROWS_AT_ONCE, block=block)])
        steps, lane = state.split(along, [None, state.choose(f"{block} lanes", widths, block=block)])
        partial = state.rfactor(lane, -1)
        if row is not None:
            state.reorder(*others, steps, row)
        if kept:
            state.merge(*(state.get_loops(b)[len(kept) - 1] for b in (partial, block)))
        if row is not None:
            for b in (partial, block):
                state.unroll(state.get_loops(b)[-2])
        return partial

    def _widths(self, state: OpenSchedule, block: str) -> tuple[int, ...]:
        """Lengths of a part for the lanes, in whole registers; the axis has at least two parts."""
        lanes = state.target.lanes(element_bits(state.block(block)))
        loop = self._loop(state, block)
        length = next(extent(it) for it, own in state.axes(block) if own == loop)
        return tuple(n * lanes for n in RESULT_REGISTERS if 2 * n * lanes <= length)

    def _loop(self, state: OpenSchedule, block: str) -> str | None:
        """The loop of a reduce axis that indexes the last dimension of an input and is long enough for lanes."""
        b = state.block(block)
        if b.init is None:
            return None
        last = [polynomial(x.indices[-1]) for x in loads(b.body) if x.indices]
        for it in b.iters:
            long = not is_spatial(it) and extent(it) >= 2 * state.target.lanes(element_bits(b))
            if long and isinstance(it.binding, Var) and any(coefficient(p, it.var.name) == 1 for p in last):
                return it.binding.name
        return None
