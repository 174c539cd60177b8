"""Multi-level tiling of blocks that reuse data, with or without an elementwise consumer computed in the tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from schedule.open_schedule import Continuation, Declined, OpenSchedule, Stage, Tiled, extent, is_spatial
from schedule.templates import Template
from schedule.templates.block_analysis import epilogue, lacking, reuses_data, walks_memory
from tir.ir import Block, Var, annotation
from tir.traverse import stores

from .rule import Verdict

CONSTANT_TENSORS = "simplify_const_tensor_indices"  # annotation of a block: its axes that index constant tensors, to unroll


def needs_tiling(block: Block) -> bool:
    """True if Ansor tiles a block (its NeedsMultiLevelTiling): two of its inputs lack a spatial axis, or one input of a reduction
    does. Blocks that index constant tensors are not tiled."""
    if annotation(block.annotations, CONSTANT_TENSORS, ()):
        return False
    return lacking(block) >= (1 if block.is_reduction else 2)


def reuses_vectors(block: Block) -> bool:
    """True if a block reuses data and its vectors are contiguous in memory."""
    return reuses_data(block) and walks_memory(block)


@dataclass(frozen=True, slots=True)
class Tiling:
    """A way to tile blocks.

    `structure` has the levels, outermost first: S all spatial axes, R all reduction axes. `perfect` and `limit` restrict the
    sampled sizes (see `Tile`). With `innermost`, the axis of the last dimension of the result is the last of the innermost level,
    for vectors. Without it, levels have the axes in their order. `needed` is the predicate of blocks to tile.
    """

    structure: str = "SSRSRS"
    perfect: bool = False
    limit: int | None = None
    innermost: bool = True
    needed: Callable[[Block], bool] = reuses_vectors

    def applies(self, state: OpenSchedule, block: str) -> bool:
        """True if the block is `needed`, and its loops are unchanged and contain no other block."""
        return state.untouched(block) and self.needed(state.block(block))

    def apply(self, state: OpenSchedule, block: str) -> None:
        """Split and reorder the loops of a block into levels with open sizes; axes of one iteration stay outermost."""
        levels: list[list[str]] = [[] for _ in self.structure]
        spatial = [n for n, letter in enumerate(self.structure) if letter == "S"]
        reduce = [n for n, letter in enumerate(self.structure) if letter == "R"]
        axes = state.axes(block)
        vector = self._vector(state, block)
        last: str | None = None
        for it, loop in axes:
            positions = spatial if is_spatial(it) else reduce
            if extent(it) == 1:
                levels[positions[0]].append(loop)
                continue
            names = [loop]
            if len(positions) > 1:
                axis = it.var.name
                bounds: dict[str, Any] = {"perfect": self.perfect, "limit": self.limit}
                names = state.split(loop, [None, *state.sizes(block, axis, len(positions) - 1, vector=axis == vector, **bounds)])
            for level, name in zip(positions, names, strict=True):
                levels[level].append(name)
            if it.var.name == vector:
                last = names[-1]
        if last in levels[-1]:
            levels[-1].sort(key=lambda loop: loop == last)
        ordered = [loop for level in levels for loop in level]
        if len(ordered) > 1:
            state.reorder(*ordered)
        depth = len(levels[0])
        state.scheduled[block] = Tiled.of(state, block, levels, 1, (depth, depth - 1), panels=False)

    def _vector(self, state: OpenSchedule, block: str) -> str | None:
        """The axis to vectorise, or None."""
        b = state.block(block)
        store = stores(b.body)[0]
        if self.innermost:
            index = store.indices[-1] if store.indices else None
            return index.name if isinstance(index, Var) else None
        return next((it.var.name for it in reversed(b.iters) if is_spatial(it) and extent(it) > 1), None)


FULL = Tiling()


@dataclass(frozen=True)
class MultiLevelTiling(Template):
    """Rule 3 of Ansor (table 1): tile a block that reuses data."""

    name = "multi-level tiling"

    tiling: Tiling = FULL

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        return Verdict.ONLY if self.tiling.applies(state, block) else Verdict.SKIP

    def change(self, new: OpenSchedule, block: str) -> None:
        self.tiling.apply(new, block)


@dataclass(frozen=True)
class TilingWithFusion(Template):
    """Rule 4 of Ansor (table 1): tile a block that reuses data, and compute its elementwise consumer in the tile. One sketch has
    it after the first level of spatial loops, one after the second. With `only`, such a block is never tiled without its
    consumer."""

    name = "tiling with fusion"

    tiling: Tiling = FULL
    levels: tuple[int, ...] = (1, 2)
    only: bool = False

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        consumer = epilogue(state, block)
        if consumer is None or consumer in state.scheduled or not self.tiling.applies(state, block):
            return Verdict.SKIP
        # The copy from a cache stage exists only for fusion.
        return Verdict.ONLY if self.only or state.copies.get(block) == consumer else Verdict.APPLY

    def ways(self, s: OpenSchedule, block: str) -> Iterator[tuple[str, Continuation]]:
        for depth in self.levels:
            yield f"{self.name} at level {depth}", partial(self._fuse, block=block, depth=depth)

    def _fuse(self, new: OpenSchedule, block: str, depth: int) -> None:
        consumer = epilogue(new, block)
        assert consumer is not None
        self.tiling.apply(new, block)
        at = [loop for level in new.tiling(block).levels[:depth] for loop in level]
        if not at:
            raise Declined(f"no loops of {block} are around {consumer}")
        new.reverse_compute_at(consumer, at[-1], preserve_unit_loops=True)
        new.scheduled[consumer] = Stage.FUSED
