"""Computations by rows: stages in one loop over rows, vectors along each, costly ones kept and cheap ones again."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.templates import patterns
from tests.schedule.templates.patterns import outcome_of
from tir import te, workloads


def two_uses(rows, columns):
    """Rows times their sums, of sums and products of a row that are cheap, and written too."""
    X, k = te.placeholder((rows, columns), name="X"), te.reduce_axis((0, columns), name="k")
    twice = te.compute((rows, columns), lambda i, j: X[i, j] * 2.0 + 1.0, name="twice")
    total = te.compute((rows,), lambda i: te.sum(twice[i, k], axis=k), name="total")
    return te.create_prim_func([X, te.compute((rows, columns), lambda i, j: twice[i, j] * total[i], name="Y")])


PROGRAMS = {
    "softmax": lambda: workloads.make("softmax", (13, 33)).func,
    "softmax of short rows": lambda: workloads.make("softmax", (13, 5)).func,
    "softmax of few rows": lambda: workloads.make("softmax", (1, 300)).func,
    "layernorm": lambda: workloads.make("layernorm", (9, 40)).func,
    "large softmax": lambda: workloads.make("softmax", (9, 640)).func,
    "centred": lambda: patterns.centred(np.random.default_rng(2)).func,
    "centred cubes": lambda: patterns.centred(np.random.default_rng(7)).func,
    "two uses": lambda: two_uses(9, 40),
}
SCHEDULES = [
    ("softmax", "znver2",
     "Y: rows | "
     "top_rf ..v, top .., power .v, total_rf ..v, total .., Y .v | combine_lanes=True x2, allow_reciprocal=True"),
    ("softmax", "znver4",
     "Y: rows | "
     "top_rf p.v, top p., power pv, total_rf p.v, total p., Y pv | combine_lanes=True x2, allow_reciprocal=True"),
    ("softmax of short rows", "znver2",
     "Y: rows | "
     "top .., power .v, total .., Y .v | combine_lanes=True x2, allow_reciprocal=True"),
    ("softmax of short rows", "znver4",
     "Y: rows | "
     "top p., power pv, total p., Y pv | combine_lanes=True x2, allow_reciprocal=True"),
    ("softmax of few rows", "znver2",
     "Y: rows | "
     "top_rf .v, top ., power v, total_rf .v, total ., Y v | combine_lanes=True x2, allow_reciprocal=True"),
    ("softmax of few rows", "znver4",
     "total: reduction; top: reduction; Y: elementwise; power: elementwise | "
     "top_rf_rf p.v, top_rf p., top ., power pv, total_rf_rf p.v, total_rf p., total ., Y pv | combine_lanes=True x2"),
    ("layernorm", "znver2",
     "Y: rows | "
     "total_rf ..v, total .., mean ., squares_rf ..v, squares .., factor ., Y .v | combine_lanes=True x2"),
    ("layernorm", "znver4",
     "Y: rows | "
     "total_rf p.v, total p., mean p, squares_rf p.v, squares p., factor p, Y pv | combine_lanes=True x2"),
    ("large softmax", "znver2",
     "Y: rows | "
     "top_rf ..v, top .., power .v, total_rf ..v, total .., Y .v | combine_lanes=True x2, prefetch=[['X', 640]], "
     "allow_reciprocal=True"),
    ("large softmax", "znver4",
     "Y: rows | "
     "top_rf p.v, top p., power pv, total_rf p.v, total p., Y pv | combine_lanes=True x2, prefetch=[['X', 640]], "
     "allow_reciprocal=True"),
    ("centred", "znver2", "total: reduction; Y: elementwise | total ., mean ., Y v | combine_lanes=True"),
    ("centred", "znver4", "total: reduction; Y: elementwise | total ., mean ., Y v | combine_lanes=True"),
    ("centred cubes", "znver2", "Y: rows | total_rf ...v, total ..., mean .., Y ..v | non_temporal=Y, combine_lanes=True"),
    ("centred cubes", "znver4", "Y: rows | total_rf p.v, total p., mean p, Y pv | non_temporal=Y, combine_lanes=True"),
    ("two uses", "znver2", "Y: rows | total_rf ..v, total .., Y .v | combine_lanes=True"),
    ("two uses", "znver4", "Y: rows | total_rf p.v, total p., Y pv | combine_lanes=True"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "target", "expected"), SCHEDULES)
def test_schedules(name, target, expected):
    assert outcome_of(PROGRAMS[name](), target, roundings=2048) == expected
