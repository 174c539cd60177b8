"""Programs with extents of 0, through every door, against numpy: loops over nothing do nothing, and sums over nothing are 0."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tir
from tir import te
from tir.script import parse
from tir.script import tir as T
from tir.verify import VerifyError


def matmul(m, n, k):
    A, B, r = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.reduce_axis((0, k), "r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return [A, B, te.compute((m, n), lambda i, j: te.exp(C[i, j]) + 1.0, name="D")], lambda a, b: np.exp(a @ b) + 1


def largest(m, n, k):
    A, r = te.placeholder((m, n, k), name="A"), te.reduce_axis((0, n), "r")
    return [A, te.compute((m, k), lambda i, j: te.max(A[i, r, j], axis=r), name="B")], lambda a: a.max(1, initial=-np.inf)


def joined(m, n, k):
    A, B = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="B")
    C = te.compute((m + n, k), lambda i, j: te.if_then_else(i < m, A[i, j], B[i - m, j]), name="C")
    return [A, B, C], lambda a, b: np.concatenate([a, b])


def softmax(m, n, k):
    A, r, q = te.placeholder((m, n), name="A"), te.reduce_axis((0, n), "r"), te.reduce_axis((0, n), "q")
    top = te.compute((m,), lambda i: te.max(A[i, r], axis=r), name="top")
    power = te.compute((m, n), lambda i, j: te.exp(A[i, j] - top[i]), name="power")
    total = te.compute((m,), lambda i: te.sum(power[i, q], axis=q), name="total")
    C = te.compute((m, n), lambda i, j: power[i, j] / total[i], name="C")

    def wanted(a):
        powers = np.exp(a - a.max(1, keepdims=True, initial=-np.inf))
        return powers / powers.sum(1, keepdims=True)

    return [A, C], wanted


def running(m, n, k):
    A = te.placeholder((m, n), name="A")
    total = te.scan((m, n), lambda y, i, j: A[i, j] + te.if_then_else(j >= 1, y[i, j - 1], 0.0), 1, "float32", "total")
    return [A, total], lambda a: np.cumsum(a, 1)


PROGRAMS = (matmul, largest, joined, softmax, running)
SIZES = [sizes for sizes in product((0, 5), (0, 4), (0, 7)) if 0 in sizes]


def arrays(tensors):
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, [int(d) for d in t.shape]).astype("float32") for t in tensors]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_default_schedule_of_constant_sizes(program):
    """The interpreter, the program as it is, and as it is scheduled; in print, and replayed."""
    for sizes in SIZES:
        tensors, formula = program(*sizes)
        func = te.create_prim_func(tensors)
        assert tir.verify(func).ok and parse(func.script()) == func
        *inputs, out = arrays(tensors)
        wanted, schedule = formula(*inputs), tir.default_schedule(func)
        assert tir.replay(func, schedule.trace).func == schedule.func
        runs = (lambda *a: tir.interpreter.run(func, *a), tir.build(func), tir.build(schedule))  # noqa: B023
        for run in runs:
            out[...] = 7
            run(*inputs, out)
            np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6, err_msg=str(sizes))


@pytest.mark.parametrize("program", [matmul, largest, joined])
def test_sizes_that_are_0_when_a_kernel_is_called(program):
    sizes = [te.var(name) for name in "mnk"]
    tensors, formula = program(*sizes)
    kernel, func = tir.compile(tensors, "llvm -num-cores 2"), te.create_prim_func(tensors)
    for given in SIZES:
        shapes, _ = program(*given)
        *inputs, out = arrays(shapes)
        out[...] = 7
        known = dict(zip("mnk", given, strict=True))
        tir.run(func, *inputs, out, *(known[size.name] for size in func.sizes))
        np.testing.assert_allclose(out, formula(*inputs), rtol=1e-5, atol=1e-6, err_msg=str(given))
        np.testing.assert_allclose(kernel(*inputs), formula(*inputs), rtol=1e-5, atol=1e-6, err_msg=str(given))


def test_every_door_takes_arrays_without_elements(tmp_path):
    tensors, _ = matmul(3, 0, 4)
    func = te.create_prim_func(tensors)
    *inputs, out = arrays(tensors)
    kernel = tir.compile(func)
    assert kernel(*inputs).shape == (3, 0) and kernel.time(*inputs, out, seconds=0.01).median >= 0
    kernel.bind(*inputs, out)()
    assert kernel.export(tmp_path / "empty.so").exists()


def test_scripts():
    @T.prim_func
    def summed(A: T.Buffer((0, 3), "float32"), B: T.Buffer((3,), "float32")):
        for j in range(3):
            B[j] = 1.0
        for i in T.serial(0):
            for j in range(3):
                B[j] = B[j] + A[i, j]
        for i, j in T.grid(3, 0):
            B[i + j] = 5.0

    assert tir.verify(summed).ok and parse(summed.script()) == summed
    out = np.zeros(3, "float32")
    tir.build(summed)(np.zeros((0, 3), "float32"), out)
    np.testing.assert_array_equal(out, 1)


def test_what_is_read_of_a_buffer_without_elements_is_outside_of_it():
    A = te.placeholder((0,), name="A")
    func = te.create_prim_func([A, te.compute((3,), lambda i: A[i], name="B")])
    assert not tir.verify(func).ok
    with pytest.raises(VerifyError, match="index `v_i` of dimension 0 of `A`"):
        tir.build(func)


def test_a_program_that_does_nothing_is_its_own_best():
    tensors, _ = softmax(0, 4, 1)
    result = tir.autotune(te.create_prim_func(tensors), "llvm -num-cores 1", trials=2)
    assert result.outcomes["ok"] == len(result.measurements)
    result.kernel(*arrays(tensors))


def test_a_program_that_does_little_is_tuned():
    tensors, formula = matmul(3, 4, 0)
    result = tir.autotune(te.create_prim_func(tensors), "llvm -num-cores 1", trials=2)
    assert result.outcomes["ok"] == len(result.measurements)
    np.testing.assert_allclose(result.kernel(*arrays(tensors)[:2]), formula(*arrays(tensors)[:2]))


def test_iterations_of_nothing_are_independent():
    A = te.placeholder((13, 0), name="A")
    s = tir.Schedule(te.create_prim_func([A, te.compute((13, 0), lambda i, j: A[i, j] + 1.0, name="B")]))
    s.parallel("j")
    tir.build(s)(np.zeros((13, 0), "float32"), np.zeros((13, 0), "float32"))
