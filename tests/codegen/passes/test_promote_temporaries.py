"""Temporaries of a few vectors live in registers."""

import re

import pytest

import codegen
from schedule import Schedule
from tests.codegen.harness import ONE, after, same
from tests.sweeps import one_in
from tir import te
from tir.ir import PrimFunc

FIXED = f"{ONE} -mcpu x86-64-v4"


def tile(rows: int, columns: int, K: int, after=lambda e: e + 1.0, lanes: int = 8, transposed: bool = False) -> PrimFunc:
    """A product in one register tile, and what comes after it, computed for the tile."""
    A, B = te.placeholder((rows, K), name="A"), te.placeholder((K, columns), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((rows, columns), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    shape = (columns, rows) if transposed else (rows, columns)
    D = te.compute(shape, lambda i, j: after(C[j, i] if transposed else C[i, j]), name="D")
    s = Schedule(te.create_prim_func([A, B, D]))
    i, j, k = s.get_loops("C")
    j0, j1 = s.split(j, [None, lanes])
    s.reorder(j0, k, i, j1)
    s.unroll(i)
    s.vectorize(j1)
    if not transposed:
        s.reverse_compute_at("D", j0)
    s.vectorize(s.get_loops("D")[-1])
    return s.func


def test_results_of_a_tile():
    after(tile(3, 16, 5), "promote_temporaries").becomes("""
        for j_0 in range(2):
            C = T.decl_buffer((3, 1, 8), scope="register")
            with T.decl_buffer((3, 8), scope="register") as C_reg:
                for i_1 in T.unroll(3):
                    for j_1_1_1 in T.vectorized(8):
                        C_reg[i_1, j_1_1_1] = T.float32(0.0)
                for k in range(5):
                    for i in T.unroll(3):
                        for j_1_1 in T.vectorized(8):
                            C_reg[i, j_1_1] = C_reg[i, j_1_1] + A[i, k] * B[k, j_0 * 8 + j_1_1]
                for i_2 in T.unroll(3):
                    for j_1_1_2 in T.vectorized(8):
                        C[i_2, 0, j_1_1_2] = C_reg[i_2, j_1_1_2]
            for ax0 in T.unroll(3):
                for ax1 in T.vectorized(8):
                    D[ax0, j_0 * 8 + ax1] = C[ax0, 0, ax1] + T.float32(1.0)
    """)


@one_in(3)
@pytest.mark.parametrize("columns", [16, 20, 21, 29, 31])
@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_partial_tiles(columns, lanes):
    """Lanes that are not there, in vectors of one or some registers, of which the last may be shorter."""
    func = tile(3, columns, 5, lanes=lanes)
    same(func, fences=True, targets=[ONE, FIXED, f"{ONE} -mcpu x86-64-v3"])
    assert " x i8], align" not in codegen.build(func, FIXED).llvm_ir()  # no temporary on the stack


def test_a_tail_of_fewer_lanes_than_a_register():
    """Of the last three elements, in a vector of four, whose lanes make a mask, beside registers of sixteen."""
    A = te.placeholder((5, 67), name="A")
    B = te.compute((5, 67), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((5, 67), lambda i, j: B[i, j] * 2.0, name="C")
    s = Schedule(te.create_prim_func([A, C]))
    i = s.get_loops("C")[0]
    s.compute_at("B", i)
    for block in ("B", "C"):
        main, tail = s.loop_partition(s.get_loops(block)[-1], [64])
        s.vectorize(s.split(main, [None, 16])[1])
        s.vectorize(s.split(tail, [None, 4])[1])
    same(s.func, targets=[ONE, FIXED], fences=True)


def kept(func: PrimFunc) -> bool:
    """Whether the temporary stays in memory."""
    script = codegen.lower(func, codegen.Target(FIXED), after="promote_temporaries").script()
    return re.search(r"\bC = T.decl_buffer\(\([\d, ]*\)\)", script) is not None


def functions(rows: int) -> PrimFunc:
    """A temporary of vectors of 16 lanes, computed by a function."""
    A = te.placeholder((rows, 16), name="A")
    C = te.compute((rows, 16), lambda i, j: te.exp(A[i, j]), name="C")
    s = Schedule(te.create_prim_func([A, te.compute((rows, 16), lambda i, j: C[i, j] + 1.0, name="D")]))
    for block in ("C", "D"):
        i, j = s.get_loops(block)
        s.unroll(i)
        s.vectorize(j)
    return s.func


@pytest.mark.parametrize(("func", "stays"), [
    (tile(3, 32, 5, lanes=16), False),
    (tile(64, 32, 5, lanes=16), False),  # twice as many as registers
    (tile(65, 32, 5, lanes=16), True),
    (functions(32), False),  # as many
    (functions(33), True),
    (tile(16, 16, 5, transposed=True), True),  # columns of it are read
])  # fmt: skip
def test_what_stays_in_memory(func, stays):
    assert kept(func) is stays
    same(func, targets=[ONE, FIXED], tolerance=lambda p, a: 1e-6 * abs(a))


def test_what_threads_share_stays_in_memory():
    """Each of them is a function of its own, whose registers are its own."""
    A, B = te.placeholder((16,), name="A"), te.placeholder((5, 16), name="B")
    total = te.compute((16,), lambda j: A[j] * 2.0, name="C")
    s = Schedule(te.create_prim_func([A, B, te.compute((5, 16), lambda i, j: B[i, j] - total[j], name="D")]))
    i, j = s.get_loops("D")
    s.vectorize(s.get_loops("C")[0])
    s.vectorize(j)
    assert not kept(s.func)
    s.parallel(i)
    assert kept(s.func)
    same(s.func)
