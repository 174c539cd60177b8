"""Operands that are constants in most files, given as inputs: the result is what it is for constants."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tir
from graph.ir import GraphError
from graph.onnx import load_onnx
from graph.reference import evaluate

from .models import close, model

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (3, 5)).astype("float32")
LOW, HIGH = np.float32(-0.5), np.float32(0.25)
RESIZE = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
STEPS = RNG.uniform(-1, 1, (4, 3, 5)).astype("float32")
WEIGHTS = [RNG.uniform(-1, 1, shape).astype("float32") for shape in ((1, 4, 5), (1, 4, 4), (1, 8), (1, 3, 4))]
GATES = [RNG.uniform(-1, 1, shape).astype("float32") for shape in ((2, 16, 5), (2, 16, 4))]

ROUNDED = ("LSTM", "RNN", "Resize")  # operators whose sums the interpreter and a kernel round differently

# Operator, inputs, which of them are open in the second file, attributes, opset.
CASES = {
    "clip": ("Clip", [X, LOW, HIGH], [1, 2], {}, 18),
    "clip from below": ("Clip", [X, LOW], [1], {}, 18),
    "clip from above": ("Clip", [X, None, HIGH], [2], {}, 18),
    "clip with one bound open": ("Clip", [X, LOW, HIGH], [2], {}, 18),
    "clip of integers": ("Clip", [(X * 9).astype("int32"), np.int32(-3), np.int32(2)], [1, 2], {}, 18),
    "clip to NaN": ("Clip", [X, LOW, np.float32(np.nan)], [2], {}, 18),
    "pad": ("Pad", [X, np.array([1, 0, 0, 2]), HIGH], [2], {}, 18),
    "pad along axes": ("Pad", [X, np.array([1, 2]), HIGH.reshape(1), np.array([1])], [2], {}, 18),
    "dropout": ("Dropout", [X, HIGH], [1], {}, 13),
    "trilu": ("Trilu", [X, np.array(1)], [1], {}, 18),
    "tril": ("Trilu", [X, np.array([-1])], [1], {"upper": 0}, 18),
    "cumsum": ("CumSum", [X, np.array(1, "int32")], [1], {}, 18),
    "cumsum backward": ("CumSum", [X, np.array([-2])], [1], {"reverse": 1, "exclusive": 1}, 18),
    "resize": ("Resize", [X, np.zeros(4, "float32"), np.array([2, 1.5], "float32")], [1], RESIZE, 13),
    "rnn": ("RNN", [STEPS, *WEIGHTS[:3], np.array([2, 4, 0], "int32"), WEIGHTS[3]], [4], {"hidden_size": 4}, 14),
    "lstm": (
        "LSTM", [STEPS, *GATES, None, np.array([1, 3, 4], "int32")], [4], {"hidden_size": 4, "direction": "bidirectional"}, 14,
    ),
}  # fmt: skip


def file(operator, inputs, open_, attributes, opset):
    arrays = {f"x{n}": np.asarray(a) for n, a in enumerate(inputs) if a is not None}
    names = [f"x{n}" if a is not None else "" for n, a in enumerate(inputs)]
    given = {f"x{n}": arrays[f"x{n}"] for n in (0, *open_)}
    constants = {name: a for name, a in arrays.items() if name not in given}
    return model([helper.make_node(operator, names, ["y"], **attributes)], given, ["y"], constants, opset), given


@pytest.mark.parametrize("case", CASES)
def test_an_open_operand_is_worth_what_a_constant_is(case):
    operator, inputs, open_, attributes, opset = CASES[case]
    (known, x), (proto, given) = (file(operator, inputs, n, attributes, opset) for n in ([], open_))
    (wanted,) = evaluate(load_onnx(known), x)
    np.testing.assert_array_equal(evaluate(load_onnx(proto), given)[0], wanted)
    close(tir.compile(load_onnx(proto), "llvm -num-cores 1")(given)[0], wanted, 64 if operator in ROUNDED else 0)


def test_a_convolution_does_not_take_in_a_pad_of_an_open_value():
    x, w = RNG.uniform(-1, 1, (1, 2, 5, 4)).astype("float32"), RNG.uniform(-1, 1, (3, 2, 3, 3)).astype("float32")
    nodes = [helper.make_node("Pad", ["x", "p", "v"], ["t"]), helper.make_node("Conv", ["t", "w"], ["y"])]
    given = {"x": x, "v": np.array(7, "float32")}
    proto = model(nodes, given, ["y"], {"p": np.array([0, 0, 1, 1] * 2), "w": w})
    (found,), (wanted,) = tir.compile(load_onnx(proto))(given), evaluate(load_onnx(proto), given)
    close(found, wanted, 64)


def refused(case, open_, message, **changes):
    operator, inputs, _, attributes, opset = CASES[case]
    with pytest.raises(GraphError) as caught:
        load_onnx(file(operator, inputs, open_, attributes | changes, opset)[0])
    assert str(caught.value).endswith(message)


def test_what_decides_a_shape_or_a_structure_must_be_constant():
    refused("pad", [1], "its pads, `x1`, must be constant, or the file must state the shape of its result")
    refused("resize", [2], "its scales, `x2`, must be constant")
    refused("resize", [1], "its roi, `x1`, must be constant", coordinate_transformation_mode="tf_crop_and_resize")


def test_an_operand_of_several_numbers_is_refused():
    with pytest.raises(GraphError, match=r"min must be one number, got a tensor of \[3\]"):
        load_onnx(file("Clip", [X, np.ones(3, "float32")], [1], {}, 18)[0])
    with pytest.raises(GraphError, match="min must be float32, got float64"):
        load_onnx(file("Clip", [X, np.float64(1)], [1], {}, 18)[0])
    with pytest.raises(GraphError, match="the axis must be one number"):
        load_onnx(file("CumSum", [X, np.array([0, 1])], [1], {}, 18)[0])
