"""Steps that are not taken again make the same sketches."""

from __future__ import annotations

import pytest

import schedule.open_schedule
from codegen.target import Target
from schedule import Schedule
from schedule.open_schedule import OpenSchedule
from search.space import generate
from tir import workloads
from tir.traverse import blocks

TWO = Target("llvm", num_cores=2, vector_bits=512, l1=32768, l2=1 << 20, l3=1 << 25)


@pytest.mark.parametrize("name, shape", [("softmax", (7, 109)), ("mlp", (7, 13, 109, 5))])
def test_sketches_are_the_same_without_a_memory(name, shape, monkeypatch):
    func = workloads.make(name, shape).func
    taken = generate(func, TWO, space="ansor", most=4)
    monkeypatch.setattr(schedule.open_schedule, "ON_A_NEST", ())
    assert generate(func, TWO, space="ansor", most=4) == taken


def test_a_step_is_taken_over_where_its_nest_is_the_same():
    """Beside another nest that has changed; it is the step that would be taken."""
    start = OpenSchedule(workloads.make("softmax", (7, 13)).func, TWO)
    first, *_, last = (start.get_loops(b.name) for b in blocks(start.func))
    one, other, plain = start.copy(), start.copy(), Schedule(start.func)
    one.fuse(*first)
    for s in (other, plain):
        s.unroll(last[0])
        s.fuse(*first)
    assert other.trace[-1] is one.trace[-1]
    assert other.trace == plain.trace and other.func.script() == plain.func.script()
