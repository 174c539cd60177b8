"""Chains of calls that move elements."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from onnx import helper

from graph import passes
from graph.ir import Call, Graph, Value, verify
from graph.ops import result_types
from tests.graph.models import node, same_outputs
from tests.graph.passes.checks import X, chain, check


def moved(rng, shape):
    """A random chain of calls that move elements of `x`, and what they make."""
    value, calls, constants = Value("x", shape, "float32"), [], {}
    for n in range(rng.integers(1, 6)):
        rank, kind = len(value.shape), rng.choice(["Reshape", "Transpose", "Slice", "Gather", "Split"])
        axis = int(rng.integers(rank)) if rank else 0
        if kind == "Reshape" or not rank:
            left, extents = prod(value.shape), []
            while left > 1:
                extents.append(int(rng.choice([d for d in range(1, left + 1) if left % d == 0])))
                left //= extents[-1]
            call = Call("Reshape", (value,), (), (("shape", tuple(extents)),))
        elif kind == "Transpose":
            call = Call("Transpose", (value,), (), (("perm", tuple(map(int, rng.permutation(rank)))),))
        elif kind == "Slice":
            start, step = int(rng.integers(value.shape[axis])), int(rng.integers(1, 3))
            attributes = {"axes": (axis,), "ends": (99,), "starts": (start - value.shape[axis],), "steps": (step,)}
            call = Call("Slice", (value,), (), tuple(attributes.items()))
        elif kind == "Gather":
            constants[f"i{n}"] = np.array(int(rng.integers(value.shape[axis])))
            call = Call("Gather", (value, Value(f"i{n}", (), "int64")), (), (("axis", axis),))
        else:
            first = int(rng.integers(1, max(2, value.shape[axis])))
            sizes = (first, value.shape[axis] - first) if first < value.shape[axis] else (first,)
            call = Call("Split", (value,), (), (("axis", axis), ("split", sizes)))
        outputs = tuple(Value(f"v{n}_{m}", *t) for m, t in enumerate(result_types(call)))
        calls.append(replace(call, outputs=outputs))
        value = outputs[int(rng.integers(len(outputs)))]
    y = Value("y", value.shape, "float32")
    return Graph("g", (Value("x", shape, "float32"),), (*calls, Call("Neg", (value,), (y,))), (y,), constants)


def test_layouts():
    """Random chains: nothing is moved more often than before, and most often once."""
    rng, counts = np.random.default_rng(0), []
    for _ in range(150):
        shape = tuple(map(int, rng.choice([1, 2, 3, 4, 6], rng.integers(1, 5))))
        graph = verify(moved(rng, shape))
        after = verify(passes.simplify_layouts(graph))
        same_outputs(graph, after, [np.arange(prod(shape), dtype="float32").reshape(shape)])
        counts.append([sum(c.operator not in ("Reshape", "Neg") for c in g.calls) for g in (graph, after)])
    assert all(a <= b for b, a in counts) and sum(a for _, a in counts) < 0.6 * sum(b for b, _ in counts)


@pytest.mark.parametrize(("steps", "operators"), [
    ([("Transpose _", {"perm": [0, 2, 3, 1]}), ("Transpose _", {"perm": [0, 3, 1, 2]}), "Relu _"], ["Reshape", "Relu"]),
    ([("Transpose _", {"perm": [0, 2, 3, 1]}), ("Transpose _", {"perm": [3, 0, 1, 2]}), "Relu _"], ["Transpose", "Relu"]),
    ([("Gather _ one", {"axis": 0}), "Relu _"], ["Slice", "Reshape", "Relu"]),
    (["Slice _ zero two three", "Relu _"], ["Slice", "Relu"]),
])  # fmt: skip
def test_chains_of_layouts(steps, operators):
    constants = {"one": np.array(1), "zero": np.array([0]), "two": np.array([2]), "three": np.array([3])}
    check(passes.simplify_layouts, chain(*steps), X, ["y"], operators, constants)


def test_parts_in_order_keep_what_they_are_parts_of():
    """As the shuffled channels of two branches."""
    nodes = [
        node("Relu", "x", "r"), node("Transpose", "r", "t", perm=[1, 0, 2, 3]), node("Reshape", "t s", "v"),
        helper.make_node("Split", ["v"], ["a", "b"], axis=0, num_outputs=2), node("Exp", "a", "y"), node("Neg", "b", "z"),
    ]  # fmt: skip
    after = check(
        passes.simplify_layouts, nodes, X, ["y", "z"],
        ["Relu", "Transpose", "Reshape", "Slice", "Reshape", "Reshape", "Slice", "Reshape", "Exp", "Neg"], {"s": np.array([8, 3, 7])},
    )  # fmt: skip
    assert sum(c.operator == "Transpose" for c in after.calls) == 1
