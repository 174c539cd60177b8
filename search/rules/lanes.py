"""Reduce along contiguous memory in vector lanes."""

from __future__ import annotations

from schedule import ScheduleError
from tir.ir import Var
from tir.traverse import loads

from ..sketch import State, element_bits, extent, is_spatial
from .rule import Verdict

CHUNKS = (1, 2, 4)  # vector registers of partial results


class ReduceInLanes:
    """Rule 6 of Ansor (table 1) for one thread: a reduction along the last dimension of what it reads is factored so that the
    lanes of a few vector registers hold partial results, reduced at the end."""

    name = "reduce in lanes"

    def applies(self, state: State, block: str) -> Verdict:
        return Verdict.SKIP if block in state.marks or self._loop(state, block) is None else Verdict.APPLY

    def apply(self, state: State, block: str) -> list[State]:
        new = state.fired(self.name, block)
        loop = self._loop(new, block)
        assert loop is not None
        lanes = new.target.lanes(element_bits(new.block(block)))
        try:
            _, inner = new.split_choice(f"{block} lanes", loop, tuple(c * lanes for c in CHUNKS))
            partial = new.schedule.rfactor(inner, -1)
        except ScheduleError:
            return []
        new.marks[block] = "lanes"
        new.marks[partial] = "lanes"
        new.pending += [partial, block]  # both still need a place
        return [new]

    def _loop(self, state: State, block: str) -> str | None:
        """The loop of a reduce axis that walks the last dimension of an input and is long enough for lanes."""
        b = state.block(block)
        last = {load.indices[-1] for load in loads(b.body) if load.indices}
        if b.init is None:
            return None
        for it in b.iters:
            long = not is_spatial(it) and extent(it) >= 2 * state.target.lanes(element_bits(b))
            if long and it.var in last and isinstance(it.binding, Var):
                return it.binding.name
        return None
