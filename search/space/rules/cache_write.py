"""Accumulate in a small buffer near the processor, and copy each finished tile out."""

from __future__ import annotations

from collections.abc import Callable

from schedule.open_schedule import OpenSchedule
from schedule.templates import Template
from schedule.templates.block_analysis import epilogue
from tir.traverse import stores

from .rule import Verdict
from .tiling import FULL, Tiling


class CacheWrite(Template):
    """Rule 5 of Ansor (table 1): a block that reuses data and has no elementwise consumer to fuse gets one, the copy out of a
    cache stage. Not blocks with several results, nor those of which `unless` is true: other rules have something better."""

    name = "cache write"

    def __init__(self, tiling: Tiling = FULL, unless: Callable[[OpenSchedule, str], object] = lambda state, block: False):
        self.tiling = tiling
        self.unless = unless

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        if self.unless(state, block) or len({s.buffer.name for s in stores(state.block(block))}) != 1:
            return Verdict.SKIP
        if not self.tiling.applies(state, block) or epilogue(state, block) is not None:
            return Verdict.SKIP
        return Verdict.APPLY

    def change(self, new: OpenSchedule, block: str) -> None:
        new.copies[block] = new.cache_write(block, 0, "local")
        new.pending.append(block)  # to be tiled, with the copy computed in the tile
