"""The memory of large temporaries: kept between calls, one block a call and thread, and given back with the kernel."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

import codegen
from codegen.llvm.compile import Library
from codegen.llvm.emit import symbol
from schedule import Schedule
from tests.arrays import integers
from tests.codegen.harness import ONE, TWO, at_once, same
from tir import te
from tir.ir import Buffer, Const, For, PrimFunc, Store, Var, seq

resource = pytest.importorskip("resource")
MEGABYTES = 16
ELEMENTS = MEGABYTES << 18


def through(n: int = ELEMENTS, rows: int = 1, parallel: bool = False) -> PrimFunc:
    """z = 2 (x + 1) backwards, by way of a temporary as large; in parallel, one of a row for each thread."""
    x = te.placeholder((rows, n), name="x")
    y = te.compute((rows, n), lambda i, j: x[i, j] + 1.0, name="y")
    z = te.compute((rows, n), lambda i, j: y[i, n - 1 - j] * 2.0, name="z")
    s = Schedule(te.create_prim_func([x, z]))
    i, j = s.get_loops("z")
    if parallel:
        s.compute_at("y", i)
        s.parallel(i)
    for loop in (j, s.get_loops("y")[-1]):
        s.vectorize(s.split(loop, [None, 64])[1])
    return s.func


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_small_and_large():
    """Ordinary ones, kept ones, and those in large pages; sizes that fill no page."""
    same(through(1000), targets=[ONE, TWO])
    cases = [(through(n), target) for n in (9_000, 300_007) for target in (ONE, TWO)]
    for func, target in (*cases, (through(1_100_003), ONE), (through(300_007, 3, parallel=True), TWO)):
        x, z = integers(func, 0)
        codegen.build(func, target)(x, z)
        assert np.array_equal(z, 2 * (x[:, ::-1] + 1))


def test_only_large_ones_are_kept():
    assert "@tir.take(" not in codegen.build(through(200_000), ONE).llvm_ir()
    text = codegen.build(through(300_000), ONE).llvm_ir()
    assert "@tir.slots.0 = internal global [1 x ptr]" in text and "define void @tir_main.release()" in text
    assert "@tir.slots.0 = internal global [2 x ptr]" in codegen.build(through(300_000, 7, parallel=True), TWO).llvm_ir()


@pytest.mark.parametrize("parallel", [False, True])
def test_a_second_call_needs_no_new_pages(parallel):
    func = through(ELEMENTS, 2, parallel=True) if parallel else through()
    kernel = codegen.build(func, TWO)
    args = integers(func, 0)
    for _ in range(3):  # threads may take turns at first
        kernel(*args)
    before = faults()
    for _ in range(10):
        kernel(*args)
    assert faults() - before < 1000  # of 4096 a temporary and call


def test_calls_at_the_same_time_have_blocks_of_their_own():
    func = through()
    kernel = codegen.build(func, ONE)

    def job(seed: int):
        def run() -> None:
            x, z = integers(func, seed)
            for _ in range(5):
                z.fill(np.nan)
                kernel(x, z)
                assert np.array_equal(z, 2 * (x[:, ::-1] + 1))

        return run

    at_once(*(job(seed) for seed in range(4)))


@pytest.mark.parametrize("stride", [2**53, 2**62, 2**70])
def test_more_bytes_than_there_are_addresses(stride):
    """A product of extents that runs past 64 bits was a small block, or none, and the call ended the process."""
    s = Schedule(through(13, 7))
    s.storage_align("y", 0, -2, stride, 0)
    x, z = np.zeros((7, 13), "float32"), np.zeros((7, 13), "float32")
    with pytest.raises(MemoryError, match="main: no memory for its temporaries; the results are undefined"):
        codegen.build(s.func, ONE)(x, z)


def test_a_size_of_the_call_that_is_more_bytes_than_there_are_addresses():
    """A temporary of [7, n, n] floats."""
    n = Var("n", "int64")
    A, B, C = Buffer("A", (Const(7),)), Buffer("B", (Const(7),)), Buffer("C", (Const(7), n, n))
    i, j = Var("i"), Var("j")
    fill = For(i, Const(7), seq(Store(C, (i, Const(0), Const(0)), A[i]), Store(C, (i, n - 1, n - 1), A[i])))
    func = PrimFunc(
        "main", (A, n, B), seq(fill, For(j, Const(7), Store(B, (j,), C[j, Const(0), Const(0)] + C[j, n - 1, n - 1]))), allocs=(C,)
    )
    kernel = codegen.build(func, ONE, checked=False)
    a, b = np.arange(7, dtype="float32"), np.zeros(7, "float32")
    kernel(a, 5, b)
    np.testing.assert_array_equal(b, 2 * a)
    for size in (2**20, 2**31, 2**32, 2**62, -1):
        with pytest.raises(MemoryError):
            kernel(a, size, b)


def test_a_kernel_that_goes_gives_its_memory_back():
    func = through()
    args = integers(func, 0)
    codegen.build(func, ONE)(*args)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20):
        codegen.build(func, ONE)(*args)
        gc.collect()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10 * MEGABYTES * 1024  # KB; kept, it would be twice that


def test_what_is_collected_in_a_cycle_is_finalized_in_any_order():
    kernel = codegen.build(through(), ONE)
    library = Library([kernel.code], [symbol(kernel.func)], kernel.target)
    x, z = integers(kernel.func, 0)
    assert library.function(symbol(kernel.func), 2)(x.ctypes.data, z.ctypes.data) == 0  # which takes memory to keep
    tracker = library._tracker
    tracker.library = library
    later = [library]
    del library
    gc.collect()  # puts the library, which is found by way of `later`, behind what holds its code
    del later, tracker
    gc.collect()


def test_an_exported_kernel_can_be_told_to_let_go(tmp_path):
    func = through(300_007)
    header = codegen.build(func, ONE).export(tmp_path / "back.so").read_text()
    assert "int back(const float *x, float *z);\nvoid back_release(void); /* frees what back keeps between calls;" in header
    library = ctypes.CDLL(str(tmp_path / "back.so"))
    x, z = integers(func, 0)
    for _ in range(2):
        z.fill(np.nan)
        assert library.back(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(z.ctypes.data)) == 0
        assert np.array_equal(z, 2 * (x[:, ::-1] + 1))
        library.back_release()
    assert "release" not in codegen.build(through(1000), ONE).export(tmp_path / "small.o").read_text()
