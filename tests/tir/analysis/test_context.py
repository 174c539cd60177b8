"""Accesses in the order in which they happen, each with what stands around it."""

from __future__ import annotations

from tir.analysis.context import accesses
from tir.ir import If, Load, Store
from tir.script import parse

PROGRAM = """
from tir.script import tir as T

@T.prim_func
def main(A: T.Buffer((7,), "float32"), B: T.Buffer((7,), "float32"), C: T.Buffer((7,), "float32")):
    for i in T.serial(7):
        if i < 5 and C[i] > T.float32(0):
            B[i] = T.if_then_else(i < 3, A[i], T.float32(0))
        else:
            B[i] = T.float32(1)
"""


def test_accesses_come_with_loops_conditions_and_stores() -> None:
    found = list(accesses(parse(PROGRAM).body))
    assert [(type(x), x.buffer.name) for x, _ in found] == [(Load, "C"), (Load, "A"), (Store, "B"), (Store, "B")]
    condition, load, then, orelse = (around for _, around in found)
    assert all([s.name for s in around.loops] == ["i"] for _, around in found)
    assert [len(a.conditions) for a in (condition, load, then, orelse)] == [0, 2, 2, 0]
    assert [str(c) for c in load.selected] == ["i < 3"] and not then.selected
    assert [len(a.otherwise) for a in (condition, load, then, orelse)] == [0, 0, 0, 1]
    assert load.stmt is found[2][0] and isinstance(condition.stmt, If) and then.stmt is not load.stmt
