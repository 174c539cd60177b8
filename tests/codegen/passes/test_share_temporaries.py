"""Temporaries of programs of many stages: those that are live one after the other are one."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

import tir
from codegen.passes.lower_blocks import lower_blocks
from codegen.passes.share_temporaries import MIN_TEMPORARIES, share_temporaries
from codegen.target import Target
from schedule import Schedule
from tests.codegen.harness import ONE, same
from tir import te


def least(tensors):
    """One more than the least of the elements of the row as far from the other end, which another stage may not write over."""
    return lambda *i: reduce(te.minimum, [x[(x.shape[0] - 1 - i[0], 0)[: x.ndim]] for x in tensors]) + 1.0


def stages(count: int, reach: int = 1):
    """Stages each of which reads the `reach` before it, of two shapes in turns."""
    A = te.placeholder((7,), name="A")
    made = [A]
    for n in range(count):
        read = made[-reach:]
        shape = (7,) if n % 2 or n == count - 1 else (7, 1)
        made.append(te.compute(shape, least(read), name=f"s{n}"))
    return te.create_prim_func([A, made[-1]])


def shared(func) -> list[str]:
    lowered = lower_blocks(func, Target(ONE))
    return [b.name for b in share_temporaries(lowered).allocs]


@pytest.mark.parametrize(("reach", "left"), [(1, 4), (2, 4), (5, 6)])
def test_as_many_are_left_as_are_live_at_once(reach, left):
    """Of each shape: a stage does not write what it reads."""
    func = stages(MIN_TEMPORARIES + 7, reach)
    assert len(shared(func)) <= left
    same(func, targets=[ONE])


def test_few_stay_apart():
    func = stages(MIN_TEMPORARIES)
    assert len(shared(func)) == len(func.allocs) == MIN_TEMPORARIES - 1


def test_what_annotations_name_stays():
    s = Schedule(stages(MIN_TEMPORARIES + 7))
    s.annotate(s.get_loops("s31")[0], "prefetch", ["s30", 4])
    s.storage_align("s40", 0, 0, 16, 8)
    assert {"s30", "s40"} <= set(shared(s.func)) and len(shared(s.func)) <= 6


def test_thousands_of_stages_are_compiled():
    """Allocations one in the other, as many as there are stages, would be nested too deeply."""
    A = te.placeholder((3,), name="A")
    x = A
    for n in range(600):
        x = te.compute((3,), least([x]), name=f"s{n}")
    func = te.create_prim_func([A, x])
    a, b = np.zeros(3, "float32"), np.empty(3, "float32")
    tir.build(func, ONE)(a, b)
    assert (b == 600).all()
