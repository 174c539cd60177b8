"""The schedule made by formula where the library knows no pattern."""

import numpy as np
import pytest

import codegen
import tir
from codegen import Target
from schedule import replay
from search.policy.default_schedule import constructed
from search.population.sample import sample
from search.space.derivation import MAX_LISTED_BLOCKS
from search.space.generation import generate
from tests.programs import matmul
from tests.schedule.fuzz import scheduled
from tests.schedule.harness import same_numbers, well_formed
from tests.schedule.random_kinds import rewritten
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
    for n in (2, MAX_LISTED_BLOCKS + 3):
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
    func = stages(MAX_LISTED_BLOCKS + 1)
    target = Target("llvm", num_cores=2)
    assert constructed(func, target).trace == constructed(func, target).trace


MARKS = {
    "parallel": lambda s, loop: s.parallel(loop),
    "vectorize": lambda s, loop: s.vectorize(loop),
    "unroll": lambda s, loop: s.unroll(loop),
    "bind": lambda s, loop: s.bind(loop, "threadIdx.x"),
    "annotate": lambda s, loop: s.annotate(loop, "pragma_auto_unroll_max_step", 16),
}


def scheduled_before(func, mark):
    """`func` with the mark on a loop of each block that may have it."""
    s = tir.Schedule(func)
    for block in blocks(func):
        MARKS[mark](s, s.get_loops(block.name)[0 if mark != "vectorize" else 1])
    return s.func


@pytest.mark.parametrize("target", ["llvm -num-cores 2", "cuda -arch sm_90"])
@pytest.mark.parametrize("mark", MARKS)
def test_marks_of_an_earlier_schedule_go(mark, target):
    """The schedule is that of the function without them."""
    for func in (matmul(16, 32, 8), stages(2)):
        s, plain = tir.default_schedule(scheduled_before(func, mark), target), tir.default_schedule(func, target)
        assert s.func == plain.func and s.func != func
        assert {step.name for step in s.trace.steps[: len(s.trace) - len(plain.trace)]} <= {"serial", "unannotate"}


@pytest.mark.parametrize("mark", MARKS)
def test_marked_functions_are_searched(mark):
    func, target = scheduled_before(stages(2), mark), Target("llvm", num_cores=2)
    for of, wanted in zip(generate(func, target), generate(stages(2), target), strict=True):
        assert of.columns == wanted.columns and of.tiles == wanted.tiles
        row = sample(of, target, 1, np.random.default_rng(0))[0]
        assert tir.verify(replay(func, of.trace(row)).func).ok


def test_statements_in_no_block_keep_their_marks():
    func = codegen.lower(scheduled_before(stages(1), "parallel"), Target("llvm", num_cores=2))
    assert tir.default_schedule(func, "llvm -num-cores 2").func == func


@pytest.mark.parametrize("seed", range(8))
def test_temporaries_of_several_writers(seed):
    """Updated in place, written in parts, added to: what one block alone writes may be assumed of none."""
    func = rewritten(np.random.default_rng(seed))
    for _, s in scheduled(func, seed):
        well_formed(s.func)
        same_numbers(func, s.func, seeds=(0,), llvm=False)
