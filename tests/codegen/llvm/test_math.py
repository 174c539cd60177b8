"""The vector math library: errors within the stated bounds on the whole range, special cases as in C, any number of lanes."""

from __future__ import annotations

import math as scalar
import re
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from codegen.llvm import math
from codegen.llvm.compile import assembly
from codegen.target import Target
from tests.codegen import accuracy, minimax
from tests.codegen.accuracy import AVX512, BOUNDS, HOST, Elementwise, module_text
from tests.sweeps import quick

DOCS = Path(__file__).parents[3] / "docs" / "math.md"
CASES = [(op, dtype) for dtype in math.FORMATS for op in math.FUNCTIONS]
POINTS = {"float32": 1 << 20, "float64": 1 << 17}
inf, nan = scalar.inf, scalar.nan


def bits(a: np.ndarray) -> np.ndarray:
    """The bit patterns, all NaNs made one."""
    return np.where(np.isnan(a), np.array(nan, a.dtype), a).view(f"uint{8 * a.itemsize}")


def evaluate(op: str, dtype: str, *arguments: object) -> np.ndarray:
    return Elementwise(op, dtype, 4)(*np.broadcast_arrays(*(np.array(a, dtype) for a in arguments)))


@quick(lambda op, dtype: (list(math.FUNCTIONS).index(op) % 2 == 0) == (dtype == "float32"))
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_errors_are_within_the_bound(op: str, dtype: str) -> None:
    if dtype == "float64" and not accuracy.long_double():
        pytest.skip("long double is no better than float64 here")
    error, at = accuracy.worst(op, dtype, POINTS[dtype], 16, np.random.default_rng(0), AVX512)
    # The reference is exact to 2^-29 ulp in float32, and to about 2^-8 ulp (a few roundings of a 64-bit mantissa) in float64.
    slack = 2.0**-20 if dtype == "float32" else 2.0**-6
    assert error <= BOUNDS[op, dtype] + slack, f"{op}{at}"


@pytest.mark.parametrize("op", [op for op in math.FUNCTIONS if op not in math.LIBRARY])
def test_errors_without_fused_multiply_adds(op: str) -> None:
    """Within the same bounds, and without a library call for each multiply-add of float32."""
    target = Target("llvm -mcpu x86-64-v2")
    arguments = accuracy.inputs(op, "float32", 1 << 16, np.random.default_rng(0))
    found = Elementwise(op, "float32", 8, target=target, fused=False)(*arguments)
    assert accuracy.ulp_errors(found, accuracy.reference(op, *arguments)).max() <= BOUNDS[op, "float32"] + 2.0**-20
    assert "fma" not in assembly(module_text(op, "float32", 8, fused=False), target)


@quick(lambda op, dtype: (list(math.FUNCTIONS).index(op) % 2 == 0) == (dtype == "float32"))
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_lanes_do_not_change_the_result(op: str, dtype: str) -> None:
    arguments = accuracy.inputs(op, dtype, 4000, np.random.default_rng(1))
    expected = bits(Elementwise(op, dtype, 16)(*arguments))
    for lanes in (1, 2, 3, 4, 8, 64):
        assert np.array_equal(bits(Elementwise(op, dtype, lanes)(*arguments)), expected), lanes


@pytest.mark.skipif(not AVX512, reason="needs AVX-512")
@pytest.mark.parametrize("dtype", math.FORMATS)
@pytest.mark.parametrize("op", ("exp", "sigmoid", "pow"))
def test_avx512_does_not_change_the_result(op: str, dtype: str) -> None:
    arguments = accuracy.inputs(op, dtype, 40000, np.random.default_rng(2))
    expected = bits(Elementwise(op, dtype, 4, avx512=False)(*arguments))
    for lanes in (1, 2, 3, 4, 8, 16, 32, 48):
        assert np.array_equal(bits(Elementwise(op, dtype, lanes, avx512=True)(*arguments)), expected), lanes


@pytest.mark.skipif(not llvm.get_host_cpu_features().get("fma", False), reason="needs an x86 with AVX2 and FMA")
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_narrower_instruction_set_does_not_change_the_result(op: str, dtype: str) -> None:
    arguments = accuracy.inputs(op, dtype, 4000, np.random.default_rng(3))
    expected = bits(Elementwise(op, dtype, 8)(*arguments))
    assert np.array_equal(bits(Elementwise(op, dtype, 8, target=Target("llvm -mcpu haswell"))(*arguments)), expected)


@pytest.mark.parametrize("dtype", math.FORMATS)
@pytest.mark.parametrize(("op", "argument", "result"), [
    ("exp", [inf, -inf, nan, 0.0, -0.0, 1e30, -1e30], [inf, 0.0, nan, 1.0, 1.0, inf, 0.0]),
    ("log", [inf, 0.0, -0.0, -1e-30, -inf, nan, 1.0], [inf, -inf, -inf, nan, nan, nan, 0.0]),
    ("tanh", [inf, -inf, 0.0, -0.0, nan, 1e30], [1.0, -1.0, 0.0, -0.0, nan, 1.0]),
    ("erf", [inf, -inf, 0.0, -0.0, nan, -1e30], [1.0, -1.0, 0.0, -0.0, nan, -1.0]),
    ("sigmoid", [inf, -inf, 0.0, -0.0, nan, 1e30, -1e30], [1.0, 0.0, 0.5, 0.5, nan, 1.0, 0.0]),
    ("sqrt", [inf, -0.0, 0.0, -1.0, nan], [inf, -0.0, 0.0, nan, nan]),
    ("rsqrt", [inf, -0.0, 0.0, -1.0, nan], [0.0, -inf, inf, nan, nan]),
    ("abs", [-inf, -0.0, nan, -1.5], [inf, 0.0, nan, 1.5]),
    ("floor", [-inf, -0.0, nan, -1.5, 0.5], [-inf, -0.0, nan, -2.0, 0.0]),
    ("ceil", [inf, -0.0, nan, -1.5, -0.5], [inf, -0.0, nan, -1.0, -0.0]),
])  # fmt: skip
def test_special_values(op: str, dtype: str, argument: list[float], result: list[float]) -> None:
    assert np.array_equal(bits(evaluate(op, dtype, argument)), bits(np.array(result, dtype)))


@pytest.mark.parametrize("dtype", math.FORMATS)
@pytest.mark.parametrize(
    ("x", "y", "result"),
    [
        # C, annex F.10.4.4
        (nan, 0.0, 1.0),
        (nan, -0.0, 1.0),
        (inf, 0.0, 1.0),
        (0.0, 0.0, 1.0),
        (1.0, nan, 1.0),
        (1.0, inf, 1.0),
        (-1.0, inf, 1.0),
        (-1.0, -inf, 1.0),
        (-1.0, nan, nan),
        (nan, 1.0, nan),
        (0.0, nan, nan),
        (inf, nan, nan),
        (-2.0, 3.0, -8.0),
        (-2.0, 4.0, 16.0),
        (-2.0, -3.0, -0.125),
        (-2.0, 0.5, nan),
        (-2.0, 1e30, inf),
        (-2.0, inf, inf),
        (-0.5, inf, 0.0),
        (0.5, -inf, inf),
        (2.0, -inf, 0.0),
        (0.0, -1.0, inf),
        (-0.0, -1.0, -inf),
        (-0.0, -2.0, inf),
        (-0.0, -0.5, inf),
        (0.0, -inf, inf),
        (-0.0, -inf, inf),
        (-0.0, 3.0, -0.0),
        (-0.0, 2.0, 0.0),
        (-0.0, 0.5, 0.0),
        (0.0, 1e-30, 0.0),
        (inf, 1e-30, inf),
        (inf, -1e-30, 0.0),
        (-inf, -1.0, -0.0),
        (-inf, -2.0, 0.0),
        (-inf, 3.0, -inf),
        (-inf, 0.5, inf),
        (-1.0, 16777215.0, -1.0),
        (-1.0, 16777216.0, 1.0),
        (3.0, 4.0, 81.0),
        (10.0, -2.0, 0.01),
        (4.0, 0.5, 2.0),
    ],
)
def test_pow_special_values(dtype: str, x: float, y: float, result: float) -> None:
    assert np.array_equal(bits(evaluate("pow", dtype, [x], [y])), bits(np.array([result], dtype)))


@pytest.mark.parametrize("dtype", math.FORMATS)
def test_exp_and_sigmoid_underflow_gradually(dtype: str) -> None:
    info = np.finfo(dtype)
    low, high = (float(np.log(np.longdouble(v))) for v in (info.smallest_subnormal, info.tiny))
    x = np.linspace(low, high, 999).astype(dtype)
    for op in ("exp", "sigmoid"):
        y = evaluate(op, dtype, x)
        assert np.all((y > 0) & (y < info.tiny * 1.01)) and np.all(np.diff(y) >= 0)
        assert np.unique(y).size > 700


@pytest.mark.parametrize("dtype", math.FORMATS)
@pytest.mark.parametrize("op", ("exp", "tanh", "erf", "sigmoid", "log"))
def test_monotonic_up_to_the_error(op: str, dtype: str) -> None:
    x = np.linspace(1e-3, 9.0, 100_001).astype(dtype)
    y = evaluate(op, dtype, x)
    assert np.all(np.diff(y) >= -2 * BOUNDS[op, dtype] * np.spacing(np.abs(y[:-1])))


@pytest.mark.parametrize(("op", "dtype"), [(op, dtype) for op, dtype in CASES if op != "fmod"])  # which has a branch
def test_text_is_straight_line_without_fast_math(op: str, dtype: str) -> None:
    text, declared = math.definition(op, dtype, 8)
    body = text.splitlines()[1:-1]
    assert not re.search(r"\b(br|phi|fast|nnan|ninf|nsz|arcp|contract|afn|reassoc)\b", text)
    assert all(line.startswith("  %v") for line in body[:-1]) and body[-1].startswith("  ret ")
    assert set(re.findall(r"@llvm[.\w]+", text)) == set(re.findall(r"@llvm[.\w]+", "".join(declared)))
    assert all(line.startswith("declare ") for line in declared)


@pytest.mark.parametrize(("op", "dtype"), [(op, dtype) for op, dtype in CASES if op not in math.LIBRARY])
def test_no_call_is_left_in_the_compiled_code(op: str, dtype: str) -> None:
    if not llvm.get_host_cpu_features().get("fma", False):
        pytest.skip("without fused multiply-add llvm.fma is a call")
    for lanes in (1, 16):
        assert not re.search(r"^\s+call", assembly(module_text(op, dtype, lanes, AVX512), HOST), flags=re.M)


def test_names() -> None:
    assert math.function_name("exp", "float32", 16) == "tir.exp.v16f32"
    assert math.function_name("pow", "float64", 1) == "tir.pow.f64"
    text, declared = math.definition("sqrt", "float32", 4)
    assert declared == {"declare <4 x float> @llvm.sqrt.v4f32(<4 x float>)"}
    assert text == (
        "define internal <4 x float> @tir.sqrt.v4f32(<4 x float> %x) alwaysinline nounwind willreturn memory(none) {\n"
        "  %v0 = call <4 x float> @llvm.sqrt.v4f32(<4 x float> %x)\n"
        "  ret <4 x float> %v0\n"
        "}\n"
    )


@pytest.mark.parametrize(("op", "dtype", "lanes", "error", "message"), [
    ("exp10", "float32", 4, ValueError, f"no math function 'exp10'; there are {', '.join(math.FUNCTIONS)}"),
    ("exp", "float16", 4, TypeError,
     "math functions are for float32 and float64, not 'float16'; convert the operand to float32 first"),
    ("exp", "float32", 0, ValueError, "a vector has at least 1 lane, got 0"),
])  # fmt: skip
def test_refusals(op: str, dtype: str, lanes: int, error: type[Exception], message: str) -> None:
    for call in (math.function_name, math.definition):
        with pytest.raises(error) as caught:
            call(op, dtype, lanes)
        assert str(caught.value) == message


def test_tables_are_the_fitted_ones() -> None:
    assert {key: coefficients for key, (coefficients, _) in minimax.tables().items()} == math.COEFFICIENTS


def test_measuring_finds_errors() -> None:
    """The judge itself: a result one spacing off, a wrong sign of zero, a missing NaN and a missing infinity are all seen."""
    exact = np.array([1.0, -0.0, nan, inf, 2.0**128, 3.0], np.float64)
    with np.errstate(over="ignore"):
        right = exact.astype(np.float32)
    assert accuracy.ulp_errors(right, exact).tolist() == [0.0] * 6
    wrong = np.array([1 + 2**-23, 0.0, 1.0, 3e38, np.finfo(np.float32).max, nan], np.float32)
    assert accuracy.ulp_errors(wrong, exact).tolist() == [1.0, inf, inf, inf, 1.0, inf]


def test_elementwise_keeps_its_shape() -> None:
    assert Elementwise("exp", "float32", 16)(np.zeros((7, 13), np.float32)).shape == (7, 13)


def test_documented_bounds_are_the_stated_ones() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|.*?\| ([\d.]+) \| ([\d.]+) \|", DOCS.read_text(), flags=re.M)
    documented = {}
    for op, bound32, measured32, bound64, measured64 in rows:
        documented[op, "float32"], documented[op, "float64"] = float(bound32), float(bound64)
        assert float(measured32) <= float(bound32) and float(measured64) <= float(bound64), op
    assert documented == BOUNDS
