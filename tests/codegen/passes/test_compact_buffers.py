"""Temporaries shrink to what is live, and move into the loops that use them, where nothing is needed from before."""

import numpy as np

from codegen.passes.compact_buffers import aligned_extent, apply_strides
from codegen.passes.lower_blocks import ALIGNED
from schedule import Schedule
from tests.codegen.harness import after, same
from tests.programs import chain
from tir import te
from tir.ir import (
    Allocate,
    Binary,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Kind,
    Let,
    Load,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Var,
    const_shape,
    seq,
)
from tir.script import parse

ONE = Const(1.0, "float32")


def test_a_temporary_between_two_nests_stays_whole():
    after(chain(), "compact_buffers").becomes("""
        B = T.decl_buffer((7, 13))
        for i, j in T.grid(7, 13):
            B[i, j] = A[i, j] + T.float32(1.0)
        for i_1, j_1 in T.grid(7, 13):
            C[i_1, j_1] = B[i_1, j_1] * T.float32(3.0)
    """)


def test_a_row_at_a_time():
    s = Schedule(chain())
    s.compute_at("B", "i_1")
    after(s.func, "compact_buffers").becomes("""
        for i_1 in range(7):
            B = T.decl_buffer((1, 13))
            for ax0 in range(13):
                B[0, ax0] = A[i_1, ax0] + T.float32(1.0)
            for j_1 in range(13):
                C[i_1, j_1] = B[0, j_1] * T.float32(3.0)
    """)


def test_a_tile_whose_guard_only_keeps_it_inside_the_buffer():
    s = Schedule(chain())
    s.split("j_1", [None, 4])
    s.compute_at("B", "j_1_0")
    after(s.func, "compact_buffers").becomes("""
        for i_1, j_1_0 in T.grid(7, 4):
            B = T.decl_buffer((1, 4))
            for ax0 in range(4):
                if j_1_0 * 4 + ax0 < 13:
                    B[0, ax0] = A[i_1, j_1_0 * 4 + ax0] + T.float32(1.0)
            for j_1_1 in range(4):
                if j_1_0 * 4 + j_1_1 < 13:
                    C[i_1, j_1_0 * 4 + j_1_1] = B[0, j_1_1] * T.float32(3.0)
    """)


def test_a_window_with_padding():
    a = te.placeholder((17,), name="A")
    b = te.compute((17,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((17,), lambda i: te.if_then_else(i >= 1, b[i - 1], 0.0) + b[i], name="C")
    s = Schedule(te.create_prim_func([a, c]))
    s.split("i_1", [None, 4])
    s.compute_at("B", "i_1_0")
    after(s.func, "compact_buffers").becomes("""
        for i_1_0 in range(5):
            B = T.decl_buffer((5,))
            for ax0 in range(5):
                if i_1_0 * 4 + ax0 - 1 >= 0 and i_1_0 * 4 + ax0 - 1 < 17:
                    B[ax0] = A[i_1_0 * 4 + ax0 - 1] + T.float32(1.0)
            for i_1_1 in range(4):
                if i_1_0 * 4 + i_1_1 < 17:
                    C[i_1_0 * 4 + i_1_1] = T.if_then_else(i_1_0 * 4 + i_1_1 >= 1, B[i_1_1], T.float32(0.0)) + B[i_1_1 + 1]
    """)


def test_a_reduction_inside_a_row():
    x = te.placeholder((7, 13), name="X")
    k = te.reduce_axis((0, 13), "k")
    total = te.compute((7,), lambda i: te.sum(x[i, k], axis=k), name="S")
    s = Schedule(te.create_prim_func([x, te.compute((7, 13), lambda i, j: x[i, j] - total[i], name="D")]))
    s.compute_at("S", "i_1")
    after(s.func, "compact_buffers").becomes("""
        for i_1 in range(7):
            S = T.decl_buffer((1,))
            S[0] = T.float32(0.0)
            for ax0 in range(13):
                S[0] = S[0] + X[i_1, ax0]
            for j in range(13):
                D[i_1, j] = X[i_1, j] - S[0]
    """)


# --- lowered programs, by hand: what may not move ------------------------------------------------------------------------

A, B, C = Buffer("A", (Const(7),)), Buffer("B", (Const(7),)), Buffer("C", (Const(7),))
t, i, j = Var("t"), Var("i"), Var("j")


def func(body: Stmt) -> PrimFunc:
    return PrimFunc("main", (A, C), body, (B,))


def loop(var: Var, *body: Stmt, kind: Kind = Kind.SERIAL) -> For:
    return For(var, Const(7), seq(*body), kind)


def first_time(*body: Stmt) -> Stmt:
    """The statements in the first iteration of the loop over t."""
    return If(Binary("==", t, Const(0)), seq(*body))


FILL = For(Var("s"), Const(7), Store(B, (Var("s"),), ONE))


def add(*index: Expr) -> Stmt:
    """C[t] += B[index]"""
    return Store(C, (t,), Load(C, (t,)) + Load(B, index))


def test_what_an_earlier_iteration_wrote_is_kept():
    """Every iteration reads all of B, but writes one element: the others are those of before."""
    after(func(loop(t, first_time(FILL), Store(B, (t,), Load(A, (t,))), loop(j, add(j)))), "compact_buffers").becomes("""
        B = T.decl_buffer((7,))
        for t in range(7):
            if t == 0:
                for s in range(7):
                    B[s] = T.float32(1.0)
            B[t] = A[t]
            for j in range(7):
                C[t] = C[t] + B[j]
    """)


def test_a_write_under_a_condition_is_not_sure():
    """The first iteration writes everything, the later ones only a part."""
    condition = Binary("<=", t, i)
    after(
        func(loop(t, loop(i, If(condition, Store(B, (i,), Load(A, (i,)) + Load(A, (t,))))), loop(j, add(j)))), "compact_buffers"
    ).becomes("""
        B = T.decl_buffer((7,))
        for t in range(7):
            for i in range(7):
                if t <= i:
                    B[i] = A[i] + A[t]
            for j in range(7):
                C[t] = C[t] + B[j]
    """)


def test_a_write_with_gaps_does_not_cover():
    """Even elements anew each time, odd ones from before the loop."""
    evens = For(i, Const(4), Store(B, (i * 2,), Load(A, (t,))))
    after(func(loop(t, first_time(FILL), evens, loop(j, add(j)))), "compact_buffers").becomes("""
        B = T.decl_buffer((7,))
        for t in range(7):
            if t == 0:
                for s in range(7):
                    B[s] = T.float32(1.0)
            for i in range(4):
                B[i * 2] = A[t]
            for j in range(7):
                C[t] = C[t] + B[j]
    """)


def test_a_diagonal_does_not_cover():
    square = Buffer("B", (Const(7), Const(7)))
    body = loop(
        t, loop(i, Store(square, (i, i), Load(A, (i,)))), loop(j, Store(C, (j,), Load(square, (j, j)) + Load(square, (t, t))))
    )
    after(PrimFunc("main", (A, C), body, (square,)), "compact_buffers").becomes("""
        B = T.decl_buffer((7, 7))
        for t in range(7):
            for i in range(7):
                B[i, i] = A[i]
            for j in range(7):
                C[j] = B[j, j] + B[t, t]
    """)


def test_loops_in_another_order_cover_together():
    """3 x 2 elements in steps of 2 and 1, the small step outside."""
    small = Buffer("B", (Const(6),))
    write = For(i, Const(2), For(j, Const(3), Store(small, (j * 2 + i,), Load(A, (t,)))))
    k = Var("k")
    body = loop(t, write, For(k, Const(6), Store(C, (k,), Load(small, (k,)))))
    after(PrimFunc("main", (A, C), body, (small,)), "compact_buffers").becomes("""
        for t in range(7):
            B = T.decl_buffer((6,))
            for i, j in T.grid(2, 3):
                B[j * 2 + i] = A[t]
            for k in range(6):
                C[k] = B[k]
    """)


def test_an_init_in_the_first_iteration_is_sure():
    k = Var("k")
    first = If(Binary("==", k, Const(0)), Store(B, (t,), Const(0.0, "float32")))
    body = loop(t, For(k, Const(5), seq(first, Store(B, (t,), Load(B, (t,)) + Load(A, (k,))))), Store(C, (t,), Load(B, (t,))))
    after(func(body), "compact_buffers").becomes("""
        for t in range(7):
            B = T.decl_buffer((1,))
            for k in range(5):
                if k == 0:
                    B[0] = T.float32(0.0)
                B[0] = B[0] + A[k]
            C[t] = B[0]
    """)


def test_a_loop_that_may_not_run_writes_nothing_for_sure():
    n = Var("n")
    body = loop(t, first_time(FILL), For(i, n, For(j, Const(7), Store(B, (j,), Load(A, (t,))))), Store(C, (t,), Load(B, (t,))))
    found = after(PrimFunc("main", (A, C, n), body, (B,)), "compact_buffers", numbers=False).becomes("""
        B = T.decl_buffer((7,))
        for t in range(7):
            if t == 0:
                for s in range(7):
                    B[s] = T.float32(1.0)
            for i, j in T.grid(n, 7):
                B[j] = A[t]
            C[t] = B[t]
    """)
    assert isinstance(found.body, Allocate)


def test_a_let_hides_what_is_written():
    x = Var("x")
    body = loop(
        t,
        first_time(FILL),
        Let(x, Binary("%", t * 3, Const(7)), Store(B, (x,), Load(A, (t,)))),
        Store(C, (t,), Load(B, (t,)) * 0.0),
    )
    after(func(body), "compact_buffers").becomes("""
        B = T.decl_buffer((7,))
        for t in range(7):
            if t == 0:
                for s in range(7):
                    B[s] = T.float32(1.0)
            with T.LetStmt(t * 3 % 7) as x:
                B[x] = A[t]
            C[t] = B[t] * T.float32(0.0)
    """)


def test_a_let_around_all_accesses_is_outside():
    x = Var("x")
    body = Let(x, Binary("%", t * 3, Const(7)), seq(loop(i, Store(B, (i,), Load(A, (x,)))), loop(j, add(j))))
    after(func(loop(t, body)), "compact_buffers").becomes("""
        for t in range(7):
            x: T.int32 = t * 3 % 7
            B = T.decl_buffer((7,))
            for i in range(7):
                B[i] = A[x]
            for j in range(7):
                C[t] = C[t] + B[j]
    """)


def test_what_is_read_under_a_guard_is_inside():
    wanted = Select(Binary("<", j, Const(3)), Load(B, (j + 1,)), Const(0.0, "float32"), lazy=True)
    body = seq(For(i, Const(4), Store(B, (i,), Load(A, (i,)))), For(j, Const(5), Store(C, (j,), wanted)))
    after(func(body), "compact_buffers").becomes("""
        B = T.decl_buffer((6,))
        for i in range(4):
            B[i] = A[i]
        for j in range(5):
            C[j] = T.if_then_else(j < 3, B[j + 1], T.float32(0.0))
    """)


def test_private_to_the_iterations_of_a_parallel_loop():
    body = loop(t, loop(i, Store(B, (i,), Load(A, (t,)))), loop(j, add(j)), kind=Kind.PARALLEL)
    after(func(body), "compact_buffers").becomes("""
        for t in T.parallel(7):
            B = T.decl_buffer((7,))
            for i in range(7):
                B[i] = A[t]
            for j in range(7):
                C[t] = C[t] + B[j]
    """)


def test_a_lazy_read_counts_only_where_it_happens():
    wanted = Select(Binary(">=", j, Const(1)), Load(B, (j - 1,)), Const(0.0, "float32"), lazy=True)
    body = loop(t, loop(i, Store(B, (i,), Load(A, (t,)))), loop(j, Store(C, (j,), wanted)))
    after(func(body), "compact_buffers").becomes("""
        for t in range(7):
            B = T.decl_buffer((7,))
            for i in range(7):
                B[i] = A[t]
            for j in range(7):
                C[j] = T.if_then_else(j >= 1, B[j - 1], T.float32(0.0))
    """)


def test_strides_are_what_storage_align_asks_for():
    """The least ones, as trying every one finds them."""
    for inner in range(1, 9):
        for factor in (-2, 0, 1, 2, 3, 8, 12):
            for offset in range(abs(factor) + 1):
                for n in (1, 7, 13):
                    tried = (m for m in range(n, n + factor) if m * inner % factor == offset)
                    assert aligned_extent(n, inner, factor, offset) == next(tried, n)
    assert aligned_extent(7, 3, 2**60, 5) * 3 % 2**60 == 5


def test_dimensions_are_aligned_from_the_innermost():
    B, i = Buffer("B", (Const(3), Const(5), Const(7))), Const(0)
    for rules, shape in (
        ([[0, 16, 3]], (3, 5, 7)),  # 7 times any number of columns
        ([[0, 32, 5]], (3, 19, 7)),
        ([[1, 8, 3]], (3, 5, 11)),
        ([[0, 32, 1], [1, 8, 3]], (3, 3 + 32, 11)),
        ([[2, 8, 3], [-1, 8, 3]], (3, 5, 7)),  # beyond the last of them, and before the first
    ):
        body = apply_strides(Allocate(B, Store(B, (i, i, i), ONE)), {"B": rules})
        assert isinstance(body, Allocate) and const_shape(body.buffer) == shape


def test_only_the_attribute_of_strides_is_used_up():
    s = Schedule(chain())
    s.storage_align("B", 0, 0, 16, 8)
    stages = after(s.func.with_(attrs=(*s.func.attrs, ("kept", 1))), "compact_buffers").stages
    before, attrs = ([name for name, _ in stages[stage].attrs] for stage in ("lower_blocks", "compact_buffers"))
    assert ALIGNED in before and "kept" in attrs and ALIGNED not in attrs


def test_strides_are_of_the_buffer_that_was_aligned():
    """A block that allocates a buffer writes it first; its number is that of the next one."""
    func = parse(
        """
        @T.prim_func
        def main(A: T.Buffer((7, 13), "float32"), D: T.Buffer((7, 13), "float32")):
            C = T.alloc_buffer((7, 13))
            for i in range(7):
                with T.block("rows"):
                    vi = T.axis.spatial(7, i)
                    row = T.alloc_buffer((13,))
                    for j in range(13):
                        with T.block("row"):
                            vj = T.axis.spatial(13, j)
                            row[vj] = A[vi, vj] * 2.0
                    for j in range(13):
                        with T.block("C"):
                            vj = T.axis.spatial(13, j)
                            C[vi, vj] = row[vj] + 1.0
            for i, j in T.grid(7, 13):
                with T.block("D"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    D[vi, vj] = C[vi, vj]
        """
    )
    s = Schedule(func)
    s.storage_align("rows", "C", 0, 16, 0)
    assert dict(after(s.func, "lower_blocks").stages["lower_blocks"].attrs)[ALIGNED] == {"C": [[0, 16, 0]]}
    same(s.func)


def test_lanes_have_temporaries_of_their_own():
    """Of each iteration of a vectorised loop, which run side by side; next to each other, so that they are loaded at once."""
    func = parse(
        """
        @T.prim_func
        def main(A: T.Buffer((7, 4), "float32"), B: T.Buffer((7, 4), "float32")):
            for i in T.vectorized(7):
                with T.block("row"):
                    vi = T.axis.spatial(7, i)
                    C = T.alloc_buffer((4,))
                    for j in range(4):
                        with T.block("C"):
                            vj = T.axis.spatial(4, j)
                            C[vj] = A[vi, vj] + T.float32(1.0)
                    for k in range(4):
                        with T.block("B"):
                            vk = T.axis.spatial(4, k)
                            B[vi, vk] = C[vk] * T.float32(2.0)
        """
    )
    after(func, "compact_buffers").becomes("""
        C = T.decl_buffer((4, 7))
        for i in T.vectorized(7):
            for j in range(4):
                C[j, i] = A[i, j] + T.float32(1.0)
            for k in range(4):
                B[i, k] = C[k, i] * T.float32(2.0)
    """)


def test_a_length_that_is_open_is_not_its_least():
    """A temporary of max(n, 1) elements is not one of 1."""
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((64,), "int32"), C: T.Buffer((64,), "int32"), n: T.int32):
    X = T.alloc_buffer((T.max(n, 1),), "int32")
    for i in range(n):
        X[i] = A[i] + 1
    for i in range(n):
        C[i] = X[n - 1 - i]
"""
    )
    same(func, [np.arange(64, dtype="int32"), np.zeros(64, "int32"), 50], targets=["llvm -num-cores 1"])
