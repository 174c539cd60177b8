"""Accumulate in a small buffer near the processor, and copy each finished tile out."""

from __future__ import annotations

from schedule import ScheduleError

from ..sketch import State
from .rule import Verdict
from .tiling import FULL, Tiling, elementwise_consumer


class CacheWrite:
    """Rule 5 of Ansor (table 1): a block that reuses data and has no elementwise consumer to fuse gets one, the copy out of a
    cache stage."""

    name = "cache write"

    def __init__(self, tiling: Tiling = FULL):
        self.tiling = tiling

    def applies(self, state: State, block: str) -> Verdict:
        if not self.tiling.applies(state, block) or elementwise_consumer(state, block) is not None:
            return Verdict.SKIP
        return Verdict.APPLY

    def apply(self, state: State, block: str) -> list[State]:
        new = state.fired(self.name, block)
        try:
            new.marks[f"copy of {block}"] = new.schedule.cache_write(block, 0, "local")
        except ScheduleError:
            return []
        new.pending.append(block)  # to be tiled, with the copy computed in the tile
        return [new]
