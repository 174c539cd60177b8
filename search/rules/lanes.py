"""Reduce along contiguous memory in vector lanes."""

from __future__ import annotations

from schedule import ScheduleError
from tir import dtypes
from tir.ir import Var
from tir.traverse import loads, stores

from ..sketch import State, extent, is_spatial
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
        dimensions = len(stores(state.block(block).body)[0].indices)
        lanes = new.target.lanes(dtypes.bits(stores(state.block(block).body)[0].buffer.dtype))
        try:
            _, inner = new.split_choice(f"{block} lanes", loop, tuple(c * lanes for c in CHUNKS))
            partial = new.step("rfactor", inner, dimensions)
        except ScheduleError:
            return []
        new.marks[block] = "lanes"
        new.marks[partial] = "lanes"
        return [new]

    def _loop(self, state: State, block: str) -> str | None:
        """The loop of the only reduce axis, if it walks the last dimension of an input and is long enough for lanes."""
        b = state.block(block)
        reducing = [it for it in b.iters if not is_spatial(it)]
        if b.init is None or len(reducing) != 1 or not isinstance(reducing[0].binding, Var):
            return None
        (axis,) = reducing
        if extent(axis) < 2 * state.target.lanes(32):
            return None
        if any(load.indices and load.indices[-1] == axis.var for load in loads(b.body)):
            return axis.binding.name  # type: ignore[attr-defined]
        return None
