"""Kernels of the schedule library and by hand: emitted, compiled for three architectures, and run on the CPU in random orders."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tir
from codegen.cuda import GPUError, emit, lower_cuda
from codegen.cuda.compile import available, compile_cubin
from schedule import Schedule, library_cuda
from tests.codegen.cuda.emulation import EmulationError, compiler, emulate, emulate_text
from tests.codegen.harness import copies, integers
from tir import te, workloads
from tir.interpreter import run
from tir.ir import PrimFunc

TARGET = tir.Target("cuda")
ARCHITECTURES = ("sm_75", "sm_80", "sm_90")

no_compiler = pytest.mark.skipif(compiler is None, reason="there is no g++ to run emitted CUDA C with")
no_nvrtc = pytest.mark.skipif(bool(available()), reason=available() or "NVRTC is there")

CASES = [
    ("gmm", (64, 32, 64)), ("gmm", (37, 29, 41)), ("gmm", (20, 12, 40, 3)), ("gmm", (100, 72, 200)), ("gmm", (1, 13, 7)),
    ("gmm", (130, 7, 109)), ("mlp", (7, 13, 109, 5)), ("mlp", (32, 16, 48, 64)), ("conv2d", (1, 13, 9, 5, 7, 3, 3, 2, 1)),
    ("conv2d", (2, 9, 9, 8, 16, 3, 3, 1, 1)), ("conv2d", (1, 5, 5, 3, 4, 1, 1, 1, 0)), ("depthwise", (1, 13, 9, 5, 3, 3, 2, 1)),
    ("softmax", (7, 109)), ("softmax", (5, 13)), ("softmax", (1, 1)), ("layernorm", (7, 109)), ("layernorm", (3, 1000)),
]  # fmt: skip


@pytest.fixture(scope="module")
def library():
    """Each case: its instance, its scheduled function and its kernels."""
    made = []
    for name, shape in CASES:
        instance = workloads.make(name, shape)
        s = library_cuda.schedule(instance.func)
        made.append((instance, s.func, lower_cuda(s.func, TARGET)))
    return made


@no_compiler
def test_the_library_computes_every_workload(library) -> None:
    for (instance, func, _), emulated in zip(library, emulate(*(p for *_, p in library)), strict=True):
        assert not [f for f in tir.verify(func) if f.kind == "error"], instance.name
        inputs = instance.inputs(np.random.default_rng(0))
        check = instance.checker(inputs)
        results = []
        for seed in (0, 1):
            outputs = instance.outputs()
            emulated(*inputs, *outputs, seed=seed)
            assert check(outputs).ok, (instance.name, instance.shape, check(outputs), emulated.source.text)
            results.append(outputs[0])
        np.testing.assert_array_equal(*results, err_msg=f"{instance.name} {instance.shape}: the order of threads shows")


def test_the_library_binds_every_nest(library) -> None:
    for instance, _, program in library:
        for kernel in program.kernels:
            assert max(kernel.block) > 1 or instance.shape == (1, 1), (instance.name, instance.shape, kernel.name)


@no_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_library_compiles(library, arch: str) -> None:
    for instance, _, program in library:
        source = emit(program)
        binary = compile_cubin(source.text, arch, lines=source.lines)
        assert binary.code[:4] == b"\x7fELF"
        assert [r.name for r in binary.resources] == sorted(k.name for k in program.kernels)
        if instance.name != "conv2d":  # whose indices the assembler sometimes keeps on the stack
            assert all(r.spill_stores == r.spill_loads == r.stack == 0 for r in binary.resources), (instance.name, binary.resources)


@no_nvrtc
@pytest.mark.parametrize("shape", [(1024, 1024, 1024), (4096, 4096, 4096), (1000, 1000, 1000)])
def test_a_large_product_keeps_its_tile_in_registers(shape) -> None:
    kernel = tir.build(library_cuda.schedule(workloads.make("gmm", shape).func).func, "cuda -arch sm_90")
    report = kernel.report()
    assert report.spills == 0 and report.kernels[0].stack == 0
    assert 16 <= report.kernels[0].registers <= 65536 // report.threads[0]
    assert "int4" in kernel.source


# --- barriers -----------------------------------------------------------------------------------------------------------


def without(text: str, n: int) -> str:
    """CUDA C without its barrier number `n`."""
    parts = text.split("__syncthreads();")
    return "__syncthreads();".join(parts[: n + 1]) + parts[n + 1] + "".join(f"__syncthreads();{p}" for p in parts[n + 2 :])


@no_compiler
@pytest.mark.parametrize("name, shape", [("gmm", (37, 29, 41)), ("softmax", (3, 109)), ("conv2d", (1, 9, 9, 8, 4, 3, 3, 1, 1))])
def test_each_barrier_is_needed(name: str, shape) -> None:
    """Without any one of them, threads race."""
    instance = workloads.make(name, shape)
    program = lower_cuda(library_cuda.schedule(instance.func).func, TARGET)
    kernels = emit(program).kernels
    count = kernels.count("__syncthreads();")
    assert count >= 2
    inputs = instance.inputs(np.random.default_rng(0))
    for n in range(count):
        with pytest.raises(EmulationError, match="race: "):
            emulate_text(program, without(kernels, n))(*inputs, *instance.outputs())


@no_compiler
def test_no_barrier_where_each_thread_reads_what_it_wrote() -> None:
    A = te.placeholder((64,), "float32", name="A")
    B = te.compute((64,), lambda i: A[i] * te.const(2, "float32"), name="B")
    C = te.compute((64,), lambda i: B[i] + te.const(1, "float32"), name="C")
    s = Schedule(te.create_prim_func([A, C]))
    bx, tx = s.split(s.get_loops("C")[0], [None, 16])
    s.compute_at("B", bx)
    s.set_scope("B", 0, "shared")
    s.bind(s.get_loops("B")[-1], "threadIdx.x")
    s.bind(tx, "threadIdx.x")
    s.bind(bx, "blockIdx.x")
    check(s.func, func=s.func, barriers=0)


@no_compiler
def test_a_barrier_where_threads_read_what_others_wrote() -> None:
    A = te.placeholder((64,), "float32", name="A")
    B = te.compute((64,), lambda i: A[i] * te.const(2, "float32"), name="B")
    C = te.compute((64,), lambda i: B[63 - i], name="C")
    s = Schedule(te.create_prim_func([A, C]))
    bx, tx = s.split(s.get_loops("C")[0], [None, 16])
    s.compute_at("B", bx)
    s.set_scope("B", 0, "shared")
    s.bind(s.get_loops("B")[-1], "threadIdx.x")
    s.bind(tx, "threadIdx.x")
    s.bind(bx, "blockIdx.x")
    check(s.func, func=s.func, barriers=1)


def check(after: PrimFunc, func: PrimFunc, barriers: int | None = None) -> str:
    """`after` computes on the emulation what `func` does in the interpreter; its CUDA C."""
    program = lower_cuda(after, TARGET)
    text = emit(program).text
    if barriers is not None:
        assert text.count("__syncthreads") == barriers, text
    (emulated,) = emulate(program)
    args = integers(func, 0)
    expected = copies(args)
    run(func, *expected)
    for seed in (0, 1, 2):
        got = copies(args)
        emulated(*got, seed=seed)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_array_equal(a, b)
    return text


# --- reductions across threads ------------------------------------------------------------------------------------------


def sums(rows: int, columns: int, reducer=te.sum, dtype: str = "float32") -> PrimFunc:
    A = te.placeholder((rows, columns), dtype, name="A")
    k = te.reduce_axis((0, columns), "k")
    B = te.compute((rows,), lambda i: reducer(A[i, k], axis=k), name="B")
    return te.create_prim_func([A, B])


@no_compiler
@pytest.mark.parametrize("threads, others, axis, shuffles", [
    (32, 1, "x", True), (8, 4, "x", True), (64, 2, "x", True), (16, 1, "x", True), (13, 3, "x", False), (4, 2, "x", True), (7, 4, "y", False),
])  # fmt: skip
def test_threads_reduce_together(threads: int, others: int, axis: str, shuffles: bool) -> None:
    func = sums(37, 109)
    s = Schedule(func)
    i, k = s.get_loops("B")
    bx, t = s.split(i, [None, others])
    s.bind(bx, "blockIdx.x")
    s.bind(t, "threadIdx.y" if axis == "x" else "threadIdx.x")
    ko, ki = s.split(k, [None, threads])
    s.reorder(ki, ko)
    s.bind(ki, f"threadIdx.{axis}")
    assert not [f for f in tir.verify(s.func) if f.kind == "error"]
    assert ("__shfl_xor_sync" in check(s.func, func)) == shuffles


@no_compiler
@pytest.mark.parametrize("reducer, dtype", [(te.max, "int32"), (te.min, "float16"), (te.prod, "float64"), (te.sum, "int8")])
def test_threads_reduce_other_operations(reducer, dtype: str) -> None:
    func = sums(3, 50, reducer, dtype)
    s = Schedule(func)
    _, k = s.get_loops("B")
    ko, ki = s.split(k, [None, 32])
    s.reorder(ki, ko)
    s.bind(ki, "threadIdx.x")
    check(s.func, func)


@no_compiler
def test_two_kernels_reduce_across_blocks() -> None:
    """rfactor gives each block partial results, which a second kernel adds up."""
    func = sums(3, 500)
    s = Schedule(func)
    _, k = s.get_loops("B")
    ko, _ = s.split(k, [4, None])
    partial = s.rfactor(ko)
    loops = s.get_loops(partial)
    s.bind(loops[0], "blockIdx.y")
    s.bind(next(x for x in loops if x.startswith(ko)), "blockIdx.x")
    s.bind(s.get_loops("B")[0], "threadIdx.x")
    program = lower_cuda(s.func, TARGET)
    assert len(program.kernels) == 2 and len(program.temporaries) == 1
    check(s.func, func)


# --- single features ----------------------------------------------------------------------------------------------------


@no_compiler
def test_virtual_threads_share_barriers_and_loads() -> None:
    A, B = (te.placeholder((48, 48), "float32", name=n) for n in "AB")
    k = te.reduce_axis((0, 48), "k")
    func = te.create_prim_func([A, B, te.compute((48, 48), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])
    s = Schedule(func)
    copy = s.cache_read("C", 0, "shared")
    i, j, k = s.get_loops("C")
    bi, vi, ti = s.split(i, [None, 2, 8])
    ko, ki = s.split(k, [None, 8])
    bj, tj = s.split(j, [None, 8])
    s.reorder(bi, bj, ko, vi, ti, tj, ki)
    s.compute_at(copy, ko)
    s.bind(bi, "blockIdx.y")
    s.bind(bj, "blockIdx.x")
    s.decompose_reduction("C", ko)
    s.bind(vi, "vthread.y")
    s.bind(ti, "threadIdx.y")
    s.bind(tj, "threadIdx.x")
    a, b = s.get_loops(copy)[-2:]
    _, ty, tx = s.split(s.fuse(a, b), [None, 8, 8])
    s.bind(ty, "threadIdx.y")
    s.bind(tx, "threadIdx.x")
    text = check(s.func, func, barriers=3)
    assert re.search(r"for \(int i_1(_init)? = 0; i_1(_init)? < 2", text)


@no_compiler
def test_partial_blocks_are_guarded() -> None:
    A = te.placeholder((7, 109), "float32", name="A")
    func = te.create_prim_func([A, te.compute((7, 109), lambda i, j: A[i, j] + te.const(1, "float32"), name="B")])
    s = Schedule(func)
    i, j = s.get_loops("B")
    bx, tx = s.split(s.fuse(i, j), [None, 64])
    s.bind(bx, "blockIdx.x")
    s.bind(tx, "threadIdx.x")
    text = check(s.func, func)
    with pytest.raises(EmulationError, match=r"index \d+ of A is outside"):  # the guard is what keeps it inside
        program = lower_cuda(s.func, TARGET)
        emulate_text(program, re.sub(r"if \(.*\) \{", "{", text))(*integers(func, 0))


@no_compiler
@pytest.mark.parametrize("dtype, lanes, vector", [("float32", 4, "int4"), ("float16", 8, "int4"), ("bfloat16", 4, "int2"), ("int8", 16, "int4"),
                                                  ("float64", 2, "int4"), ("uint8", 4, "int*")])  # fmt: skip
def test_vector_loads_and_stores(dtype: str, lanes: int, vector: str) -> None:
    A = te.placeholder((5, 64), dtype, name="A")
    func = te.create_prim_func([A, te.compute((5, 64), lambda i, j: A[i, j] + te.const(1, dtype), name="B")])
    s = Schedule(func)
    i, j = s.get_loops("B")
    tx, v = s.split(j, [None, lanes])
    s.bind(i, "blockIdx.x")
    s.bind(tx, "threadIdx.x")
    s.vectorize(v)
    assert vector in check(s.func, func)


@no_compiler
def test_a_function_without_bindings_is_one_thread() -> None:
    func = sums(7, 13)
    program = lower_cuda(func, TARGET)
    assert [(k.grid, k.block) for k in program.kernels] == [(tuple(tir.ir.Const(1) for _ in range(3)), (1, 1, 1))]
    check(func, func)


@no_compiler
def test_loops_of_the_host_launch_again() -> None:
    A = te.placeholder((4, 33), "float32", name="A")
    func = te.create_prim_func([A, te.compute((4, 33), lambda i, j: A[i, j] + te.const(1, "float32"), name="B")])
    s = Schedule(func)
    s.bind(s.get_loops("B")[1], "threadIdx.x")
    program = lower_cuda(s.func, TARGET)
    assert [p.name for p in program.kernels[0].params] == ["A", "B", "i0"] or len(program.kernels[0].params) == 3
    check(s.func, func)


def test_what_has_no_meaning_is_refused() -> None:
    A = te.placeholder((64,), "float32", name="A")
    B = te.compute((64,), lambda i: A[i] * te.const(2, "float32"), name="B")
    C = te.compute((64,), lambda i: B[63 - i], name="C")
    s = Schedule(te.create_prim_func([A, C]))
    bx, tx = s.split(s.get_loops("C")[0], [None, 16])
    s.compute_at("B", bx)
    s.set_scope("B", 0, "local")
    s.bind(s.get_loops("B")[-1], "threadIdx.x")
    s.bind(tx, "threadIdx.x")
    s.bind(bx, "blockIdx.x")
    with pytest.raises(GPUError, match="`B_local` in local memory is indexed differently by threads in different statements"):
        lower_cuda(s.func, TARGET)
    s = Schedule(sums(3, 2048))
    s.bind(s.get_loops("B")[1], "threadIdx.x")
    with pytest.raises(GPUError, match="2048 x 1 x 1 threads a block are more than 1024"):
        lower_cuda(s.func, TARGET)


@no_nvrtc
def test_an_error_of_nvrtc_names_the_line_and_the_statement() -> None:
    from codegen.cuda import CompileError

    program = lower_cuda(library_cuda.schedule(workloads.make("softmax", (3, 64)).func).func, TARGET)
    source = emit(program)
    with pytest.raises(CompileError) as caught:
        compile_cubin(source.text.replace("expf(", "no_such_function("), "sm_90", lines=source.lines)
    message = str(caught.value)
    assert message.startswith("NVRTC cannot compile the kernel for sm_90")
    assert "no_such_function" in message and "from the statement power_shared[" in message
