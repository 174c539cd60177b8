"""Copies of an unrolled loop that take neighbouring columns of rows far apart: the rows are loaded whole and turned round."""

import numpy as np
import pytest

import tir
from schedule import Schedule
from tests.codegen.harness import ONE, same
from tests.sweeps import one_in
from tir import dtypes, te

WIDE = ONE + " -mcpu x86-64-v4"


def transposition(rows: int, columns: int, dtype: str, wanted: int) -> Schedule:
    """A transposed, in columns of A by `wanted`, unrolled, and rows of A as lanes."""
    a = te.placeholder((rows, columns), dtype, name="A")
    s = Schedule(te.create_prim_func([a, te.compute((columns, rows), lambda i, j: a[j, i], name="B")]))
    _, inner = s.split("i", [None, wanted])
    s.unroll(inner)
    s.vectorize("j")
    return s


def gathers(s: Schedule, target: str = WIDE) -> int:
    return tir.dump(s.func, target, after="llvm_ir").count("= call <16 x float> @llvm.masked.gather")


@one_in(4)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bfloat16"])
@pytest.mark.parametrize("rows, columns", [(16, 16), (13, 32), (35, 16), (7, 109), (1, 32)])
def test_whole_rows_are_turned_round(rows, columns, dtype):
    lanes = 512 // max(32, dtypes.bits(dtype))
    s = transposition(rows, columns, dtype, lanes)
    same(s.func, targets=[ONE, *(f"{ONE} -mcpu {cpu}" for cpu in ("haswell", "x86-64"))], fences=True)


def test_a_square_is_loaded_once():
    s = transposition(16, 32, "float32", 16)
    text = tir.dump(s.func, WIDE, after="llvm_ir")
    assert gathers(s) == 0
    assert text.count("load <16 x float>") == 16
    assert text.count("shufflevector") == 64


def test_too_few_copies_are_gathered():
    assert gathers(transposition(16, 32, "float32", 8)) > 0


def test_a_guard_on_the_copies_keeps_rows_from_being_read_whole():
    """In the last round only some of the columns are there."""
    s = transposition(16, 109, "float32", 16)
    assert gathers(s) > 0
    same(s.func, fences=True)


@pytest.mark.parametrize(
    ("condition", "copies"), [("lane // 2 < 11", 16), ("lane // 2 < 11", 3), ("lane // 2 + k < 20", 16), ("lane < 25", 16)]
)
def test_pairs_under_a_condition(condition, copies):
    """Where it is the same for both of a pair and in all copies, rows that are not wanted are not read."""
    from tir.script import parse

    func = parse(
        f"""
@T.prim_func
def func(A: T.Buffer((13, 64), "bfloat16"), B: T.Buffer((32, 16, 2), "bfloat16")):
    for k in T.unroll({copies}):
        for lane in T.vectorized(32):
            B[k, lane // 2, lane % 2] = T.if_then_else({condition} and lane // 2 < 13, A[lane // 2, k * 2 + lane % 2], T.bfloat16(0))
"""
    )
    if condition == "lane // 2 < 11":
        text = tir.dump(func, WIDE, after="llvm_ir")
        assert (text.count(" load <32 x i16>"), text.count("masked.gather.v16i32")) == ((16, 0) if copies == 16 else (0, 4))
    same(func, targets=[ONE], fences=True)


def test_a_condition_that_differs_between_copies():
    """What is above the diagonal is all of the triangle that there is in memory."""
    n = 16
    a = te.placeholder((n * (n + 1) // 2,), "float32", name="A")

    def formula(i, j):
        return te.if_then_else(i * 1 + j * 15 < n * (n + 1) // 2, a[i + j * 15], 0.0)

    s = Schedule(te.create_prim_func([a, te.compute((n, n), formula, name="B")]))
    s.unroll("i")
    s.vectorize("j")
    same(s.func, fences=True)


def test_columns_that_are_written_between_copies_are_read_again():
    """Each copy stores where a later one loads."""
    from tir.script import tir as T

    @T.prim_func
    def func(A: T.Buffer((16, 17), "float32")):
        for i in T.unroll(16):
            for j in T.vectorized(16):
                A[j, i + 1] = A[j, i] + T.float32(2)

    same(func, [np.arange(16 * 17, dtype="float32").reshape(16, 17)])


def test_columns_that_memory_names_are_read_one_by_one():
    """The column is the same in each copy, for the number in memory goes down as the copy goes up: what lies behind it is not
    there."""
    from tir.script import tir as T

    @T.prim_func
    def func(A: T.Buffer((16, 17), "float32"), at: T.Buffer((1,), "int32"), B: T.Buffer((16, 16), "float32")):
        for i in T.unroll(16):
            for j in T.vectorized(16):
                B[j, i] = A[j, at[0] + i]
            at[0] = at[0] - 1

    numbers = np.arange(16 * 17, dtype="float32").reshape(16, 17)
    same(func, [numbers, np.array([16], "int32"), np.zeros((16, 16), "float32")], fences=True)
