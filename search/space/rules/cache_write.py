"""Accumulation in a small local buffer, with a copy of each finished tile to the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from schedule.open_schedule import OpenSchedule
from schedule.templates import Template
from schedule.templates.block_analysis import epilogue
from tir.traverse import stored_names

from .rule import Verdict
from .tiling import FULL, Tiling


@dataclass(frozen=True)
class CacheWrite(Template):
    """Rule 5 of Ansor (table 1): a block that reuses data and has no elementwise consumer gets one, the copy from a cache stage.
    Not for blocks with several results, nor if `unless` is true, because other rules are better then."""

    name = "cache write"

    tiling: Tiling = FULL
    unless: Callable[[OpenSchedule, str], object] = lambda state, block: False

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        if self.unless(state, block) or len(stored_names(state.block(block))) != 1:
            return Verdict.SKIP
        if not self.tiling.applies(state, block) or epilogue(state, block) is not None:
            return Verdict.SKIP
        return Verdict.APPLY

    def change(self, new: OpenSchedule, block: str) -> None:
        new.copies[block] = new.cache_write(block, 0, "local")
        new.pending.append(block)  # for tiling, with the copy computed in the tile
