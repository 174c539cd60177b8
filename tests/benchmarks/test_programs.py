"""The default schedule of every program of the benchmark's table, at shapes drawn at random, within the program's own bound."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from benchmarks import cpu, programs
from tests.sweeps import one_in

PROGRAMS = sorted({row.program for row in cpu.TABLE.values()})
SHAPES = 4
DRAWS = {
    "gmm": lambda n: (n(1, 150), n(1, 300), n(1, 150)),
    "mlp": lambda n: (n(1, 70), n(1, 70), n(1, 70), n(1, 70)),
    "gemv": lambda n: (n(1, 300), n(1, 600)),
    "add_relu": lambda n: (n(1, 5000),),
    "softmax": lambda n: (n(1, 100), n(1, 700)),
    "layernorm": lambda n: (n(1, 100), n(1, 700)),
    "attention": lambda n: (n(1, 5), n(1, 60), n(1, 60)),
    "conv2d": lambda n: (n(1, 3), n(6, 20), n(6, 20), n(1, 40), n(16, 70), n(1, 6), n(1, 6), n(1, 3), n(0, 3)),
    "depthwise": lambda n: (n(1, 3), n(6, 40), n(6, 40), n(1, 40), n(1, 6), n(1, 6), n(1, 3), n(0, 3)),
}


@one_in(4)
@pytest.mark.parametrize("number", range(SHAPES))
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_shapes(name, number):
    rng = np.random.default_rng([len(name), number])
    shape = DRAWS[name](lambda low, high: int(rng.integers(low, high)))
    instance = programs.instance(name, shape)
    target = tir.Target("llvm", num_cores=1 + number % 2)
    inputs, outputs = instance.inputs(rng), instance.outputs()
    for output in outputs:
        output.fill(np.nan)
    tir.build(tir.default_schedule(instance.func, target).func, target)(*inputs, *outputs)
    check = instance.check(outputs, inputs)
    assert check.ok, f"{name} {shape}: off by {check.max_error:.3g} of its scale, {check.tolerance:.3g} is allowed"
