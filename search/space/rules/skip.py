"""The rule that leaves a block unchanged."""

from __future__ import annotations

from schedule.open_schedule import OpenSchedule
from schedule.templates import Template

from .rule import Verdict


class Skip(Template):
    """Rule 1 of Ansor (table 1): the block keeps its own loops. Always legal."""

    name = "skip"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        return Verdict.APPLY

    def change(self, new: OpenSchedule, block: str) -> None:
        return
