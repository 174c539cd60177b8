"""What a template for GPUs is: a pattern, and the ways to schedule a block that is one."""

from __future__ import annotations

from collections.abc import Iterator

from schedule.error import ScheduleError
from schedule.open_schedule import OpenSchedule, Verdict, Way


class Template:
    """A pattern. `ways` are the ways to schedule a block so, by label, the one that the formula prefers first.

    Each is a rule of the search, too: `apply` makes one open schedule of each legal way, at the seeds of the first alone.
    """

    name: str

    def applies(self, s: OpenSchedule, block: str) -> Verdict:
        raise NotImplementedError

    def ways(self, s: OpenSchedule, block: str) -> Iterator[tuple[str, Way]]:
        raise NotImplementedError

    def apply(self, s: OpenSchedule, block: str) -> list[OpenSchedule]:
        made: list[OpenSchedule] = []
        for label, way in self.ways(s, block):
            new = s.fired(label, block)
            try:
                way(new)
            except ScheduleError:
                continue
            made.append(new)
            if s.at_seed:
                break
        return made
