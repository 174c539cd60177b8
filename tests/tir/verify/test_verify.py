"""What `verify` accepts, refuses and leaves open. Each mistake is made in an otherwise well-formed function."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests.programs import matmul
from tir import te
from tir.interpreter import InterpreterError, run
from tir.ir import (
    FALSE,
    TRUE,
    Allocate,
    Axis,
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Evaluate,
    For,
    If,
    Iter,
    Kind,
    Let,
    Load,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Unary,
    Var,
    cast,
    const,
    nest,
    seq,
)
from tir.script import parse
from tir.traverse import rewrite
from tir.verify import VerifyError, check, verify

i, j, k = Var("i"), Var("j"), Var("k")
vi, vj, vk = Var("v_i"), Var("v_j"), Var("v_k")


def buffer(name: str, *shape: int, dtype: str = "float32", scope: str = "global") -> Buffer:
    return Buffer(name, tuple(const(d) for d in shape), dtype, scope)


A, B, C = buffer("A", 7, 13), buffer("B", 13), buffer("C", 7, 13)
T = buffer("T", 7, 13)


def spatial(var: Var, extent: int, binding) -> Iter:
    return Iter(var, const(extent), Axis.SPATIAL, binding)


def reduce(var: Var, extent: int, binding) -> Iter:
    return Iter(var, const(extent), Axis.REDUCE, binding)


def func(body: Stmt, *params, allocs: tuple[Buffer, ...] = ()) -> PrimFunc:
    return PrimFunc("main", params or (A, B, C), body, allocs)


def grid(block: Stmt) -> Stmt:
    return For(i, const(7), For(j, const(13), block))


ITERS = (spatial(vi, 7, i), spatial(vj, 13, j))


def messages(f: PrimFunc) -> list[str]:
    return [str(x) for x in verify(f)]


def with_kind(f: PrimFunc, kind: Kind, *names: str) -> PrimFunc:
    thread = "threadIdx.x" if kind is Kind.THREAD else ""
    return rewrite(f, lambda n: n.with_(kind=kind, thread=thread) if isinstance(n, For) and n.name in names else None)


def with_block(f: PrimFunc, **changes) -> PrimFunc:
    return rewrite(f, lambda n: n.with_(**changes) if isinstance(n, Block) else None)


# --- reports -----------------------------------------------------------------------------------------------------------


def test_something_else_than_a_function():
    with pytest.raises(TypeError, match=r"^verify takes a PrimFunc, got Tensor \(te.create_prim_func makes one of tensors\)$"):
        verify(te.placeholder((7,)))


def test_report_marks_the_statement_with_the_line_of_the_script():
    bad = func(grid(Block("C", ITERS, Store(C, (vi, vj + 1), A[vi, vj]))))
    report = verify(bad)
    assert not report.ok
    assert bad.script().splitlines()[10 - 1].strip() == "C[v_i, v_j + 1] = A[v_i, v_j]"
    assert str(report) == "\n".join(
        (
            "main: 1 error(s), 0 unproved",
            "error: index `v_j + 1` of dimension 1 of `C` is 13, outside 0 .. 12, where j=12",
            "   10 |             C[v_i, v_j + 1] = A[v_i, v_j]",
            "      |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        )
    )
    with pytest.raises(VerifyError) as caught:
        check(bad)
    assert str(caught.value) == str(report)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(report)


def test_well_formed():
    good = matmul()
    report = verify(good)
    assert report.ok
    assert list(report) == []
    assert str(report) == "main: well formed"
    check(good)


@pytest.mark.parametrize("shape", [(7, 13, 109), (1, 1, 1), (1, 13, 1), (1024, 1024, 1024)])
def test_matmul_of_any_shape(shape):
    assert messages(matmul(*shape)) == []


# --- names -------------------------------------------------------------------------------------------------------------


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


def test_defined_before_use():
    inside = Store(C, (vi, j), A[vi, vj])
    cases = (
        (Store(C, (i, const(0)), const(0.0)), "error: `i` is not bound here"),
        (grid(Block("C", ITERS, inside)), "error: `j` is not visible inside block `C`; bind an iteration variable to it"),
        (
            seq(grid(Block("C", ITERS, Store(C, (vi, vj), A[vi, vj]))), Store(C, (const(0), vj), const(0.0))),
            "error: `v_j` is not bound here",
        ),
        (For(i, const(7), For(j, k, Evaluate(j))), "error: `k` is not bound here"),
        (Store(T, (const(0), const(0)), const(0.0)), "error: the buffer `T` is neither a parameter nor allocated around its use"),
        (
            seq(Allocate(T, Evaluate(const(0))), Store(T, (const(0), const(0)), const(0.0))),
            "error: the buffer `T` is neither a parameter nor allocated around its use",
        ),
        (For(i, const(7), Let(i, const(0), Evaluate(i))), "error: `i` is bound again where it is already visible"),
        (Evaluate(Var("A")), "error: `A` is not bound here"),
        (
            Evaluate(buffer("A", 7, 14)[const(0), const(0)]),
            "error: `A` is used as (7, 14) float32 in global, but declared as (7, 13) float32 in global",
        ),
    )
    for body, message in cases:
        assert message in messages(func(body)), message


# --- ranks and dtypes --------------------------------------------------------------------------------------------------


def test_ranks_and_dtypes():
    zero = const(0)
    load = Load(B, (zero,))
    n = buffer("N", 7, dtype="int32")
    cases = (
        (Store(C, (zero,), const(0.0)), "error: `C` has 2 dimension(s), but is indexed with 1"),
        (Store(B, (const(0.0),), const(0.0)), "error: an index of `B` must be an integer, got `T.float32(0.0)` of dtype float32"),
        (Store(B, (zero,), const(0)), "error: a value of dtype int32 is stored into `B`, which holds float32"),
        (Evaluate(Binary("+", load, zero)), "error: operands of dtypes float32 and int32, in `B[0] + 0`"),
        (Evaluate(Binary("/", zero, zero)), "error: `/` does not take int32, in `T.int32(0) / 0`"),
        (Evaluate(Binary("//", load, load)), "error: `//` does not take float32, in `B[0] // B[0]`"),
        (Evaluate(Binary("+", TRUE, FALSE)), "error: `+` does not take bool, in `T.bool(True) + T.bool(False)`"),
        (Evaluate(Binary("and", load, TRUE)), "error: operands of dtypes float32 and bool, in `B[0] and T.bool(True)`"),
        (Evaluate(Unary("not", load)), "error: `not` does not take float32, in `not B[0]`"),
        (Evaluate(Unary("neg", TRUE)), "error: `neg` does not take bool, in `T.neg(T.bool(True))`"),
        (If(load, Evaluate(zero)), "error: a condition must be bool, got `B[0]` of dtype float32"),
        (Evaluate(Select(zero, load, load)), "error: a condition must be bool, got `0` of dtype int32"),
        (Evaluate(Select(TRUE, load, zero)), "error: operands of dtypes float32 and int32, in `T.Select(T.bool(True), B[0], 0)`"),
        (Evaluate(Call("exp", (zero,), "int32")), "error: `exp` takes floating values, got int32, in `T.exp(0)`"),
        (Evaluate(Call("pow", (load,), "float32")), "error: `pow` takes 2 argument(s), got 1, in `T.pow(B[0])`"),
        (
            Evaluate(Call("exp", (load,), "float64")),
            "error: `exp` of dtype float64 has an argument of dtype float32, in `T.exp(B[0])`",
        ),
        (Evaluate(Cast("float31", zero)), "error: unknown dtype 'float31'"),
        (Evaluate(Const(300, "int8")), "error: 300 is not a literal of dtype int8"),
        (Evaluate(Const(1, "float32")), "error: 1 is not a literal of dtype float32"),
        (For(i, load, Evaluate(i)), "error: the extent of loop `i` must be an integer, got `B[0]` of dtype float32"),
        (For(i, zero, Evaluate(i)), "error: loop `i` has extent 0; extents must be at least 1"),
        (For(i, const(7), Evaluate(Var("i", "int64"))), "error: `i` is used as int64, but bound as int32"),
        (For(i, const(7), Evaluate(zero), Kind.THREAD), "error: loop `i` is thread_binding, and its thread axis is ''"),
        (
            For(i, const(7), Evaluate(zero), Kind.THREAD, (), "threadIdx.w"),
            "error: loop `i` is bound to 'threadIdx.w'; thread axes are blockIdx.x, blockIdx.y, blockIdx.z, "
            "threadIdx.x, threadIdx.y, threadIdx.z, vthread.x, vthread.y, vthread.z, vthread",
        ),
        (Let(k, load, Evaluate(zero)), "error: `k` of dtype int32 is bound to a value of dtype float32"),
        (Allocate(Buffer("Z", (zero,)), Evaluate(zero)), "error: buffer `Z` has a dimension of 0; extents must be at least 1"),
        (
            Allocate(Buffer("Z", (const(7),), scope="locl"), Evaluate(zero)),
            "error: buffer `Z`: no storage scope is named 'locl'; did you mean local? there are: global, shared, shared.dyn, "
            "warp, local, register, wmma.matrix_a, wmma.matrix_b, wmma.accumulator",
        ),
        (
            For(i, const(7), Block("b", (spatial(vi, 7, cast(i, "float32")),), Evaluate(vi))),
            'error: the binding of `v_i` must be an integer, got `T.Cast("float32", i)` of dtype float32',
        ),
        (
            For(i, const(7), Block("b", ITERS[:1], Evaluate(vi), predicate=i)),
            "error: a predicate must be bool, got `i` of dtype int32",
        ),
    )
    for body, message in cases:
        assert message in messages(func(body, A, B, C, n)), message


def test_init_needs_a_reduction():
    store = Store(C, (vi, vj), const(0.0))
    bad = func(grid(Block("C", ITERS, store, init=store)))
    assert messages(bad) == ["error: block `C` has an init, but no reduce axis"]
    iters = (*ITERS, reduce(vk, 5, k))
    update = Store(C, (vi, vj), C[vi, vj] + A[vi, vj])
    bad = func(grid(For(k, const(5), Block("C", iters, update, init=Store(C, (vi, vj), cast(vk, "float32"))))))
    assert messages(bad) == ["error: the init of block `C` depends on the reduce axis `v_k`"]


# --- bounds ------------------------------------------------------------------------------------------------------------


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


# --- axes --------------------------------------------------------------------------------------------------------------


def test_a_reduction_called_spatial():
    f = rewrite(
        matmul(),
        lambda n: n.with_(axis=Axis.SPATIAL) if isinstance(n, Iter) else n.with_(init=None) if isinstance(n, Block) else None,
    )
    (message,) = messages(f)
    assert message == (
        "error: the spatial axes of block `C` are not: v_i=0, v_j=0, v_k=0 writes C[0, 0], and v_i=0, v_j=0, v_k=1 writes it too"
    )


@pytest.mark.parametrize("n", [13, 10**6])
def test_an_iteration_that_reads_what_another_writes(n):
    X = buffer("X", n)
    block = Block("X", (spatial(vi, n - 1, i),), Store(X, (vi + 1,), X[vi] + 1.0))
    (message,) = messages(func(For(i, const(n - 1), block), X))
    assert message == "error: the spatial axes of block `X` are not: v_i=0 writes X[1], and v_i=1 reads it too"


def test_writes_that_do_not_collide():
    X = buffer("X", 91)
    iters = (spatial(vi, 7, i), spatial(vj, 13, j))
    for index in (vi * 13 + vj, vi + vj * 7, const(90) - vi * 13 - vj, (vi * 13 + vj + 5) % 91):
        block = Block("X", iters, Store(X, (index,), const(1.0)))
        assert messages(func(nest([(i, 7), (j, 13)], block), X)) == [], index
    for index in (vi * 12 + vj, vi + vj, (vi * 13 + vj) // 2, vi * 13):
        block = Block("X", iters, Store(X, (index,), const(1.0)))
        (message,) = messages(func(nest([(i, 7), (j, 13)], block), X))
        assert message.startswith("error: the spatial axes of block `X` are not"), index


def test_a_block_with_a_loop_inside():
    """Each iteration owns a row, or a tile, which it writes and reads at will."""
    X, Y = buffer("X", 7, 13), buffer("Y", 91)
    row = seq(
        For(j, const(13), Store(X, (vi, j), const(1.0))),
        For(k, const(13), Store(X, (vi, k), X[vi, const(12) - k] * 2.0)),
    )
    assert messages(func(For(i, const(7), Block("X", (spatial(vi, 7, i),), row)), X)) == []
    tile = seq(
        For(j, const(13), Store(Y, (vi * 13 + j,), const(1.0))),
        For(k, const(13), Store(Y, (vi * 13 + k,), Y[vi * 13 + (const(12) - k)])),
    )
    assert messages(func(For(i, const(7), Block("Y", (spatial(vi, 7, i),), tile)), Y)) == []
    spill = For(j, const(14), If(vi * 13 + j < 91, Store(Y, (vi * 13 + j,), const(1.0))))
    assert messages(func(For(i, const(7), Block("Y", (spatial(vi, 7, i),), spill)), Y)) == [
        "error: the spatial axes of block `Y` are not: v_i=0 writes Y[13], and v_i=1 writes it too"
    ]


def test_reading_what_nobody_writes_is_no_dependence():
    """The first seven elements are written, the others are read, some of them by several iterations."""
    X = buffer("X", 13)
    block = Block("X", (spatial(vi, 7, i),), Store(X, (vi,), X[vi // 2 + 7] + X[vi % 3 + 7]))
    assert messages(func(For(i, const(7), block), X)) == []
    value = Select(vi >= 7, X[vi - 7], const(0.0), lazy=True)  # never read, since v_i < 7
    assert messages(func(For(i, const(7), Block("X", (spatial(vi, 7, i),), Store(X, (vi,), value))), X)) == []
    value = Select(vi < 7, const(0.0), X[vi - 7], lazy=True)
    assert messages(func(For(i, const(7), Block("X", (spatial(vi, 7, i),), Store(X, (vi,), value))), X)) == []
    value = Select(vi < 5, const(0.0), X[vi - 5], lazy=True)
    assert messages(func(For(i, const(7), Block("X", (spatial(vi, 7, i),), Store(X, (vi,), value))), X)) == [
        "error: the spatial axes of block `X` are not: v_i=0 writes X[0], and v_i=5 reads it too"
    ]


def test_unknown_writes_are_unproved():
    X, N = buffer("X", 7), buffer("N", 7, dtype="int32")
    block = Block("X", (spatial(vi, 7, i),), Store(X, (Select(N[vi] > 3, vi, const(0)),), const(1.0)))
    report = verify(func(For(i, const(7), block), X, N))
    assert report.ok
    assert any("cannot prove that iterations of block `X` that differ in `v_i` keep apart in `X`" in f.message for f in report)


def test_a_private_buffer_is_no_dependence():
    X, S = buffer("X", 7), buffer("S", 1)
    body = seq(Store(S, (const(0),), cast(vi, "float32")), Store(X, (vi,), S[0]))
    assert messages(func(For(i, const(7), Block("X", (spatial(vi, 7, i),), body, allocs=(S,))), X)) == []
    assert not verify(func(For(i, const(7), Block("X", (spatial(vi, 7, i),), body)), X, allocs=(S,))).ok


def test_a_reduction_that_overwrites():
    f = rewrite(matmul(), lambda n: n.with_(value=n.value.b) if isinstance(n, Store) and isinstance(n.value, Binary) else None)
    assert messages(f) == ["error: block `C` reduces over `v_k`, but overwrites `C` instead of updating it"]


def test_a_reduction_counted_twice():
    f = matmul()
    twice = rewrite(
        f, lambda n: n.with_(body=For(Var("again"), const(2), n.body)) if isinstance(n, For) and n.name == "k" else None
    )
    assert messages(twice) == [
        "error: block `C` counts an iteration of its reduction twice: v_i=0, v_j=0, v_k=1, once where k=1, again=0, "
        "and again where k=1, again=1"
    ]
    recomputed = func(For(Var("again"), const(2), f.body), *f.params)  # from the init: allowed
    assert messages(recomputed) == []
    o, p = Var("k_0"), Var("k_1")
    overlapping = rewrite(f, lambda n: nest([(o, 2), (p, 4)], n.body) if isinstance(n, For) and n.name == "k" else None)
    overlapping = rewrite(overlapping, lambda n: o + p if n == Var("k") else None)
    assert any("counts an iteration of its reduction twice" in m for m in messages(overlapping))


def test_axes_are_spatial_where_the_block_runs():
    f = parse(
        """
@T.prim_func
def main(A: T.Buffer((7,), "float32"), C: T.Buffer((21,), "float32")):
    for i, j, k in T.grid(3, 2, 4):
        with T.block("C"):
            v_i, v_j, v_k = T.axis.remap("SSS", [i, j, k])
            T.where(j * 4 + k < 7)
            C[v_i * 7 + v_j * 4 + v_k] = A[v_i + v_j]
"""
    )
    assert messages(f) == []
    everywhere = rewrite(f, lambda n: n.with_(predicate=j < 2) if isinstance(n, Block) else None)
    assert any("the spatial axes of block `C` are not" in m for m in messages(everywhere))


def test_opaque_axes_may_carry_anything():
    X = buffer("X", 13)
    block = Block("X", (Iter(vi, const(12), Axis.OPAQUE, i),), Store(X, (vi + 1,), X[vi] + 1.0))
    assert messages(func(For(i, const(12), block), X)) == []


# --- loops in any order ------------------------------------------------------------------------------------------------


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
            assert found == ["error: loop `i` is parallel, but i=0 writes T[0, 0], and i=6 reads it too"]


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


# --- the init comes first ------------------------------------------------------------------------------------------------


def summed(binding: str, extent: str = "5", where: str = "") -> PrimFunc:
    return parse(
        f"""
@T.prim_func
def main(A: T.Buffer((7, 5), "float32"), C: T.Buffer((7,), "float32")):
    for i, k in T.grid(7, {extent}):
        with T.block("C"):
            v_i = T.axis.spatial(7, i)
            v_k = T.axis.reduce(5, {binding})
            {where}
            with T.init():
                C[v_i] = T.float32(0.0)
            C[v_i] = C[v_i] + A[v_i, v_k]
"""
    )


@pytest.mark.parametrize(
    ("binding", "extent", "where", "at"),
    [
        ("k + 1", "4", "", "v_i=0, v_k=1 comes first, where i=0, k=0"),
        ("4 - k", "5", "", "v_i=0, v_k=4 comes first, where i=0, k=0"),
        ("(k + 1) % 5", "5", "", "v_i=0, v_k=1 comes first, where i=0, k=0"),
        ("k", "5", "T.where(k >= 1)", "v_i=0, v_k=1 comes first, where i=0, k=1"),
        ("k", "5", "T.where(i + k >= 3)", "v_i=0, v_k=3 comes first, where i=0, k=3"),
    ],
)
def test_a_reduction_that_begins_without_its_init(binding, extent, where, at):
    expected = f"error: block `C` begins its reduction without its init: {at}"
    assert messages(summed(binding, extent, where)) == [expected]


@pytest.mark.parametrize(
    ("binding", "extent", "where"),
    [("k", "5", "T.where(k < 3)"), ("k", "5", "T.where(i + k < 9)"), ("k", "5", "T.where(i >= 2)"), ("k * 3 % 5", "5", "")],
)
def test_a_reduction_that_begins_with_its_init(binding, extent, where):
    assert messages(summed(binding, extent, where)) == []


def test_a_reduction_may_begin_under_an_if():
    f = summed("k")
    guarded = rewrite(f, lambda n: If(i >= 2, n) if isinstance(n, Block) else None)
    assert messages(guarded) == []
    late = rewrite(f, lambda n: If(Var("k") >= 2, n) if isinstance(n, Block) else None)
    assert messages(late) == ["error: block `C` begins its reduction without its init: v_i=0, v_k=2 comes first, where i=0, k=2"]


def test_a_start_that_is_not_known():
    f = parse(
        """
@T.prim_func
def main(A: T.Buffer((7, 5), "float32"), C: T.Buffer((7,), "float32"), n: T.int32):
    for i, k in T.grid(7, 5):
        with T.block("C"):
            v_i = T.axis.spatial(7, i)
            v_k = T.axis.reduce(5, k)
            T.where(k >= n)
            with T.init():
                C[v_i] = T.float32(0.0)
            C[v_i] = C[v_i] + A[v_i, v_k]
"""
    )
    assert messages(f) == ["unproved: cannot prove that block `C` begins its reduction with its init"]


# --- initialised -------------------------------------------------------------------------------------------------------


def test_temporaries_are_written_before_they_are_read():
    read = For(i, const(7), For(j, const(13), Store(C, (i, j), T[i, j])))
    write = nest([(Var("p"), 7), (Var("q"), 13)], Store(T, (Var("p"), Var("q")), const(1.0)))
    part = nest([(Var("p"), 7), (Var("q"), 12)], Store(T, (Var("p"), Var("q")), const(1.0)))
    assert messages(func(seq(write, read), C, allocs=(T,))) == []
    assert messages(func(seq(read, write), C, allocs=(T,))) == ["error: `T` is read before anything is written to it"]
    assert messages(func(read, C, allocs=(T,))) == ["error: `T` is read, but never written"]
    assert messages(func(seq(part, read), C, allocs=(T,))) == ["error: `T[0, 12]` is read, but never written"]
    assert messages(func(Allocate(T, seq(part, read)), C)) == ["error: `T[0, 12]` is read, but never written"]
    assert messages(func(read, C, T)) == []


def test_a_reduction_without_init():
    f = matmul()
    bare = with_block(PrimFunc("main", f.params[:2], f.body, f.params[2:]), init=None)
    assert messages(bare) == ["error: `C` is read before anything is written to it"]


def test_errors_are_what_the_interpreter_meets():
    """Where `verify` has a witness out of bounds, the interpreter traps; where it has no finding, it does not."""
    rng = np.random.default_rng(1)
    X, Y = buffer("X", 20), buffer("Y", 7, 13)
    for _ in range(60):
        p, q, r, d = (int(rng.integers(lo, hi)) for lo, hi in ((-2, 3), (-1, 2), (-2, 6), (1, 4)))
        index = (vi * p + vj * q + r) // d
        guard = Binary("<", vi * 2 + vj, const(int(rng.integers(1, 26))))
        value = Select(guard, X[index], const(0.0), lazy=True)
        f = func(grid(Block("Y", ITERS, Store(Y, (vi, vj), value))), X, Y)
        report = verify(f)
        try:
            run(f, np.zeros(20, np.float32), np.zeros((7, 13), np.float32))
            assert report.ok, (str(report), f.script())
        except InterpreterError:
            assert not report.ok, f.script()
        assert not report.unproved


@pytest.mark.parametrize(
    ("written", "index", "expected"),
    [
        (1024, "i, j", []),
        (512, "i, j", ["error: `X[768, 768]` is read, but never written"]),
        (1024, "i, j // 2 * 2 + j % 2", []),
        (1024, "i, j // 2 * 2", ["error: `X[768, 1023]` is read, but never written"]),
        (1024, "i, j * 3 % 1024", ["unproved: cannot prove that all is written that is read of `X`"]),
    ],
)
def test_a_temporary_that_is_too_large_to_try_all_of_it(written, index, expected):
    """It is proved, refuted, or said to be unproved."""
    f = parse(
        f"""
@T.prim_func
def f(A: T.Buffer((1024, 1024)), B: T.Buffer((1024, 1024))):
    X = T.alloc_buffer((1024, 1024))
    for i, j in T.grid({written}, {written}):
        X[{index}] = A[i, j]
    for i, j in T.grid(1024, 1024):
        B[i, j] = X[i, j]
"""
    )
    assert messages(f) == expected
