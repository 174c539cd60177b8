"""Guards leave the inner loops: loops stop where their guard would, and full tiles run without one."""

import pytest

import codegen
from codegen import Target, lower
from schedule import Schedule
from tests.codegen.harness import ONE, after, integers, same
from tests.programs import matmul, vector
from tests.tir.script.parsing import parsed
from tir import te
from tir.ir import Binary, Buffer, Const, For, If, Kind, Load, PrimFunc, Store, Var, seq
from tir.traverse import walk_stmts

A, C = Buffer("A", (Const(13),), "int32"), Buffer("C", (Const(13),), "int32")
i, j, k = Var("i"), Var("j"), Var("k")


def less(a, b):
    return Binary("<", a, b)


def test_a_serial_loop_stops_where_its_guard_would():
    s = Schedule(vector(13))
    s.split("i", [None, 4])
    after(s.func, "clip_loops").becomes("""
        for i_0 in range(4):
            for i_1 in range(T.min(4, 13 - i_0 * 4)):
                B[i_0 * 4 + i_1] = A[i_0 * 4 + i_1] * T.float32(2.0)
    """)


def test_loops_that_would_start_outside_do_not_run():
    """26 iterations for 13 elements: the last outer ones have none, and a negative extent is none."""
    s = Schedule(vector(13))
    s.split("i", [3, 5])
    func = s.func
    after(func, "clip_loops").becomes("""
        for i_0 in range(3):
            for i_1 in range(T.min(5, 13 - i_0 * 5)):
                B[i_0 * 5 + i_1] = A[i_0 * 5 + i_1] * T.float32(2.0)
    """)
    n = For(i, Const(9), For(j, Const(3), If(less(i * 3 + j, Const(13)), Store(C, (i * 3 + j,), Load(A, (i * 3 + j,))))))
    after(PrimFunc("main", (A, C), n), "clip_loops").becomes("""
        for i in range(5):
            for j in range(T.min(3, 13 - i * 3)):
                C[i * 3 + j] = A[i * 3 + j]
    """)


@pytest.mark.parametrize("less_tiles", [0, 1])
def test_whole_tiles_of_an_open_size_have_no_guard(less_tiles):
    """i < n // 4 - t says that 4 (i + t + 1) <= n, of tiles that start `t` tiles further."""
    n, at = Var("n"), (i + less_tiles) * 4 + j
    tile = For(j, Const(4), If(less(at, n), Store(C, (at,), Load(A, (at,)))))
    lowered = lower(PrimFunc("main", (A, C, n), For(i, n // 4 - less_tiles, tile)), Target("llvm"), after="clip_loops")
    assert ", 4):" in lowered.script() and not any(isinstance(s, If) for s in walk_stmts(lowered.body))


def test_a_guard_goes_where_the_loop_of_its_multiple_is_shorter():
    """i_0 < (-i_1) // 2 + 7 says that 2 i_0 + i_1 <= 12."""
    s = Schedule(vector(13))
    s.split("i", [None, 2])
    s.reorder("i_1", "i_0")
    after(s.func, "clip_loops").becomes("""
        for i_1 in range(2):
            for i_0 in range(i_1 * -1 // 2 + 7):
                B[i_0 * 2 + i_1] = A[i_0 * 2 + i_1] * T.float32(2.0)
    """)


def test_a_condition_on_a_fused_loop_is_tested_once_an_iteration():
    """No extent says which iterations have work, as the guard is on a quotient and a remainder."""
    s = Schedule(matmul(7, 5, 3))
    i, j, k = s.get_loops("C")
    i0, i1 = s.split(i, [None, 2])
    s.reorder(i1, i0, j, k)
    s.fuse(i1, i0)
    after(s.func, "clip_loops").becomes("""
        for i_1_i_0_fused in range(8):
            if i_1_i_0_fused % 4 * 2 + i_1_i_0_fused // 4 < 7:
                for j in range(3):
                    C[i_1_i_0_fused % 4 * 2 + i_1_i_0_fused // 4, j] = T.float32(0.0)
                    for k in range(5):
                        C[i_1_i_0_fused % 4 * 2 + i_1_i_0_fused // 4, j] = C[i_1_i_0_fused % 4 * 2 + i_1_i_0_fused // 4, j] + A[i_1_i_0_fused % 4 * 2 + i_1_i_0_fused // 4, k] * B[k, j]
    """)


@pytest.mark.parametrize("body", [
    For(j, i, If(less(12 // i, Const(5)), Store(C, (j,), Load(A, (i,)) + j))),
    If(Binary(">", Load(A, (i,)), Const(50)), For(j, Const(4), If(less(12 // i, Const(5)), Store(C, (j,), Load(A, (i,)))))),
    For(j, Const(1), If(Binary(">", i, Const(0)), If(less(12 // i, Const(5)), Store(C, (i,), Load(A, (i,)))))),
], ids=["a loop that does not run", "data", "a condition"])  # fmt: skip
def test_a_division_is_not_done_where_something_else_keeps_it_from_zero(body):
    same(PrimFunc("main", (A, C), For(i, Const(13), body)))


def test_every_guard_finds_its_loop():
    s = Schedule(matmul(7, 5, 13))
    s.split("k", [None, 2])
    s.split("j", [None, 4])
    s.reorder("k_0", "i", "k_1", "j_0", "j_1")
    after(s.func, "clip_loops").becomes("""
        for i_init, j_0_init in T.grid(7, 4):
            for j_1_init in range(T.min(4, 13 - j_0_init * 4)):
                C[i_init, j_0_init * 4 + j_1_init] = T.float32(0.0)
        for k_0, i in T.grid(3, 7):
            for k_1, j_0 in T.grid(T.min(2, 5 - k_0 * 2), 4):
                for j_1 in range(T.min(4, 13 - j_0 * 4)):
                    C[i, j_0 * 4 + j_1] = C[i, j_0 * 4 + j_1] + A[i, k_0 * 2 + k_1] * B[k_0 * 2 + k_1, j_0 * 4 + j_1]
    """)


def test_a_guard_on_only_part_of_the_body_stays():
    body = seq(Store(C, (i,), Load(A, (i,))), If(less(i, Const(7)), Store(C, (i + 1,), Const(5))))
    after(PrimFunc("main", (A, C), For(i, Const(12), body)), "clip_loops").becomes("""
        for i in range(12):
            C[i] = A[i]
            if i < 7:
                C[i + 1] = 5
    """)


def test_a_guard_on_loaded_values_stays():
    """The body changes what the guard reads: it cannot be asked once, before the loop."""
    condition = less(i, Load(C, (Const(0),)))
    body = If(condition, Store(C, (Const(0),), Load(C, (Const(0),)) - 1))
    fill = Store(C, (Const(0),), Const(9))
    after(PrimFunc("main", (A, C), seq(fill, For(i, Const(12), body))), "clip_loops").becomes("""
        C[0] = 9
        for i in range(12):
            if i < C[0]:
                C[0] = C[0] - 1
    """)


def test_a_guard_on_bytes_that_wrap_stays():
    narrow = Var("i").astype("uint8")
    body = If(less(narrow + Const(250, "uint8"), Const(255, "uint8")), Store(C, (i,), Const(1)))
    after(PrimFunc("main", (A, C), For(i, Const(13), body)), "clip_loops").becomes("""
        for i in range(13):
            if T.Cast("uint8", i) + T.uint8(250) < T.uint8(255):
                C[i] = 1
    """)


def test_a_guard_on_the_lanes_around_a_loop_stays():
    """Lanes run the loop together; the guard is a mask."""
    body = If(less(j * 4 + i, Const(13)), Store(C, (j * 4 + i,), Load(A, (j * 4 + i,))))
    after(PrimFunc("main", (A, C), For(i, Const(4), For(j, Const(4), body), Kind.VECTORIZED)), "clip_loops").becomes("""
        for i in T.vectorized(4):
            for j in range(4):
                if j * 4 + i < 13:
                    C[j * 4 + i] = A[j * 4 + i]
    """)


def test_full_tiles_run_without_a_guard():
    s = Schedule(vector(13))
    s.split("i", [None, 2, 4])
    s.unroll("i_1")
    s.vectorize("i_2")
    after(s.func, "version_guards").becomes("""
        for i_0 in range(2):
            if i_0 * 8 < 6:
                for i_1 in T.unroll(2):
                    for i_2 in T.vectorized(4):
                        B[i_0 * 8 + i_1 * 4 + i_2] = A[i_0 * 8 + i_1 * 4 + i_2] * T.float32(2.0)
            else:
                for i_1 in T.unroll(2):
                    for i_2 in T.vectorized(4):
                        if i_1 * 4 + i_2 + 8 < 13:
                            B[i_1 * 4 + i_2 + 8] = A[i_1 * 4 + i_2 + 8] * T.float32(2.0)
    """)


def test_loops_of_the_partial_tile_are_as_long_as_it_is():
    """Those of accumulators are vectors still, whose guard leaves them later."""
    partial = less(i * 4 + j, Const(13))
    copy = For(j, Const(4), If(partial, Store(C, (i * 4 + j,), Load(A, (i * 4 + j,)))), Kind.VECTORIZED)
    add = For(k, Const(4), If(less(i * 4 + k, Const(13)), Store(C, (i * 4 + k,), Load(C, (i * 4 + k,)) + 1)), Kind.VECTORIZED)
    after(PrimFunc("main", (A, C), For(i, Const(4), seq(copy, add))), "version_guards").becomes("""
        for i in range(4):
            if i * 4 < 10:
                for j in T.vectorized(4):
                    C[i * 4 + j] = A[i * 4 + j]
                for k in T.vectorized(4):
                    C[i * 4 + k] = C[i * 4 + k] + 1
            else:
                for j in T.vectorized(1):
                    C[j + 12] = A[j + 12]
                for k in T.vectorized(4):
                    if k + 12 < 13:
                        C[k + 12] = C[k + 12] + 1
    """)


def tiles_of_blocks() -> PrimFunc:
    """Two stores in tiles of three, two in a block, each under a guard of its own."""

    def tile(var: Var, value) -> For:
        place = i * 6 + k * 3 + var
        return For(var, Const(3), If(less(place, Const(7)), Store(C, (place,), value(Load(A, (place,))))), Kind.UNROLLED)

    body = seq(tile(j, lambda x: x), tile(Var("h"), lambda x: x + 1))
    return PrimFunc("main", (A, C), For(i, Const(2), For(k, Const(2), body)))


def test_a_loop_of_two_guards_stops_where_both_would():
    assert "for k in range(T.min(2, 3 - i * 2)):" in lower(tiles_of_blocks(), Target("llvm"), after="clip_loops").script()


def test_the_last_tile_of_blocks_of_tiles():
    """It is the last tile of the last block; none is empty."""
    after(tiles_of_blocks(), "version_guards").becomes("""
        for i in range(2):
            for k in range(T.min(2, 3 - i * 2)):
                if i * 6 + k * 3 < 5:
                    for j in T.unroll(3):
                        C[i * 6 + k * 3 + j] = A[i * 6 + k * 3 + j]
                    for h in T.unroll(3):
                        C[i * 6 + k * 3 + h] = A[i * 6 + k * 3 + h] + 1
                else:
                    for j in T.unroll(1):
                        C[j + 6] = A[j + 6]
                    for h in T.unroll(1):
                        C[h + 6] = A[h + 6] + 1
    """)


def test_the_test_stands_outside_the_reduction():
    s = Schedule(matmul(7, 5, 13))
    s.split("i", [None, 2])
    s.split("j", [None, 8])
    s.reorder("i_0", "j_0", "k", "i_1", "j_1")
    s.unroll("i_1")
    s.vectorize("j_1")
    after(s.func, "version_guards").becomes("""
        for i_0, j_0 in T.grid(4, 2):
            if j_0 * 8 < 6 and i_0 * 2 < 6:
                for i_1_init in range(2):
                    for j_1_init in T.vectorized(8):
                        C[i_0 * 2 + i_1_init, j_0 * 8 + j_1_init] = T.float32(0.0)
                for k in range(5):
                    for i_1 in T.unroll(2):
                        for j_1 in T.vectorized(8):
                            C[i_0 * 2 + i_1, j_0 * 8 + j_1] = C[i_0 * 2 + i_1, j_0 * 8 + j_1] + A[i_0 * 2 + i_1, k] * B[k, j_0 * 8 + j_1]
            else:
                if i_0 * 2 < 6:
                    for i_1_init in range(2):
                        for j_1_init in T.vectorized(8):
                            if j_1_init + 8 < 13:
                                C[i_0 * 2 + i_1_init, j_1_init + 8] = T.float32(0.0)
                    for k in range(5):
                        for i_1 in T.unroll(2):
                            for j_1 in T.vectorized(8):
                                if j_1 + 8 < 13:
                                    C[i_0 * 2 + i_1, j_1 + 8] = C[i_0 * 2 + i_1, j_1 + 8] + A[i_0 * 2 + i_1, k] * B[k, j_1 + 8]
                else:
                    for i_1_init in range(1):
                        for j_1_init in T.vectorized(8):
                            if j_0 * 8 + j_1_init < 13:
                                C[6, j_0 * 8 + j_1_init] = T.float32(0.0)
                    for k in range(5):
                        for i_1 in T.unroll(1):
                            for j_1 in T.vectorized(8):
                                if j_0 * 8 + j_1 < 13:
                                    C[i_1 + 6, j_0 * 8 + j_1] = C[i_1 + 6, j_0 * 8 + j_1] + A[i_1 + 6, k] * B[k, j_0 * 8 + j_1]
    """)


def test_a_sum_is_versioned_apart_from_what_follows_it():
    """What follows has a serial loop of its own in its guards; the sum runs in registers all the same."""
    A, B, k = te.placeholder((7, 5), name="A"), te.placeholder((5, 42), name="B"), te.reduce_axis((0, 5), name="k")
    C = te.compute((7, 42), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = Schedule(te.create_prim_func([A, B, te.compute((7, 42), lambda i, j: C[i, j] + 1.0, name="D")]))
    i, j, k = s.get_loops("C")
    i0, i1 = s.split(i, [None, 4])
    j0, j1 = s.split(j, [None, 16])
    s.reorder(i0, j0, k, i1, j1)
    s.reverse_compute_at("D", j0)
    s.unroll(i1)
    s.vectorize(j1)
    *_, row, column = s.get_loops("D")
    column, lane = s.split(column, [None, 8])
    s.reorder(column, row, lane)
    s.unroll(row)
    s.vectorize(lane)
    lowered = lower(s.func, Target("llvm", num_cores=1, vector_bits=256), after="promote_registers")
    sums = [x for x in walk_stmts(lowered.body) if isinstance(x, For) and x.name.startswith("k")]
    assert sums and not any(isinstance(x, If) for loop in sums for x in walk_stmts(loop))
    same(s.func)


def test_tiles_of_fused_loops():
    """The last tile of rows is known by the quotient of the fused loop; that of lanes has one mask for all rows."""
    s = Schedule(matmul(7, 5, 13))
    s.split("i", [None, 2])
    s.split("j", [None, 8])
    s.reorder("i_0", "j_0", "k", "i_1", "j_1")
    s.parallel(s.fuse("i_0", "j_0"))
    s.unroll("i_1")
    s.vectorize("j_1")
    text = lower(s.func, Target("llvm", num_cores=2, vector_bits=256), after="version_guards").script()
    assert (text.count("for k in"), text.count("C[i_1 + 6, "), text.count("< 7")) == (3, 2, 0)  # each sum reads and writes C
    same(s.func)


def test_a_guard_that_fails_in_every_tile_keeps_no_other():
    """The only tile of columns is a partial one; whole tiles of rows still run without their guard."""
    s = Schedule(matmul(7, 3, 5))
    s.split("i", [None, 2])
    s.split("j", [None, 8], preserve_unit_iters=False)
    s.reorder("i_0", "k", "i_1", "j_1")
    s.decompose_reduction("C", "k")
    s.unroll("i_1")
    s.vectorize("j_1")
    after(s.func, "version_guards").becomes("""
        for i_0 in range(4):
            if i_0 * 2 < 6:
                for i_1_init, j_1_init in T.grid(2, 5):
                    C[i_0 * 2 + i_1_init, j_1_init] = T.float32(0.0)
                for k in range(3):
                    for i_1 in T.unroll(2):
                        for j_1 in T.vectorized(8):
                            if j_1 < 5:
                                C[i_0 * 2 + i_1, j_1] = C[i_0 * 2 + i_1, j_1] + A[i_0 * 2 + i_1, k] * B[k, j_1]
            else:
                for i_1_init, j_1_init in T.grid(1, 5):
                    C[6, j_1_init] = T.float32(0.0)
                for k in range(3):
                    for i_1 in T.unroll(1):
                        for j_1 in T.vectorized(8):
                            if j_1 < 5:
                                C[i_1 + 6, j_1] = C[i_1 + 6, j_1] + A[i_1 + 6, k] * B[k, j_1]
    """)


def test_a_whole_function_of_one_partial_tile():
    """No loop around: the guard is decided at once, or stays."""
    body = For(i, Const(16), If(less(i, Const(13)), Store(C, (i,), Load(A, (i,)))), Kind.VECTORIZED)
    after(PrimFunc("main", (A, C), body), "version_guards", lanes=16).becomes("""
        for i in T.vectorized(16):
            if i < 13:
                C[i] = A[i]
    """)


def test_a_guard_on_loaded_values_is_not_versioned():
    body = For(j, Const(4), If(less(Load(A, (i,)) + j, Const(2)), Store(C, (i,), Load(C, (i,)) + j)), Kind.UNROLLED)
    after(PrimFunc("main", (A, C), For(i, Const(13), body)), "version_guards").becomes("""
        for i in range(13):
            for j in T.unroll(4):
                if A[i] + j < 2:
                    C[i] = C[i] + j
    """)


def test_lanes_within_an_image_are_read_without_its_padding():
    """Where a masked load costs instructions; with mask registers it does not."""
    x = te.placeholder((24,), name="x")
    s = Schedule(
        te.create_prim_func([x, te.compute((24,), lambda i: te.if_then_else(te.all(i >= 1, i < 23), x[i - 1], 0.0), name="y")])
    )
    _, lane = s.split("i", [None, 8])
    s.vectorize(lane)
    same(s.func, fences=True, targets=[ONE, f"{ONE} -mcpu x86-64-v3"])
    found = [lower(s.func, Target(f"{ONE} -mcpu {level}")).script() for level in ("x86-64-v3", "x86-64-v4")]
    assert [text.count("x[") for text in found] == [3, 1]
    assert "if i_0 * -8 < 0 and i_0 * 8 < 16:" in found[0]


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_lanes_whose_quotients_are_all_inside_are_read_without_a_mask(level):
    """Four rows side by side: a mask register would be computed of sixteen quotients for each vector."""
    func = parsed(
        """
        for i, j0 in T.grid(3, 4):
            for j1 in T.vectorized(16):
                B[j0, i, j1] = T.if_then_else(j0 * 4 + j1 // 4 < 13, A[i * 4 + j1 % 4, j0 * 4 + j1 // 4], T.int8(0))
        """,
        'A: T.Buffer((12, 13), "int8"), B: T.Buffer((4, 3, 16), "int8")',
    )
    target = f"{ONE} -mcpu {level}"
    same(func, fences=True, targets=[ONE, target])
    text = lower(func, Target(target), after="version_guards").script()
    assert "if j0 * 4 < 10:" in text and text.count("T.if_then_else") == 1


@pytest.mark.parametrize("n", [13, 28, 109])
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
def test_the_masks_of_the_last_tile_are_numbers(n, level):
    """The first tile has padding on its left, the last one on its right, and ends within a vector: it stores whole pieces."""
    x = te.placeholder((n,), name="x")
    padded = te.compute((n,), lambda i: te.if_then_else(te.all(i >= 1, i < n - 1), x[i - 1] + x[i + 1], 0.0), name="y")
    s = Schedule(te.create_prim_func([x, padded]))
    s.vectorize(s.split("i", [None, 8])[1])
    target = f"{ONE} -mcpu {level}"
    same(s.func, fences=True, targets=[ONE, target])
    assert "masked.store" not in codegen.build(s.func, target).llvm_ir()


def test_what_is_bound_below_is_no_test_outside():
    func = parsed(
        """
        for i, j0 in T.grid(13, 3):
            q: T.int32 = T.min(I[i], 5)
            for j1 in T.vectorized(8):
                B[i, j0 * 8 + j1] = T.if_then_else(j0 * 8 + j1 >= q, A[i, j0 * 8 + j1], T.float32(0.0))
        """,
        'A: T.Buffer((13, 24), "float32"), I: T.Buffer((13,), "int32"), B: T.Buffer((13, 24), "float32")',
    )
    lowered = lower(func, Target("llvm -mcpu haswell"), after="version_guards")
    assert "if" not in lowered.outline().split("q = ")[0]


def test_a_tile_of_an_open_number_of_rows_has_versions_for_few():
    """Rows of a tile that are not there are computed, too, so that each version has at most some more than there are."""
    s = Schedule(matmul(Var("m"), 5, 16))
    s.split("i", [None, 13])
    s.split("j", [None, 8])
    s.reorder("i_0", "j_0", "k", "i_1", "j_1")
    s.unroll("i_1")
    s.vectorize("j_1")
    s.decompose_reduction("C", "k")
    found = lower(s.func, Target("llvm", num_cores=1, vector_bits=256), after="version_guards")
    unrolled = {x.extent.value for x in walk_stmts(found.body) if isinstance(x, For) and x.kind is Kind.UNROLLED}
    assert {13, 9, 6, 3} <= unrolled
    for m in (1, 3, 4, 6, 7, 9, 10, 13, 14, 16, 17, 22, 25, 27):
        same(s.func, integers(s.func, 0, {"m": m}))
