"""The schedule made by formula where the library knows no pattern."""

import numpy as np

import tir
from codegen import Target
from search.policy.default_schedule import MANY_BLOCKS, constructed
from tir import te
from tir.traverse import blocks


def summed(x, d):
    return lambda i, j: te.sum(x[i, (j + d * 13) % 109], axis=d)


def stages(n: int):
    """A chain of stages, each sums of three elements of the one before that lie 13 apart."""
    last = A = te.placeholder((7, 109), name="A")
    for step in range(n):
        x, d = last, te.reduce_axis((0, 3), name=f"d{step}")
        last = te.compute((7, 109), summed(x, d), name=f"S{step}")
    return te.create_prim_func([A, last])


def same(func, schedule) -> None:
    a = np.random.default_rng(0).integers(-2, 3, (7, 109)).astype("float32")
    wanted, found = np.empty_like(a), np.empty_like(a)
    tir.run(func, a, wanted)
    tir.build(schedule.func, "llvm -num-cores 2")(a, found)
    assert (found == wanted).all()


def test_small_and_large_functions():
    for n in (2, MANY_BLOCKS + 3):
        func = stages(n)
        s = constructed(func, Target("llvm", num_cores=2))
        assert len(s.trace) >= n and len(blocks(s.func)) >= n  # each stage was scheduled
        same(func, s)


def test_the_same_again():
    func = stages(MANY_BLOCKS + 1)
    target = Target("llvm", num_cores=2)
    assert constructed(func, target).trace == constructed(func, target).trace
