"""The default schedule of programs that found faults in it: it is found, and computes the same on one thread and on two."""

from __future__ import annotations

import pytest

import tir
from schedule import Schedule, replay
from tests.arrays import integers
from tests.codegen.harness import ONE, TWO, same
from tir import te
from tir.ir import Axis, Block, Buffer, Const, For, Iter, Load, PrimFunc, Store, Var


def contraction(rule: str, **extents: int) -> PrimFunc:
    """An einsum of two operands, as `contraction("ik,kj->ij", i=7, j=13, k=5)`."""
    (left, right), out = (rule.split("->")[0].split(","), rule.split("->")[1])
    A, B = (te.placeholder(tuple(extents[a] for a in axes), name=name) for axes, name in ((left, "A"), (right, "B")))
    sums = {a: te.reduce_axis((0, extents[a]), name=a) for a in dict.fromkeys(left + right) if a not in out}

    def value(*place):
        at = dict(zip(out, place, strict=True)) | sums
        return te.sum(A(*(at[a] for a in left)) * B(*(at[a] for a in right)), axis=list(sums.values()))

    return te.create_prim_func([A, B, te.compute(tuple(extents[a] for a in out), value, name="C")])


def argmax_with_reuse() -> PrimFunc:
    """Position and value of the largest |A[r, j]|, for each of several rows: two results of a block that reads A again."""
    A = te.placeholder((5, 16), name="A")
    r = te.reduce_axis((0, 5), name="r")

    def better(x, y):
        return te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])

    argmax = te.comm_reducer(better, lambda i, v: (te.const(-1, i), te.const(float("-inf"), v)), name="argmax")
    where, most = te.compute((7, 16), lambda i, j: argmax((r.value, te.abs(A[r, j])), axis=r), name="M")
    return te.create_prim_func([A, where, te.compute((7, 16), lambda i, j: most[6 - i, j] + 1.0, name="S")])


def annotated() -> PrimFunc:
    """Annotations that are lists and dicts, which have no hash."""
    s = Schedule(contraction("ik,kj->ij", i=7, j=13, k=5))
    s.annotate("i0", "key", [1, {"value": 2}])
    s.annotate("C", "key", [[1, 2]])
    return s.func


def nothing(extent: int) -> PrimFunc:
    """A loop that does not run, or runs."""
    i, v = Var("i"), Var("v")
    a, b = Buffer("A", (Const(extent),)), Buffer("B", (Const(extent),))
    block = Block("B", (Iter(v, Const(extent), Axis.SPATIAL, i),), Store(b, (v,), Load(a, (v,))))
    return PrimFunc("main", (a, b), For(i, Const(extent), block))


FUNCTIONS = {
    "no iterations": lambda: nothing(0),
    "one iteration": lambda: nothing(1),
    "annotations that have no hash": annotated,
    "an operand of one element": lambda: contraction("k,kij->ij", i=109, j=300, k=1),
    "rows but no columns": lambda: contraction("kac,bkadc->badc", a=7, b=1, c=3, d=64, k=31),
    "two results and reuse": argmax_with_reuse,
}


@pytest.mark.parametrize("target", [ONE, TWO])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_had_none(name, target):
    func = FUNCTIONS[name]()
    s = tir.default_schedule(func, target)
    assert replay(func, s.trace).func == s.func
    same(s.func, integers(func, 0), targets=[target], reference=func, fences=True)
