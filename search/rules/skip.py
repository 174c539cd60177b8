"""Leave a block where it is."""

from __future__ import annotations

from ..sketch import State
from .rule import Verdict


class Skip:
    """Rule 1 of Ansor (table 1): the stage keeps its own loops. Always possible."""

    name = "skip"

    def applies(self, state: State, block: str) -> Verdict:
        return Verdict.APPLY

    def apply(self, state: State, block: str) -> list[State]:
        return [state.fired(self.name, block)]
