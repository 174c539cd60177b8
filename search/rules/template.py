"""The templates of `schedule.templates` as rules: what is at its seeds the default schedule begins a sketch here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from schedule import ScheduleError
from schedule.machine import CPU
from schedule.open_schedule import OpenSchedule
from schedule.templates import conv2d, gemm
from schedule.templates.structure import epilogue
from tir.ir import Block

from .rule import Verdict
from .tiling import untouched


class Template(Protocol):
    """A module of `schedule.templates`: what a block is to it, whether that is worth a sketch, its variants, the one of the seed
    first, of which each is one, and what builds them."""

    def matches(self, block: Block) -> Any: ...

    def suits(self, found: Any, processor: CPU) -> bool: ...

    def variants(self, found: Any, processor: CPU) -> Sequence[Any]: ...

    def build(self, s: OpenSchedule, found: Any, variant: Any) -> None: ...


class FromTemplate:
    """Schedule a block as a template does, its numbers open: a sketch for each variant."""

    name: str
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
        found, results = self.found(state, block), []
        for variant in self.template.variants(found, state.target.machine):
            new = state.fired(f"{self.name}{variant}", block)
            try:
                self.template.build(new, found, variant)
            except ScheduleError:
                continue
            results.append(new)
        return results


class Packing(FromTemplate):
    """Matrix products over packed operands, in the loop order of GotoBLAS. Multi-level tiling may find a better order of blocks
    for one that is not packed."""

    name, template = "packing", gemm


class DirectConvolution(FromTemplate):
    """Convolutions with output channels in the lanes of vectors. Ansor knows one order of axes, that of the definition, in which
    the last one written has the lanes."""

    name, template = "direct convolution", conv2d
