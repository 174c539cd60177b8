"""Compute a producer row by row, inside the loops that it shares with its consumers."""

from __future__ import annotations

from schedule import ScheduleError
from tir.ir import For, Var
from tir.traverse import loads, path_to, stores

from ..sketch import State, is_spatial
from .rule import Verdict


class FuseRows:
    """A stage without reuse of its own is computed in the outer loops that all its consumers have in common, so that a row (of a
    softmax, a norm) stays in cache between the stages. Ansor samples such compute locations; here they are structure."""

    name = "fuse rows"

    def applies(self, state: State, block: str) -> Verdict:
        return Verdict.APPLY if self._place(state, block) is not None else Verdict.SKIP

    def apply(self, state: State, block: str) -> list[State]:
        place = self._place(state, block)
        assert place is not None
        new = state.fired(self.name, block)
        try:
            new.schedule.compute_at(block, place, preserve_unit_loops=True)
        except ScheduleError:
            return []
        new.marks.setdefault(block, "row")
        return [new]

    def _place(self, state: State, block: str) -> str | None:
        """The innermost loop common to all consumers of which each iteration needs other rows of this block."""
        if state.marks.get(block) in ("tiled", "packed", "fused") or state.is_output(block):
            return None
        consumers = state.schedule.get_consumers(block)
        if not consumers or any(state.marks.get(c) in ("tiled", "packed", "fused") for c in consumers):
            return None
        paths = [[s for s in path_to(state.func.body, c) if isinstance(s, For)] for c in consumers]
        common = []
        for level in zip(*paths, strict=False):
            if all(loop is level[0] for loop in level):
                common.append(level[0].name)
        written = {s.buffer.name for s in stores(state.block(block))}
        place = None
        for position, loop in enumerate(common):
            # In every consumer, this loop must pick the index of dimension `position` of what it reads here.
            for c in consumers:
                consumer = state.block(c)
                axes = {it.var.name for it in consumer.iters if is_spatial(it) and state.driver(it) == loop}
                for load in loads(consumer.body):
                    if load.buffer.name in written:
                        index = load.indices[position] if position < len(load.indices) else None
                        if not isinstance(index, Var) or index.name not in axes:
                            return place
            place = loop
        return place
