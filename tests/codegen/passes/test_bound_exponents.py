"""bound_exponents: differences from a maximum are known not to be positive where that is proved."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen.processor import missing_features
from schedule import templates
from tests.codegen.harness import after
from tir import workloads
from tir.interpreter import run
from tir.script import parse

V3 = "llvm -num-cores 1 -mcpu x86-64-v3"
BOUNDED = "T.exp(T.Select("

SOURCE = """
@T.prim_func
def main(A: T.Buffer((3, 13), "float32"), m: T.Buffer((3,), "float32"), B: T.Buffer((3, 13), "float32"), Z: T.Buffer((3,), "float32")):
    n = T.alloc_buffer((3, 5))
    for i in range(3):
        m[i] = T.float32("-inf")
        for l in range(5):
            n[i, l] = T.float32("-inf")
        for k, k_1 in T.grid(3, 5):
            if k * 5 + k_1 < 13:
                n[i, k_1] = T.max(n[i, k_1], A[i, k * 5 + k_1])
        for o in range(5):
            m[i] = T.max(n[i, o], m[i])
        for j in range(13):
            B[i, j] = T.exp(A[i, j] - m[i])
"""


def bounded(source: str, mcpu: str = "x86-64-v3") -> int:
    """How many exponents are bounded."""
    return tir.dump(parse(source), f"llvm -num-cores 1 -mcpu {mcpu}", after="bound_exponents").count(BOUNDED)


def test_a_maximum_of_maxima():
    lowered = after(parse(SOURCE), "bound_exponents", mcpu="x86-64-v3", numbers=False).becomes("""
        # with T.block("root"):
        n = T.alloc_buffer((3, 5))
        for i in range(3):
            m[i] = T.float32("-inf")
            for l in range(5):
                n[i, l] = T.float32("-inf")
            for k, k_1 in T.grid(3, 5):
                if k * 5 + k_1 < 13:
                    n[i, k_1] = T.max(n[i, k_1], A[i, k * 5 + k_1])
            for o in range(5):
                m[i] = T.max(n[i, o], m[i])
            for j in range(13):
                B[i, j] = T.exp(T.Select(A[i, j] - m[i] > T.float32(0.0), T.float32(0.0), A[i, j] - m[i]))
    """)
    a = np.random.default_rng(0).normal(0, 40, (3, 13)).astype("float32")
    results = [np.empty((3, 13), "float32") for _ in range(2)]
    for func, result in zip((parse(SOURCE), lowered), results, strict=True):
        run(func, a, np.empty(3, "float32"), result, np.empty(3, "float32"))
    assert results[0].tobytes() == results[1].tobytes()


def test_processors_that_scale_by_any_power_of_two_need_no_bound():
    assert bounded(SOURCE) == 1 and bounded(SOURCE, "x86-64-v2") == 1 and bounded(SOURCE, "x86-64-v4") == 0


MAXIMUM = "            m[i] = T.max(n[i, o], m[i])\n        for j in range(13):\n            "
UNDER_Z = "            if Z[i] > 0.0:\n                m[i] = T.max(n[i, o], m[i])\n"
CONSUMER_UNDER_Z = "        for j in range(13):\n            if Z[i] > 0.0:\n                "


@pytest.mark.parametrize(("old", "new"), [
    ("range(3):\n        m", "range(3):\n        A[i, 4] = T.float32(9.0)\n        m"),  # before: all is there
    ("for o in range(5)", "for o in T.vectorized(5)"),
    ("T.exp(A[i, j] - m[i])", "T.exp(A[i, 12 - j] - m[i])"),
    (MAXIMUM,
     "            if i < 2:\n                m[i] = T.max(n[i, o], m[i])\n        for j in range(13):\n            if i < 2:\n                "),
])  # fmt: skip
def test_what_is_proved_as_well(old, new):
    assert old in SOURCE and bounded(SOURCE.replace(old, new)) == 1


@pytest.mark.parametrize(("old", "new"), [
    ("grid(3, 5)", "grid(2, 5)"),  # not all elements
    ("k * 5 + k_1 < 13", "k * 5 + k_1 < 12"),
    ("k * 5 + k_1 < 13", "k + k_1 * 5 < 13"),
    ("A[i, k * 5 + k_1]", "A[i, k * 4 + k_1]"),
    ("A[i, k * 5 + k_1]", "A[0, k * 5 + k_1]"),  # of another row
    ("for o in range(5)", "for o in range(4)"),
    ("for o in range(5)", "for z, o in T.grid(0, 5)"),
    (MAXIMUM, f"{UNDER_Z}        Z[i] = T.float32(1)\n{CONSUMER_UNDER_Z}"),
    ("m[i] = T.max(n[i, o], m[i])", "m[i] = T.max(n[i, o], m[0])"),
    ("m[i] = T.max(n[i, o], m[i])", "m[i] = T.min(n[i, o], m[i])"),
    ("        for j", "        A[i, 4] = T.float32(9.0)\n        for j"),  # changed since
    ("        for j", "        m[i] = T.float32(0.0)\n        for j"),
    ("        for o", "        n[i, 4] = T.float32(0.0)\n        for o"),
    ("B[i, j] = T.exp(A[i, j] - m[i])", "A[i, j] = T.exp(A[i, j] - m[i])"),
    ("T.exp(A[i, j] - m[i])", "T.exp(m[i] - A[i, j])"),
    ("T.exp(A[i, j] - m[i])", "T.exp(A[i, j] - m[0])"),  # where another maximum may stand
    ("m[i] = T.max(n[i, o], m[i])", "if A[i, 0] > 0.0:\n                m[i] = T.max(n[i, o], m[i])"),
    ("m[i] = T.max(n[i, o], m[i])", "if i < 2:\n                m[i] = T.max(n[i, o], m[i])"),
])  # fmt: skip
def test_what_is_not_proved_stays(old, new):
    assert old in SOURCE and bounded(SOURCE.replace(old, new)) == 0


@pytest.mark.parametrize("columns", [3, 33, 1000])
def test_templates_of_softmax_are_recognised(columns):
    func = templates.schedule(workloads.make("softmax", (7, columns)).func, tir.Target(V3)).func
    assert tir.dump(func, V3, after="bound_exponents").count(BOUNDED) == 1


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_shorter_exponential_has_the_same_bits(mcpu, dtype):
    if missing_features(mcpu, ""):
        pytest.skip(missing_features(mcpu, ""))
    source = """
@T.prim_func
def main(A: T.Buffer((40000,), "{0}"), B: T.Buffer((40000,), "{0}")):
    for i in range(5000):
        for j in T.vectorized(8):
            B[i * 8 + j] = T.exp({1})
"""
    x, capped = "A[i * 8 + j]", f"T.Select(A[i * 8 + j] > T.{dtype}(0.0), T.{dtype}(0.0), A[i * 8 + j])"
    kernels = [tir.build(parse(source.format(dtype, e)), f"llvm -num-cores 1 -mcpu {mcpu}") for e in (x, capped)]
    assert "tir.capped_exp" in kernels[1].llvm_ir() and "tir.capped_exp" not in kernels[0].llvm_ir()
    rng = np.random.default_rng(0)
    a = np.concatenate([rng.uniform(-1.05 * abs(np.log(np.finfo(dtype).smallest_subnormal)), 1, 20000), rng.normal(0, 1, 19994)])
    a = np.concatenate([a, [0.0, -0.0, np.nan, -np.inf, np.inf, -1e30]]).astype(dtype)
    results = [np.empty_like(a) for _ in range(2)]
    for kernel, argument, result in zip(kernels, (np.minimum(a, 0), a), results, strict=True):
        kernel(argument.astype(dtype), result)
    assert np.array_equal(*results, equal_nan=True) and np.isnan(results[1][-4])
