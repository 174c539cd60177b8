"""Operands of halves are converted once: by the block that makes them for one reader, or else by a copy."""

from __future__ import annotations

import pytest

from schedule.open_schedule import OpenSchedule
from schedule.templates import conversion
from tests.schedule.templates.patterns import TARGETS
from tir import te
from tir.traverse import blocks, loads


def made(readers: int, kind: str = "float16"):
    """Sums of rows of 2 A, where A has another type, and in a second result with two readers."""
    A, k = te.placeholder((7, 13), kind, name="A"), te.reduce_axis((0, 13), name="k")
    B = te.compute((7, 13), lambda i, j: A[i, j] * te.const(2, kind), name="B")
    C = te.compute((7,), lambda i: te.sum(B[i, k].astype("float32"), axis=k), name="C")
    others = [te.compute((7, 13), lambda i, j: B[i, j] + te.const(1, kind), name="D")] if readers > 1 else []
    return te.create_prim_func([A, C, *others])


@pytest.mark.parametrize(("readers", "buffer", "kind", "names"), [
    (1, "B", "float16", ["B", "C"]), (2, "B", "float16", ["B", "B_global", "C", "D"]), (1, "B", "float32", ["B", "C"]),
])  # fmt: skip
def test_operands_are_converted_where_they_are_made(readers, buffer, kind, names):
    func = made(readers, kind)
    s = OpenSchedule(func, TARGETS["znver2"], at_seed=True)
    (x,) = (x for x in loads(s.block("C").body) if x.buffer.name == buffer)
    conversion.read_converted(s, "C", x)
    assert [b.name for b in blocks(s.func)] == names
    read = {x.buffer.name: x.buffer.dtype for x in loads(s.block("C").body)}
    assert read.pop("C") == "float32" and [*read.values()] == ["float32"]


def test_a_parameter_is_copied():
    A, k = te.placeholder((7, 13), "float16", name="A"), te.reduce_axis((0, 13), name="k")
    func = te.create_prim_func([A, te.compute((7,), lambda i: te.sum(A[i, k].astype("float32"), axis=k), name="C")])
    s = OpenSchedule(func, TARGETS["znver2"], at_seed=True)
    conversion.read_converted(s, "C", loads(s.block("C").body)[-1])
    assert [b.name for b in blocks(s.func)] == ["A_global", "C"] and s.get_loops("A_global") != s.get_loops("C")
