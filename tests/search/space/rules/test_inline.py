"""Stages computed again in each of their consumers."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest

from codegen.target import Target
from schedule.open_schedule import OpenSchedule
from search.space.rules import InlineAgain, Verdict
from tests.programs import chained_matmuls
from tests.schedule.harness import same_numbers, without_header
from tir import te, workloads
from tir.ir import PrimFunc
from tir.traverse import blocks

TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4")
SOFTMAX = workloads.make("softmax", (7, 13)).func


def only(func: PrimFunc) -> set[str]:
    s = OpenSchedule(func, TWO, [b.name for b in blocks(func)])
    return {b.name for b in blocks(func) if InlineAgain().applies(s, b.name) is not Verdict.SKIP}


def twice(other: Callable[[te.Expr], te.Expr] = lambda i: i) -> PrimFunc:
    """Y[i] = exp(X[i]) + 3 exp(X[other(i)]), of a stage that one consumer reads."""
    X = te.placeholder((13,), name="X")
    power = te.compute((13,), lambda i: te.exp(X[i]), name="power")
    return te.create_prim_func([X, te.compute((13,), lambda i: power[i] + power[other(i)] * 3.0, name="Y")])


def product_of_powers() -> PrimFunc:
    """exp(A) · B, and exp(A) itself."""
    A, B = te.placeholder((7, 13), name="A"), te.placeholder((13, 5), name="B")
    k = te.reduce_axis((0, 13), name="k")
    power = te.compute((7, 13), lambda i, j: te.exp(A[i, j]), name="power")
    C = te.compute((7, 5), lambda i, j: te.sum(power[i, k] * B[k, j], axis=k), name="C")
    return te.create_prim_func([A, B, C, te.compute((7, 13), lambda i, j: power[i, j] + 1.0, name="Y")])


def test_what_may_be_computed_again():
    assert only(SOFTMAX) == {"power"}  # read by the sum and by the quotient
    assert only(twice()) == {"power"}
    assert only(twice(lambda i: 12 - i)) == set()  # two elements a point
    assert only(product_of_powers()) == set()  # the product reads each element five times
    assert only(chained_matmuls()) == set()


def test_exponentials_of_a_softmax_computed_twice():
    (new,) = InlineAgain().apply(OpenSchedule(SOFTMAX, TWO, []), "power")
    assert new.rules == ["power: inline again"] and [b.name for b in blocks(new.func)] == ["top", "total", "Y"]
    assert without_header(new.script) == dedent(EXPECTED).strip()


@pytest.mark.parametrize("func", [SOFTMAX, twice()])
def test_it_computes_the_same(func):
    (new,) = InlineAgain().apply(OpenSchedule(func, TWO, []), "power")
    same_numbers(func, new.func, llvm=False)  # `exp` and the quotient round otherwise when they are vectors


EXPECTED = """
    @T.prim_func
    def softmax(X: T.Buffer((7, 13), "float32"), Y: T.Buffer((7, 13), "float32")):
        T.func_attr({"tir.noalias": T.bool(True)})
        # with T.block("root"):
        top = T.alloc_buffer((7,))
        total = T.alloc_buffer((7,))
        for i, k in T.grid(7, 13):
            with T.block("top"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    top[v_i] = T.float32("-inf")
                top[v_i] = T.max(top[v_i], X[v_i, v_k])
        for i_2, k_1 in T.grid(7, 13):
            with T.block("total"):
                v_i, v_k = T.axis.remap("SR", [i_2, k_1])
                with T.init():
                    total[v_i] = T.float32(0.0)
                total[v_i] = total[v_i] + T.exp(X[v_i, v_k] - top[v_i])
        for i_3, j_1 in T.grid(7, 13):
            with T.block("Y"):
                v_i, v_j = T.axis.remap("SS", [i_3, j_1])
                Y[v_i, v_j] = T.exp(X[v_i, v_j] - top[v_i]) / total[v_i]
"""
