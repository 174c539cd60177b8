"""Names are unique."""

from __future__ import annotations

from tests.tir.verify.functions import ITERS, A, B, C, T, func, grid, i, j, messages, spatial, vi, vj
from tir.ir import Block, Evaluate, For, Store, Var, const, seq
from tir.traverse import rewrite


def test_names():
    one = Store(C, (const(0), i), const(0.0))
    block = Block("C", ITERS, Store(C, (vi, vj), A[vi, vj]))
    renamed = rewrite(grid(block), lambda n: {"i": Var("p"), "j": Var("q")}.get(n.name) if type(n) is Var else None)
    cases = (
        (seq(For(i, const(7), one), For(i, const(7), one)), "error: two loops are called `i`"),
        (seq(grid(block), renamed), "error: two blocks are called `C`"),
        (grid(block.with_(name="i")), "error: a loop and a block are both called `i`"),
        (For(Var("A"), const(7), Evaluate(Var("A"))), "error: a buffer and a loop are both called `A`"),
        (
            grid(Block("C", (ITERS[0], spatial(vi, 13, j)), Evaluate(vi))),
            "error: block `C` has two iteration variables called `v_i`",
        ),
        (grid(Block("C", (spatial(j, 7, i),), Evaluate(j))), "error: a loop and an iteration variable are both called `j`"),
        (grid(Block("C", (), Evaluate(const(0)), allocs=(A,))), "error: two buffers are called `A`"),
        (For(Var("lambda"), const(7), Evaluate(const(0))), "error: the loop `lambda` is not named by an identifier"),
        (For(Var("not a name"), const(7), Evaluate(const(0))), "error: the loop `not a name` is not named by an identifier"),
    )
    for body, message in cases:
        assert message in messages(func(body)), message
    assert "error: two buffers are called `C`" in messages(func(grid(block), A, B, C, allocs=(C,)))


def test_iteration_variables_may_repeat_between_blocks():
    first = Block("first", ITERS, Store(T, (vi, vj), A[vi, vj]))
    p, q = Var("p"), Var("q")
    second = Block("second", (spatial(vi, 7, p), spatial(vj, 13, q)), Store(C, (vi, vj), T[vi, vj]))
    body = seq(grid(first), For(p, const(7), For(q, const(13), second)))
    assert messages(func(body, A, C, allocs=(T,))) == []
