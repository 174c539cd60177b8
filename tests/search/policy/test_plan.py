"""Planning: the decisions of the template library, one at a time, by measurements alone."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tir
from schedule import Trace, replay, templates
from schedule.open_trace import Role
from search.measure import Candidate, Measurement
from search.policy.named import make_policy
from search.policy.plan import ORDER, Plan
from search.policy.random_search import RandomSearch
from search.task import Task
from tests.programs import matmul
from tests.search.policy.oracle import best_of, measured, task
from tir import te, workloads

TARGET = tir.Target("llvm", num_cores=2, mcpu="x86-64-v4", l1=32768, l2=1 << 20, l3=1 << 25)
PROGRAMS = {
    "product": matmul(37, 150, 130),
    "chain": workloads.make("mlp", (30, 40, 50, 60)).func,
    "convolution": workloads.make("conv2d", (1, 9, 7, 5, 33, 3, 3, 1, 1)).func,
    "rows": workloads.make("softmax", (13, 109)).func,
    "one row": matmul(1, 109, 64),
}


def proposed(plan: Plan, seconds, most: int = 100) -> list[dict]:
    """The decisions of all candidates of a plan, where each takes the `seconds` of its decisions."""
    ((trace, _),) = plan._known.items()
    plan.update([Measurement(Candidate("default", (), json.loads(trace)), "ok", (seconds({}),))])
    found: list[dict] = []
    while batch := plan.propose(4, np.random.default_rng(0)):
        made = [plan._known[json.dumps(c.trace)] for c in batch]
        plan.update([Measurement(c, "ok", (seconds(d),)) for c, d in zip(batch, made, strict=True)])
        found += made
        assert len(found) <= most
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_decisions_it_is_the_default_schedule(name):
    func = PROGRAMS[name]
    open_ = templates.decided(func, TARGET, {"no such choice": 3})
    assert open_.plain(func).script == tir.default_schedule(func, TARGET).script
    assert any(options for _, options in open_.alternatives.values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_neighbours_compute_the_same(name):
    func = PROGRAMS[name]
    plan, rng = Plan(func, TARGET), np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, [d.value for d in b.shape]).astype(b.dtype) for b in func.buffers]
    expected = [a.copy() for a in inputs]
    tir.run(func, *expected)
    candidates = [c for _ in range(3) for c in plan.propose(2, rng)]
    assert candidates
    for c in candidates:
        found = [a.copy() for a in inputs]
        tir.run(replay(func, Trace.from_json(c.trace)).func, *found)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_it_goes_on_around_the_fastest_and_ends():
    """Two decisions gain, the second only beside the first, which another role changes."""
    wanted = ("pack A for C", "C unroll")

    def seconds(decisions):
        gains = [name in decisions for name in wanted]
        return 3.0 - gains[0] - (gains[0] and gains[1])

    plan = Plan(PROGRAMS["product"], TARGET)
    tried = proposed(plan, seconds)
    assert plan._best[0] == 1.0 and set(wanted) <= set(plan._best[1])
    assert len({json.dumps(d, sort_keys=True) for d in tried}) == len(tried)


def test_decisions_that_change_the_nest_come_first():
    tried = proposed(Plan(PROGRAMS["convolution"], TARGET), lambda decisions: 2.0 + len(decisions))
    kinds = [next((k for k in ("template", "pack") if name.startswith(k)), "other") for d in tried for name in d]
    assert list(dict.fromkeys(kinds)) == ["template", "pack", "other"] and kinds == sorted(
        kinds, key=[*dict.fromkeys(kinds)].index
    )


def test_every_role_has_its_turn():
    of_gpus = {Role.COPY_WIDTH, Role.STAGES, Role.RESIDENT}
    assert set(ORDER) == set(Role) - of_gpus


def test_by_the_oracle_it_finds_a_faster_one():
    plan = make_policy(task(), "plan")
    (default,) = plan._known
    (start,) = measured(plan, [Candidate("default", (), json.loads(default))])
    plan.update([start])
    assert best_of(plan, 12, 0) < start.seconds


def test_a_function_that_no_template_knows_is_sampled():
    A = te.placeholder((13, 7), name="A")
    k = te.reduce_axis((0, 7), name="k")
    odd = te.create_prim_func([A, te.compute((13,), lambda i: te.sum(A[(i * 3) % 13, k] * A[i, 6 - k], axis=k), name="B")])
    policy = make_policy(Task.of(odd, TARGET), "plan")
    if templates.schedule(odd, TARGET) is None:
        assert isinstance(policy, RandomSearch)
        with pytest.raises(ValueError, match="no template knows"):
            Plan(odd, TARGET)
    assert policy.propose(2, np.random.default_rng(0))
