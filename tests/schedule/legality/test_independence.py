"""Loops whose iterations are independent are so for threads, lanes and GPU threads alike."""

from __future__ import annotations

import pytest

from schedule import Schedule, ScheduleError
from tests.schedule.harness import same_numbers, well_formed
from tir.script import parse


def element(rows: str, columns: str, where: str = "") -> Schedule:
    """C = A + 1 at places of three loops."""
    return Schedule(
        parse(f"""
@T.prim_func
def main(A: T.Buffer((7, 12), "float32"), C: T.Buffer((7, 12), "float32")):
    for a, b, c in T.grid(7, 2, 6):
        with T.block("C"):
            {where}
            vi = T.axis.spatial(7, {rows})
            vj = T.axis.spatial(12, {columns})
            C[vi, vj] = A[vi, vj] + 1.0
""")
    )


MARKS = ("parallel", "vectorize", "bind")
PLACES = {
    "plain": ("a", "b * 6 + c", "abc"),
    "fused and split": ("(a * 12 + b * 6 + c) // 12", "(a * 12 + c * 2 + b) % 12", "abc"),
    "scattered": ("a", "(b * 6 + c * 7) % 12", "abc"),
    "clashing": ("a", "(b * 7 + c * 5) % 12", "ac"),  # b, c = 1, 0 and b, c = 0, 5 are both 7
}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("loop", "abc")
def test_all_marks_have_one_rule(places, loop):
    rows, columns, independent = PLACES[places]
    for mark in MARKS:
        s = element(rows, columns)
        before = s.func
        args = (loop, "threadIdx.x") if mark == "bind" else (loop,)
        if loop in independent:
            getattr(s, mark)(*args)
            well_formed(s.func)
            same_numbers(before, s.func, seeds=(0,), llvm=False)
        else:
            with pytest.raises(ScheduleError, match="cannot prove that different iterations of `b` touch different elements"):
                getattr(s, mark)(*args)
