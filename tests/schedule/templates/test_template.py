"""Templates as rules: when they apply, which ways they give, and what becomes of ways that are refused."""

from __future__ import annotations

from math import inf

import pytest

from schedule.error import ScheduleError
from schedule.open_schedule import Declined, OpenSchedule, Stage
from schedule.templates import REDUCTION, SUMS_OF_PRODUCTS, RefusedRule, gemm, gemv
from schedule.templates.template import SumOfProducts, Template, Verdict, WholeNest
from tests import programs
from tests.schedule.templates.patterns import TARGETS, by_rule, relu

MATRICES = SumOfProducts(gemm)


def opened(func=None, at_seed=False) -> OpenSchedule:
    return OpenSchedule(func or by_rule("ik kj -> ij", i=33, j=17, k=40, after=relu), TARGETS["znver4"], at_seed=at_seed)


def test_a_pattern_applies_to_what_it_matches_and_suits():
    s = opened()
    assert MATRICES.applies(s, "Y") is Verdict.APPLY and SumOfProducts(gemv).applies(s, "Y") is Verdict.SKIP
    assert MATRICES.found(s, "Y") is not None and SumOfProducts(gemv).found(s, "Y") is None
    assert 0 < MATRICES.cycles(s, "Y") < inf == SumOfProducts(gemv).cycles(s, "Y")
    one_row = opened(by_rule("ik kj -> ij", i=1))
    assert gemm.matches(one_row.block("Y")) is not None and MATRICES.found(one_row, "Y") is None


@pytest.mark.parametrize("change", ["scheduled", "copy", "epilogue"])
def test_what_is_scheduled_is_left_alone(change):
    s = opened()
    if change == "copy":
        s.copies["Y"] = "A"
    else:
        s.scheduled["Y" if change == "scheduled" else "Z"] = Stage.DONE
    assert MATRICES.applies(s, "Y") is Verdict.SKIP


def test_variants_are_ways():
    """The seed's first; a pattern without variants has one."""
    s = opened(by_rule("ik kj -> ij", i=33, j=17, k=40))
    assert [label for label, _ in MATRICES.ways(s, "Y")] == ["packing", "packing, the sum in parts"]
    vector = opened(by_rule("jk k -> j", j=9, k=40))
    assert [label for label, _ in SumOfProducts(gemv).ways(vector, "Y")] == ["matrix and vector"]
    assert [t.name for t in SUMS_OF_PRODUCTS] == [t.pattern.NAME for t in SUMS_OF_PRODUCTS]


@pytest.mark.parametrize("at_seed", [False, True])
def test_each_legal_way_is_an_open_schedule(at_seed):
    s = opened(by_rule("ik kj -> ij", i=33, j=17, k=40), at_seed)
    made = MATRICES.apply(s, "Y")
    assert len(made) == (1 if at_seed else 2)
    assert all(new.is_unscheduled("Y") < s.is_unscheduled("Y") for new in made)


class Ways(Template):
    """Three ways: one that declines, one that is refused, and one that does nothing."""

    name = "three"

    def ways(self, s, block):
        yield "declined", self._declined
        yield "refused", self._refused
        yield "fine", lambda new: None

    def _declined(self, new):
        raise Declined("no")

    def _refused(self, new):
        raise ScheduleError("it is not legal")


def test_refused_ways_are_warned_of_and_declined_ones_are_not():
    s = opened()
    with pytest.warns(RefusedRule, match="the rule 'refused' makes nothing of block `Y`: it is not legal") as found:
        made = Ways().apply(s, "Y")
    assert len(found) == 1 and len(made) == 1


def test_nests():
    """A nest is the only way, unless it says that there are others."""
    s = opened(programs.reduction(n=100))
    assert REDUCTION.applies(s, "C") is Verdict.ONLY
    several = WholeNest("twice", REDUCTION.matches, REDUCTION.build, several=True)
    assert several.applies(s, "C") is Verdict.APPLY
    assert WholeNest("none", lambda s, block: None, REDUCTION.build).applies(s, "C") is Verdict.SKIP
    (made,) = REDUCTION.apply(s, "C")
    assert "C" not in made.pending and not made.is_unscheduled("C")
    s.copies["C"] = "A"
    assert REDUCTION.applies(s, "C") is Verdict.SKIP
    s.copies.clear()
    s.scheduled["C"] = Stage.DONE
    assert REDUCTION.applies(s, "C") is Verdict.SKIP
