"""What a block reduces is recognised from its body and init; `test_rfactor` has reducers of several values."""

from __future__ import annotations

import re

import pytest

from schedule import ScheduleError
from schedule.legality.reducer import Accumulation, accumulation, reducer_of
from tests.programs import argmax, elementwise, matmul, reduction
from tir import te
from tir.ir import Binary, Block, Const, Load, PrimFunc, Store
from tir.script import parse
from tir.traverse import blocks


def block(func: PrimFunc) -> Block:
    return blocks(func)[0]


def update(value: str, init: str = "T.float32(0)", place: str = "i") -> Block:
    """The block C of rows of A, that starts at `init` and stores `value`."""
    return block(
        parse(f"""
@T.prim_func
def main(A: T.Buffer((7, 13), "float32"), C: T.Buffer((7,), "float32")):
    for x, y in T.grid(7, 13):
        with T.block("C"):
            i, k = T.axis.remap("SR", [x, y])
            with T.init():
                C[{place}] = {init}
            C[i] = {value}
""")
    )


@pytest.mark.parametrize(("reducer", "dtype", "op", "start"), [
    (te.sum, "float32", "+", 0.0),
    (te.sum, "int8", "+", 0),
    (te.prod, "float32", "*", 1.0),
    (te.max, "int32", "max", -(2**31)),
    (te.min, "uint8", "min", 255),
])  # fmt: skip
def test_known_operations(reducer, dtype, op, start):
    b = block(reduction(reducer, dtype))
    r = reducer_of(b, reordered=True)
    assert isinstance(b.body, Store)
    assert r.outputs == (Load(b.body.buffer, b.body.indices),) and r.condition is None
    assert r.combined == (Binary(op, *r.old, *r.new),) and r.identities == (Const(start, dtype),)
    (new,) = r.combine((Const(3, dtype),), (Const(5, dtype),))
    assert new == Binary(op, Const(3, dtype), Const(5, dtype))
    found = accumulation(b)
    assert found == Accumulation(op, b.body, r.sources[0], Const(start, dtype))


def test_either_operand_may_be_the_old_value():
    for value in ("C[i] + A[i, k]", "A[i, k] + C[i]"):
        found = accumulation(update(value))
        assert found is not None and str(found.added) == "A[i, k]"
        assert [str(s) for s in reducer_of(update(value), False).sources] == ["A[i, k]"]


def test_a_condition_around_the_update():
    r = reducer_of(update("T.Select(A[i, k] > T.float32(0), C[i] + A[i, k], C[i])"), True)
    assert str(r.condition) == "A[i, k] > T.float32(0.0)" and str(r.combined[0].op) == "+"  # type: ignore[attr-defined]


def test_a_maximum_may_start_anywhere():
    assert reducer_of(update("T.max(C[i], A[i, k])"), True).identities == (Const(0.0, "float32"),)


def test_several_values():
    r = reducer_of(block(argmax()), reordered=False)
    assert len(r.outputs) == len(r.sources) == len(r.combined) == 2
    assert {v.dtype for v in r.old} == {"int32", "float32"}


@pytest.mark.parametrize(("func", "reason"), [
    (update("C[i] - A[i, k]"), "is not recognised"),
    (update("C[i] + C[i]"), "is not recognised"),
    (update("C[i] + A[i, k] * C[i]"), "is not recognised"),
    (update("A[i, k]"), "is not recognised"),
    (update("C[i] + A[i, k]", place="6 - i"), "is not recognised"),
    (update("C[i] + A[i, k]\n            if k < 5:\n                C[i] = A[i, k]"), "is not recognised"),
    (update("C[i] + A[i, k]", "A[i, k]"), "is not recognised"),
    (update("C[i] + A[i, k]", "T.float32(1)"), "starts at 1.0, which is not neutral for `+`"),
    (update("C[i] * A[i, k]"), "starts at 0.0, which is not neutral for `*`"),
])  # fmt: skip
def test_what_is_refused(func, reason):
    with pytest.raises(ScheduleError, match=re.escape(reason)):
        reducer_of(func, reordered=False)


def test_what_accumulates_nothing():
    assert accumulation(block(elementwise())) is None
    assert accumulation(update("C[i] + C[i]")) is accumulation(update("C[i] - A[i, k]")) is None
    assert accumulation(update("C[i] + A[i, k]", place="6 - i")) is None
    assert accumulation(block(matmul())) is not None
