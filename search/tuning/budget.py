"""The budget of a run: trials, seconds, the size of batches, and the share of the seconds for races."""

from __future__ import annotations

import time
from collections.abc import Callable

BATCH = 16  # candidates proposed at once
MIN_BATCH = 2  # candidates, if there is no time for more
RACE_SHARE = 0.15  # share of the seconds that is reserved for races, unless these take less
MAX_RACE_SHARE = 0.3  # the same for long calls, if the rounds of a race take more

Clock = Callable[[], float]  # seconds since an arbitrary time


class Budget:
    """A budget of `trials` new candidates, `seconds` of wall time from now on, or whichever ends first; None is no limit.

    Several `tasks` share it; `certain` of them get a round, by default all. The race of a task takes up to `race` seconds, and
    about as much again to build, check and warm up. A budget in seconds reserves both. `measured` counts the trials so far,
    `under_way` those submitted and not ended; `batch` is the number proposed at once. `rounds` has the seconds of one round of
    the race of a task, by its key, where known.
    """

    def __init__(
        self,
        trials: int | None,
        seconds: float | None,
        race: float = 3.0,
        tasks: int = 1,
        certain: int | None = None,
        clock: Clock = time.monotonic,
    ):
        self.trials, self.seconds, self.tasks = trials, seconds, tasks
        self._certain = tasks if certain is None else certain
        self.measured = self.under_way = 0
        self.batch = BATCH
        self.rounds: dict[str, float] = {}
        self._race, self._clock = race, clock
        self._started = clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started

    @property
    def left(self) -> int | None:
        """The trials left to begin, None for no limit."""
        return None if self.trials is None else max(0, self.trials - self.measured - self.under_way)

    @property
    def reserve(self) -> float:
        """Seconds reserved for the final races, at least three rounds of each; 0 without a budget in seconds."""
        if self.seconds is None:
            return 0.0
        kept = min(2 * self._race * self._races, RACE_SHARE * self.seconds)
        return min(max(kept, 5 * sum(self.rounds.values())), MAX_RACE_SHARE * self.seconds)

    @property
    def race(self) -> float:
        """The seconds for the timing of one race."""
        if self.seconds is None:
            return self._race
        return max(0.0, min(self._race, 0.5 * self.reserve / self._races, 0.5 * (self.seconds - self.elapsed)))

    @property
    def late(self) -> bool:
        """True if the seconds are used up, except those reserved for the final races."""
        return self._searched() >= 1

    def fits_race(self, task: str) -> bool:
        """True if a round of the race of a task, by its key, ends in time."""
        return self.seconds is None or self.elapsed + self.rounds.get(task, 0.0) < self.seconds

    @property
    def used(self) -> float:
        """The share of the budget that is used up, without the seconds reserved for the final races."""
        return max(0.0 if self.trials is None else self.measured / self.trials, self._searched())

    @property
    def spent(self) -> bool:
        """True if the budget of the search is used up."""
        return self.used >= 1

    def share(self, each: float = 0.0) -> int:
        """The number of candidates of the next round of a task, each of which takes `each` seconds; fewer where time is short."""
        batch = self.batch
        if self.seconds is not None and each > 0:
            batch = min(batch, max(MIN_BATCH, int((self.seconds - self.reserve - self.elapsed) / each)))
        return batch if self.left is None else min(batch, self.left)

    @property
    def _races(self) -> int:
        """The number of tasks known to race."""
        return max(1, self._certain, len(self.rounds))

    def _searched(self) -> float:
        """The share of the seconds for the search that is used up."""
        return 0.0 if self.seconds is None else self.elapsed / (self.seconds - self.reserve)
