"""Every sketch of every workload at small odd shapes: random rows are kernels that compute what they should."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.cuda import lower_cuda
from codegen.cuda.compile import available, compile_cubin
from codegen.cuda.emit import emit
from schedule import replay
from search.sample import sample
from search.space import generate
from tests.codegen.cuda.emulation import compiler
from tests.search.gpu.candidates import SHAPES, TARGET, wrong
from tir import workloads


def test_all_workloads_are_here():
    assert set(SHAPES) == set(workloads.names())


@pytest.mark.skipif(compiler is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", SHAPES)
def test_random_rows_equal_the_reference(name):
    assert not list(wrong(name, SHAPES[name][0], rows=1))


@pytest.mark.skipif(compiler is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", ["gmm", "conv2d"])
def test_rows_of_the_papers_space_equal_the_reference(name):
    assert not list(wrong(name, SHAPES[name][0], rows=1, seed=1, space="ansor"))


CASES = [("gmm", (1000, 1000, 1000)), ("conv2d", (1, 56, 56, 64, 64, 3, 3, 1, 1)), ("softmax", (4096, 1024))]


@pytest.mark.skipif(bool(available()), reason="no NVRTC")
@pytest.mark.parametrize("name, shape", CASES)
def test_rows_fit_the_device(name, shape):
    """What NVRTC makes of random rows needs no more registers than the block may have, and spills nothing."""
    func = workloads.make(name, shape).func
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
