"""Which values lie inside of others, and that models whose parts do compute the same."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from graph.compilation import assembled
from graph.fusion import fuse
from graph.ir import Call, Graph, Value, constant
from graph.onnx import load_onnx
from graph.places import places
from graph.reference import evaluate

from .models import close, model, node

X = np.random.default_rng(0).uniform(-1, 1, (1, 6, 5)).astype("float32")


def placed(nodes, outputs, constants=None):
    """What lies where, in elements, by names; and the kernels that are left. The compiled model is compared with the reference."""
    graph = load_onnx(model(nodes, {"x": X}, outputs.split(), constants))
    found = places(graph)
    for value, wanted in zip(tir.compile(graph)(X), evaluate(graph, [X]), strict=True):
        close(value, wanted, 8)
    text = [f"{v.name} {p.root.name}+{p.offset // 4}" for v, p in sorted(found.inside.items(), key=lambda item: item[0].name)]
    return ", ".join(text), ", ".join(g.func.name for g in fuse(graph))


SLICE = {"two": np.array([2]), "three": np.array([3]), "five": np.array([5]), "one": np.array([1])}


@pytest.mark.parametrize(
    ("nodes", "outputs", "inside", "kernels"),
    [
        ([node("Slice", "x two five one", "a"), node("Exp", "a", "y")], "y", "a x+10", "exp"),
        ([node("Slice", "x two five two", "a"), node("Exp", "a", "y")], "y", "", "slice_exp"),
        ([node("Split", "x", "a b", axis=1, num_outputs=2), node("Sub", "a b", "y")], "y", "a x+0, b x+15", "sub"),
        ([node("Transpose", "x", "a", perm=[1, 0, 2]), node("Exp", "a", "y")], "y", "a x+0", "exp"),
        ([node("Transpose", "x", "a", perm=[0, 2, 1]), node("Exp", "a", "y")], "y", "", "transpose_exp"),
        # A concatenation of what kernels make, of what lies in it already, and of neither.
        ([node("Exp", "x", "a"), node("Neg", "x", "b"), node("Concat", "a b", "y", axis=1)], "y", "a y+0, b y+30", "exp, neg"),
        ([node("Exp", "x", "a"), node("Neg", "x", "b"), node("Concat", "a b", "y", axis=2)], "y", "", "exp_neg_concat"),
        ([node("Exp", "x", "a"), node("Concat", "a a", "y", axis=0)], "y", "", "exp, concat"),
        ([node("Exp", "x", "a"), node("Concat", "a x", "y", axis=0)], "y", "", "exp_concat"),
        ([node("Exp", "x", "a"), node("Split", "a", "b c", axis=1, num_outputs=2), node("Concat", "b c", "y", axis=1)], "y",
         "b a+0, c a+15, y a+0", "exp"),
        ([node("Exp", "x", "a"), node("Split", "a", "b c", axis=1, num_outputs=2), node("Concat", "c b", "y", axis=1)], "y",
         "b a+0, c a+15", "exp, concat"),
        # As in a dense block: the longest holds what the shorter ones need.
        ([node("Exp", "x", "a"), node("Neg", "x", "b"), node("Concat", "a b", "c", axis=1), node("Split", "c", "d e f", axis=1),
          node("Concat", "a b f", "y", axis=1)], "c y", "a c+0, b c+30, d c+0, e c+20, f c+40", "exp, neg, concat"),
        ([node("Exp", "x", "a"), node("Neg", "x", "b"), node("Concat", "a b", "c", axis=1), node("ReduceSum", "c one", "d"),
          node("Concat", "a b d", "y", axis=1)], "y", "a y+0, b y+30, c y+0, d y+60", "exp, neg, reducesum"),
        # One in another; a view between; a part that is an output.
        ([node("Exp", "x", "a"), node("Neg", "x", "b"), node("Concat", "a b", "c", axis=0), node("Abs", "x", "d"),
          node("Concat", "d c", "y", axis=0)], "y", "a y+30, b y+60, c y+30, d y+0", "exp, neg, abs"),
        ([node("Exp", "x", "a"), node("Flatten", "a", "b", axis=0), node("Neg", "b", "c"), node("Concat", "c b", "y", axis=0)], "a y",
         "a y+30, b y+30, c y+0", "exp, neg"),
    ],
)  # fmt: skip
def test_places(nodes, outputs, inside, kernels):
    assert placed(nodes, outputs, SLICE) == (inside, kernels)


def test_parts_of_constants():
    """Importing folds them; graphs that are built may hold them."""
    w, x = constant("w", np.stack([X, X + 1])), Value("x", X.shape, "float32")
    part, y = Value("part", (1, *X.shape), "float32"), Value("y", (1, *X.shape), "float32")
    taken = Call("Slice", (w,), (part,), (("axes", (0,)), ("ends", (2,)), ("starts", (1,))))
    graph = Graph("g", (x,), (taken, Call("Mul", (part, x), (y,))), (y,), {"w": np.stack([X, X + 1])})
    (found,) = assembled(graph, tir.Target("llvm"), None, None)(X)
    np.testing.assert_array_equal(found, [(X + 1) * X])
