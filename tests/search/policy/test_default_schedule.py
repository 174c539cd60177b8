"""The schedule made by formula where the library knows no pattern."""

import numpy as np

import tir
from codegen import Target
from search.policy.default_schedule import constructed
from search.space.derivation import MANY_BLOCKS
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


def test_a_reducer_of_several_values():
    """Whose rows are reduced side by side, in blocks of two stores."""
    X, k = te.placeholder((64, 1000), name="X"), te.reduce_axis((0, 1000), name="k")

    def larger(a, b):
        first = te.any(a[1] > b[1], te.all(a[1].equal(b[1]), a[0] < b[0]))
        return te.select(first, a[0], b[0]), te.select(first, a[1], b[1])

    reducer = te.comm_reducer(larger, lambda i, v: (te.const(-1, i), te.const(-1e30, v)), name="argmax")
    index, value = te.compute((64,), lambda i: reducer((k, X[i, k]), axis=k), name="M")
    x = np.random.default_rng(0).integers(-9, 9, (64, 1000)).astype("float32")
    found, largest = np.empty(64, "int32"), np.empty(64, "float32")
    schedule = tir.default_schedule(te.create_prim_func([X, index, value]), "llvm -num-cores 1")
    tir.build(schedule.func, "llvm -num-cores 1")(x, found, largest)
    assert (found == x.argmax(1)).all() and (largest == x.max(1)).all()


def test_the_same_again():
    func = stages(MANY_BLOCKS + 1)
    target = Target("llvm", num_cores=2)
    assert constructed(func, target).trace == constructed(func, target).trace
