"""The schedule library on all workloads: emitted, compiled for three architectures, run on the CPU in random orders of threads."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import tir
from codegen.cuda import emit, lower_cuda
from codegen.cuda.compile import compile_cubin
from schedule.primitive import find_block
from schedule.templates import gpu
from schedule.templates.gpu import products, windows
from schedule.templates.gpu.products import TILES
from tests.codegen.cuda.emulation import EmulationError, emulate, emulate_texts
from tests.codegen.cuda.kernels import check_all, no_compiler, no_nvrtc, sums, without
from tests.codegen.cuda.test_kernels import columns, inner_product, matrix_and_vector
from tests.codegen.cuda.test_tensor_cores import product
from tests.sweeps import one_in, quick
from tir import te, workloads
from tir.interpreter import run

TARGET = tir.Target("cuda")
ARCHITECTURES = ("sm_75", "sm_80", "sm_90")


CASES = [
    ("gmm", (64, 32, 64)), ("gmm", (37, 29, 41)), ("gmm", (20, 12, 40, 3)), ("gmm", (100, 72, 200)), ("gmm", (1, 13, 7)),
    ("gmm", (130, 7, 109)), ("mlp", (7, 13, 109, 5)), ("mlp", (32, 16, 48, 64)), ("conv2d", (1, 13, 9, 5, 7, 3, 3, 2, 1)),
    ("conv2d", (2, 9, 9, 8, 16, 3, 3, 1, 1)), ("conv2d", (1, 5, 5, 3, 4, 1, 1, 1, 0)), ("conv1d", (2, 13, 8, 7, 3, 2, 1)),
    ("conv2d_nhwc", (1, 9, 9, 8, 12, 3, 1, 1)), ("conv2d_nhwc", (1, 7, 5, 4, 6, 3, 1, 2, 2, 2)), ("conv3d", (1, 3, 5, 7, 4, 8, 3, 1, 1)),
    ("conv_bn_relu", (1, 7, 7, 64, 16, 3, 1, 1)), ("depthwise", (1, 13, 9, 5, 3, 3, 2, 1)), ("depthwise_nhwc", (1, 13, 9, 5, 3, 1, 1)),
    ("conv2d_transpose", (1, 3, 5, 7, 4, 4, 2, 1)), ("capsule", (1, 5, 3, 4, 6, 3, 1, 1)), ("softmax", (7, 109)), ("softmax", (5, 13)),
    ("softmax", (1, 1)), ("softmax", (300, 64)), ("softmax", (2, 40001)), ("layernorm", (7, 109)), ("layernorm", (3, 1000)),
    ("norm", (3, 17, 40)), ("norm", (1, 1024, 128)), ("attention_weights", (1, 13, 3, 7)),
]  # fmt: skip


@pytest.fixture(scope="module")
def library():
    """Each case: its instance, its scheduled function and its kernels."""
    made = []
    for name, shape in CASES:
        instance = workloads.make(name, shape)
        s = tir.default_schedule(instance.func, TARGET)
        made.append((instance, s.func, lower_cuda(s.func, TARGET)))
    return made


def test_every_workload_is_among_the_cases() -> None:
    assert {name for name, _ in CASES} == set(workloads.names())


@no_compiler
def test_the_library_computes_every_workload(library) -> None:
    for (instance, func, _), emulated in zip(library, emulate(*(p for *_, p in library)), strict=True):
        assert not [f for f in tir.verify(func) if f.severity == "error"], instance.name
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
            results = sum(prod(int(d.value) for d in p.shape) for p in kernel.params if p.name in kernel.written)  # type: ignore
            assert max(kernel.block) > 1 or results == 1, (instance.name, instance.shape, kernel.name)


@one_in(3)
@no_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", workloads.names())
def test_the_library_compiles(name: str, arch: str) -> None:
    """At the default sizes, with all values in registers."""
    func = tir.default_schedule(workloads.make(name).func, f"cuda -arch {arch}").func
    program = lower_cuda(func, tir.Target("cuda", arch=arch))
    source = emit(program)
    binary = compile_cubin(source.text, arch, lines=source.lines)
    assert binary.code[:4] == b"\x7fELF"
    assert [r.name for r in binary.resources] == sorted(k.name for k in program.kernels)
    assert all(r.spill_stores == r.spill_loads == r.stack == 0 for r in binary.resources), binary.resources


# One for each tile, partial ones, a batch, a split sum, factors that lie across.
PRODUCTS = [
    product(4096, 4096, 4096, "float32"), product(1000, 1000, 1000, "float32"), product(512, 512, 512, "float32", a="t", b="t"),
    product(257, 259, 109, "float32", b="t"), product(109, 13, 7, "float32"), product(64, 64, 65537, "float32"),
    workloads.make("gmm", (130, 72, 200, 12)).func,
]  # fmt: skip


@quick(lambda arch: arch == "sm_90")
@no_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_products_of_float32_never_spill(arch: str) -> None:
    blocks = set()
    for func in PRODUCTS:
        kernel = tir.build(gpu.schedule(func, arch).func, tir.Target("cuda", arch=arch))
        report = kernel.report()
        blocks |= {k.block[0] * k.block[1] for k in kernel.program.kernels if k.shared}
        assert report.spills == 0 and all(k.stack == 0 for k in report.kernels), (func.script(), report)
    assert blocks >= {t.threads for t in TILES}


@no_compiler
def test_each_barrier_is_needed(library) -> None:
    """Without any one of them, threads race."""
    for instance, program in {instance.name: (instance, program) for instance, _, program in reversed(library)}.values():
        kernels = emit(program).kernels
        count = kernels.count("__syncthreads();")
        inputs = instance.inputs(np.random.default_rng(0))
        for n, emulated in enumerate(emulate_texts(program, *(without(kernels, n) for n in range(count)))):
            with pytest.raises(EmulationError, match="race: "):
                emulated(*inputs, *instance.outputs())
                raise AssertionError(f"{instance.name} {instance.shape} needs no barrier {n}:\n{kernels}")


@no_compiler
def test_rows_are_read_once_in_vectors() -> None:
    """A row that fits stays in the registers of a warp: one vector load and one vector store an element, and no barrier."""
    for name in ("softmax", "layernorm"):
        text = emit(lower_cuda(gpu.schedule(workloads.make(name, (4096, 1024)).func).func, TARGET)).kernels
        assert text.count("(const int4*)(X + ") == 1 and text.count("*(int4*)(Y + ") == 1 and "X[" not in text, text
        assert "__syncthreads" not in text and "__shared__" not in text


@no_compiler
def test_reductions_are_parallel_whatever_their_shape() -> None:
    """Few and long rows, long columns, one number: parts of them are reduced by blocks of their own."""
    funcs = [
        matrix_and_vector(3, 130000),
        inner_product(100000),
        inner_product(10007),
        columns(5000, 37),
        sums(3, 100003, te.max),
    ]
    scheduled = [gpu.schedule(f).func for f in funcs]
    assert [len(lower_cuda(f, TARGET).kernels) for f in scheduled] == [2, 2, 1, 2, 1]  # a prime number of steps has no parts
    check_all(list(zip(scheduled, funcs, strict=True)))


@no_compiler
def test_a_reduction_of_several_results_has_a_thread_a_row() -> None:
    """Also where another row of one of its results is read next, so that threads would share them."""
    X = te.placeholder((7, 13), name="X")
    k = te.reduce_axis((0, 13), name="k")

    def larger(a, b):
        return te.select(a[1] >= b[1], a[0], b[0]), te.select(a[1] >= b[1], a[1], b[1])

    reducer = te.comm_reducer(larger, lambda i, v: (te.const(-1, i), te.const(-1e30, v)), name="argmax")
    index, value = te.compute((7,), lambda i: reducer((k, X[i, k]), axis=k), name="M")
    both = te.compute((7,), lambda i: index[i].astype("float32") + value[6 - i], name="Y")
    funcs = [te.create_prim_func([X, index, value]), te.create_prim_func([X, both])]
    scheduled = [gpu.schedule(f).func for f in funcs]
    assert [[k.block for k in lower_cuda(f, TARGET).kernels] for f in scheduled] == [[(7, 1, 1)], [(7, 1, 1)] * 2]
    check_all(list(zip(scheduled, funcs, strict=True)))


def test_a_batch_of_one_product_is_no_axis_of_it() -> None:
    """A large one is split into parts of its sum, as matrices."""
    tir.default_schedule(workloads.make("gmm", (512, 512, 512, 1)).func, TARGET)
    instance = workloads.make("gmm", (7, 13, 29, 1))
    s = tir.Schedule(instance.func)
    found = products.matched_product(find_block(s.func, "C"))
    assert found is not None
    windows.as_matrices(s, found, None)
    inputs, outputs = instance.inputs(np.random.default_rng(0)), instance.outputs()
    run(s.func, *inputs, *outputs)
    assert instance.checker(inputs)(outputs).ok
