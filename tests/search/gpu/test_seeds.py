"""The templates at their seeds: what the default schedule is, and where a search begins."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen.cuda import lower_cuda
from codegen.target import Target
from schedule import replay
from search.policy.named import make_policy, seeds
from search.space import generate
from search.task import Task
from tests.arrays import copies
from tests.codegen.cuda.emulation import compiler, emulate
from tests.search.gpu.candidates import TARGET, case
from tests.sweeps import quick

CASES = [
    ("gmm", (37, 41, 53)), ("gmm", (7, 13, 1030)), ("gmm", (1, 109, 13)), ("gmm", (7, 13, 11, 3)), ("mlp", (7, 13, 41, 5)),
    ("float16", (33, 65, 47)), ("float16", (33, 17, 1536)), ("tf32, transposed", (17, 29, 59)),
    ("conv2d", (1, 13, 9, 5, 7, 3, 3, 2, 1)), ("conv_bn_relu", (1, 7, 7, 128, 16, 3, 1, 1)), ("depthwise", (1, 13, 9, 5, 3, 3, 1, 1)),
    ("softmax", (7, 109)), ("softmax", (1, 1)), ("softmax", (2, 40001)), ("layernorm", (3, 1000)), ("norm", (1, 1024, 128)),
    ("attention_weights", (1, 13, 3, 7)),
]  # fmt: skip
SIMILAR = (CASES[3], CASES[6], CASES[8], CASES[12])  # of templates that others have, too


@quick(lambda name, shape: (name, shape) not in SIMILAR)
@pytest.mark.parametrize("name, shape", CASES)
def test_the_first_seeds_are_the_default_schedule(name, shape):
    tried = case(name, shape)
    (sketch, row), *_ = seeds(generate(tried.func, TARGET), TARGET)
    assert tuple(row) == sketch.seed
    program = lower_cuda(replay(tried.func, sketch.trace(row.tolist())).func, TARGET)
    assert program == lower_cuda(tir.default_schedule(tried.func, TARGET).func, TARGET)
    if compiler is not None:
        (kernel,) = emulate(program)
        arrays = copies(tried.arguments)
        kernel(*arrays)
        assert not tried.problem(arrays)


@pytest.mark.parametrize("name, shape", [("gmm", (37, 41, 53)), ("softmax", (7, 109)), ("depthwise", (1, 13, 9, 5, 3, 3, 1, 1))])
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_a_search_begins_with_the_seeds(name, shape, arch):
    func, target = case(name, shape).func, Target("cuda", arch=arch)
    found = make_policy(Task.of(func, target), model="tile")
    first = found.propose(2, np.random.default_rng(0))[0]
    sketch = next(s for s in found.sketches if s.name == first.sketch)
    assert tuple(first.row) == sketch.seed
    assert replay(func, sketch.trace(first.row)).func == tir.default_schedule(func, target).func


@pytest.mark.parametrize("name, shape", [("gmm", (37, 41, 53)), ("conv2d", (1, 13, 9, 5, 7, 3, 3, 2, 1))])
def test_the_papers_space_has_no_seeds_for_tiles(name, shape):
    assert not seeds(generate(case(name, shape).func, TARGET, space="ansor"), TARGET)
