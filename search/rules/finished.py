"""The templates of `schedule.templates` that finish the loops of what they schedule, as rules."""

from __future__ import annotations

from typing import Any

from schedule import ScheduleError
from schedule.open_schedule import OpenSchedule, Stage, extent
from schedule.templates import depthwise, dots, elementwise, gemm, gemv, only_reduces, reduction, rowwise
from schedule.templates.structure import Contraction, epilogue, reuses_data
from tir.traverse import blocks

from .inline import InlineAgain
from .rfactor import spatial_size
from .rows import FuseRows
from .rule import Verdict
from .tiling import untouched

BY_ROWS = (Stage.ROW, Stage.LANES, Stage.FACTORED, Stage.COMBINED)  # of blocks whose rows may be the place of others


class Finished:
    """Schedule a block, and what goes with it, as a template does that finishes the loops itself: one sketch. Later rules are not
    asked where all else that they have is in another place."""

    name: str

    def found(self, state: OpenSchedule, block: str) -> Any:
        """What a block is to the template; None if it is nothing. Changes the state as far as that is needed to see it."""
        raise NotImplementedError

    def build(self, state: OpenSchedule, found: Any) -> None:
        raise NotImplementedError

    def alone(self, state: OpenSchedule, found: Any) -> bool:
        """Whether no other rule has anything that is worth a sketch."""
        raise NotImplementedError

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        if not untouched(state, block) or block in state.copies or block in state.partial:
            return Verdict.SKIP
        tried = state.copy()
        try:
            found = self.found(tried, block)
        except ScheduleError:
            return Verdict.SKIP
        if found is None:
            return Verdict.SKIP
        return Verdict.ONLY if self.alone(tried, found) else Verdict.APPLY

    def apply(self, state: OpenSchedule, block: str) -> list[OpenSchedule]:
        new = state.fired(self.name, block)
        self.build(new, self.found(new, block))
        left = {b.name for b in blocks(new.func)} - set(new.scheduled)
        new.pending = [b for b in new.pending if b in left]
        return [new]


class Rowwise(Finished):
    """All stages of a computation by rows, as a softmax, in one loop over rows. Where there are fewer rows than threads, or
    products before or after, other rules may do better."""

    name = "rows"

    def found(self, state: OpenSchedule, block: str) -> rowwise.Rows | None:
        others = [c for c in state.get_consumers(block) if state.tiled(c) is None]
        parts = any(state.block(c).is_reduction or state.scheduled.get(c) in BY_ROWS for c in others)  # of rows
        if parts or not elementwise.matches(state.block(block)):
            return None
        elementwise.inline_chain(state, block)
        if _goes_with_product(state, block):
            return None
        names = {b.name for b in blocks(state.func)}
        taken = {b for b in state.pending if b in names and _goes_with_product(state, b)}
        return rowwise.matches(state, block, taken | set(state.scheduled))

    def build(self, state: OpenSchedule, found: rowwise.Rows) -> None:
        rowwise.build(state, found)

    def alone(self, state: OpenSchedule, found: rowwise.Rows) -> bool:
        inside = {found.last, *found.stages}
        others = {p for b in inside for p in state.get_producers(b)} - inside
        rows = spatial_size(state.block(found.reductions[0]))
        return not others and not state.get_consumers(found.last) and rows >= state.target.num_cores


class MatrixVector(Finished):
    """Products of a matrix and a vector. Where there are few results, threads may share a sum."""

    name = gemv.NAME

    def found(self, state: OpenSchedule, block: str) -> Contraction | None:
        gemv.without_units(state, block)
        return gemv.matches(state.block(block))

    def build(self, state: OpenSchedule, found: Contraction) -> None:
        gemv.build(state, found)

    def alone(self, state: OpenSchedule, found: Contraction) -> bool:
        return extent(found.columns[0]) >= 4 * state.target.num_cores


class DotProducts(Finished):
    """Products of a few rows or columns whose sums run along memory. They may also be packed."""

    name = dots.NAME

    def found(self, state: OpenSchedule, block: str) -> Contraction | None:
        found = dots.matches(state.block(block))
        return found if found is not None and dots.suits(found, state.target.machine) else None

    def build(self, state: OpenSchedule, found: Contraction) -> None:
        dots.build(state, found)

    def alone(self, state: OpenSchedule, found: Contraction) -> bool:
        return False


class InItsNest(Finished):
    """A block in a nest of its own, where `FuseRows` has no place for it. It may also be the place of what it reads."""

    def alone(self, state: OpenSchedule, found: str) -> bool:
        return all(FuseRows().applies(state, p) is Verdict.SKIP for p in state.get_producers(found))


class Elementwise(InItsNest):
    """An elementwise block that no product and no row of stages takes along; tiles of a consumer may be the place of others."""

    name = "elementwise"

    def found(self, state: OpenSchedule, block: str) -> str | None:
        if not elementwise.matches(state.block(block)) or any(state.tiled(c) for c in state.get_consumers(block)):
            return None
        if any(rule.applies(state, block) is not Verdict.SKIP for rule in (Rowwise(), FuseRows(), InlineAgain())):
            return None
        elementwise.inline_chain(state, block)
        return None if _goes_with_product(state, block) else block

    def build(self, state: OpenSchedule, found: str) -> None:
        elementwise.build(state, found)


class Reduction(InItsNest):
    """A reduction that gains nothing by tiles."""

    name = "reduction"

    def found(self, state: OpenSchedule, block: str) -> str | None:
        b = state.block(block)
        if not only_reduces(b) or gemm.matches(b) is not None or depthwise.matches(b) is not None:
            return None
        return block if FuseRows().applies(state, block) is Verdict.SKIP else None

    def build(self, state: OpenSchedule, found: str) -> None:
        reduction.build(state, found)


def _goes_with_product(state: OpenSchedule, block: str) -> bool:
    """Whether a block works on the results of a product, or of what is tiled like one, point by point, so that it is computed in
    its tiles."""
    producers = [p for p in state.get_producers(block) if epilogue(state, p) == block and reuses_data(state.block(p))]
    others = (MatrixVector(), DotProducts())
    return any(all(rule.applies(state, p) is Verdict.SKIP for rule in others) for p in producers)
