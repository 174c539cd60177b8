"""Bounds for errors of rounding: faults are beyond them in every dtype, right results of other orders within."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tir
from search.measure.error_analysis import NoBound
from search.measure.reference import DISTRIBUTIONS, Arrays, from_float, make_reference, random_inputs
from search.measure.rounding import MAX_BOUND, Expected, Reference
from tests import programs
from tests.codegen import fuzz
from tests.schedule import random_programs
from tests.sweeps import one_in, quick
from tir import dtypes, te
from tir.arrays import to_float
from tir.ir import PrimFunc

ONE = "llvm -num-cores 1"
FLOATS = ("float64", "float32", "float16", "bfloat16")
M, K = 7, 109


def product(dtype: str, total: str, k: int = K, m: int = M) -> PrimFunc:
    rounded = None if dtype == total else lambda c, _: c.astype(dtype)
    return programs.product(m, m, k, dtypes=(dtype, dtype), total=total, after=rounded)


def scaled_product(dtype: str, total: str, factor: float, k: int = K, transposed: bool = False) -> PrimFunc:
    A, B, r = te.placeholder((M, k), dtype, name="A"), te.placeholder((k, M), dtype, name="B"), te.reduce_axis((0, k), name="k")
    C = te.compute((M, M), lambda i, j: te.sum(A[i, r].astype(total) * B[r, j].astype(total), axis=r), name="C")
    return te.create_prim_func(
        [A, B, te.compute((M, M), lambda i, j: ((C[j, i] if transposed else C[i, j]) * factor).astype(dtype), name="D")]
    )


def softmax(dtype: str, n: int = 13) -> PrimFunc:
    X, k, l = te.placeholder((M, n), dtype, name="X"), te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="l")
    top = te.compute((M,), lambda i: te.max(X[i, k], axis=k), name="top")
    powers = te.compute((M, n), lambda i, j: te.exp(X[i, j] - top[i]), name="powers")
    total = te.compute((M,), lambda i: te.sum(powers[i, l].astype("float32"), axis=l), name="total")
    return te.create_prim_func([X, te.compute((M, n), lambda i, j: powers[i, j] / total[i].astype(dtype), name="Y")])


def norm(dtype: str, n: int = 109) -> PrimFunc:
    X, k, l = te.placeholder((M, n), dtype, name="X"), te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="l")
    total = te.compute((M,), lambda i: te.sum(X[i, k].astype("float32"), axis=k), name="total")
    off = te.compute((M, n), lambda i, j: X[i, j].astype("float32") - total[i] / n, name="off")
    squares = te.compute((M,), lambda i: te.sum(off[i, l] * off[i, l], axis=l), name="squares")
    return te.create_prim_func(
        [X, te.compute((M, n), lambda i, j: (off[i, j] * te.rsqrt(squares[i] / n + 1e-5)).astype(dtype), name="Y")]
    )


def chain(dtype: str) -> PrimFunc:
    X = T = te.placeholder((M, M), dtype, name="X")
    for n in range(6):
        T = te.compute((M, M), lambda i, j, T=T: te.tanh(T[i, j]) * 1.25 + 0.1, name=f"T{n}")
    return te.create_prim_func([X, T])


def power_of_sum(dtype: str) -> PrimFunc:
    X, k = te.placeholder((M, K), dtype, name="X"), te.reduce_axis((0, K), name="k")
    total = te.compute((M,), lambda i: te.sum(X[i, k].astype("float32"), axis=k), name="total")
    return te.create_prim_func([X, te.compute((M,), lambda i: te.exp(total[i] * 0.1).astype(dtype), name="Y")])


def largest(dtype: str) -> PrimFunc:
    X, k = te.placeholder((M, K), dtype, name="X"), te.reduce_axis((0, K), name="k")
    top = te.compute((M,), lambda i: te.max(te.exp(X[i, k]), axis=k), name="top")
    return te.create_prim_func([X, top])


def places(dtype: str) -> PrimFunc:
    """The indices of the largest of some sums."""
    X, k = te.placeholder((M, 13), dtype, name="X"), te.reduce_axis((0, 13), name="k")
    Z = te.compute((M, 13), lambda i, j: X[i, j] * X[i, j] + X[i, 12 - j], name="Z")
    larger = te.comm_reducer(
        lambda a, b: tuple(te.select(a[1] >= b[1], x, y) for x, y in zip(a, b, strict=True)),
        lambda t, u: (te.const(-1, t), te.min_value(u)),
    )
    return te.create_prim_func([X, *te.compute((M,), lambda i: larger((k, Z[i, k]), axis=k), name="best")])


def quantised() -> PrimFunc:
    def narrow(c, _):
        return te.minimum(te.maximum(te.round(c.astype("float32") * 0.37), -128.0), 127.0).astype("int8")

    return programs.product(M, M, 13, dtypes=("int8", "int8"), total="int32", after=narrow)


def integers(dtype: str) -> PrimFunc:
    A, B, k = (
        te.placeholder((M, 13), dtype, name="A"),
        te.placeholder((13, M), dtype, name="B"),
        te.reduce_axis((0, 13), name="k"),
    )
    return te.create_prim_func([A, B, te.compute((M, M), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])


def truths() -> PrimFunc:
    A = te.placeholder((M, M), name="A")
    return te.create_prim_func([A, te.compute((M, M), lambda i, j: te.exp(A[i, j]) > 0.9 + 0.5 * A[j, i], name="B")])


PROGRAMS: dict[str, Callable[[], PrimFunc]] = {
    f"{make.__name__} {dtype}": lambda make=make, dtype=dtype: make(dtype)
    for make in (softmax, norm, chain, power_of_sum, largest, places)
    for dtype in FLOATS
}
PROGRAMS |= {
    f"product {d} {t}": lambda d=d, t=t: product(d, t) for d, t in zip(FLOATS, ("float64", *["float32"] * 3), strict=True)
}
PROGRAMS |= {f"integers {d}": lambda d=d: integers(d) for d in dtypes.TABLE if dtypes.is_int(d)}
PROGRAMS |= {"product of halves": lambda: product("float16", "float16", 61), "quantised": quantised, "truths": truths}
PROGRAMS |= {"argmax": programs.argmax, "attention": programs.attention, "squared distances": programs.squared_distances}


def bounded(func: PrimFunc, seed: int = 0) -> tuple[list[np.ndarray], dict[int, Expected]]:
    """The first inputs for which a comparison means something, and what is expected of them."""
    reference = Reference(func)
    for n in range(len(DISTRIBUTIONS)):
        inputs = random_inputs(func, np.random.default_rng(seed), n)
        expected = reference(inputs)
        if not any(e.loose for e in expected.values()):
            return inputs, expected
    raise NoBound(func.name)


def wide(func: PrimFunc, i: int, array: np.ndarray) -> np.ndarray:
    return to_float(array, func.params[i].dtype) if dtypes.is_float(func.params[i].dtype) else array


def results(func: PrimFunc, inputs: list[np.ndarray]) -> list[np.ndarray]:
    arrays = [a.copy() for a in inputs]
    tir.build(func, ONE)(*arrays)
    return [wide(func, i, a) for i, a in enumerate(arrays)]


def faults(value: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    value = value.astype("float64")
    yield "zeros", np.zeros_like(value)
    yield "negated", -value if value.min() < 0 or value.max() > 1 else 1 - value
    yield (
        "transposed",
        value.T if value.ndim == 2 and len(value) == len(value.T) else np.roll(value, 1, axis=0 if value.ndim else None),
    )
    one = value.copy()
    place = tuple(rng.integers(n) for n in value.shape)
    one[place] += max(1.0, abs(one[place])) * (0.5 if np.any(value % 1) else 1.0)
    yield "one element", one
    yield "not a number", np.where(one == value, value, np.nan)


@quick(lambda name: name in ("quantised", "truths", "attention", "squared distances"))
@one_in(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_right_results_pass_and_faults_do_not(name):
    func = PROGRAMS[name]()
    inputs, expected = bounded(func)
    for schedule in (func, tir.default_schedule(func, ONE).func):
        found = results(schedule, inputs)
        for i, e in expected.items():
            assert not e.wrong(found[i]).any(), (e.value, e.bound, found[i])
    for e in expected.values():
        assert e.tolerance < MAX_BOUND
        for fault, made in faults(e.value, np.random.default_rng(0)):
            assert e.wrong(made).any(), (fault, e.value, e.bound)


@pytest.mark.parametrize(("dtype", "k"), [("float64", 1024), ("float32", 1024), ("float16", 1024), ("bfloat16", 1024)])
def test_a_missing_term_of_a_long_sum_is_seen(dtype, k):
    func = product(dtype, "float64" if dtype == "float64" else "float32", k)
    (a, b, _), expected = bounded(func)
    (e,) = expected.values()
    a, b = to_float(a, dtype), to_float(b, dtype)
    assert e.tolerance < 0.02 and not e.wrong(a @ b).any()
    assert e.wrong(a[:, 1:] @ b[1:]).any() and e.wrong(a[:, :-1] @ b[:-1]).any() and e.wrong((a @ b).T).any()


@pytest.mark.parametrize("dtype", FLOATS)
def test_each_order_of_a_sum_is_right(dtype):
    func = product(dtype, dtype, 60)
    inputs, expected = bounded(func)
    orders = [func]
    for factor, vector in ((5, False), (15, False), (4, True)):
        s = tir.Schedule(func)
        _, inner = s.split("k", [None, factor])
        s.rfactor(inner, 2)
        if vector:
            s.vectorize(inner)
        orders.append(s.func)
    s = tir.Schedule(func)
    s.reorder("k", "i", "j")
    s.decompose_reduction("C", "k")
    s.vectorize("j")
    for schedule in (*orders, s.func):
        assert not expected[2].wrong(results(schedule, inputs)[2]).any()
    kept_wide = to_float(inputs[0], dtype) @ to_float(inputs[1], dtype)
    assert not expected[2].wrong(kept_wide).any()


def test_long_sums_of_halves_are_checked_where_few_terms_count():
    func = product("float16", "float16", 4096)
    assert Reference(func)(random_inputs(func, np.random.default_rng(0)))[2].loose
    inputs, expected = bounded(func)
    a, b = (to_float(x, "float16") for x in inputs[:2])
    assert not expected[2].wrong(results(func, inputs)[2]).any()
    assert not expected[2].bound.any() and (a @ b).any() and expected[2].wrong(np.zeros((M, M))).any()


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_what_no_inputs_make_sure_is_refused(dtype, tmp_path):
    X, k = te.placeholder((3, 1 << 14), dtype, name="X"), te.reduce_axis((0, 1 << 14), name="k")
    func = te.create_prim_func([X, te.compute((3,), lambda i: te.sum(te.cos(X[i, k]), axis=k), name="S")])
    with pytest.raises(NoBound):
        bounded(func)
    with pytest.raises(ValueError) as caught:
        tir.equivalent(func, func)
    reason = "rounding may change `S` by more than 0.1 of its scale"
    assert str(caught.value) == f"main: results cannot be compared: {reason}; sum up in a wider type"
    make_reference(func, None, 0, 0, tmp_path)
    assert Arrays(func, tmp_path).accept() == {"good": False, "loose": reason}


def test_the_next_inputs_are_taken_where_rounding_hides_faults():
    func = product("float16", "float16", 4096)
    found = tir.equivalent(func, func)
    assert found and found.tolerance == 0.0
    assert not tir.equivalent(func, scaled_product("float16", "float16", 0.0, 4096))
    assert not tir.equivalent(func, scaled_product("float16", "float16", -1.0, 4096))


@one_in(2)
@pytest.mark.parametrize("dtype", FLOATS)
def test_equivalent_refuses_faults(dtype):
    total = "float64" if dtype == "float64" else "float32"
    right = scaled_product(dtype, total, 0.25)
    assert tir.equivalent(right, tir.default_schedule(right, ONE), seeds=1)
    for factor, transposed in ((0.0, False), (-0.25, False), (0.26, False), (0.25, True)):
        assert not tir.equivalent(right, scaled_product(dtype, total, factor, transposed=transposed), seeds=1)


def test_infinite_and_undefined_results_must_be_met():
    X = te.placeholder((6,), "float16", name="X")
    func = te.create_prim_func([X, te.compute((6,), lambda i: te.log(X[i]) + X[i] * X[i], name="Y")])
    x = np.array([0.0, -1.0, np.inf, np.nan, 1.0, 3e4], "float16")
    (e,) = Reference(func)([x, np.zeros(6, "float16")]).values()
    right = np.array([-np.inf, np.nan, np.inf, np.nan, 1.0, np.inf])
    assert np.array_equal(e.value, right, equal_nan=True) and not e.wrong(right).any() and np.isfinite(e.bound).all()
    for i in range(6):
        for other in (np.inf, -np.inf, np.nan, 0.0):
            wrong = right.copy()
            wrong[i] = other
            if not np.array_equal(wrong, right, equal_nan=True):
                assert np.flatnonzero(e.wrong(wrong)).tolist() == [i]


def test_what_a_comparison_within_its_error_decides_may_be_either():
    X = te.placeholder((3,), name="X")
    T = te.compute((3,), lambda i: X[i] * 3.0, name="T")
    func = te.create_prim_func([X, te.compute((3,), lambda i: te.select(T[i] >= 0.3, 1.0, -1.0), name="Y")])
    (e,) = Reference(func)([np.array([0.1, 0.2, 0.0], "float32"), np.zeros(3, "float32")]).values()
    assert not e.wrong(np.array([1.0, 1.0, -1.0])).any() and not e.wrong(np.array([-1.0, 1.0, -1.0])).any()
    assert e.wrong(np.array([1.0, -1.0, 1.0])).tolist() == [False, True, True]


def test_arguments_are_left_as_they_are():
    for dtype in FLOATS:
        func = programs.matmul(dtype=dtype)
        inputs = random_inputs(func, np.random.default_rng(0))
        before = [a.copy() for a in inputs]
        Reference(func)(inputs)
        assert all(np.array_equal(a, b) for a, b in zip(inputs, before, strict=True))


@pytest.mark.parametrize("dtype", FLOATS)
def test_large_programs_are_made_fast_and_mean_the_same(dtype, monkeypatch):
    func = norm(dtype)
    inputs = random_inputs(func, np.random.default_rng(0))
    (e,) = Reference(func)(inputs).values()
    monkeypatch.setattr("search.measure.rounding.MIN_ITERATIONS_TO_SCHEDULE", 1)
    (other,) = Reference(func)(inputs).values()
    assert np.allclose(e.value, other.value, rtol=1e-13, atol=1e-13) and np.allclose(e.bound, other.bound, rtol=1e-9, atol=0)


@quick(lambda seed: seed in (0, 1, 2, 4, 6))  # each of the makers
@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    """Errors are within their bounds, and not far below; faults are beyond."""
    rng = np.random.default_rng(seed)
    makers = (random_programs.stages, random_programs.forms, random_programs.windows, random_programs.partial)
    func = fuzz.program(rng) if seed % 2 else makers[seed // 2 % 4](rng)
    try:
        inputs, expected = bounded(func, seed)
    except NoBound:
        return
    for schedule in (func, tir.default_schedule(func, ONE).func):
        found = results(schedule, inputs)
        assert not any(e.wrong(found[i]).any() for i, e in expected.items())
    for e in expected.values():
        for fault, made in faults(e.value, rng) if e.value.size else ():
            assert np.array_equal(made, e.value, equal_nan=True) or e.wrong(made).any(), fault


@pytest.mark.parametrize("dtype", FLOATS)
def test_workers_refuse_faults(dtype, tmp_path):
    """The verdict over the arrays of a worker, of a function that is not exact."""
    func = scaled_product(dtype, "float64" if dtype == "float64" else "float32", 0.3)
    make_reference(func, None, 0, 0, tmp_path)
    data = Arrays(func, tmp_path)
    right = [a.copy() for a in data.initial]
    tir.build(func, ONE)(*right)
    data.working[2][...] = right[2]
    accepted = data.accept()
    assert accepted == {"good": True, "loose": ""} and data.verdict()["outcome"] == "ok"
    for fault, made in faults(to_float(right[2], dtype), np.random.default_rng(0)):
        data.working[2][...] = from_float(made, dtype)
        verdict = data.verdict()
        assert verdict["outcome"] == "wrong_result" and verdict["message"].startswith("`D` is off by "), fault
