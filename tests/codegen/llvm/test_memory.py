"""Annotations about memory: stores that bypass the caches, and elements fetched ahead; and what happens where memory is short."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import codegen
from schedule import Schedule
from tests.arrays import integers
from tests.codegen.harness import ONE, TWO, same
from tests.codegen.matmul import tiled
from tests.programs import matmul
from tir import te
from tir.interpreter import run
from tir.ir import Allocate, Buffer, Cast, Const, For, Kind, Load, PrimFunc, Store, Var, seq
from tir.script import parse

STORE = re.compile(r"store <\d+ x \w+> [^\n]*?, align (\d+)(, !nontemporal)?")


def plus_one(*shape: int, dtype: str = "float32") -> PrimFunc:
    x = te.placeholder(shape, dtype, name="x")
    return te.create_prim_func([x, te.compute(shape, lambda *i: x[i] + te.const(1, dtype), name="y")])


def streamed(*shape: int, lanes: int = 32, dtype: str = "float32", parallel: bool = False) -> PrimFunc:
    """y = x + 1 with the innermost loop in strips of `lanes`, whose stores to y bypass the caches."""
    s = Schedule(plus_one(*shape, dtype=dtype))
    _, inner = s.split(s.get_loops("y")[-1], [None, lanes])
    s.vectorize(inner)
    first = s.get_loops("y")[0]
    if parallel:
        s.parallel(first)
    s.annotate(first, "non_temporal", "y")
    return s.func


def stores_of(func: PrimFunc, target: str = ONE) -> list[tuple[int, bool]]:
    """(alignment, whether it bypasses the caches) of each vector store."""
    return [(int(a), bool(n)) for a, n in STORE.findall(codegen.build(func, f"{target} -mcpu x86-64-v4").llvm_ir())]


@pytest.mark.parametrize("shape", [(7, 5), (3, 16), (2, 13, 3)])
def test_lanes_run_on_from_row_to_row(shape):
    """Two axes made one are one piece of memory: vectors of it are loaded and stored as such, not gathered."""
    s = Schedule(plus_one(*shape))
    inner = s.split(s.fuse(*s.get_loops("y")), [None, 16])[1]
    s.vectorize(inner)
    text = codegen.build(s.func, f"{ONE} -mcpu x86-64-v4").llvm_ir()
    assert "gather" not in text and "scatter" not in text and "<16 x float>" in text
    same(s.func, fences=True)


# --- elements at a small distance ------------------------------------------------------------------------------------


def strided(n: int, size: int, stride: int, taps: int, first: int = 0, beside: float = 0.0) -> PrimFunc:
    """Sums of `taps` neighbours in an image that has the number `beside` on both sides, `first` of them before its elements."""
    X = te.placeholder((3, size), name="X")
    P = te.compute(
        (3, n * stride + taps),
        lambda c, i: te.if_then_else(te.all(i >= first, i < size + first), X[c, i - first], te.const(beside, "float32")),
        name="P",
    )
    r = te.reduce_axis((0, taps), name="r")
    s = Schedule(te.create_prim_func([X, te.compute((3, n), lambda c, i: te.sum(P[c, i * stride + r], axis=r), name="Y")]))
    s.compute_inline("P")
    c, i, r = s.get_loops("Y")
    outer, lane = s.split(i, [None, 8])
    s.reorder(c, outer, r, lane)
    s.unroll(r)
    s.vectorize(lane)
    return s.func


@pytest.mark.parametrize(
    "stride, taps, size, first, rows", [(2, 2, 64, 0, 2), (2, 3, 64, 1, 4), (3, 3, 96, 0, 3), (2, 2, 63, 0, 4)]
)
def test_rows_of_whole_groups_are_shared(stride, taps, size, first, rows):
    """Neighbours are picked from the same rows, unless groups of them may run over the end of the image."""
    func = strided(size // stride // 8 * 8, size, stride, taps, first)
    text = codegen.build(func, f"{ONE} -mcpu x86-64-v4").llvm_ir()
    found = re.findall(r"load <8 x float>, ptr %(?!Y_reg)|= call <8 x float> @llvm.masked.load", text)
    assert len(found) == rows and "gather" not in text


@pytest.mark.parametrize("seed", range(12))
def test_strided_numbers(seed):
    rng = np.random.default_rng(seed)
    stride, taps, first = (int(rng.integers(low, high)) for low, high in ((1, 5), (1, 6), (0, 3)))
    size = int(rng.integers(stride, 60)) if seed % 2 else stride * int(rng.integers(1, 20))
    func = strided(int(rng.integers(1, 30)), size, stride, taps, first, beside=float(seed % 3))
    same(func, fences=True, targets=[ONE, f"{ONE} -mcpu x86-64-v3"])


def rearranged(n: int, dtype: str = "float32", **formulas: Callable[..., Any]) -> PrimFunc:
    """A row of n elements of A and B in some order, in vectors of 16."""
    A, B = (te.placeholder((3, 2 * n), dtype, name=name) for name in "AB")
    (formula,) = formulas.values()
    s = Schedule(te.create_prim_func([A, B, te.compute((3, n), lambda i, j: formula(A, B, i, j), name="C")]))
    chunks, lanes = s.split(s.get_loops("C")[-1], [None, 16])
    s.unroll(chunks)
    s.vectorize(lanes)
    return s.func


ORDERS: dict[str, Callable[..., Any]] = {
    "twice": lambda A, B, i, j: A[i, j // 2],
    "pairs_exchanged": lambda A, B, i, j: A[i, j // 2 * 2 + 1 - j % 2],
    "in_turns": lambda A, B, i, j: te.if_then_else(te.equal(j % 2, 0), A[i, j // 2], B[i, j // 2]),
    "three_of_four": lambda A, B, i, j: A[i, j // 4 * 4 + j % 4 * 3 % 4],
    "windows": lambda A, B, i, j: te.if_then_else(j % 4 < 3, A[i, j // 4 + j % 4], 2.0) + B[i, j],
    "rows_of_four": lambda A, B, i, j: A[i, j % 4 * 2],
    "runs_of_17": lambda A, B, i, j: A[i, j // 17],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", [48, 41])
def test_orders_of_what_lies_near(order, n):
    """Lanes whose elements lie near to each other, as the numbers of the lanes say, are picked from what is loaded at once."""
    func = rearranged(n, formula=ORDERS[order])
    text = codegen.build(func, f"{ONE} -mcpu x86-64-v4").llvm_ir()
    assert "gather" not in text
    same(func, fences=True, targets=[ONE, f"{ONE} -mcpu x86-64-v3"])


@pytest.mark.parametrize("beside", [0.0, 3.0])
@pytest.mark.parametrize("order", ORDERS)
def test_orders_in_rows_that_may_not_exist(order, beside):
    """A condition of all lanes holds for what lies near, too, down to one element that all lanes read."""
    func = rearranged(48, formula=lambda A, B, i, j: te.if_then_else(i >= 1, ORDERS[order](A, B, i - 1, j), beside))
    same(func, fences=True, targets=[ONE, f"{ONE} -mcpu x86-64-v3"])


def test_what_lies_far_apart_is_gathered():
    text = codegen.build(rearranged(48, formula=lambda A, B, i, j: A[i, j % 2 * 90]), f"{ONE} -mcpu x86-64-v4").llvm_ir()
    assert "gather" in text


# --- stores ------------------------------------------------------------------------------------------------------------


def test_all_versions_are_there():
    """Results that begin at a line bypass the caches, others are stored as usual. The fence stands at the end."""
    func = streamed(128)
    assert stores_of(func) == [(64, True), (64, True), (4, False), (4, False)]
    text = codegen.build(func, f"{ONE} -mcpu x86-64-v4").llvm_ir()
    assert text.index("fence seq_cst") < text.index("ret i32 0") and text.count("fence") == 1
    asm = codegen.build(func, f"{ONE} -mcpu x86-64-v4").asm()
    assert asm.count("vmovntps") == 2 and not re.search(r"movnti", asm)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int64"])
@pytest.mark.parametrize("target", [ONE, TWO])
def test_every_dtype(dtype, target):
    same(streamed(7, 109, dtype=dtype, parallel=True), targets=[target], fences=True)


@pytest.mark.parametrize("shape", [(1,), (13,), (109,), (64,), (7, 13), (13, 64), (5, 109), (3, 2, 40)])
@pytest.mark.parametrize("lanes", [1, 4, 13, 16, 64])
def test_every_shape(shape, lanes):
    same(streamed(*shape, lanes=lanes), fences=True)


@pytest.mark.parametrize("offset", range(17))
def test_results_at_any_address(offset):
    func = streamed(13, 64)
    kernel = codegen.build(func, ONE)
    (x, y), storage = integers(func, 0), np.full(13 * 64 + 32, -9.0, "float32")
    y = storage[offset : offset + y.size].reshape(y.shape)
    kernel(x, y)
    assert np.array_equal(y, x + 1)
    assert np.all(storage[:offset] == -9) and np.all(storage[offset + y.size :] == -9)


def test_rows_that_are_not_aligned_are_stored_as_usual():
    assert not any(n for _, n in stores_of(streamed(13, 109)))
    assert any(n for _, n in stores_of(streamed(13, 96)))


def test_a_block_may_carry_it():
    s = Schedule(tiled(12, 7, 64, 6, 32))
    s.annotate("C_update", "non_temporal", ["C"])
    assert sum(n for _, n in stores_of(s.func)) == 12  # six rows of two vectors, behind the reduction
    same(s.func, fences=True)


def test_a_temporary_is_known_to_be_aligned():
    """It needs no second version."""
    x = te.placeholder((4096, 16), name="x")
    y = te.compute((4096, 16), lambda i, j: x[i, j] + 1.0, name="y")
    z = te.compute((4096, 16), lambda i, j: y[4095 - i, j], name="z")
    s = Schedule(te.create_prim_func([x, z]))
    for block in "yz":
        s.vectorize(s.get_loops(block)[1])
    s.annotate(s.get_loops("y")[0], "non_temporal", "y")
    assert stores_of(s.func) == [(64, True), (4, False)]
    same(s.func)


@pytest.mark.parametrize("columns, known", [(32, 32), (24, 32), (20, 16), (17, 4)])
def test_vectors_of_temporaries_are_as_aligned_as_their_rows(columns, known):
    """Rows of 128, 96, 80 and 68 bytes in memory that starts at a multiple of 64; of parameters only the elements are known."""
    x = te.placeholder((4099, columns), name="x")
    y = te.compute((4099, columns), lambda i, j: x[i, j] + 1.0, name="y")
    s = Schedule(te.create_prim_func([x, te.compute((4099, columns), lambda i, j: y[4098 - i, j], name="z")]))
    for block in "yz":
        _, inner = s.split(s.get_loops(block)[1], [None, 8])
        s.vectorize(inner)
    text = codegen.build(s.func, f"{ONE} -mcpu x86-64-v4").llvm_ir()
    found = {int(n) for n in re.findall(r"(?:load <8 x float>, ptr [^\n]*? align |masked.load[^\n]*?, i32 )(\d+)", text)}
    assert found == {4, known}  # strips of 8 floats start at multiples of 32 bytes in a row
    same(s.func)


def test_guarded_stores_are_usual_ones():
    s = Schedule(plus_one(109))
    outer, inner = s.split(s.get_loops("y")[0], [None, 16])
    s.vectorize(inner)
    s.annotate(outer, "non_temporal", "y")
    text = codegen.build(s.func, f"{ONE} -mcpu x86-64-v4").llvm_ir()
    assert "!nontemporal" in text and "masked.store" in text
    same(s.func, fences=True)


def test_the_first_lanes_of_a_vector_are_stored_in_whole_pieces():
    """Without mask registers: 15 elements as vectors of 8, 4 and 2, and one by itself."""
    s = Schedule(plus_one(15))
    s.vectorize("i0")
    text = codegen.build(s.func, f"{ONE} -mcpu x86-64-v3").llvm_ir()
    assert re.findall(r"store (<\d+ x float>|float) ", text) == ["<8 x float>", "float", "<2 x float>", "<4 x float>"]
    assert "masked.store" not in text and "masked.store" in codegen.build(s.func, f"{ONE} -mcpu x86-64-v4").llvm_ir()
    same(s.func, fences=True, targets=[ONE, f"{ONE} -mcpu x86-64-v3"])


def test_each_thread_ends_with_a_fence():
    text = codegen.build(streamed(12, 64, parallel=True), f"{TWO} -mcpu x86-64-v4").llvm_ir()
    workers = [f for f in text.split("\n\n") if "noinline" in f and "@tir.part(" not in f.partition("{")[0]]
    assert len(workers) == 2 and sorted(f.count("fence seq_cst") for f in workers) == [0, 1]


def test_the_second_parallel_loop_sees_what_the_first_streamed():
    x = te.placeholder((96, 64), name="x")
    y = te.compute((96, 64), lambda i, j: x[i, j] + 1.0, name="y")
    z = te.compute((96, 64), lambda i, j: y[95 - i, 63 - j], name="z")
    s = Schedule(te.create_prim_func([x, y, z]))
    for block in "yz":
        i, j = s.get_loops(block)
        s.parallel(i)
        s.vectorize(j)
        s.annotate(i, "non_temporal", block)
    for _ in range(20):
        same(s.func, targets=[TWO])


# --- prefetches --------------------------------------------------------------------------------------------------------


def prefetched(func: PrimFunc) -> list[tuple[str, int]]:
    """(what is prefetched for, how often it stands there), as LLVM IR has it."""
    text = codegen.build(func, f"{ONE} -mcpu x86-64-v4").llvm_ir()
    found = re.findall(r"call void @llvm.prefetch.p0\(ptr %\S+, i32 (\d), i32 3, i32 1\)", text)
    return [("read", found.count("0")), ("write", found.count("1"))]


def test_each_line_once():
    """64 floats are four lines, whoever reads them how often."""
    s = Schedule(plus_one(13 * 64))
    outer, inner = s.split(s.get_loops("y")[0], [None, 64])
    s.vectorize(inner)
    s.annotate(outer, "prefetch", ["x", 8])
    assert prefetched(s.func) == [("read", 4), ("write", 0)]
    s.annotate(outer, "prefetch", [["x", 8], ["y", 2]])
    assert prefetched(s.func) == [("read", 4), ("write", 4)]
    same(s.func, fences=True)


def test_the_operands_of_a_tile():
    """A row of B (two lines), and what holds a column of A, six rows of 52 bytes (five lines); C stays where it is."""
    s = Schedule(tiled(12, 13, 64, 6, 32))
    s.annotate("k", "prefetch", [["A", 16], ["B", 4]])
    assert prefetched(s.func) == [("read", 7), ("write", 0)]
    text = codegen.build(s.func, ONE).llvm_ir()
    assert re.search(rf"getelementptr i8, ptr %\S+, i64 {4 * 64 * 4}\n", text)  # four rows of B further
    same(s.func, fences=True)


def test_a_loop_further_out():
    """While a tile is computed, the lines of the next one come: six rows of two."""
    s = Schedule(tiled(12, 13, 64, 6, 32))
    s.vectorize("j_1_init")
    s.unroll("i_1_init")
    s.annotate("j_0", "prefetch", ["C", 1])
    assert prefetched(s.func) == [("read", 0), ("write", 12)]
    same(s.func, fences=True)


@pytest.mark.parametrize("kind", list(Kind)[:4])
def test_any_loop_may_carry_it(kind):
    func = plus_one(13, 16)
    loop = func.body
    assert isinstance(loop, For)
    same(func.with_(body=loop.with_(kind=kind, annotations=(("prefetch", ["x", 3]),))), fences=True)


def test_what_does_not_move_is_not_fetched():
    s = Schedule(matmul(7, 13, 16))
    s.vectorize("j")
    s.annotate("k", "prefetch", ["C", 1])
    assert prefetched(s.func) == [("read", 0), ("write", 0)]


def test_the_interpreter_ignores_them():
    s = Schedule(plus_one(13))
    s.annotate("i0", "prefetch", ["x", 100])
    s.annotate("i0", "non_temporal", "y")
    arrays = integers(s.func, 0)
    run(s.func, *arrays)
    assert np.array_equal(arrays[1], arrays[0] + 1)


# --- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("non_temporal", "x", "loop `i0`: non_temporal names `x`, which is not written there; `y` is"),
        ("non_temporal", ["y", "z"], "loop `i0`: non_temporal names `z`, which is not written there; `y` is"),
        ("prefetch", ["z", 1], "loop `i0`: prefetch names `z`, which is not accessed there; `x`, `y` is"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(key, value, message):
    s = Schedule(plus_one(13))
    s.annotate("i0", key, value)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        codegen.build(s.func, ONE)


# --- no memory ---------------------------------------------------------------------------------------------------------


def huge(kind: Kind) -> PrimFunc:
    """In each iteration a temporary of 2**50 bytes, of which it uses two elements that lie anywhere."""
    i = Var("i")
    at, out = Buffer("at", (Const(7),), "int64"), Buffer("out", (Const(7),))
    small, large = Buffer("small", (Const(1 << 20),)), Buffer("large", (Const(1 << 48),))
    places = Load(at, (i,)), Load(at, (Const(6) - i,))
    written = [Store(b, (p,), Cast("float32", p)) for b in (small, large) for p in places]
    body = seq(*written, Store(out, (i,), sum((Load(b, (p,)) for b in (small, large) for p in places), Const(0.0, "float32"))))
    return PrimFunc("main", (at, out), For(i, Const(7), Allocate(small, Allocate(large, body)), kind))


@pytest.mark.parametrize("kind", [Kind.SERIAL, Kind.PARALLEL])
@pytest.mark.parametrize("target", [ONE, TWO])
def test_no_memory_for_temporaries(kind, target):
    kernel = codegen.build(huge(kind), target)
    arrays = np.zeros(7, "int64"), np.zeros(7, "float32")
    for call in (lambda: kernel(*arrays), kernel.bind(*arrays), lambda: kernel.time(*arrays)):
        with pytest.raises(MemoryError, match=r"^main: no memory for its temporaries; the results are undefined$"):
            call()


# --- rows that lanes take in turn ------------------------------------------------------------------------------------------


def interleaved(rows: int, columns: int, dtype: str, count: int, across: bool = False, guarded: bool = False) -> Schedule:
    """`count` rows of A side by side in each column, or those of A transposed; with `guarded`, zeros beyond most of A."""
    a = te.placeholder((columns, rows) if across else (rows, columns), dtype, name="A")

    def element(r, j, q):
        i = r * count + q
        value = a[(j, i) if across else (i, j)]
        return te.if_then_else(te.all(i < rows - 1, j < columns - 3), value, te.const(0, dtype)) if guarded else value

    s = Schedule(te.create_prim_func([a, te.compute((rows // count, columns, count), element, name="B")]))
    _, lanes = s.split(s.fuse(*s.get_loops("B")[1:]), [None, 16 * count])
    s.vectorize(lanes)
    return s


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "int32"])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("guarded", [False, True])
def test_rows_are_woven(dtype, count, guarded):
    s = interleaved(12, 48, dtype, count, guarded=guarded)
    assert ".gather" not in codegen.dump(s.func, f"{ONE} -mcpu x86-64-v4", after="llvm_ir")
    same(s.func, targets=[ONE])


@pytest.mark.parametrize(("dtype", "count"), [("int8", 4), ("bfloat16", 2)])
def test_elements_of_32_bits_are_gathered_at_once(dtype, count):
    s = interleaved(12, 48, dtype, count, across=True)
    assert "gather.v16i32" in codegen.dump(s.func, f"{ONE} -mcpu x86-64-v4", after="llvm_ir")
    same(s.func, targets=[ONE])


@pytest.mark.parametrize(("dtype", "count"), [("int8", 4), ("bfloat16", 2)])
@pytest.mark.parametrize("copies", [16, 15])
def test_elements_of_32_bits_are_turned_round(dtype, count, copies):
    """Where copies of an unrolled loop take those side by side in a row: as many as there are lanes."""
    s = interleaved(copies * count * 2, 48, dtype, count, across=True)
    r, columns, lanes = s.get_loops("B")
    outer, inner = s.split(r, [None, copies])
    s.reorder(outer, columns, inner, lanes)
    s.unroll(inner)
    text = codegen.dump(s.func, f"{ONE} -mcpu x86-64-v4", after="llvm_ir")
    assert ("gather.v16i32" in text) == (copies < 16)
    assert text.count(f"load <{16 * count} x i{32 // count}>") == (16 if copies == 16 else 0)
    same(s.func, targets=[ONE], fences=True)


def test_other_places_are_as_they_were():
    """Three rows, or columns two apart, are no such rows."""
    a = te.placeholder((12, 96), "int32", name="A")
    for func in (
        te.create_prim_func([a, te.compute((4, 16, 3), lambda r, j, q: a[r * 3 + q, j], name="B")]),
        te.create_prim_func([a, te.compute((3, 16, 4), lambda r, j, q: a[r * 4 + q, j * 2], name="B")]),
    ):
        s = Schedule(func)
        s.vectorize(s.fuse(*s.get_loops("B")[1:]))
        same(s.func, targets=[ONE])


def test_a_place_that_is_read_on_a_condition_is_read_anew_on_another():
    """Rows of a cache of which one is new: copies of an unrolled loop have lanes in other rows."""
    old, new = te.placeholder((2, 4, 5), name="old"), te.placeholder((2, 1, 5), name="new")
    begin = te.placeholder((2,), "int64", name="begin")

    def formula(b, i, j):
        place = i.astype("int64") - begin[b]
        return te.if_then_else(te.all(place >= 0, place < 1), new[b, place, j], old[b, i, j])

    s = Schedule(te.create_prim_func([old, new, begin, te.compute((2, 4, 5), formula, name="out")]))
    s.vectorize(s.fuse(*s.get_loops("out")[1:]))
    arrays = [np.arange(40.0, dtype="float32").reshape(2, 4, 5), -np.ones((2, 1, 5), "float32"), np.array([1, 2])]
    out = np.zeros((2, 4, 5), "float32")
    codegen.build(s.func, ONE)(*arrays, out)
    expected = arrays[0].copy()
    expected[0, 1] = expected[1, 2] = -1
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("kind", "condition"), [("unroll", "i + 1 < 2"), ("vectorized", "i + 1 < 2"), ("vectorized", "j < 3")])
def test_what_is_kept_in_registers_is_read_only_where_it_is_wanted(kind, condition):
    func = parse(
        f"""
from tir.script import tir as T

@T.prim_func
def main(A: T.Buffer((13, 8), "float32"), C: T.Buffer((7, 8), "float32")):
    B = T.alloc_buffer((8,), scope="register")
    for i in range(7):
        for j in T.{kind}(8):
            B[j] = A[i + 1, j]
        for j in T.{kind}(8):
            C[i, j] = T.if_then_else({condition}, B[j], T.float32(0.0))
"""
    )
    same(func)


# --- indices that are choices, conversions, loads ---------------------------------------------------------------------

INDICES = (
    "T.Select(i % 2 == 0, 5, 3)",
    "T.if_then_else(i % 2 == 0, 5, 3)",
    "T.Select(j % 3 == i % 3, i % 7, j % 7)",
    "T.cast(T.cast(i % 7, 'int64'), 'int32')",
    "T.cast(i % 7, 'int64')",
    "T.cast(T.cast(j, 'uint8'), 'int32') % 7",
    "T.cast(i % 2 == 0, 'int32')",
    "T.abs(i - 6) % 7",
    "T.max(T.min(j - 2, 6), 0)",
    "T.min(N[i], W[j])",
    "T.Select(N[i] > 3, N[i], N[j])",
    "T.if_then_else(i < 7, N[T.min(i, 6)], 0)",
    "N[N[j]]",
    "T.cast(W[i], 'int32')",
)


@pytest.mark.parametrize("kinds", [("range", "range"), ("range", "T.vectorized"), ("T.unroll", "T.vectorized")])
@pytest.mark.parametrize("index", INDICES)
def test_indices_of_any_kind(index, kinds):
    """In every place of a nest: where the number is known, which may be further out than where it is used."""
    func = parse(
        f"""
        @T.prim_func
        def main(A: T.Buffer((7, 17), "float32"), N: T.Buffer((17,), "int32"), W: T.Buffer((17,), "int64"),
                 B: T.Buffer((17, 17), "float32"), C: T.Buffer((17, 17), "float32")):
            for i in {kinds[0]}(17):
                for j in {kinds[1]}(17):
                    B[i, j] = A[{index}, j]
                    if i < 11:
                        C[i, j] = A[{index}, 16 - j] + A[T.cast({index}, "int64"), {index}]
        """
    )
    args = integers(func, 0)
    rng = np.random.default_rng(0)
    args[1], args[2] = rng.integers(0, 7, 17).astype("int32"), rng.integers(0, 7, 17)
    same(func, args, targets=[ONE], fences=True)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32"])
def test_lanes_that_run_on_over_rows_chosen_by_a_narrow_index(dtype):
    """The row is no term in the dtype of its index, beside a column that is a part of the lane."""
    x, rows = te.placeholder((120, 300), name="x"), te.placeholder((8,), dtype, name="rows")
    s = Schedule(te.create_prim_func([x, rows, te.compute((8, 6), lambda i, j: x[rows[i] // 2 + 1, j] + 1.0, name="y")]))
    s.vectorize(s.fuse(*s.get_loops("y")))
    data, chosen = np.arange(36000, dtype="float32").reshape(120, 300), np.array([0, 1, 7, 119, 118, 60, 2, 99], dtype)
    got = np.zeros((8, 6), "float32")
    codegen.build(s.func, ONE)(data, chosen, got)
    assert np.array_equal(got, data[chosen // 2 + 1, :6] + 1)
