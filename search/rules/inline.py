"""Inline a simple block into its consumers."""

from __future__ import annotations

from schedule import ScheduleError
from schedule.window import affine_index
from tir.ir import Call, Const, Node, Select
from tir.traverse import loads, walk

from ..sketch import State
from .rule import Verdict


class Inline:
    """Rule 2 of Ansor (table 1): a strictly inlineable stage is always inlined.

    Strictly inlineable: no reduction, not an output, every index read a constant or an axis plus a constant, the axes in order
    and none twice, no costly intrinsic and no choice, so that computing it again at each use costs nothing to speak of; or it
    reads nothing at all. `costly` are the intrinsics too costly to compute again, None for all of them.
    """

    name = "inline"

    def __init__(self, costly: tuple[str, ...] | None = None):
        self.costly = costly

    def applies(self, state: State, block: str) -> Verdict:
        b = state.block(block)
        if b.is_reduction or state.is_output(block) or block in state.marks:
            return Verdict.SKIP
        if loads(b.body) and any(isinstance(n, Select) or self._is_costly(n) for n in walk(b.body)):
            return Verdict.SKIP
        axes = [it.var.name for it in b.iters]
        for load in loads(b.body):
            read = [affine_index(i, axes) for i in load.indices if not isinstance(i, Const)]
            used = [found[0] for found in read if found is not None]
            if len(used) < len(read) or used != [axis for axis in axes if axis in used]:
                return Verdict.SKIP
        try:
            state.schedule.copy().compute_inline(block)
        except ScheduleError:
            return Verdict.SKIP
        return Verdict.ONLY

    def _is_costly(self, node: Node) -> bool:
        return isinstance(node, Call) and (self.costly is None or node.op in self.costly)

    def apply(self, state: State, block: str) -> list[State]:
        new = state.fired(self.name, block)
        new.schedule.compute_inline(block)
        return [new]
