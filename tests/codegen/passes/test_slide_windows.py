"""Vectors of an image are loaded once for all rows whose window holds them."""

import numpy as np
import pytest

import codegen
from codegen.passes.slide_windows import slide_windows
from schedule import Schedule
from tests.codegen.harness import after, integers, same
from tir import te
from tir.interpreter import run
from tir.ir import PrimFunc
from tir.script import parse

LANES = 8


def rows(n: int, kernel: int, stride: int = 1, dilation: int = 1, by_lane: bool = False, columns: int = LANES) -> PrimFunc:
    """Sums of `kernel` rows of an image, each with a weight; `by_lane`: each column with weights of its own."""
    X = te.placeholder((stride * (n - 1) + dilation * (kernel - 1) + 1, columns), name="X")
    K = te.placeholder((kernel, columns) if by_lane else (kernel,), name="K")
    r = te.reduce_axis((0, kernel), name="r")
    weight = (lambda w: K[r, w]) if by_lane else (lambda w: K[r])
    Y = te.compute((n, columns), lambda h, w: te.sum(X[h * stride + r * dilation, w] * weight(w), axis=r), name="Y")
    return te.create_prim_func([X, K, Y])


def unrolled(func: PrimFunc) -> PrimFunc:
    s = Schedule(func)
    h, w, r = s.get_loops("Y")
    s.reorder(r, h, w)
    s.unroll(r)
    s.unroll(h)
    s.vectorize(w)
    return s.func


def test_each_row_is_loaded_once():
    after(unrolled(rows(3, 2)), "slide_windows").becomes("""
        Y_reg = T.decl_buffer((3, 8), scope="register")
        for h_1 in T.unroll(3):
            for w_1 in T.vectorized(8):
                Y_reg[h_1, w_1] = T.float32(0.0)
        for row in T.unroll(4):
            for h in T.unroll(3):
                if row - h >= 0 and row - h < 2:
                    for w in T.vectorized(8):
                        Y_reg[h, w] = Y_reg[h, w] + X[h + (row - h), w] * K[row - h]
        for h_2 in T.unroll(3):
            for w_2 in T.vectorized(8):
                Y[h_2, w_2] = Y_reg[h_2, w_2]
    """)
    text = codegen.build(unrolled(rows(3, 2)), "llvm -num-cores 1 -mcpu x86-64-v3").llvm_ir()
    assert text.count("load <8 x float>, ptr %X") + text.count("load <8 x float>, ptr %t") == 4 and "br i1" not in text


def test_columns_of_two_vectors():
    """Their accumulators slide together, and where they take many registers each is stored when it has its sum."""
    target = codegen.Target("llvm -num-cores 1 -mcpu x86-64-v3")
    text = codegen.lower(unrolled(rows(5, 2, columns=13)), target).script()
    body = text[text.index("for row in T.unroll(6):") :]
    assert body.count(" * K[row - h]") == 2 and body.count("if row - h_2 == 1:") == 1 and body.count("if row - h_4 == 1:") == 1
    assert "Y[" not in text[: text.index("for row")]


@pytest.mark.parametrize(
    ("steps", "row", "slides"), [(2, "h + r", True), (1, "h + r", False), (3, "h * 2 + r", False), (3, "h + r * 2", False)]
)
def test_rows_slide_where_accumulators_share_them(steps, row, slides):
    func = parse(f"""
@T.prim_func
def f(X: T.Buffer((10, 8)), K: T.Buffer((2,)), C: T.Buffer((11, 8))):
    Y = T.decl_buffer((9, 8), scope="register")
    for r in T.unroll(2):
        for h in T.unroll({steps}):
            for w in T.vectorized(8):
                Y[h, w] = Y[h, w] + X[{row}, w] * K[r]
""")
    assert (slide_windows(func, codegen.Target("llvm")) != func) == slides


@pytest.mark.parametrize(("read", "slides"), [("X[h_3, w_3]", True), ("C[10 - h_3, w_3]", False)])
def test_what_reads_other_results_waits_for_all(read, slides):
    """A result that is stored as soon as it has its sum may be read by its own number alone, if that is known."""
    func = parse(f"""
@T.prim_func
def f(X: T.Buffer((10, 8)), K: T.Buffer((2,)), C: T.Buffer((11, 8)), D: T.Buffer((10, 8))):
    Y = T.decl_buffer((9, 8), scope="register")
    for h_1 in T.unroll(9):
        for w_1 in T.vectorized(8):
            Y[h_1, w_1] = 0.0
    for r in T.unroll(2):
        for h in T.unroll(9):
            for w in T.vectorized(8):
                Y[h, w] = Y[h, w] + X[h + r, w] * K[r]
    for h_2 in T.unroll(9):
        for w_2 in T.vectorized(8):
            C[h_2 + 1, w_2] = Y[h_2, w_2]
    for h_3 in T.unroll(9):
        for w_3 in T.vectorized(8):
            D[h_3, w_3] = {read}
""")
    slid = slide_windows(func, codegen.Target("llvm -num-cores 1 -mcpu x86-64-v3"))
    assert ("if row - h_2 == 1:" in slid.script(), "if row - h_3 == 1:" in slid.script()) == (True, slides)
    before, after = integers(func, 0), integers(func, 0)
    run(func, *before)
    run(slid, *after)
    assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_numbers_stay(seed):
    rng = np.random.default_rng(seed)
    limits = ((1, 12), (1, 6), (1, 4), (1, 3), (LANES, 3 * LANES))
    n, kernel, stride, dilation, columns = (int(rng.integers(low, high)) for low, high in limits)
    same(unrolled(rows(n, kernel, stride, dilation, columns=columns)), fences=True)


@pytest.mark.parametrize("func", [rows(3, 2, stride=2), rows(3, 4, dilation=2), rows(3, 2, by_lane=True), rows(1, 5)])
def test_what_stays(func):
    """Windows that share no row, or lie apart; weights that would be as many vectors; a single row."""
    target = codegen.Target("llvm -num-cores 1 -mcpu x86-64-v3")
    before = codegen.lower(unrolled(func), target, after="promote_temporaries")
    assert slide_windows(before, target).body is before.body
