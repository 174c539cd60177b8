"""Accumulators live in registers while the loops that reduce into them run."""

import re

import numpy as np
import pytest

from codegen import Target, lower
from schedule import Schedule
from tests.codegen.harness import after, integers, same
from tests.programs import matmul
from tir.ir import (
    Allocate,
    Binary,
    Buffer,
    Const,
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
    cast,
    const,
    const_shape,
    seq,
)
from tir.traverse import walk_stmts

A, C, X = Buffer("A", (Const(13),)), Buffer("C", (Const(13),)), Buffer("X", (Const(13),), "int32")
h, i, j, k, x = (Var(name) for name in "hijkx")


def func(body: Stmt, *params) -> PrimFunc:
    return PrimFunc("main", (A, C, *params), body)


def update(*index) -> Stmt:
    """C[index] += A[k]"""
    return Store(C, index, Load(C, index) + Load(A, (k,)))


def test_a_scalar_accumulator():
    after(matmul(7, 5, 13), "promote_registers").becomes("""
        for i, j in T.grid(7, 13):
            C_reg = T.decl_buffer((1,), scope="register")
            C_reg[0] = T.float32(0.0)
            for k in range(5):
                C_reg[0] = C_reg[0] + A[i, k] * B[k, j]
            C[i, j] = C_reg[0]
    """)


def test_a_tile_of_vectors_with_a_tail():
    """One axis for the unrolled loop, one for the lanes; the tail of the vector is a tile of its own, which comes first."""
    s = Schedule(matmul(3, 5, 12))
    s.reorder("k", "i", "j")
    s.unroll("i")
    s.vectorize("j")
    after(s.func, "promote_registers", mcpu="x86-64-v3").becomes("""
        C_reg = T.decl_buffer((3, 4), scope="register")
        C_reg_1 = T.decl_buffer((3, 8), scope="register")
        for i_1 in T.unroll(3):
            for j_tail_1 in T.vectorized(4):
                C_reg[i_1, j_tail_1] = T.float32(0.0)
        for i_3 in T.unroll(3):
            for j_lane_1 in T.vectorized(8):
                C_reg_1[i_3, j_lane_1] = T.float32(0.0)
        for k in range(5):
            for i in T.unroll(3):
                for j_tail in T.vectorized(4):
                    C_reg[i, j_tail] = C_reg[i, j_tail] + A[i, k] * B[k, j_tail + 8]
                for j_lane in T.vectorized(8):
                    C_reg_1[i, j_lane] = C_reg_1[i, j_lane] + A[i, k] * B[k, j_lane]
        for i_2 in T.unroll(3):
            for j_tail_2 in T.vectorized(4):
                C[i_2, j_tail_2 + 8] = C_reg[i_2, j_tail_2]
        for i_4 in T.unroll(3):
            for j_lane_2 in T.vectorized(8):
                C[i_4, j_lane_2] = C_reg_1[i_4, j_lane_2]
    """)


@pytest.mark.parametrize(("rows", "columns"), [(5, 2), (2, 5)])
def test_a_tile_has_its_axes_in_the_order_of_memory(rows, columns):
    s = Schedule(matmul(rows, 7, columns))
    s.reorder("k", "i", "j")
    s.unroll("i")
    s.unroll("j")
    lowered = lower(s.func, Target("llvm", num_cores=1), after="promote_registers")
    (register,) = [x.buffer for x in walk_stmts(lowered.body) if isinstance(x, Allocate)]
    assert const_shape(register) == (rows, columns, 1)


def test_lanes_that_are_not_there():
    """13 of 16 lanes: loads that would leave their row are guarded, and the stores behind the loops."""
    s = Schedule(matmul(3, 5, 13))
    s.reorder("k", "i", "j")
    s.unroll("i")
    s.vectorize("j")
    after(s.func, "promote_registers", lanes=16).becomes("""
        C_reg = T.decl_buffer((3, 16), scope="register")
        for i_1 in T.unroll(3):
            for j_1 in T.vectorized(16):
                C_reg[i_1, j_1] = T.float32(0.0)
        for k in range(5):
            for i in T.unroll(3):
                for j in T.vectorized(16):
                    C_reg[i, j] = C_reg[i, j] + A[i, k] * T.if_then_else(j < 13, B[k, j], T.float32(0.0))
        for i_2 in T.unroll(3):
            for j_2 in T.vectorized(16):
                if j_2 < 13:
                    C[i_2, j_2] = C_reg[i_2, j_2]
    """)


def test_a_nest_of_loops_reduces_into_one_register():
    s = Schedule(matmul(2, 7, 3))
    s.split("k", [None, 3])
    after(s.func, "promote_registers").becomes("""
        for i, j in T.grid(2, 3):
            C_reg = T.decl_buffer((1,), scope="register")
            C_reg[0] = T.float32(0.0)
            for k_0 in range(3):
                for k_1 in range(T.min(3, 7 - k_0 * 3)):
                    C_reg[0] = C_reg[0] + A[i, k_0 * 3 + k_1] * B[k_0 * 3 + k_1, j]
            C[i, j] = C_reg[0]
    """)


def test_a_partial_tile_has_registers_of_its_own():
    guarded = If(Binary("<", i * 4 + j, Const(13)), update(i * 4 + j))
    after(func(For(i, Const(4), For(k, Const(5), For(j, Const(4), guarded, Kind.UNROLLED)))), "promote_registers").becomes("""
        for i in range(4):
            if i * 4 < 10:
                C_reg = T.decl_buffer((4, 1), scope="register")
                for j_1 in T.unroll(4):
                    C_reg[j_1, 0] = C[i * 4 + j_1]
                for k in range(5):
                    for j in T.unroll(4):
                        C_reg[j, 0] = C_reg[j, 0] + A[k]
                for j_2 in T.unroll(4):
                    C[i * 4 + j_2] = C_reg[j_2, 0]
            else:
                C_reg_1 = T.decl_buffer((1,), scope="register")
                C_reg_1[0] = C[12]
                for k in range(5):
                    for j in T.unroll(1):
                        C_reg_1[0] = C_reg_1[0] + A[k]
                C[12] = C_reg_1[0]
    """)


def test_loads_of_a_partial_tile_are_guarded_by_what_keeps_them_inside():
    """For a row of A that is not there the last one is read, for lanes of B that are not there nothing."""
    s = Schedule(matmul(Var("m"), 5, 13))
    s.split("i", [None, 2, 2])
    s.split("j", [None, 8])
    s.reorder("i_0", "j_0", "i_1", "k", "i_2", "j_1")
    s.unroll("i_2")
    s.vectorize("j_1")
    s.decompose_reduction("C", "k")
    found = lower(s.func, Target("llvm", num_cores=1, vector_bits=256), after="promote_registers").script()
    a = "A[T.min(i_0 * 4 + i_1 * 2 + i_2, m - 1), k]"
    b = "T.if_then_else(j_0 * 8 + j_1 < 13, B[k, j_0 * 8 + j_1], T.float32(0.0))"
    (last,) = re.findall(r"(C_reg_\d+)\[i_2, j_1\] = \1\[i_2, j_1\] \+ A\[T.min", found)
    assert f"{last}[i_2, j_1] = {last}[i_2, j_1] + {a} * {b}" in found and found.count(">= m:") == 1  # a version of one row
    for m in (1, 2, 7):
        same(s.func, integers(s.func, 0, {"m": m}))


def test_an_index_that_is_loaded_is_guarded_too():
    """The place in A is inside whatever X says, the place in X is not. Two of the tiles are partial."""
    place, places = h * 4 + i * 4 + j, Buffer("X", (Const(13),), "uint8")
    gathered = Store(C, (place,), Load(C, (place,)) + Load(A, (cast(Load(places, (place,)), "int32") % 13,)))
    guarded = If(Binary("<", place, Const(13)), gathered)
    program = func(For(h, Const(3), For(i, Const(3), For(k, i + 5, For(j, Const(4), guarded, Kind.UNROLLED)))), places)
    found = lower(program, Target("llvm", num_cores=1), after="promote_registers").script()
    assert 'A[T.Cast("int32", T.if_then_else(h * 4 + i * 4 + j < 13, X[h * 4 + i * 4 + j], T.uint8(0))) % 13]' in found
    same(program, fences=True)


def test_a_division_is_not_done_for_what_is_not_there():
    y = Buffer("Y", (Const(13),), "int32")
    place = h * 4 + i * 4 + j
    body = Store(y, (place,), Load(y, (place,)) + 60 // (Const(13) - h * 4 - i * 4 - j + k))
    nest = For(i, Const(3), For(k, Const(5), For(j, Const(4), If(Binary("<", place, Const(13)), body), Kind.UNROLLED)))
    program = PrimFunc("main", (y,), For(h, Const(3), nest))
    assert "if h * 4 + i * 4 + j < 13:" in lower(program, Target("llvm", num_cores=1), after="promote_registers").script()
    same(program)


def test_a_guard_that_the_data_decide_stays_inside():
    """Behind the loops it may mean something else."""
    condition = Binary("and", Binary("<", Load(X, (Const(0),)), Const(3)), Binary("<", k, Const(4)))
    after(func(For(i, Const(13), For(k, Const(5), If(condition, update(i)))), X), "promote_registers").becomes("""
        for i in range(13):
            C_reg = T.decl_buffer((1,), scope="register")
            C_reg[0] = C[i]
            for k in range(4):
                if X[0] < 3:
                    C_reg[0] = C_reg[0] + A[k]
            C[i] = C_reg[0]
    """)


def test_a_guard_over_a_let_stays_inside():
    body = Let(x, k % 3, If(Binary("<", x, Const(2)), update(i)))
    after(func(For(i, Const(13), For(k, Const(5), body))), "promote_registers").becomes("""
        for i in range(13):
            C_reg = T.decl_buffer((1,), scope="register")
            C_reg[0] = C[i]
            for k in range(5):
                x: T.int32 = k % 3
                if x < 2:
                    C_reg[0] = C_reg[0] + A[k]
            C[i] = C_reg[0]
    """)


def test_a_guard_over_the_reduction_stays_inside():
    body = For(
        k,
        Const(5),
        For(
            j,
            Const(2),
            If(Binary("<", k * 2 + j, Const(9)), Store(C, (i,), Load(C, (i,)) + Load(A, (k * 2 + j,)))),
            Kind.UNROLLED,
        ),
    )
    after(func(For(i, Const(13), body)), "promote_registers").becomes("""
        for i in range(13):
            C_reg = T.decl_buffer((1,), scope="register")
            C_reg[0] = C[i]
            for k in range(5):
                if k * 2 < 8:
                    for j in T.unroll(2):
                        C_reg[0] = C_reg[0] + A[k * 2 + j]
                else:
                    for j in T.unroll(1):
                        C_reg[0] = C_reg[0] + A[8]
            C[i] = C_reg[0]
    """)


@pytest.mark.parametrize(("statement", "lines"), [
    (Store(C, (k,), Load(C, (Const(3),)) + 1.0), ["C[k] = C[3] + T.float32(1.0)"]),
    (seq(update(i), update(12 - i)), ["C[i] = C[i] + A[k]", "C[12 - i] = C[12 - i] + A[k]"]),
    (For(j, Const(4), Store(C, (i,), Load(A, (i,))), Kind.VECTORIZED), ["for j in T.vectorized(4):", "    C[i] = A[i]"]),
], ids=["one moves and meets the other", "they may be one", "one place for all lanes"])  # fmt: skip
def test_places_that_are_not_provably_apart_stay_in_memory(statement, lines):
    expected = "\n    ".join(["for i, k in T.grid(13, 5):", *lines])
    after(func(For(i, Const(13), For(k, Const(5), statement))), "promote_registers").becomes(expected)


FILL = Store(C, (i,), Const(7.0, "float32"))
READ = Store(X, (Const(0),), Load(X, (Const(0),)) + Load(C, (i,)).astype("int32"))


@pytest.mark.parametrize(("before", "statement"), [
    (Store(C, (i,), Load(A, (i,))), update(i)),  # no constant
    (For(j, Const(13), Store(C, (j,), Const(7.0, "float32"))), update(i)),  # more places
    (If(Binary("<", i, Const(5)), FILL), update(i)),  # fewer
    (seq(FILL, Store(X, (i,), Const(3))), update(i)),  # something else too
    (FILL, seq(update(i), Store(X, (k,), Load(X, (k,)) + 1))),  # as it should be, beside a store that stays in memory
    (FILL, READ),  # only read
], ids=["no constant", "more", "fewer", "another", "beside", "read"])  # fmt: skip
def test_what_the_registers_start_from(before, statement):
    """Only an init of just these places goes; whatever is before the loop, the numbers stay."""
    program = func(For(i, Const(13), seq(before, For(k, Const(5), statement))), X)
    lowered = lower(program, Target("llvm", num_cores=1), after="promote_registers").script()
    assert ("C_reg[0] = T.float32(7.0)" in lowered) is (before is FILL and statement != READ)
    same(program)


def test_an_init_of_a_place_that_is_only_read_stays():
    """C[2 i + 1] keeps its 7 in memory: nothing writes it back behind the loop."""
    odd = (i * 2 + 1,)
    seven = Const(7.0, "float32")
    before = [Store(C, (i * 2,), seven), Store(C, odd, seven)]
    add = Store(C, (i * 2,), Load(C, (i * 2,)) + Load(C, odd) * Load(A, (k,)))
    same(func(For(i, Const(6), seq(*before[:1], seq(*before), For(k, Const(5), add)))))
    nest = For(j, Const(2), Store(C, (i * 2 + j,), seven))
    same(func(For(i, Const(6), seq(nest, For(k, Const(5), add)))))


def test_two_places_apart_are_two_registers():
    after(
        func(For(i, Const(6), For(k, Const(5), seq(update(i * 2), Store(C, (i * 2 + 1,), Load(C, (i * 2 + 1,)) * 2.0))))),
        "promote_registers",
    ).becomes("""
        for i in range(6):
            C_reg = T.decl_buffer((1,), scope="register")
            C_reg_1 = T.decl_buffer((1,), scope="register")
            C_reg[0] = C[i * 2]
            C_reg_1[0] = C[i * 2 + 1]
            for k in range(5):
                C_reg[0] = C_reg[0] + A[k]
                C_reg_1[0] = C_reg_1[0] * T.float32(2.0)
            C[i * 2] = C_reg[0]
            C[i * 2 + 1] = C_reg_1[0]
    """)


def test_an_index_that_the_body_changes_stays_in_memory():
    """X[0] moves C's place; X itself may be a register."""
    here = Load(X, (Const(0),))
    after(func(For(k, Const(5), seq(Store(X, (Const(0),), k), update(here))), X), "promote_registers").becomes("""
        X_reg = T.decl_buffer((1,), "int32", scope="register")
        X_reg[0] = X[0]
        for k in range(5):
            X_reg[0] = k
            C[X_reg[0]] = C[X_reg[0]] + A[k]
        X[0] = X_reg[0]
    """)


def test_an_index_in_a_register_is_read_anew_after_each_change():
    here = Load(X, (Const(0),))
    one = Store(C, (here,), Load(C, (here,)) + 1.0)
    same(func(For(k, Const(5), seq(Store(X, (Const(0),), k), one, Store(X, (Const(0),), k + 3), one)), X))


def test_a_place_that_moves_with_a_loaded_index():
    """The guard says that X[0] is inside, and then it changes."""
    here = Load(X, (Const(0),))
    inside = Binary("and", Binary(">=", here, Const(0)), Binary("<", here, Const(13)))
    same(func(If(inside, For(k, Const(5), seq(update(here), Store(X, (Const(0),), k * 2 + 3)))), X))


def test_a_load_that_the_first_lane_needs_has_no_guard():
    """That A has the row is not proved from `h * 8 + i * 2 < 13`; the first lane is always there, and reads it, too."""
    lane = Var("lane")
    D, E, F = Buffer("D", (Const(7), Const(5))), Buffer("E", (Const(5), Const(24))), Buffer("F", (Const(7), Const(20)))
    row, column = h * 4 + i, x * 8 + lane
    one = Store(F, (row, column), Load(F, (row, column)) + Load(D, (row, k)) * Load(E, (k, column)))
    inside = Binary("and", Binary("<", h * 8 + i * 2, Const(13)), Binary("<", column, Const(20)))
    tile = For(i, Const(4), For(lane, Const(8), If(inside, one), Kind.VECTORIZED), Kind.UNROLLED)
    nest = For(h, Const(2), For(x, Const(3), For(k, Const(5), tile)))
    lowered = lower(PrimFunc("main", (D, E, F), nest), Target("llvm", num_cores=1, vector_bits=256), after="promote_registers")
    sums = [s for s in walk_stmts(lowered.body) if isinstance(s, For) and s.name.startswith("k")]
    assert len(sums) == 3 and not any(isinstance(s, If) for loop in sums for s in walk_stmts(loop))
    same(PrimFunc("main", (D, E, F), nest))


def test_a_load_that_the_first_lane_may_not_need_keeps_its_guard():
    """The first lane reads `D[h]` only where the data say so."""
    D, F, S = Buffer("D", (Const(2),)), Buffer("F", (Const(4), Const(4), Const(4))), Buffer("S", (Const(4), Const(4)), "int32")
    one = Store(F, (h, x, i), Load(F, (h, x, i)) + Load(D, (h,)))
    inside = If(Binary(">", Load(S, (h, i)), Const(0)), If(Binary("<", i + x, Const(4)), one))
    rows = For(x, Const(4), For(k, Const(5), For(i, Const(4), inside, Kind.UNROLLED)), Kind.PARALLEL)
    nest = For(h, Const(4), rows, Kind.PARALLEL)
    lowered = lower(PrimFunc("main", (D, F, S), nest), Target("llvm -num-cores 1"), after="promote_registers")
    sums = next(s for s in walk_stmts(lowered.body) if isinstance(s, For) and s.name == "k")
    assert sum(isinstance(s, If) for s in walk_stmts(sums)) == 2


@pytest.mark.parametrize("read", [
    lambda D: Select(Binary(">", i, Const(1)), Load(D, (h,)), const(0, "float32"), lazy=True),
    lambda D: Select(Binary("<", i, Const(2)), const(0, "float32"), Load(D, (h,)), lazy=True),
    lambda D: Load(D, (x // 2,)),
], ids=["where it is chosen", "where it is not", "at what a let says"])  # fmt: skip
def test_a_load_that_some_of_the_tile_do_keeps_its_guard(read):
    """`i + h < 4` alone says that no more than the two elements of D are read; the first iteration of the tile reads none, or
    another."""
    D, F = Buffer("D", (Const(2),)), Buffer("F", (Const(4), Const(4)))
    one = If(Binary("<", i + h, Const(4)), Store(F, (h, i), Load(F, (h, i)) + read(D)))
    tile = For(i, Const(4), Let(x, i * h, one), Kind.UNROLLED)
    same(PrimFunc("main", (D, F), For(h, Const(4), For(k, Const(5), tile))), fences=True)


@pytest.mark.parametrize(("extent", "registers"), [(Const(5), True), (Var("n"), False)])
def test_a_place_that_is_certainly_stored_to_is_inside(extent, registers):
    """Not where the loop may run no time: nothing says then where X[0] is."""
    sums = func(For(k, extent, update(Load(X, (Const(0),)))), X, *([extent] if isinstance(extent, Var) else []))
    lowered = lower(sums, Target("llvm -num-cores 1"), after="promote_registers")
    assert any(isinstance(s, Allocate) for s in walk_stmts(lowered.body)) is registers
    for places, length in [([12], 5), ([99], 0)] if isinstance(extent, Var) else [([12], 5)]:
        args = [np.ones(13, "float32"), np.ones(13, "float32"), np.array(places * 13, "int32")]
        same(sums, [*args, length] if isinstance(extent, Var) else args)


def test_a_temporary_of_the_iteration_is_none_of_ours():
    t = Buffer("T", (Const(1),))
    body = Allocate(t, seq(Store(t, (Const(0),), Load(A, (k,))), Store(C, (k,), Load(t, (Const(0),)))))
    after(func(For(k, Const(5), body)), "promote_registers").becomes("""
        for k in range(5):
            T = T.decl_buffer((1,))
            T[0] = A[k]
            C[k] = T[0]
    """)


def test_lanes_around_the_reduction():
    """The lane belongs to a loop outside: loads and stores of the register stand in it already."""
    body = For(j, Const(8), For(k, Const(5), update(j)), Kind.VECTORIZED)
    after(func(body), "promote_registers").becomes("""
        for j in T.vectorized(8):
            C_reg = T.decl_buffer((8,), scope="register")
            C_reg[j] = C[j]
            for k in range(5):
                C_reg[j] = C_reg[j] + A[k]
            C[j] = C_reg[j]
    """)


def test_an_unrolled_reduction():
    """Written out, the reduction would store C once a step; registers stay around the copies, inside the loop that moves C."""
    s = Schedule(matmul(3, 12, 24))
    i, j, k = s.get_loops("C")
    k0, k1 = s.split(k, [None, 4])
    j0, j1 = s.split(j, [None, 8])
    s.reorder(i, k0, j0, k1, j1)
    s.decompose_reduction("C", k0)
    s.unroll(k1)
    s.vectorize(j1)
    after(s.func, "promote_registers").becomes("""
        for i in range(3):
            for j_0_init, j_1_init in T.grid(3, 8):
                C[i, j_0_init * 8 + j_1_init] = T.float32(0.0)
            for k_0, j_0 in T.grid(3, 3):
                C_reg = T.decl_buffer((8,), scope="register")
                for j_1_1 in T.vectorized(8):
                    C_reg[j_1_1] = C[i, j_0 * 8 + j_1_1]
                for k_1 in T.unroll(4):
                    for j_1 in T.vectorized(8):
                        C_reg[j_1] = C_reg[j_1] + A[i, k_0 * 4 + k_1] * B[k_0 * 4 + k_1, j_0 * 8 + j_1]
                for j_1_2 in T.vectorized(8):
                    C[i, j_0 * 8 + j_1_2] = C_reg[j_1_2]
    """)
