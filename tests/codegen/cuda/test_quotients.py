"""Quotients: those of IEEE 754 without calls, and products with a reciprocal where a schedule allows it."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from benchmarks.gpu_static import attention
from codegen.cuda import CudaKernel, emit, lower_cuda
from codegen.cuda.compile import compile_cubin
from schedule import Schedule
from schedule.templates import gpu
from tests.codegen.cuda.emulation import emulate
from tests.codegen.cuda.kernels import TARGET, no_compiler, no_nvrtc
from tests.codegen.passes.test_multiply_by_reciprocals import quotients
from tir import te, workloads
from tir.ir import PrimFunc
from tir.script import parse

SPECIAL = np.array(
    [0, 1, 3, np.inf, np.nan, 1e-45, 1.1754942e-38, 1.1754944e-38, 3.4028235e38, 1.9999999, 2.0**126, 1.7014117e38, 2.0**-97],
    np.float32,
)


def elements(count: int, value, *inputs) -> PrimFunc:
    arrays = [te.placeholder((count,), dtype, name=name) for name, dtype in zip("AB", inputs, strict=False)]
    return te.create_prim_func([*arrays, te.compute((count,), lambda i: value(*(a[i] for a in arrays)), name="C")])


@no_compiler
def test_quotients_are_those_of_ieee_754() -> None:
    """Of subnormal numbers, zeros, infinities and NaN too; of divisors whose reciprocal is hardest to round; of constants."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 2**32, (2, 30_000), np.uint32)
    drawn[:, ::3] = drawn[:, ::3] & 0x807FFFFF | 0x3F800000
    drawn[1, ::7] |= 0x7FFFFF
    drawn[:, ::11] &= 0x807FFFFF
    drawn[0, ::13] &= 0xFFFFF000
    signed = np.concatenate([SPECIAL, -SPECIAL])
    a, b = (np.concatenate([x.view(np.float32), y.ravel()]) for x, y in zip(drawn, np.meshgrid(signed, signed), strict=True))
    divisors = [8.0, -0.25, 3.0, 2.0**127, 2.0**-149]
    funcs = [elements(len(a), lambda x, y: x / y, "float32", "float32")]
    funcs += [elements(len(a), lambda x, c=c: x / tir.ir.Const(c, "float32"), "float32") for c in divisors]
    programs = [lower_cuda(gpu.schedule(f).func, TARGET) for f in funcs]
    assert ["quotient(" in emit(p).kernels for p in programs] == [True, False, False, True, True, True]
    for emulated, divisor in zip(emulate(*programs), (b, *map(np.float32, divisors)), strict=True):
        result = np.zeros_like(a)
        emulated(*((a, b) if divisor is b else (a,)), result)
        with np.errstate(all="ignore"):
            expected = a / divisor
        nan = np.isnan(expected)
        np.testing.assert_array_equal(np.isnan(result), nan)
        np.testing.assert_array_equal(result[~nan].view(np.uint32), expected[~nan].view(np.uint32))


@no_compiler
@pytest.mark.parametrize(("dtype", "unit"), [("float32", 2.0**-24), ("float64", 2.0**-53)])
def test_a_reciprocal_is_found_once_for_a_row(dtype: str, unit: float) -> None:
    """Zeros, infinities and NaN are those of quotients; others have three roundings, or a subnormal unit."""
    s = Schedule(quotients(13, dtype))
    s.bind("i", "blockIdx.x")
    program = lower_cuda(s.func, TARGET)
    text = emit(program).kernels
    assert text.count("normal_inverse(") == 1 and "/" not in text and text.index("normal_inverse") < text.index("for (")
    (emulated,) = emulate(program)
    values = np.concatenate([SPECIAL, [1e-300, 1e300, 5e-324]] if dtype == "float64" else [SPECIAL, -SPECIAL[:2]]).astype(dtype)
    for start in range(len(values) - 2):
        a, r = np.tile(np.resize(-values[::-1], 13), (3, 1)).astype(dtype), values[start : start + 3].copy()
        result = np.zeros_like(a)
        emulated(a, r, result)
        with np.errstate(all="ignore"):
            expected = a / r[:, None]
            finite = np.isfinite(expected)
            bound = 3.1 * unit * abs(expected) + np.finfo(dtype).smallest_subnormal
        np.testing.assert_array_equal(result[~finite], expected[~finite])
        assert (abs(result[finite] - expected[finite]) <= bound[finite]).all(), (r, result, expected)


def test_a_divisor_that_may_not_exist_is_not_read_before_its_condition() -> None:
    text = """
@T.prim_func
def rows(A: T.Buffer((7, 13), "float32"), R: T.Buffer((6,), "float32"), B: T.Buffer((7, 13), "float32")):
    for i in T.thread_binding(7, thread="blockIdx.x"):
        for j in T.serial(13, annotations={"allow_reciprocal": T.bool(True)}):
            if i > 0:
                B[i, j] = A[i, j] / R[i - 1]
"""
    assert "normal_inverse" not in emit(lower_cuda(parse(text), TARGET)).kernels
    assert "normal_inverse" in emit(lower_cuda(parse(text.replace("R[i - 1]", "R[0]")), TARGET)).kernels


def programs() -> dict[str, PrimFunc]:
    return {
        "softmax": workloads.make("softmax", (64, 1024)).func,
        "long softmax": workloads.make("softmax", (4096, 50257)).func,
        "layer norm": workloads.make("layernorm", (64, 1024)).func,
        "gelu": elements(10_007, lambda x: x * 0.5 * (1 + te.erf(x / 1.4142135)), "float32"),
        "sigmoid": elements(10_007, te.sigmoid, "float32"),
        "halves": elements(10_007, lambda x, y: x / y, "float16", "float16"),
        "attention": attention("float16", 256, 256, 64),
    }


@no_nvrtc
@pytest.mark.parametrize("name", programs())
def test_no_kernel_calls_a_division(name: str) -> None:
    """The assembler names what a kernel calls for subnormal numbers `..._slowpath`."""
    kernel = tir.build(gpu.schedule(programs()[name], "sm_90").func, "cuda -arch sm_90")
    assert isinstance(kernel, CudaKernel)
    assert b"slowpath" not in kernel.code and kernel.report().spills == 0, kernel.report()


@no_nvrtc
def test_a_division_of_the_compiler_is_told() -> None:
    """By the same name, in the same kernel with `/` in place of its steps."""
    text = emit(lower_cuda(gpu.schedule(programs()["sigmoid"], "sm_90").func, TARGET)).text
    divided = text.replace("#if __USE_FAST_MATH__", "#if 1")
    assert divided != text and [b"slowpath" in compile_cubin(x, "sm_90").code for x in (text, divided)] == [False, True]
