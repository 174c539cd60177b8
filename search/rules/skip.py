"""Leave a block where it is."""

from __future__ import annotations

from schedule.open_schedule import OpenSchedule

from .rule import Verdict


class Skip:
    """Rule 1 of Ansor (table 1): the stage keeps its own loops. Always possible."""

    name = "skip"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        return Verdict.APPLY

    def apply(self, state: OpenSchedule, block: str) -> list[OpenSchedule]:
        return [state.fired(self.name, block)]
