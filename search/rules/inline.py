"""Inline a simple block into its consumers."""

from __future__ import annotations

from schedule import ScheduleError
from tir.ir import Call, Select, Var
from tir.traverse import loads, walk

from ..sketch import State
from .rule import Verdict


class Inline:
    """Rule 2 of Ansor (table 1): a strictly inlineable stage is always inlined.

    Strictly inlineable: no reduction, not an output, every read at an axis plus or minus a constant, no intrinsic and no choice,
    so that computing it again at each use costs nothing to speak of.
    """

    name = "inline"

    def applies(self, state: State, block: str) -> Verdict:
        b = state.block(block)
        if b.is_reduction or state.is_output(block) or block in state.marks:
            return Verdict.SKIP
        if any(isinstance(n, (Call, Select)) for n in walk(b.body)):
            return Verdict.SKIP
        names = {it.var.name for it in b.iters}
        for load in loads(b.body):
            used = [n.name for i in load.indices for n in walk(i) if isinstance(n, Var) and n.name in names]
            if len(used) != len(set(used)) or used != [n for n in (it.var.name for it in b.iters) if n in used]:
                return Verdict.SKIP
        try:
            state.schedule.copy().compute_inline(block)
        except ScheduleError:
            return Verdict.SKIP
        return Verdict.ONLY

    def apply(self, state: State, block: str) -> list[State]:
        new = state.fired(self.name, block)
        new.step("compute_inline", block)
        return [new]
