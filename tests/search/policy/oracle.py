"""A recorded oracle: what candidates of one matrix product take, by a forest fitted to measured ones; nothing is run, and no clock
is read. Policies can be compared with it at equal trials."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import costmodel.dataset
from codegen.target import Target
from costmodel import Boosting, GBDTModel
from costmodel.dataset import Dataset
from schedule import Trace, replay
from search.measure import Candidate, Measurement
from search.policy.protocol import Policy
from search.population.programs import sketch_programs
from search.task import Task
from tests.search.policy.schedule_programs import schedule_programs
from tir import workloads

SAMPLE = Path(costmodel.dataset.__file__).with_name("sample.npz")
TARGET = Target("llvm", num_cores=2, mcpu="znver5", l1=48 << 10, l2=1 << 20, l3=1 << 25)
SHAPE = (175, 485, 915)  # of a product in the sample


@functools.cache
def task() -> Task:
    return Task.of(workloads.make("gmm", SHAPE).func, TARGET)


@functools.cache
def forest() -> GBDTModel:
    """Fitted to the whole sample, more closely than a model of the search."""
    model = GBDTModel(TARGET.machine, boosting=Boosting(trees=120, rate=0.15, leaf=3))
    model.data = Dataset.load(SAMPLE)
    return model


def measured(policy: Policy, candidates: Sequence[Candidate]) -> list[Measurement]:
    """The candidates with the seconds of the oracle: rows of a sketch through its formulas, others as they are."""
    sketches = {s.name: s for s in getattr(policy, "sketches", ())}
    found = []
    for c in candidates:
        if c.sketch in sketches:
            programs, rows = sketch_programs(sketches[c.sketch]), np.array([c.row], dtype=np.int64)
        else:
            func = task().func
            programs = schedule_programs(func, [replay(func, Trace.from_json(c.trace)).func])
            rows = np.zeros((1, 1), dtype=np.int64)
        found.append(Measurement(c, "ok", (float(np.exp(-forest().score(programs, rows)[0])) * 1e-9,)))
    return found


def best_of(policy: Policy, trials: int, seed: int, batch: int = 8) -> float:
    """The seconds of the best of so many candidates that a policy proposes, by the oracle."""
    rng, best, left = np.random.default_rng(seed), float("inf"), trials
    while left > 0 and (proposed := policy.propose(min(batch, left), rng)):
        found = measured(policy, proposed)
        policy.update(found)
        best, left = min(best, *(m.seconds for m in found)), left - len(found)
    return best
