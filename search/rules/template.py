"""The templates of `schedule.templates` as rules: what is at its seeds the default schedule begins a sketch here."""

from __future__ import annotations

from typing import Any

from schedule import ScheduleError
from schedule.open_schedule import OpenSchedule
from schedule.templates import conv2d, depthwise, gemm, narrow, pixels, transposed
from schedule.templates.structure import epilogue
from schedule.templates.template import Template, ways

from .rule import Verdict
from .tiling import untouched


class FromTemplate:
    """Schedule a block as a template does, its numbers open: a sketch for each variant."""

    template: Template

    def found(self, state: OpenSchedule, block: str) -> Any:
        """What the block is to the template, if it suits; None else."""
        found = self.template.matches(state.block(block))
        return found if found is not None and self.template.suits(found, state.target.machine) else None

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        if not untouched(state, block) or block in state.copies or epilogue(state, block) in state.scheduled:
            return Verdict.SKIP
        return Verdict.SKIP if self.found(state, block) is None else Verdict.APPLY

    def apply(self, state: OpenSchedule, block: str) -> list[OpenSchedule]:
        results = []
        for label, way in ways(self.template, self.found(state, block), state.target.machine):
            new = state.fired(label, block)
            try:
                way(new)
            except ScheduleError:
                continue
            results.append(new)
        return results

    @property
    def name(self) -> str:
        return self.template.NAME


class Packing(FromTemplate):
    """Matrix products over packed operands, in the loop order of GotoBLAS. Multi-level tiling may find a better order of blocks
    for one that is not packed."""

    template = gemm


class DirectConvolution(FromTemplate):
    """Convolutions with output channels in the lanes of vectors. Ansor knows one order of axes, that of the definition, in which
    the last one written has the lanes."""

    template = conv2d


class PixelsInLanes(FromTemplate):
    """Convolutions with pixels in the lanes of vectors, the image unrolled unless they lie in a row."""

    template = pixels


class TransposedConvolution(FromTemplate):
    """Transposed convolutions, of pixels sorted by their remainder modulo the stride. Ansor has an attribute of the computation
    for that, which asks for axes to be unrolled, so that the code generator finds the zeros."""

    template = transposed


class NarrowConvolution(FromTemplate):
    """Convolutions, transposed or not, with fewer output channels than lanes: those of the image are the lanes."""

    template = narrow


class DepthwiseConvolution(FromTemplate):
    """Convolutions of each channel with a kernel of its own, over strips of rows that are padded where they are used."""

    template = depthwise
