"""Unrolling of axes that index small constant tensors."""

from __future__ import annotations

from dataclasses import dataclass

from schedule.open_schedule import OpenSchedule, Stage, extent, is_spatial
from schedule.templates import Template
from tir.ir import annotation

from .rule import Verdict
from .tiling import CONSTANT_TENSORS


@dataclass(frozen=True)
class UnrollConstants(Template):
    """Ansor's simplification of constant tensors, for the transforms of Winograd's convolution. The axes in the annotation
    `simplify_const_tensor_indices` of a block become innermost and unrolled, so that the constants at their indices become
    literals in the code. The other axes are tiled in two levels."""

    name = "unroll constants"

    perfect: bool = False
    limit: int | None = None

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        b = state.block(block)
        named = annotation(b.annotations, CONSTANT_TENSORS, ())
        return Verdict.ONLY if named and block not in state.scheduled and len(state.axes(block)) == len(b.iters) else Verdict.SKIP

    def change(self, new: OpenSchedule, block: str) -> None:
        b = new.block(block)
        named = annotation(b.annotations, CONSTANT_TENSORS, ())
        outer: list[str] = []
        inner: list[str] = []
        unrolled: list[str] = []
        for it, loop in new.axes(block):
            if it.var.name.removeprefix("v_") in named:
                unrolled.append(loop)
            elif extent(it) == 1 or not is_spatial(it):
                outer.append(loop)
            else:
                first, second = new.split(loop, [None, *new.sizes(block, it.var.name, perfect=self.perfect, limit=self.limit)])
                outer.append(first)
                inner.append(second)
        new.reorder(*outer, *inner, *unrolled)
        for loop in unrolled:
            new.unroll(loop)
        new.scheduled[block] = Stage.UNROLLED
