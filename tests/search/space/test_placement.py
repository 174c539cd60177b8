"""Annotation in the full space: where stages are computed, and which loops the threads share."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.target import Target
from schedule import replay
from search.population.sample import legalize, sample
from search.space.rules import DEFAULT, ReduceInThreads, Skip
from search.space.sketch import Sketch
from tests.schedule.harness import same_numbers
from tests.search.once import generate
from tir import workloads
from tir.ir import For, Kind, PrimFunc
from tir.traverse import blocks, loops, loops_to, path_to

TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4")
CONVOLUTION = workloads.make("conv2d", (1, 7, 13, 3, 17, 3, 3, 1, 1)).func


def sketch_with(func: PrimFunc, text: str) -> Sketch:
    return next(s for s in generate(func, TWO, rules=DEFAULT) if text in str(s))


def places(sketch: Sketch, stage: str) -> tuple[int, tuple[str, ...]]:
    """The column that says where a stage is computed, and the labels of what it may say."""
    (choice,) = [c for c in sketch.choices if c.name == f"place of {stage}"]
    (labels,) = {b.labels for b in sketch.branches if b.column == choice.column}
    return choice.column, labels


@pytest.mark.parametrize("rule", ["direct convolution", "tiling with fusion at level 1"])
def test_where_the_padding_of_a_convolution_is_computed(rule):
    """In a nest of its own, in a level of the tiles outside of the sum, or where it is read."""
    sketch = sketch_with(CONVOLUTION, rule)
    column, labels = places(sketch, "pad")
    assert labels[0] == "a nest of its own" and labels[-1] == "inline"
    rng = np.random.default_rng(0)
    rows = sample(sketch, TWO, 4 * len(labels), rng)
    rows[:, column] = np.arange(len(rows)) % len(labels)
    depths = {}
    for row in rows[: len(labels)].tolist():
        scheduled = replay(CONVOLUTION, sketch.trace(row))
        stages = [b.name for b in blocks(scheduled.func) if b.name.startswith("pad")]  # the rows of an image in pieces
        label = labels[row[column]]
        assert bool(stages) == (label != "inline")
        if stages:
            pad, conv = (path_to(scheduled.func.body, name) for name in (stages[0], "conv"))
            depths[label] = sum(isinstance(x, For) and any(x is y for y in conv) for x in pad)
        same_numbers(CONVOLUTION, scheduled.func, seeds=(0,))
    found = list(depths.values())
    assert found[0] == 0 and found[1:] == sorted(found[1:]) and min(found[1:]) > 0


def test_threads_share_no_loop_of_one_iteration():
    """Of one matrix, the axis of the batch is the outermost loop, but not the one that the threads share."""
    func = workloads.make("norm", (1, 130, 127)).func
    sketch, *_ = generate(func, TWO, rules=(ReduceInThreads(), Skip()))
    assert "squares: reduce in threads" in sketch.rules
    scheduled = replay(func, sketch.trace(sketch.stand_ins())).func
    assert [x.extent.value for x in loops(scheduled.body) if x.kind is Kind.PARALLEL] == [2]


@pytest.mark.parametrize("rule", ["direct convolution", "packing", "multi-level tiling"])
def test_vectors_may_be_half_as_wide(rule):
    """A column says so: a vector then has half the lanes, and a tile may have an odd number of them."""
    func = CONVOLUTION if "direct" in rule else workloads.make("gmm", (7, 13, 109)).func
    sketch = sketch_with(func, rule)
    (width,) = (c for c in sketch.choices if c.name.endswith(" vectors"))
    vector = next(t.columns[-1] for t in sketch.tiles if t.vector)
    block = next(t.block for t in sketch.tiles if t.vector)
    row = sketch.stand_ins()
    row[vector] = 24
    for halved, lanes, tile in ((0, 17 if func is CONVOLUTION else 32, None), (1, 8, 24)):
        row[width.column] = halved
        (found,) = legalize(sketch, TWO, np.array([row])).tolist()
        assert halved == 0 or found[vector] == min(tile, next(t.extent for t in sketch.tiles if t.vector))
        scheduled = replay(func, sketch.trace(found)).func
        innermost = loops_to(scheduled.body, block)[-1]
        assert (innermost.kind, innermost.extent.value) == (Kind.VECTORIZED, lanes)
        same_numbers(func, scheduled, seeds=(0,))


def test_registers_of_256_bits_are_not_halved():
    small = Target("llvm", num_cores=2, vector_bits=256)
    for sketch in generate(workloads.make("gmm", (7, 13, 109)).func, small):
        assert not any(c.name.endswith(" vectors") for c in sketch.choices)
