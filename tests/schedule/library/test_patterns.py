"""Every pattern, at shapes drawn at random, against float64 references; that it is recognised, and that its trace replays."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from schedule import library, replay
from tests.schedule.library import patterns

ROUNDS = 12  # shapes for each pattern


def close(result: np.ndarray, case: patterns.Case) -> bool:
    return bool(np.all(np.abs(result - case.expected) <= case.bound))


@pytest.mark.parametrize("name", patterns.PATTERNS)
@pytest.mark.parametrize("cores", [1, 2])
def test_random_shapes(name, cores):
    """Scheduled programs give what the reference does; a program that is not recognised has the sketches' default."""
    target = tir.Target("llvm", num_cores=cores)
    rng = np.random.default_rng(cores)
    recognised = 0
    for _ in range(ROUNDS):
        case = patterns.PATTERNS[name](rng)
        s = library.schedule(case.func, target)
        if s is None:
            continue
        recognised += 1
        assert replay(case.func, s.trace).func == s.func
        result = np.full(case.expected.shape, np.nan, "float32")
        tir.build(s.func, target)(*case.inputs, result)
        assert close(result, case), f"{s.func.script()}\noff by {np.max(np.abs(result - case.expected)):.3g}"
    assert recognised == ROUNDS if name != "convolution" else recognised >= ROUNDS // 3


def test_a_wrong_result_is_seen():
    case = patterns.product(np.random.default_rng(0))
    wrong = case.expected + 1.01 * np.maximum(case.bound, 1e-30)
    assert close(case.expected, case) and not close(wrong, case)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("sizes", [(150, 149, 151), (311, 97, 109), (31, 600, 259), (300, 1030, 35), (1, 1500, 1601)])
def test_products_that_threads_share(sizes, cores):
    """Large enough for two threads, a cut sum and several blocks."""
    M, K, N = sizes
    instance = tir.workloads.make("gmm", (M, K, N))
    target = tir.Target("llvm", num_cores=cores)
    s = library.schedule(instance.func, target)
    assert s is not None
    assert ("T.parallel" in s.script) == (cores == 2)
    inputs, outputs = instance.inputs(np.random.default_rng(0)), instance.outputs()
    tir.build(s.func, target)(*inputs, *outputs)
    assert instance.check(outputs, inputs).ok


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlp", (191, 139, 127, 113)),
        ("softmax", (300, 257)),
        ("layernorm", (301, 256)),
        ("conv2d", (1, 19, 17, 33, 40, 3, 3, 1, 1)),
        ("conv2d", (2, 29, 31, 16, 65, 3, 3, 2, 1)),
        ("depthwise", (2, 57, 61, 19, 3, 3, 1, 1)),
    ],
)
@pytest.mark.parametrize("cores", [1, 2])
def test_workloads(name, shape, cores):
    instance = tir.workloads.make(name, shape)
    target = tir.Target("llvm", num_cores=cores)
    s = library.schedule(instance.func, target)
    assert s is not None
    assert ("T.parallel" in s.script) == (cores == 2)
    inputs, outputs = instance.inputs(np.random.default_rng(0)), instance.outputs()
    tir.build(s.func, target)(*inputs, *outputs)
    assert instance.check(outputs, inputs).ok
