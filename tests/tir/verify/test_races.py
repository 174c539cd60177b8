"""Loops that run in any order carry no dependence."""

from __future__ import annotations

import pytest

from schedule import Schedule
from tests.programs import matmul
from tests.tir.verify.functions import ITERS, A, C, T, buffer, func, i, j, k, messages, reduce, spatial, vi, vj, vk
from tir import te
from tir.ir import Allocate, Block, For, If, Kind, PrimFunc, Store, Var, const, nest, seq
from tir.traverse import rewrite


def with_kind(f: PrimFunc, kind: Kind, *names: str) -> PrimFunc:
    thread = "threadIdx.x" if kind is Kind.THREAD else ""
    return rewrite(f, lambda n: n.with_(kind=kind, thread=thread) if isinstance(n, For) and n.name in names else None)


@pytest.mark.parametrize("kind", [Kind.PARALLEL, Kind.VECTORIZED, Kind.THREAD])
def test_loops_in_any_order(kind):
    f = matmul()
    how = {Kind.PARALLEL: "parallel", Kind.VECTORIZED: "vectorized", Kind.THREAD: "bound to threadIdx.x"}[kind]
    assert messages(with_kind(f, kind, "i", "j")) == []
    reduces = [f"error: loop `k` is {how}, but block `C` reduces over it (`v_k`)"]
    assert messages(with_kind(f, kind, "k")) == ([] if kind is Kind.THREAD else reduces)  # threads of a GPU reduce together
    assert messages(with_kind(matmul(7, 1, 13), kind, "k")) == []
    assert messages(with_kind(f, Kind.UNROLLED, "k")) == []


def test_fused_and_split_parallel_loops():
    f, o, p = matmul(7, 109, 13), Var("f_0"), Var("f_1")
    fused = o * 6 + p
    block = f.body.body.body.body
    iters = (spatial(vi, 7, fused // 13), spatial(vj, 13, fused % 13), block.iters[2])
    inner = For(k, const(109), block.with_(iters=iters, predicate=fused < 91))
    for kind in (Kind.PARALLEL, Kind.VECTORIZED):
        body = For(o, const(16), For(p, const(6), inner))
        assert messages(with_kind(func(body, *f.params), kind, "f_0", "f_1")) == []
    # The fusion of a spatial and a reduce axis is no parallel loop.
    iters = (spatial(vi, 7, i), spatial(vj, 13, fused // 109), reduce(vk, 109, fused % 109))
    body = For(i, const(7), For(o, const(237), For(p, const(6), block.with_(iters=iters, predicate=fused < 1417))))
    assert messages(func(body, *f.params)) == []
    assert [m.split(",")[0] for m in messages(with_kind(func(body, *f.params), Kind.PARALLEL, "f_0"))] == [
        "error: loop `f_0` is parallel"
    ]


def test_races_without_blocks():
    X, Y = buffer("X", 91), buffer("Y", 7)
    flat = nest([(i, 7), (j, 13)], Store(X, (i * 13 + j,), const(0.0)))
    assert messages(with_kind(func(flat, X), Kind.PARALLEL, "i", "j")) == []
    shared = nest([(i, 7), (j, 13)], Store(Y, (i,), const(0.0)))
    assert messages(with_kind(func(shared, Y), Kind.PARALLEL, "i")) == []
    assert messages(with_kind(func(shared, Y), Kind.PARALLEL, "j")) == [
        "error: loop `j` is parallel, but j=0 writes Y[0], and j=1 writes it too"
    ]
    carried = For(i, const(90), Store(X, (i + 1,), X[i]))
    assert messages(with_kind(func(carried, X), Kind.VECTORIZED, "i")) == [
        "error: loop `i` is vectorized, but i=0 writes X[1], and i=1 reads it too"
    ]
    far = For(i, const(45), Store(X, (i + 45,), X[i]))
    assert messages(with_kind(func(far, X), Kind.VECTORIZED, "i")) == []


def test_race_between_two_blocks_of_one_parallel_loop():
    """The second block reads the row that the next iteration writes."""
    first = For(j, const(13), Block("T", ITERS, Store(T, (vi, vj), A[vi, vj])))
    for shift, ok in ((0, True), (1, False)):
        binding = (i + shift) % 7
        second = For(
            k,
            const(13),
            Block("C", (spatial(vi, 7, i), spatial(vk, 7, binding), spatial(vj, 13, k)), Store(C, (vi, vj), T[vk, vj])),
        )
        f = func(For(i, const(7), seq(first, second), Kind.PARALLEL), A, C, T)
        found = [m for m in messages(f) if "parallel" in m]
        assert (found == []) is ok
        if not ok:
            assert found == ["error: loop `i` is parallel, but i=1 writes T[1, 0], and i=0 reads it too"]


def test_each_iteration_may_compute_what_it_needs():
    """A producer placed in a parallel loop overlaps with that of the next iteration: its temporary is as if private."""
    X, S, Y = buffer("X", 9), buffer("S", 9), buffer("Y", 7)
    first = For(j, const(3), Block("S", (spatial(vi, 9, i + j),), Store(S, (vi,), X[vi] * 2.0)))
    second = Block("Y", (spatial(vi, 7, i),), Store(Y, (vi,), S[vi] + S[vi + 2]))
    body = For(i, const(7), seq(first, second), Kind.PARALLEL)
    assert messages(func(body, X, Y, allocs=(S,))) == []
    race = "error: loop `i` is parallel, but i=0 writes S[1], and i=1 writes it too"
    assert messages(func(body, X, Y, S)) == [race]
    after = For(k, const(7), Store(Y, (k,), S[k]))
    assert messages(func(seq(body, after), X, Y, allocs=(S,))) == [race]


def test_an_iteration_that_lives_on_what_another_computed():
    """Each iteration reads one element more than it writes, though the temporary is written whole in the end."""
    X, S, Y = buffer("X", 9), buffer("S", 9), buffer("Y", 7)
    first = For(j, const(3), Block("S", (spatial(vi, 9, i + j),), Store(S, (vi,), X[vi] * 2.0)))
    second = Block("Y", (spatial(vi, 7, i),), Store(Y, (vi,), S[vi] + S[te.minimum(vi + 3, 8)]))
    body = For(i, const(7), seq(first, second), Kind.PARALLEL)
    assert messages(func(body, X, Y, allocs=(S,))) == [
        "unproved: loop `i` is parallel; cannot prove that each iteration writes what it reads of `S`"
    ]


def test_a_temporary_of_a_block_is_private_as_one_of_the_function_is():
    s = Schedule(matmul())
    s.parallel("i")
    s.blockize("i")
    s.read_at("i", "C", "B", "global")
    assert messages(s.func) == []


def test_an_iteration_that_writes_a_temporary_only_sometimes_or_too_late():
    X, S, Y = buffer("X", 7), buffer("S", 1), buffer("Y", 7)
    write, read = Store(S, (const(0),), X[i]), Store(Y, (i,), S[0])
    sometimes, first = If((i % 2).equal(0), write), If(i.equal(0), write)
    for body in (seq(sometimes, read), seq(first, read, write)):
        assert messages(func(For(i, const(7), body), X, Y, allocs=(S,))) == []
        assert messages(func(For(i, const(7), body, Kind.PARALLEL), X, Y, allocs=(S,))) == [
            "unproved: loop `i` is parallel; cannot prove that each iteration writes what it reads of `S`"
        ]


def test_threads_share_shared_memory():
    for scope, ok in (("global", False), ("shared", True)):
        S, Y, X = buffer("S", 7, scope=scope), buffer("Y", 7), buffer("X", 7)
        body = For(i, const(7), seq(Store(S, (i,), X[i]), Store(Y, (i,), S[const(6) - i])), Kind.THREAD, thread="threadIdx.x")
        found = [m for m in messages(func(Allocate(S, body), X, Y)) if "bound to threadIdx.x" in m]
        assert (found == []) is ok
