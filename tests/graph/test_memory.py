"""Where values lie, and how long they are needed."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen.runtime.alignment import ALIGNMENT
from codegen.steps import Address, Copy
from graph.fusion import fuse
from graph.ir import Value
from graph.memory import Lifetime, arena_offsets, lifetimes, plan
from graph.onnx import load_onnx
from graph.passes import optimize
from graph.reference import evaluate

from .models import close, exact, model, node, residual, transformer

RNG = np.random.default_rng(0)


def planned(nodes, inputs, outputs, constants=None):
    graph = load_onnx(model(nodes, inputs, outputs, constants))
    groups = fuse(graph)
    return graph, groups, plan(graph, groups)


@pytest.mark.parametrize("make", [residual, transformer])
def test_values_that_live_at_once_do_not_overlap(make):
    graph = optimize(load_onnx(make(np.random.default_rng(0))[0]))
    groups = fuse(graph)
    found = plan(graph, groups)
    lives = {v: life for v, life in lifetimes(graph, groups, found.places).items() if found[v].base == "arena"}
    values = list(lives)
    assert {v for v, a in found.addresses.items() if a.base == "arena"} == set(values)
    assert all(a.offset % ALIGNMENT == 0 for a in found.addresses.values())
    for n, a in enumerate(values):
        for b in values[:n]:
            first, second = found[a].offset, found[b].offset
            apart = first + a.nbytes <= second or second + b.nbytes <= first
            assert apart or not lives[a].overlaps(lives[b]), (a, b)
    most = max(sum(v.nbytes for v in values if lives[v].begin <= n <= lives[v].end) for n in range(len(groups)))
    assert most <= found.nbytes <= 1.25 * most + ALIGNMENT * len(values) < sum(v.nbytes for v in values)


def test_offsets():
    a, b, c, d = (Value(name, (n,), "uint8") for name, n in (("a", 100), ("b", 50), ("c", 100), ("d", 10)))
    lives = {a: Lifetime(0, 1), b: Lifetime(1, 2), c: Lifetime(2, 3), d: Lifetime(0, 3)}
    assert arena_offsets(lives) == {a: 0, c: 0, b: 128, d: 192}


def test_a_view_lives_as_long_as_it_is_read():
    nodes = [
        node("Exp", "x", "a"),
        node("Flatten", "a", "f"),
        node("Neg", "x", "b"),
        node("Abs", "b", "c"),
        node("Gather", "f i", "g"),
        node("Add", "g c", "y"),
    ]
    inputs = {"x": RNG.uniform(-1, 1, (5, 5))}
    graph, groups, found = planned(nodes, inputs, ["y"], {"i": np.arange(5)})
    lives = lifetimes(graph, groups, found.places)
    flat = next(c.outputs[0] for c in graph.calls if c.operator == "Flatten")
    source = found.places[flat].root
    position = next(n for n, g in enumerate(groups) if flat in g.inputs)
    assert source.name == "a" and lives[source].end == position and found[flat] == found[source]
    compiled = tir.compile(graph)
    close(compiled(inputs)[0], evaluate(graph, inputs)[0], 4)


def test_kernels_take_their_scratch_from_the_arena():
    """The padded images of two convolutions lie in turns where the other is; beside them the image between both."""
    nodes = [
        node("Conv", "x w", "a", pads=[2, 2, 2, 2], dilations=[2, 2]),
        node("Relu", "a", "b"),
        node("Conv", "b w", "c", pads=[2, 2, 2, 2], dilations=[2, 2]),
        node("Neg", "c", "y"),
    ]
    x, w = (RNG.integers(-2, 3, shape).astype("float32") for shape in ((1, 32, 61, 67), (32, 32, 3, 3)))
    proto = model(nodes, {"x": x}, ["y"], {"w": w})
    net = tir.compile(load_onnx(proto), "llvm -num-cores 1")
    scratch = [v for g in net.groups for v in g.scratch]
    assert len(scratch) >= 2 and all(net.plan[v].base == "arena" for v in scratch) and not net.keeping
    lives = lifetimes(net.graph, net.groups, net.plan.places)
    assert all(lives[v].begin == lives[v].end for v in scratch)
    assert max(v.nbytes for v in scratch) < net.plan.nbytes < sum(v.nbytes for v in lives)
    for found, wanted in zip(net(x), exact(proto, {"x": x}), strict=True):
        close(found, wanted, 64)


def test_outputs_are_written_in_place_and_the_rest_is_copied():
    nodes = [
        node("Add", "x w", "a"),
        node("Exp", "a", "y"),  # both are outputs: neither is in the arena
        node("Flatten", "y", "flat"),
        node("Flatten", "x", "same"),
        node("Gather", "flat i", "g"),
        node("Softmax", "g", "z"),
    ]
    inputs = {"x": np.ones((3, 5))}
    constants = {"w": np.ones(5), "v": np.ones(2), "i": np.arange(2)}
    _, groups, found = planned(nodes, inputs, ["a", "flat", "same", "y", "v", "z"], constants)
    assert len(groups) == 4
    assert {v.name: a for v, a in found.addresses.items()} == {
        "x": Address("input.0"), "w": Address("weights"), "i": Address("weights", 64), "v": Address("weights", 128),
        "a": Address("output.0"), "y": Address("output.1"), "z": Address("output.5"), "g": Address("arena"),
    }  # fmt: skip
    assert found.copies == (
        Copy(Address("output.2"), Address("input.0"), 120),
        Copy(Address("output.3"), Address("output.1"), 120),
        Copy(Address("output.4"), Address("weights", 128), 16),
    )
    assert found.nbytes == 80 and found.weights_nbytes == 144
