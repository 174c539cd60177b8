"""Single features of kernels: emitted, and run on the CPU in random orders."""

from __future__ import annotations

import re

import pytest

import tir
from codegen.cuda import emit, lower_cuda
from codegen.cuda.compile import compile_cubin
from schedule import Schedule
from schedule.templates import gpu
from tests import programs
from tests.codegen.cuda.kernels import TARGET, check_all, no_compiler, no_nvrtc, sums
from tests.programs import elementwise
from tir import te, workloads
from tir.ir import PrimFunc


@no_nvrtc
@pytest.mark.parametrize("shape", [(1024, 1024, 1024), (4096, 4096, 4096), (1000, 1000, 1000)])
def test_a_large_product_keeps_its_tile_in_registers(shape) -> None:
    kernel = tir.build(gpu.schedule(workloads.make("gmm", shape).func).func, "cuda -arch sm_90")
    report = kernel.report()
    assert report.spills == 0 and report.kernels[0].stack == 0
    assert 16 <= report.kernels[0].registers <= 65536 // report.threads[0]
    assert "int4" in kernel.source


@no_compiler
def test_vector_loads_and_stores() -> None:
    cases = [("float32", 4, "int4"), ("float16", 8, "int4"), ("bfloat16", 4, "int2"), ("int8", 16, "int4"), ("float64", 2, "int4"),
             ("uint8", 4, "int*"), ("float32", 8, "int4")]  # fmt: skip
    pairs = []
    for dtype, lanes, _ in cases:
        func = elementwise(5, 64, dtype=dtype)
        s = Schedule(func)
        i, j = s.get_loops("B")
        tx, v = s.split(j, [None, lanes])
        s.bind(i, "blockIdx.x")
        s.bind(tx, "threadIdx.x")
        s.vectorize(v)
        pairs.append((s.func, func))
    for text, (dtype, lanes, vector) in zip(check_all(pairs), cases, strict=True):
        assert f"({vector}*)" in text or f"({vector})" in text, (dtype, lanes, text)


@no_compiler
def test_bits_are_counted() -> None:
    pairs = []
    for dtype in ("uint8", "uint32", "uint64", "int8", "int32"):
        A = te.placeholder((13,), dtype, name="A")
        func = te.create_prim_func([A, te.compute((13,), lambda i, A=A: te.popcount(~A[i]), name="B")])
        pairs.append((func, func))
    assert "__popcll(" in check_all(pairs)[2]


@no_nvrtc
def test_names_are_no_words_of_the_language() -> None:
    words = ("nullptr", "constexpr", "warpSize", "floordiv")
    A, B = (te.placeholder((7,), "float32", name=name) for name in words[:2])
    C = te.compute((7,), lambda i: A[i] + B[i], name=words[2])
    text = emit(lower_cuda(te.create_prim_func([A, B, C, te.compute((7,), lambda i: C[i] * A[i], name=words[3])]), TARGET)).text
    assert all(f"{word}_1[" in text and not re.search(rf"\b{word}\[", text) for word in words)
    compile_cubin(text, "sm_90")


@no_nvrtc
def test_an_error_of_nvrtc_names_the_line_and_the_statement() -> None:
    from codegen.cuda import CompileError

    program = lower_cuda(gpu.schedule(workloads.make("softmax", (3, 64)).func).func, TARGET)
    source = emit(program)
    with pytest.raises(CompileError) as caught:
        compile_cubin(source.text.replace("expf(", "no_such_function("), "sm_90", lines=source.lines)
    message = str(caught.value)
    assert message.startswith("NVRTC cannot compile the kernel for sm_90")
    assert "no_such_function" in message and "from the statement power_local[" in message


# --- functions beyond the workloads -------------------------------------------------------------------------------------


def product(M: int, N: int, K: int, dtype: str, transposed: bool) -> PrimFunc:
    """float32 sums of products of `dtype`, then relu."""
    return programs.product(
        M,
        N,
        K,
        right="jk" if transposed else "kj",
        dtypes=(dtype, dtype),
        after=lambda c, _: te.maximum(c, te.const(0, "float32")),
    )


def matrix_and_vector(M: int, K: int) -> PrimFunc:
    A, x = te.placeholder((M, K), "float32", name="A"), te.placeholder((K,), "float32", name="x")
    k = te.reduce_axis((0, K), "k")
    return te.create_prim_func([A, x, te.compute((M,), lambda i: te.sum(A[i, k] * x[k], axis=k), name="y")])


def columns(M: int, N: int) -> PrimFunc:
    A = te.placeholder((M, N), "float32", name="A")
    k = te.reduce_axis((0, M), "k")
    return te.create_prim_func([A, te.compute((N,), lambda j: te.sum(A[k, j], axis=k), name="y")])


def transpose(M: int, N: int) -> PrimFunc:
    A = te.placeholder((M, N), "float32", name="A")
    return te.create_prim_func([A, te.compute((N, M), lambda i, j: A[j, i], name="y")])


def inner_product(K: int) -> PrimFunc:
    A, B = (te.placeholder((K,), "float32", name=n) for n in "AB")
    k = te.reduce_axis((0, K), "k")
    return te.create_prim_func([A, B, te.compute((), lambda: te.sum(A[k] * B[k], axis=k), name="y")])


@no_compiler
def test_the_library_schedules_any_function() -> None:
    funcs = [
        product(33, 65, 47, "float16", False), product(64, 64, 32, "bfloat16", True), product(37, 41, 29, "float32", True),
        matrix_and_vector(37, 130), columns(53, 37), transpose(33, 47), inner_product(1000), sums(3, 500, te.max),
    ]  # fmt: skip
    texts = check_all([(gpu.schedule(f).func, f) for f in funcs])
    assert all("__shared__" in text for text in texts[:3])
    assert all("__shfl_xor_sync" in texts[n] for n in (3, 6, 7))
