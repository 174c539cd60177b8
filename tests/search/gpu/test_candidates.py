"""Every sketch of every workload at small odd shapes: random rows are kernels that compute what they should."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.cuda import lower_cuda
from codegen.cuda.compile import available, compile_cubin
from codegen.cuda.emit import emit
from codegen.target import Target
from schedule import replay
from search.population.sample import sample
from search.space import generate
from tests.arrays import copies, integers
from tests.codegen.cuda.emulation import compiler, emulate
from tests.search.gpu.candidates import PRODUCTS, SHAPES, TARGET, case, product, wrong
from tests.sweeps import one_in, quick
from tir import te, workloads
from tir.interpreter import run


def test_all_workloads_are_here():
    assert set(SHAPES) == set(workloads.names())


@one_in(2)
@pytest.mark.skipif(compiler is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", SHAPES)
def test_random_rows_equal_the_reference(name):
    assert not list(wrong(name, SHAPES[name][0], rows=1))


@one_in(2)
@pytest.mark.skipif(compiler is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", PRODUCTS)
def test_random_rows_on_tensor_cores_equal_the_interpreter(name):
    shape = PRODUCTS[name][0]
    assert [sketch.rules[-1] for sketch in generate(case(name, shape).func, TARGET)] == ["C: tiling for tensor cores"]
    assert not list(wrong(name, shape, rows=2))


@quick(lambda name: name != "float16")
@pytest.mark.parametrize(
    "name, shape", [("gmm", (9, 1030, 13)), ("float16", (33, 17, 1536)), ("conv_bn_relu", (1, 7, 7, 128, 16, 3, 1, 1))]
)
def test_long_sums_with_few_results_may_be_split(name, shape):
    """Into whole products of parts, and one kernel that adds them up and computes what follows, in any layout; what is left whole
    is tiled as it is, and a convolution also as a product of matrices."""
    tried = case(name, shape)
    sketches = generate(tried.func, TARGET)
    split = [sketch for sketch in sketches if any("split sum" in rule for rule in sketch.rules)]
    assert len(split) == 3 and len(sketches) == (5 if name == "conv_bn_relu" else 4)
    programs = []
    for sketch in split:
        row = sample(sketch, TARGET, 1, np.random.default_rng(0)).tolist()[0]
        programs.append(lower_cuda(replay(tried.func, sketch.trace(row)).func, TARGET))
        assert len(programs[-1].kernels) == 2
    if compiler is not None:
        (kernel,) = emulate(programs[0])
        arrays = copies(tried.arguments)
        kernel(*arrays)
        assert not tried.problem(arrays)


@pytest.mark.skipif(compiler is None, reason="no C++ compiler")
@pytest.mark.skipif(compiler is None, reason="no C++ compiler")
def test_one_number_is_read_where_it_is():
    """A factor of rank 0 has no tile in shared memory."""
    X, F, k = te.placeholder((31,), name="X"), te.placeholder((), name="F"), te.reduce_axis((0, 17), name="k")
    func = te.create_prim_func([X, F, te.compute((31,), lambda i: te.sum(X[i // 2] * F(), axis=k), name="Y")])
    sketch = next(s for s in generate(func, TARGET) if "Y: tiling through shared memory" in s.rules)
    row = sample(sketch, TARGET, 1, np.random.default_rng(0)).tolist()[0]
    (kernel,) = emulate(lower_cuda(replay(func, sketch.trace(row)).func, TARGET))
    given = integers(func, 0)
    expected, found = copies(given), copies(given)
    run(func, *expected)
    kernel(*found)
    assert np.array_equal(found[-1], expected[-1])


def test_older_devices_have_neither_tensor_cores_nor_copies_ahead():
    assert not list(wrong("float16", (33, 65, 47), rows=2, target=Target("cuda", arch="sm_75")))


@one_in(2)
@pytest.mark.skipif(bool(available()), reason="no NVRTC")
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_random_rows_compile_for_each_architecture(arch):
    """Without what the architecture lacks: asynchronous copies, bfloat16, tensor cores."""
    target = Target("cuda", arch=arch)
    for name, func in (("gmm", workloads.make("gmm", (100, 109, 70)).func), ("bfloat16", product("bfloat16", 100, 109, 70))):
        (sketch,) = generate(func, target)
        for row in sample(sketch, target, 2, np.random.default_rng(3)).tolist():
            text = emit(lower_cuda(replay(func, sketch.trace(row)).func, target)).text
            assert ("mma_m16n8k16" in text) == (arch != "sm_75" and name == "bfloat16")
            assert arch != "sm_75" or "copy_async" not in text
            assert compile_cubin(text, arch).code


@pytest.mark.skipif(compiler is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", ["gmm", "conv2d"])
def test_rows_of_the_papers_space_equal_the_reference(name):
    assert not list(wrong(name, SHAPES[name][0], rows=1, seed=1, space="ansor"))


CASES = [
    ("gmm", (1000, 1000, 1000)), ("conv2d", (1, 56, 56, 64, 64, 3, 3, 1, 1)), ("softmax", (4096, 1024)),
    ("float16", (1000, 1000, 1000)),
]  # fmt: skip


@one_in(2)
@pytest.mark.skipif(bool(available()), reason="no NVRTC")
@pytest.mark.parametrize("name, shape", CASES)
def test_rows_fit_the_device(name, shape):
    """What NVRTC makes of random rows needs no more registers than the block may have, and spills nothing."""
    func = product(name, *shape) if name in PRODUCTS else workloads.make(name, shape).func
    sketch = generate(func, TARGET)[0]
    for row in sample(sketch, TARGET, 3, np.random.default_rng(0)).tolist():
        program = lower_cuda(replay(func, sketch.trace(row)).func, TARGET)
        source = emit(program)
        found = compile_cubin(source.text, TARGET.arch).resources
        for kernel, resources, dynamic in zip(program.kernels, found, source.shared_bytes, strict=True):
            threads = int(np.prod(kernel.block))
            assert threads <= 1024 and resources.registers * threads <= 65536, (row, resources)
            assert resources.spill_stores == 0, (row, resources)
            assert resources.shared + dynamic <= 227 * 1024
