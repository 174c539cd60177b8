"""The table at the end."""

from __future__ import annotations

from types import SimpleNamespace

from cli.tune.table import sketches, timings
from search.measure import Candidate, Measurement
from search.tuning.result import certainty


def test_a_program_that_was_stopped_is_compared_all_the_same():
    rows = [("unscheduled", None), ("best found", 0.02), ("numpy", 0.04)]
    assert timings(rows, 4 * 10**9, None, stopped=2.5).splitlines()[1:] == [
        "unscheduled       > 2.5 s     < 1.60",
        "best found          20 ms     200.00        -     > 125     2.00",
        "numpy               40 ms     100.00        -      > 62     1.00",
    ]


def test_an_uncertain_race_is_told():
    close = Measurement(Candidate("sketch 3", (), None), "ok", (0.002,))
    slow = Measurement(Candidate("sketch 1", (), None), "ok", (0.003,), pace=1.257)
    assert certainty(SimpleNamespace(tied=(close,), slowdown=1.31, measurements=(close, slow))) == [
        "the race could not tell the best from sketch 3 (2 ms)",
        "the machine was slower during 1 of 2 trials, up to 1.26 times by a kernel of known work: their times are divided by that",
        "the machine changed its speed: a call took 1.31 times as long in the race as in the trials",
    ]
    for slowdown in (None, 0.95):
        assert certainty(SimpleNamespace(tied=(), slowdown=slowdown, measurements=(close,))) == []


def test_candidates_are_listed_by_the_rules_that_made_them():
    def ended(sketch: str, seconds: float) -> Measurement:
        return Measurement(Candidate(sketch, (), None), "ok" if seconds else "crash", (seconds,) if seconds else ())

    tried = (ended("sketch 0", 0.003), ended("sketch 1", 0.0), ended("sketch 0", 0.002))
    result = SimpleNamespace(measurements=tried, rules={"sketch 0": ("B: inline", "C: strips"), "sketch 1": ("C: skip",)})
    assert sketches(result) == [
        "candidates of trials   ok       best  made by",
        "sketch 0           2    2       2 ms  B: inline; C: strips",
        "sketch 1           1    0          -  C: skip",
    ]
    assert sketches(SimpleNamespace(measurements=(), rules={})) == []
