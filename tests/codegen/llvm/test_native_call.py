"""Calls that check their arguments in machine code."""

import gc
import pickle
import sys
import threading
import weakref

import numpy as np
import pytest

import codegen
from codegen.llvm import native_call
from codegen.runtime.arguments import ArgumentError
from codegen.runtime.kernel import _locked_size
from codegen.runtime.memory import DECLINED
from tests.codegen.harness import ONE
from tir import te


def _double(rows, columns, dtype, *sizes):
    """B = A + A"""
    a = te.placeholder((rows, columns), dtype, name="A")
    b = te.compute((rows, columns), lambda i, j: a[i, j] + a[i, j], name="B")
    return codegen.build(te.create_prim_func([a, *sizes, b]), ONE)


@pytest.fixture(scope="module")
def kernel():
    return _double(7, 13, "float32")


@pytest.fixture(scope="module")
def symbolic():
    """The rows are 2 n + m, the columns n + 1."""
    n, m = te.var("n"), te.var("m")
    return _double(2 * n + m, n + 1, "float32", n, m)


def _accepted(kernel, *arguments):
    """Whether a call ran by machine code; Python's checks find the same where it did."""
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    if kernel._run(*arguments) != DECLINED:
        kernel.pointers(*arguments)
        np.testing.assert_array_equal(arguments[-1], 2 * arguments[0])
        return True
    for old, new in zip(before, arguments, strict=True):
        assert not isinstance(old, np.ndarray) or np.array_equal(old, new)
    return False


def _ones(*shape):
    return np.ones(shape, "float32")


def test_what_fits_runs(kernel):
    a, b, both = _ones(7, 13), _ones(7, 13), _ones(2 * 91)
    fixed = a.copy()
    fixed.flags.writeable = False
    again = pickle.loads(pickle.dumps(a))  # its dtype is another object
    assert again.dtype is not a.dtype
    for given in ((a, b), (a[:], b), (fixed, b), (again, b), (a.T.T, b), (both[:91].reshape(7, 13), both[91:].reshape(7, 13))):
        assert _accepted(kernel, *given)


def test_what_may_not_fit_does_not_run(kernel):
    class Own(np.ndarray):
        pass

    a, b, both = _ones(7, 13), _ones(7, 13), _ones(2 * 91)
    fixed = b.copy()
    fixed.flags.writeable = False
    odd = np.ones(4 * 91 + 1, "uint8")[1:].view("float32").reshape(7, 13)
    wrong = [
        (), (a,), (a, b, b), (a, a), (both[:91].reshape(7, 13), both[90:181].reshape(7, 13)), (a, fixed), (a, odd), (odd, b),
        (both[90:181].reshape(7, 13), both[:91].reshape(7, 13)), (a.tolist(), b), (a, None), (a, 3), (7, b), (a.view(Own), b),
        (a.astype("float64"), b), (a.astype("int32"), b), (a.astype(">f4"), b), (a.view("V4"), b), (_ones(13, 7).T, b),
        (_ones(7, 26)[:, ::2], b), (a[::-1], b), (_ones(13, 7), b), (_ones(7, 13, 1), b), (_ones(91), b), (_ones(7, 12), b),
    ]  # fmt: skip
    for given in wrong:
        assert not _accepted(kernel, *given)
    for given in ((a, a), (a, fixed), (odd, b), (a, b, b)):
        with pytest.raises(ArgumentError):
            kernel(*given)


def test_ranks_and_dtypes():
    for dtype, shape in (("float64", (1, 13)), ("int8", (7, 1)), ("uint16", (5, 3)), ("float16", (2, 2))):
        assert _accepted(_double(*shape, dtype), np.ones(shape, dtype), np.zeros(shape, dtype))
    point = te.placeholder((), "float32", name="A")
    kernel = codegen.build(te.create_prim_func([point, te.compute((), lambda: point[()] * 2.0, name="B")]), ONE)
    assert _accepted(kernel, np.array(3, "float32"), np.array(0, "float32"))
    assert not _accepted(kernel, np.array([3], "float32"), np.array(0, "float32"))


def test_lengths_follow_sizes(symbolic):
    for n, m in ((3, 1), (5, -3 + 10), (0, 5)):
        a = _ones(2 * n + m, n + 1)
        assert _accepted(symbolic, a, n, m, np.zeros_like(a))
        for other in ((n + 1, m), (n, m + 1), (n, m - 1), (float(n), m), (True, m), (n, 2**31), (n, 2**63), (n, -(2**70))):
            assert not _accepted(symbolic, a, *other, np.zeros_like(a))
        symbolic(a, np.int32(n), m, np.zeros_like(a))
    a = _ones(4, 4)
    assert not _accepted(symbolic, a, 3, -2, np.zeros_like(a))  # Python's checks are for negative ones
    symbolic(a, 3, -2, np.zeros_like(a))
    shared = _ones(2 * 28).reshape(14, 4)
    assert not _accepted(symbolic, shared[:7], 3, 1, shared[6:13]) and _accepted(symbolic, shared[:7], 3, 1, shared[7:])


def test_lengths_that_are_no_sums_are_left_to_python():
    n = te.var("n")
    kernel = _double(n * n, (n + 1) // 2, "float32", n)
    a, b = _ones(9, 2), _ones(9, 2)
    assert not _accepted(kernel, a, 3, b)
    kernel(a, 3, b)
    np.testing.assert_array_equal(b, 2)


def test_an_unknown_interpreter(monkeypatch, kernel):
    """Where arrays do not lie in memory as they are read here, all is done by ctypes."""
    array = np.zeros((3, 5), "float32")
    assert native_call._as_known(array)
    for place in ("DATA", "RANK", "SHAPE", "DTYPE", "FLAGS", "KIND", "TYPE"):
        with monkeypatch.context() as patch:
            patch.setattr(native_call, place, 0 if place == "TYPE" else 8)
            assert not native_call._as_known(array)
    monkeypatch.setattr(native_call, "supported", lambda: False)
    other, a, b = codegen.Kernel(kernel.func, kernel.lowered, kernel.target, "", kernel.code), _ones(7, 13), _ones(7, 13)
    assert not _accepted(other, a, b)
    for call in (lambda: other(a, b), other.bind(a, b)):
        b[...] = 0
        call()
        np.testing.assert_array_equal(b, 2)
    assert other.time(a, b, seconds=0).median > 0


def test_a_call_keeps_its_code():
    kernel = _double(3, 5, "float32")
    run, a, b = kernel._run, _ones(3, 5), np.zeros((3, 5), "float32")
    library = weakref.ref(kernel._entry.library)
    del kernel
    gc.collect()
    assert run(a, b) == 0 and (b == 2).all()
    before = sys.getrefcount(a)
    for _ in range(100):
        run(a, b), run(a), run(a, None)
    assert sys.getrefcount(a) == before
    del run
    gc.collect()
    assert library() is None


def test_a_call_keeps_what_checks_it():
    """CPython reads a `PyMethodDef` by its address, at each collection of garbage, too, and does not keep it."""
    native_call._method.cache_clear()
    kernel, a, b = _double(3, 5, "float32"), _ones(3, 5), np.zeros((3, 5), "float32")
    assert kernel._run(a, b) == 0
    method = weakref.ref(native_call._method((native_call.ArgumentForm(2), native_call.ArgumentForm(2, written=True))))
    native_call._method.cache_clear()
    gc.collect()
    assert method() is not None and kernel._run(a, b) == 0
    del kernel
    gc.collect()
    assert method() is None


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("rows", "run_meanwhile"), [(1 << 22, True), (16, False)])
def test_other_threads_run_during_long_calls(rows, run_meanwhile, known):
    """The sum of `rows` elements, a number that the kernel knows or is told; threads do not change by themselves here."""
    n = te.var("n")
    length = rows if known else n
    a = te.placeholder((length,), "float64", name="A")
    k = te.reduce_axis((0, length), name="k")
    b = te.compute((1,), lambda i: te.sum(a[k], axis=k), name="B")
    kernel = codegen.build(te.create_prim_func([a, b] if known else [n, a, b]), ONE)
    locked = 2**17 if not known else 0 if run_meanwhile else 1  # sizes up to which B is written at most MAX_LOCKED_STORES times
    assert _locked_size(kernel.lowered) == locked
    values, total, interval = np.ones(rows), np.zeros(1), sys.getswitchinterval()
    arguments = (values, total) if known else (rows, values, total)
    kernel._run(*arguments)
    begin, ended, ran = threading.Event(), threading.Event(), []

    def other():
        begin.wait()
        ran.append(not ended.is_set())

    thread = threading.Thread(target=other)
    thread.start()
    try:
        sys.setswitchinterval(60)
        begin.set()
        for _ in range(20):
            kernel._run(*arguments)
        ended.set()
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    assert total[0] == rows and ran == [run_meanwhile]
