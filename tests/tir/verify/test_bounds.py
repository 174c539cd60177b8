"""Indices and bindings stay inside. Each mistake is made in an otherwise well-formed function."""

from __future__ import annotations

from tests.tir.verify.functions import buffer, func, i, j, k, messages, spatial, vi
from tir import te
from tir.ir import Binary, Block, For, If, Let, Load, Store, Var, const, nest
from tir.verify import verify


def test_bindings_stay_within_their_domains():
    o, p = Var("i_0"), Var("i_1")
    copy = Store(buffer("Y", 7), (vi,), Load(buffer("X", 7), (vi,)))
    block = Block("Y", (spatial(vi, 7, o * 4 + p),), copy)
    params = (buffer("X", 7), buffer("Y", 7))
    split = nest([(o, 2), (p, 4)], block)
    assert messages(func(split, *params)) == [
        "error: `v_i` of block `Y` = `i_0 * 4 + i_1` is 7, outside its domain, where i_0=1, i_1=3"
    ]
    guarded = nest([(o, 2), (p, 4)], block.with_(predicate=o * 4 + p < 7))
    assert messages(func(guarded, *params)) == []
    outside = nest([(o, 2), (p, 4)], If(o * 4 + p < 7, block))
    assert messages(func(outside, *params)) == []
    wrong = nest([(o, 2), (p, 4)], block.with_(predicate=o * 4 + p < 8))
    assert not verify(func(wrong, *params)).ok


def test_bindings_of_large_domains_are_proved_or_refuted_without_trying_all():
    n = 10_000_019
    X, Y = buffer("X", n), buffer("Y", n)
    o, p, q = Var("i_0"), Var("i_1"), Var("i_2")
    block = Block("Y", (spatial(vi, n, o * 60 + p * 4 + q),), Store(Y, (vi,), X[vi]))
    loops = [(o, -(-n // 60)), (p, 15), (q, 4)]
    good = nest(loops, block.with_(predicate=o * 60 + p * 4 + q < n))
    assert messages(func(good, X, Y)) == []
    (message,) = messages(func(nest(loops, block), X, Y))
    assert message.startswith("error: `v_i` of block `Y` = `i_0 * 60 + i_1 * 4 + i_2` is 100000")


def test_nested_predicates_combine():
    """1000 = 84 x 12 - 8 by two splits that do not divide: both predicates are needed."""
    X, Y = buffer("X", 999), buffer("Y", 999)
    o, p, q = Var("i_0"), Var("i_1"), Var("i_2")
    predicate = Binary("and", o * 3 + p < 250, (o * 3 + p) * 4 + q < 999)
    block = Block("Y", (spatial(vi, 999, o * 12 + p * 4 + q),), Store(Y, (vi,), X[vi]), predicate=predicate)
    assert messages(func(nest([(o, 84), (p, 3), (q, 4)], block), X, Y)) == []


def test_lazy_select_guards_its_branches():
    X, Y = te.placeholder((109,), name="X"), None
    for guard, ok in (
        (lambda v: te.if_then_else(te.all(v >= 1, v < 110), X[v - 1], 0.0), True),
        (lambda v: te.if_then_else(te.any(v < 1, v >= 110), 0.0, X[v - 1]), True),
        (lambda v: te.if_then_else(v >= 1, X[v - 1], 0.0), False),
        (lambda v: te.select(te.all(v >= 1, v < 110), X[v - 1], 0.0), False),
    ):
        Y = te.compute((111,), guard, name="Y")
        assert verify(te.create_prim_func([X, Y])).ok is ok


def test_if_guards_both_sides():
    X = buffer("X", 109)
    body = If(i < 109, Store(X, (i,), const(0.0)), Store(X, (i - 109,), const(1.0)))
    assert messages(func(For(i, const(218), body), X)) == []
    assert not verify(func(For(i, const(219), body), X)).ok


def test_data_dependent_indices_are_unproved():
    X, N = te.placeholder((7,), name="X"), te.placeholder((13,), "int32", name="N")
    Y = te.compute((13,), lambda v: X[N[v]], name="Y")
    report = verify(te.create_prim_func([X, N, Y]))
    assert report.ok
    assert [str(f) for f in report] == ["unproved: cannot prove that index `N[v_v]` of dimension 0 of `X` is within 0 .. 6"]
    Y = te.compute((13,), lambda v: X[te.maximum(te.minimum(N[v], 6), 0)], name="Y")
    assert verify(te.create_prim_func([X, N, Y])).ok


def test_symbolic_sizes():
    n = te.var("n")
    X = te.placeholder((n, 13), name="X")
    Y = te.compute((n, 13), lambda v, w: X[v, w] + X[n - 1 - v, w], name="Y")
    assert messages(te.create_prim_func([X, Y, n])) == []
    Y = te.compute((n, 13), lambda v, w: X[v + 1, w], name="Y")
    assert messages(te.create_prim_func([X, Y, n])) == [
        "unproved: cannot prove that index `v_v + 1` of dimension 0 of `X` is within 0 .. n - 1"
    ]


def test_lets_are_seen_through():
    X = buffer("X", 91)
    body = nest([(i, 7), (j, 13)], Let(k, i * 13 + j, Store(X, (k,), const(0.0))))
    assert messages(func(body, X)) == []
    body = nest([(i, 7), (j, 13)], Let(k, i * 13 + j + 1, Store(X, (k,), const(0.0))))
    assert messages(func(body, X)) == ["error: index `k` of dimension 0 of `X` is 91, outside 0 .. 90, where i=6, j=12"]
