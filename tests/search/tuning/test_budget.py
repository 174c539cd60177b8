"""What a budget allows: pure arithmetic, with a clock that stands still until it is moved."""

from __future__ import annotations

import pytest

from search.tuning.budget import BATCH, Budget
from tests.search.clock import Clock


def budget(trials=None, seconds=None, *, at=0.0, measured=0, rounds=0.0, **options):
    """A budget after `at` seconds and so many trials, where a round of the race of each of its tasks takes `rounds` seconds."""
    clock = Clock()
    made = Budget(trials, seconds, clock=clock, **options)
    clock.now += at
    made.measured = measured
    made.rounds = {str(n): rounds for n in range(made.tasks if rounds else 0)}
    return made


@pytest.mark.parametrize(("b", "used", "late", "spent"), [
    (budget(20, measured=17), 0.85, False, False),
    (budget(20, measured=20), 1.0, False, True),
    (budget(20, measured=21), 1.05, False, True),
    (budget(None, 10.0, at=4.25), 0.5, False, False),  # 1.5 s are kept for the race
    (budget(None, 10.0, at=8.5), 1.0, True, True),
    (budget(20, 10.0, measured=2, at=8.5), 1.0, True, True),
    (budget(20, 10.0, measured=20, at=0.0), 1.0, False, True),
    (budget(), 0.0, False, False),
])  # fmt: skip
def test_what_is_used_up(b, used, late, spent):
    assert b.used == pytest.approx(used) and (b.late, b.spent) == (late, spent)


@pytest.mark.parametrize(("b", "reserve", "race"), [
    (budget(20), 0.0, 3.0),
    (budget(None, 1000.0), 6.0, 3.0),  # a race, and as much again to build and to check
    (budget(None, 10.0), 1.5, 0.75),
    (budget(None, 10.0, race=0.1), 0.2, 0.1),
    (budget(None, 100.0, rounds=4.0), 20.0, 3.0),  # long calls: room for some rounds
    (budget(None, 100.0, rounds=40.0), 30.0, 3.0),  # but most of the time is for the search
    (budget(None, 1000.0, tasks=5), 30.0, 3.0),
    (budget(None, 20.0, tasks=5), 3.0, 0.3),  # all races together fit
    (budget(None, 100.0, tasks=5, rounds=1.0), 25.0, 2.5),
    (budget(None, 1000.0, tasks=5, certain=0), 6.0, 3.0),  # none has had a round yet
    (budget(None, 1000.0, tasks=5, certain=0, rounds=0.1), 30.0, 3.0),
])  # fmt: skip
def test_what_is_kept_for_the_races(b, reserve, race):
    assert (b.reserve, b.race) == (pytest.approx(reserve), pytest.approx(race))


@pytest.mark.parametrize(("b", "each", "share"), [
    (budget(64), 0.0, BATCH),
    (budget(20, measured=16), 0.0, 4),
    (budget(2), 0.0, 2),
    (budget(None, 100.0), 0.0, BATCH),
    (budget(None, 100.0, at=84.0), 2.0, 5),  # ten seconds left before the race
    (budget(None, 100.0, at=93.9), 2.0, 2),
    (budget(20, 100.0, measured=19, at=50.0), 0.1, 1),
])  # fmt: skip
def test_the_share_of_a_round(b, each, share):
    assert b.share(each) == share


def test_time_passes():
    clock = Clock()
    b = Budget(None, 10.0, clock=clock)
    assert b.elapsed == 0.0
    clock.now += 7.3
    assert b.elapsed == pytest.approx(7.3) and not b.late  # also where the budget is short
