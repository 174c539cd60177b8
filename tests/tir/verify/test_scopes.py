"""What is used is defined around it, of one rank and dtype."""

from __future__ import annotations

from tests.tir.verify.functions import ITERS, A, B, C, T, buffer, func, grid, i, j, k, messages, reduce, spatial, vi, vj, vk
from tir.ir import (
    FALSE,
    TRUE,
    Allocate,
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Evaluate,
    For,
    If,
    Kind,
    Let,
    Load,
    Select,
    Store,
    Unary,
    Var,
    cast,
    const,
    seq,
)


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
        (Evaluate(Binary("max", TRUE, FALSE)), "error: `max` does not take bool, in `T.max(T.bool(True), T.bool(False))`"),
        (Evaluate(Binary("%", Const(3), zero)), "error: `T.int32(3) % 0` divides by zero"),
        (Evaluate(Call("shl", (Const(3), Const(32)), "int32")), "error: `T.shl(3, 32)` shifts by 32, and int32 has 32 bits"),
        (Evaluate(Call("shr", (Const(3), Const(-1)), "int32")), "error: `T.shr(3, -1)` shifts by -1, and int32 has 32 bits"),
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
        (For(i, const(-1), Evaluate(i)), "error: loop `i` has extent -1; extents must be at least 0"),
        (For(i, const(7), Evaluate(Var("i", "int64"))), "error: `i` is used as int64, but bound as int32"),
        (For(i, const(7), Evaluate(zero), Kind.THREAD), "error: loop `i` is thread_binding, and its thread axis is ''"),
        (
            For(i, const(7), Evaluate(zero), Kind.THREAD, (), "threadIdx.w"),
            "error: loop `i` is bound to 'threadIdx.w'; thread axes are blockIdx.x, blockIdx.y, blockIdx.z, "
            "threadIdx.x, threadIdx.y, threadIdx.z, vthread.x, vthread.y, vthread.z, vthread",
        ),
        (Let(k, load, Evaluate(zero)), "error: `k` of dtype int32 is bound to a value of dtype float32"),
        (
            Allocate(Buffer("Z", (const(-1),)), Evaluate(zero)),
            "error: buffer `Z` has a dimension of -1; extents must be at least 0",
        ),
        (
            Allocate(Buffer("Z", (const(7),), scope="locl"), Evaluate(zero)),
            "error: buffer `Z`: no storage scope is named 'locl'; did you mean local? there are: global, shared, shared.dyn, "
            "shared.swizzled, warp, local, register, wmma.matrix_a, wmma.matrix_b, wmma.accumulator",
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
