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
from tir.traverse import blocks, rewrite, substitute


def block(func: PrimFunc) -> Block:
    return blocks(func)[0]


def update(value: str, init: str = "T.float32(0)", place: str = "i", lets: str = "pass") -> Block:
    """The block C of rows of A, that starts at `init` and stores `value`, under lets."""
    return block(
        parse(f"""
@T.prim_func
def main(A: T.Buffer((7, 13), "float32"), C: T.Buffer((7,), "float32"), D: T.Buffer((7,), "float32")):
    for x, y in T.grid(7, 13):
        with T.block("C"):
            i, k = T.axis.remap("SR", [x, y])
            with T.init():
                C[{place}] = {init}
            {lets}
            C[i] = {value}
""")
    )


def pair(combine, start=(0, 0), dtype="int32") -> Block:
    """A block that reduces two values of A, each from its start."""
    both = te.comm_reducer(combine, lambda *dtypes: tuple(map(te.const, start, dtypes)), name="both")
    A, k = te.placeholder((7, 13), dtype, name="A"), te.reduce_axis((0, 13), name="k")
    return block(te.create_prim_func([A, *te.compute((7,), lambda i: both((A[i, k], A[i, k] + 1), axis=k), name="X")]))


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
    assert r.store(r.outputs, [new], ()) == Store(b.body.buffer, b.body.indices, new)
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


def test_old_values_in_lets():
    lets = "c: T.float32 = C[i]\n            d: T.float32 = D[i]"
    more = "c + A[i, k]\n            D[i] = d + A[i, k]"
    r = reducer_of(update(more, "T.float32(0)\n                D[i] = T.float32(0)", lets=lets), reordered=True)
    assert [str(s) for s in r.sources] == ["A[i, k]"] * 2


@pytest.mark.parametrize(("key", "start"), [
    (lambda v: v, -(2**31)), (lambda v: -v, 2**31 - 1), (lambda v: v.astype("int64"), -(2**31)),
])  # fmt: skip
def test_order_by_a_key(key, start):
    def largest(x, y):
        keep = key(x[0]) >= key(y[0])
        return te.select(keep, x[0], y[0]), te.select(keep, x[1], y[1])

    assert len(reducer_of(pair(largest, (start, 0)), reordered=False).combined) == 2


LARGEST_FIRST = """T.max(C[i], A[i, k])
            D[i] = T.Select(C[i] >= A[i, k], D[i], T.Cast("float32", k))"""


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
    (update("T.max(C[i], A[i, k])", "T.Cast('float32', i)"), "is not recognised"),
    (update("C[i] + A[i, k]", "T.float32(0)\n                D[i] = T.float32(0)"), "is not recognised"),
    (update(LARGEST_FIRST, "T.float32(-1e30)\n                D[i] = T.float32(0)"), "is not recognised"),
    (pair(lambda x, y: (x[0] + y[0], te.exp(x[1]) + te.exp(y[1])), dtype="float32"), "is not recognised"),
    (pair(lambda x, y: (x[0] + y[0], te.select(te.exp(x[1]) > 1.0, x[1], y[1])), dtype="float32"),
     "in a reduction of several values is not understood"),
    (pair(lambda x, y: (x[0] + y[0], (x[1] + y[1]) * 2)), "is not neutral in what it starts from"),
    (block(reduction(te.comm_reducer(lambda x, y: x - y, lambda dtype: te.const(0, dtype), name="odd"))), "is not recognised"),
])  # fmt: skip
def test_what_is_refused(func, reason):
    with pytest.raises(ScheduleError, match=re.escape(reason)):
        reducer_of(func, reordered=False)


def test_values_at_other_places():
    b = update("C[i] + A[i, k]")
    assert b.init is not None
    along = {"i": b.iters[1].var}
    with pytest.raises(ScheduleError) as caught:
        reducer_of(b.with_(body=substitute(b.body, along), init=substitute(b.init, along)), reordered=False)
    assert caught.value.reason == "`C` reduces over `k`, but each of its values writes another element of `C`"
    assert caught.value.hint == "make `k` a spatial axis"


@pytest.mark.parametrize(("combine", "start", "dtype"), [
    (lambda x, y: te.minimum(x + y, 1000), 0, "int32"),  # a sum that stays at a bound
    (lambda x, y: te.select(x + y > 77_777, y, x + y), 0, "int32"),  # one that forgets what came before
    (lambda x, y: te.select(te.all(x > 5, y > 5), x + y - 1, x + y), 0, "int32"),
    (lambda x, y: te.select(te.equal(x, 1 << 20), y, x + y), 0, "int32"),
    (lambda x, y: te.select(te.equal(x, 255), y, te.maximum(x, y)), 0, "uint8"),  # found at an end of the dtype alone
    (lambda x, y: te.select(te.equal(x, -128), y, te.minimum(x, y)), 127, "int8"),
])  # fmt: skip
def test_what_small_numbers_do_not_disprove(combine, start, dtype):
    with pytest.raises(ScheduleError, match=r"the reduction of `X` is not (associative|neutral)(.|\n)*witness: f\("):
        reducer_of(pair(lambda x, y: (combine(x[0], y[0]), x[1] + y[1]), (start, 0), dtype), reordered=False)


def test_what_depends_on_more_than_values():
    b = pair(lambda x, y: (te.select(x[1] > 77, x[0], y[0]), x[1] + y[1]))
    body = rewrite(b.body, lambda n: b.iters[1].var if n == Const(77) else None)
    with pytest.raises(ScheduleError, match="is not recognised"):
        reducer_of(b.with_(body=body), reordered=False)


def test_witnesses():
    odd = pair(lambda x, y: (x[0] + y[0], (x[1] + y[1]) + (x[1] * y[1]) * (x[0] * y[0])), dtype="float32")
    halves = pair(lambda x, y: (x[0] + y[0], (x[1] + y[1]) * 0.5), dtype="float32")
    hint = "choose the outermost loop of the reduction, or let indices decide between equal values"
    for b, what, witness, more in (
        (odd, "associative", "f(f((-1.0, -1.0), (-1.0, -1.0)), (-1.0, 0.0)) = (-3.0, -1.0), "
         "but f((-1.0, -1.0), f((-1.0, -1.0), (-1.0, 0.0))) = (-3.0, 0.0)", None),
        (block(argmax()), "commutative, as a change of order needs", "f((0, -1.0), (1, -1.0)) = (0, -1.0), "
         "but f((1, -1.0), (0, -1.0)) = (1, -1.0)", hint),
        (halves, "neutral in what it starts from", "f((0.0, 0.0), (-1.0, -1.0)) = (-1.0, -0.5), "
         "but its second argument = (-1.0, -1.0)", None),
    ):  # fmt: skip
        with pytest.raises(ScheduleError) as caught:
            reducer_of(b, reordered=True)
        assert (caught.value.reason, caught.value.witness) == (f"the reduction of `{b.name}` is not {what}", witness)
        assert caught.value.hint == more


def test_what_accumulates_nothing():
    assert accumulation(block(elementwise())) is None
    assert accumulation(update("C[i] + C[i]")) is accumulation(update("C[i] - A[i, k]")) is None
    assert accumulation(update("C[i] + A[i, k]", place="6 - i")) is None
    assert accumulation(block(matmul())) is not None
