"""Single features of kernels: emitted, and run on the CPU in random orders."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tir
from codegen.cuda import GPUError, emit, lower_cuda
from codegen.cuda.compile import available, compile_cubin
from schedule import Schedule, ScheduleError
from schedule.open_schedule import OpenSchedule
from schedule.templates import gpu
from schedule.templates.gpu import products
from tests.arrays import copies, integers
from tests.codegen.cuda.emulation import EmulationError, compiler, emulate, emulate_texts
from tests.programs import elementwise, matmul
from tir import te, workloads
from tir.interpreter import run
from tir.ir import PrimFunc
from tir.script import parse

TARGET = tir.Target("cuda")

no_compiler = pytest.mark.skipif(compiler is None, reason="there is no g++ to run emitted CUDA C with")
no_nvrtc = pytest.mark.skipif(bool(available()), reason=available() or "NVRTC is there")


@no_nvrtc
@pytest.mark.parametrize("shape", [(1024, 1024, 1024), (4096, 4096, 4096), (1000, 1000, 1000)])
def test_a_large_product_keeps_its_tile_in_registers(shape) -> None:
    kernel = tir.build(gpu.schedule(workloads.make("gmm", shape).func).func, "cuda -arch sm_90")
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
def test_tiles_are_loaded_one_step_ahead() -> None:
    """Three tiles take turns, with one barrier a step; from sm_80 on by asynchronous copies, which are waited for before it."""
    instance = workloads.make("gmm", (60, 60, 68))
    s = OpenSchedule(instance.func, TARGET, at_seed=True)
    products.build(s, "C", products.TILES[2])
    func = s.func
    texts = {arch: emit(lower_cuda(func, tir.Target("cuda", arch=arch))).kernels for arch in ("sm_75", "sm_80")}
    assert all(text.count("__syncthreads();") == 1 for text in texts.values())
    assert "copy_async" not in texts["sm_75"] and texts["sm_80"].count("copy_async<16>(") == 4
    inputs = instance.inputs(np.random.default_rng(0))
    program = lower_cuda(func, TARGET)
    for emulated in emulate_texts(program, *texts.values()):
        outputs = instance.outputs()
        emulated(*inputs, *outputs)
        assert instance.check(outputs, inputs).ok
    never, late = (texts["sm_80"].replace("copy_async_wait<1>();", wrong) for wrong in ("", "copy_async_wait<2>();"))
    for emulated, message in zip(emulate_texts(program, never, late), ("ends with copies", "ends with copies|race"), strict=True):
        with pytest.raises(EmulationError, match=message):
            emulated(*inputs, *instance.outputs())


@no_compiler
def test_copies_that_are_all_made_ahead_are_waited_for_by_all() -> None:
    """Two steps and three tiles: nothing is left to load in the loop, where each thread waits for the copies that it made."""
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((2, 7, 12), "float32"), C: T.Buffer((2, 12), "float32")):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for step in T.serial(2, annotations={"pipeline_stages": 3}):
            tile = T.decl_buffer((4, 12), scope="shared")
            for t in T.thread_binding(48, thread="threadIdx.x"):
                if step * 4 + t // 12 < 7:
                    tile[t // 12, t % 12] = A[b, step * 4 + t // 12, t % 12]
            for i in T.thread_binding(12, thread="threadIdx.x"):
                for k in range(4):
                    if step * 4 + k < 7:
                        C[b, i] = C[b, i] + tile[k, i]
"""
    )
    text = check(func, func)
    assert text.index("copy_async_wait<1>();") < text.index("__syncthreads();")


@no_compiler
def test_steps_written_out_have_registers_of_their_own() -> None:
    """So the assembler may load the fragment of a step while the one before it computes."""
    func = matmul(24, 24, 24)
    s = Schedule(func)
    tile = s.cache_read("C", 0, "shared")
    fragment = s.cache_read("C", "A_shared", "local")
    i, j, k = s.get_loops("C")
    bi, ti, ii = s.split(i, [None, 4, 3])
    ko, ki = s.split(k, [None, 8])
    s.reorder(bi, ko, ti, j, ki, ii)
    s.compute_at(fragment, ki)
    s.compute_at(tile, ko)
    s.decompose_reduction("C", ko)
    s.bind(bi, "blockIdx.x")
    s.bind(ti, "threadIdx.y")
    s.bind(j, "threadIdx.x")
    a, b = s.get_loops(tile)[-2:]
    s.bind(a, "threadIdx.y")
    s.bind(b, "threadIdx.x")
    s.unroll(ki)
    text = check(s.func, func)
    assert "float A_shared_local[24];" in text and "A_shared_local[i_2 * 8 + k_1]" in text, text


@no_compiler
def test_images_are_copied_without_waiting() -> None:
    """Padding is zeros of the copy; pixels are copied one by one where rows do not line up, channels two by two where they do."""
    pairs, texts = [], []
    for name, shape, copies_of in (("conv2d", (1, 9, 11, 8, 16, 3, 3, 1, 1), 4), ("conv2d_nhwc", (1, 9, 11, 16, 32, 3, 1, 1), 8)):
        func = workloads.make(name, shape).func
        pairs.append((gpu.schedule(func).func, func))
        texts.append((emit(lower_cuda(pairs[-1][0], TARGET)).kernels, copies_of))
    for text, bytes_each in texts:
        inner = text[text.index("__syncthreads") :]
        copy = next(x for x in inner.splitlines() if f"copy_async<{bytes_each}>(pad_" in x)
        assert " && " in copy and "pad_global_shared[" not in inner[: inner.index("copy_async_commit")], text
    check_all(pairs)


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
    (text,) = check_all([(after, func)])
    if barriers is not None:
        assert text.count("__syncthreads") == barriers, text
    return text


def check_all(pairs: list[tuple[PrimFunc, PrimFunc]]) -> list[str]:
    """The same for many, with one call of the compiler."""
    programs = [lower_cuda(after, TARGET) for after, _ in pairs]
    for (_, func), emulated in zip(pairs, emulate(*programs), strict=True):
        args = integers(func, 0)
        expected = copies(args)
        run(func, *expected)
        for seed in (0, 1, 2):
            got = copies(args)
            emulated(*got, seed=seed)
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=emulated.source.text)
    return [emit(p).text for p in programs]


@no_compiler
def test_an_only_element_is_at_0_for_every_thread() -> None:
    """Threads with nothing to do have registers too."""
    X, k = te.placeholder((13,), name="X"), te.reduce_axis((0, 13), "k")
    S = te.compute((1,), lambda i: te.sum(X[k], axis=k), name="S")
    func = te.create_prim_func([X, te.compute((1,), lambda i: S[i] + 1.0, name="Y")])
    s = Schedule(func)
    s.set_scope("S", 0, "local")
    _, thread = s.split(s.get_loops("Y")[0], [None, 32])
    s.compute_at("S", thread)
    s.bind(thread, "threadIdx.x")
    assert "S_local[1]" in check(s.func, func)


# --- reductions across threads ------------------------------------------------------------------------------------------


def sums(rows: int, columns: int, reducer=te.sum, dtype: str = "float32") -> PrimFunc:
    A = te.placeholder((rows, columns), dtype, name="A")
    k = te.reduce_axis((0, columns), "k")
    B = te.compute((rows,), lambda i: reducer(A[i, k], axis=k), name="B")
    return te.create_prim_func([A, B])


@no_compiler
def test_threads_reduce_together() -> None:
    """Whole and partial warps, several groups a block, odd numbers of threads, other axes."""
    cases = [(32, 1, "x", True), (8, 4, "x", True), (64, 2, "x", True), (16, 1, "x", True), (13, 3, "x", False), (4, 2, "x", True),
             (7, 4, "y", False), (160, 3, "x", True), (1, 1, "x", False)]  # fmt: skip
    pairs = []
    for threads, others, axis, _ in cases:
        func = sums(37, 109)
        s = Schedule(func)
        i, k = s.get_loops("B")
        bx, t = s.split(i, [None, others])
        s.bind(bx, "blockIdx.x")
        s.bind(t, "threadIdx.y" if axis == "x" else "threadIdx.x")
        ko, ki = s.split(k, [None, threads])
        s.reorder(ki, ko)
        s.bind(ki, f"threadIdx.{axis}")
        assert not [f for f in tir.verify(s.func) if f.severity == "error"]
        pairs.append((s.func, func))
    for text, case in zip(check_all(pairs), cases, strict=True):
        assert ("__shfl_xor_sync" in text) == case[-1], case


@no_compiler
def test_partial_results_have_places_of_their_own() -> None:
    """Shared memory holds those of one block, where block and thread are mixed in the indices and the last block is guarded."""
    A, k = te.placeholder((3, 11, 150), name="A"), te.reduce_axis((0, 150), "k")
    func = te.create_prim_func([A, te.compute((3, 11), lambda i, j: te.sum(A[i, j, k], axis=k), name="B")])
    pairs, cases = [], []
    for threads, parts in ((64, 2), (13, 13)):
        for serial, virtual, y, inner in ((1, 1, 2, 1), (1, 1, 2, 5), (3, 1, 2, 1), (1, 2, 3, 1), (3, 2, 2, 2)):
            s = Schedule(func)
            i, j, k = s.get_loops("B")
            bx, _, v, ty, ii = s.split(s.fuse(i, j), [None, serial, virtual, y, inner])
            ko, ki = s.split(k, [None, threads])
            s.reorder(ki, ko, ii)
            for loop, axis in ((bx, "blockIdx.x"), (v, "vthread.x"), (ty, "threadIdx.y"), (ki, "threadIdx.x")):
                s.bind(loop, axis)
            assert not [f for f in tir.verify(s.func) if f.severity == "error"]
            pairs.append((s.func, func))
            cases.append(virtual * y * inner * parts)
    for text, count in zip(check_all(pairs), cases, strict=True):
        assert f"B_meeting[{count}]" in text, count


@no_compiler
def test_threads_reduce_other_operations() -> None:
    pairs = []
    for reducer, dtype in ((te.max, "int32"), (te.min, "float16"), (te.prod, "float64"), (te.sum, "int8"), (te.sum, "bfloat16")):
        func = sums(3, 50, reducer, dtype)
        s = Schedule(func)
        _, k = s.get_loops("B")
        ko, ki = s.split(k, [None, 32])
        s.reorder(ki, ko)
        s.bind(ki, "threadIdx.x")
        pairs.append((s.func, func))
    check_all(pairs)


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
    func = matmul(48, 48, 48)
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
    text = check(s.func, func, barriers=2)
    assert re.search(r"for \(int i_1(_init)? = 0; i_1(_init)? < 2", text)


@no_compiler
def test_partial_blocks_are_guarded() -> None:
    func = elementwise(7, 109)
    s = Schedule(func)
    i, j = s.get_loops("B")
    bx, tx = s.split(s.fuse(i, j), [None, 64])
    s.bind(bx, "blockIdx.x")
    s.bind(tx, "threadIdx.x")
    text = check(s.func, func)
    with pytest.raises(EmulationError, match=r"index \d+ of A is outside"):  # the guard is what keeps it inside
        program = lower_cuda(s.func, TARGET)
        emulate_texts(program, re.sub(r"if \(.*\) \{", "{", text))[0](*integers(func, 0))


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
def test_a_function_without_bindings_is_one_thread() -> None:
    func = sums(7, 13)
    program = lower_cuda(func, TARGET)
    assert [(k.grid, k.block) for k in program.kernels] == [(tuple(tir.ir.Const(1) for _ in range(3)), (1, 1, 1))]
    check(func, func)


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


@no_compiler
def test_loops_of_the_host_launch_again() -> None:
    func = elementwise(4, 33)
    s = Schedule(func)
    s.bind(s.get_loops("B")[1], "threadIdx.x")
    program = lower_cuda(s.func, TARGET)
    assert len(program.kernels[0].params) == 3  # A, B and the row
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
    A = te.placeholder((M, K), dtype, name="A")
    B = te.placeholder((N, K) if transposed else (K, N), dtype, name="B")
    k = te.reduce_axis((0, K), "k")

    def element(i, j):
        return te.sum(A[i, k].astype("float32") * (B[j, k] if transposed else B[k, j]).astype("float32"), axis=k)

    C = te.compute((M, N), element, name="C")
    D = te.compute((M, N), lambda i, j: te.maximum(C[i, j], te.const(0, "float32")), name="D")
    return te.create_prim_func([A, B, D])


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


PUBLISHED = """
@T.prim_func
def main(A: T.Buffer((64, 40), "float32"), B: T.Buffer((40, 32), "float32"), C: T.Buffer((64, 32), "float32")):
    A_shared = T.alloc_buffer((64, 40), scope="shared")
    C_local = T.alloc_buffer((64, 32), scope="local")
    for by in T.thread_binding(4, thread="blockIdx.y"):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for ty in T.thread_binding(8, thread="threadIdx.y"):
                for tx in range(8):
                    for i in range(2):
                        with T.block("init"):
                            vi = T.axis.spatial(64, by * 16 + ty * 2 + i)
                            vj = T.axis.spatial(32, bx * 8 + tx)
                            C_local[vi, vj] = T.float32(0)
                    for ko in range(5):
                        for a0, a1, a2 in T.grid(2, 8, 8):
                            with T.block("load"):
                                v0 = T.axis.spatial(64, by * 16 + a0 * 8 + a1)
                                v1 = T.axis.spatial(40, ko * 8 + a2)
                                A_shared[v0, v1] = A[v0, v1]
                        for ki, i in T.grid(8, 2):
                            with T.block("update"):
                                vi = T.axis.spatial(64, by * 16 + ty * 2 + i)
                                vj = T.axis.spatial(32, bx * 8 + tx)
                                vk = T.axis.reduce(40, ko * 8 + ki)
                                C_local[vi, vj] = C_local[vi, vj] + A_shared[vi, vk] * B[vk, vj]
                    for i in range(2):
                        with T.block("store"):
                            vi = T.axis.spatial(64, by * 16 + ty * 2 + i)
                            vj = T.axis.spatial(32, bx * 8 + tx)
                            C[vi, vj] = C_local[vi, vj]
"""


@no_compiler
def test_threads_may_stand_outside_of_the_loads_that_they_share() -> None:
    """The published style: thread loops outermost, and loads inside of them bound to the same axes again."""
    func = parse(PUBLISHED)
    s = Schedule(func)
    for loop, axis in (("tx", "threadIdx.x"), ("a1", "threadIdx.y"), ("a2", "threadIdx.x")):
        s.bind(loop, axis)
    text = check(s.func, func, barriers=2)
    assert "A_shared[128]" in text and "A_shared[a0 * 64 + ty" in text
    with pytest.raises(ScheduleError, match=r"`ty` is bound to threadIdx\.y already"):  # what it fills, ty reads
        s.bind("ki", "threadIdx.y")
