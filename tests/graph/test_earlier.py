"""Operators as early versions of the operator set have them, against what their pages say, in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import defs, helper

from graph.ir import GraphError
from graph.onnx import load_onnx
from graph.onnx.functions import has_function
from graph.ops import alternatives, find
from graph.reference import evaluate

from .models import close, model

RNG = np.random.default_rng(0)


def real(*shape):
    return RNG.uniform(0.5, 2, shape).astype("float32")


X, Y, IMAGE = real(2, 3, 5), real(3), real(2, 3, 2, 2)
BINARY = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power, "Less": np.less, "Greater": np.greater,
}  # fmt: skip
FLAGS = X > 1
FLAT = X.reshape(2, 15)
POWER = np.exp(FLAT - FLAT.max(1, keepdims=True))
STATISTICS = [Y, Y + 1, Y - 1, Y + 2]
NORM = [a[:, None, None] for a in STATISTICS]

# Operator, version, inputs, constants behind them, attributes, what is wanted.
CASES = [
    *[(op, 6, [X, Y], [], {"broadcast": 1, "axis": 1}, f(X, Y[:, None])) for op, f in BINARY.items()],
    *[(op, 1, [X, X[1]], [], {"broadcast": 1}, f(X, X[1])) for op, f in BINARY.items()],
    *[(op, 1, [X, X], [], {}, f(X, X)) for op, f in BINARY.items()],
    ("And", 1, [FLAGS, FLAGS[0, :, 0]], [], {"broadcast": 1, "axis": 1}, FLAGS & FLAGS[0, :, :1]),
    ("Xor", 1, [FLAGS, FLAGS[:, 0, 0]], [], {"broadcast": 1, "axis": 0}, FLAGS ^ FLAGS[:, :1, :1]),
    ("Relu", 1, [X - 1], [], {"consumed_inputs": [0]}, np.maximum(X - 1, 0)),
    ("Max", 1, [X, X[::-1].copy()], [], {"consumed_inputs": [0, 0]}, np.maximum(X, X[::-1])),
    ("Mean", 6, [X, X * 3], [], {}, X * 2),
    ("Clip", 1, [X], [], {"max": 1.0}, np.minimum(X, 1)),
    ("Selu", 1, [X - 1], [], {}, np.float32(1.0507) * np.where(X < 1, np.float32(1.6732) * (np.exp(X - 1) - 1), X - 1)),
    ("PRelu", 6, [IMAGE - 1, Y], [], {}, np.where(IMAGE < 1, (IMAGE - 1) * Y[:, None, None], IMAGE - 1)),
    ("PRelu", 1, [X - 1, Y[:1]], [], {}, np.where(X < 1, (X - 1) * Y[0], X - 1)),
    ("Gemm", 6, [X[0], X[1], Y], [], {"transB": 1, "broadcast": 1}, X[0] @ X[1].T + Y),
    ("Cast", 1, [X], [], {"to": "INT32"}, X.astype("int32")),
    ("Concat", 1, [X, X], [], {}, np.concatenate([X, X], 1)),
    ("Pad", 1, [X[0]], [], {"paddings": [0, 1, 2, 0], "value": 3.0}, np.pad(X[0], ((0, 2), (1, 0)), constant_values=3)),
    ("Tile", 1, [X], [np.array([2]), np.array([1])], {}, np.tile(X, (1, 2, 1))),
    ("Upsample", 1, [IMAGE], [], {"height_scale": 2.0, "width_scale": 3.0}, IMAGE.repeat(2, 2).repeat(3, 3)),
    ("Upsample", 7, [IMAGE], [], {"scales": [1.0, 1.0, 2.0, 3.0]}, IMAGE.repeat(2, 2).repeat(3, 3)),
    ("BatchNormalization", 6, [X, *STATISTICS], [], {"is_test": 1, "epsilon": 0.0},
     (X - NORM[2][..., 0]) / np.sqrt(NORM[3][..., 0]) * NORM[0][..., 0] + NORM[1][..., 0]),
    ("Dropout", 6, [X], [], {"is_test": 1, "ratio": 0.5}, X),
    ("LpPool", 1, [IMAGE], [], {"kernel_shape": [2, 2], "p": 2.0}, np.sqrt((IMAGE**2).sum((2, 3), keepdims=True))),
    ("Hardmax", 1, [X], [], {}, (FLAT == FLAT.max(1, keepdims=True)).astype("float32").reshape(X.shape)),
    ("Hardmax", 11, [np.ones_like(X)], [], {"axis": 1}, (np.arange(30) % 15 == 0).astype("float32").reshape(X.shape)),
    ("LogSoftmax", 11, [X], [], {"axis": -2}, np.log(POWER / POWER.sum(1, keepdims=True)).reshape(X.shape)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_an_early_version(case):
    operator, version, inputs, operands, attributes, wanted = case
    given, constants = ({f"{name}{n}": a for n, a in enumerate(arrays)} for name, arrays in (("x", inputs), ("c", operands)))
    proto = model([helper.make_node(operator, [*given, *constants], ["y"], **attributes)], given, ["y"], constants, version)
    (found,) = evaluate(load_onnx(proto), given)
    assert found.dtype == wanted.dtype
    close(found, wanted, 64)


def test_a_mask_of_dropout_has_the_element_type_that_its_version_says():
    for version, dtype in ((7, "float32"), (10, "bool")):
        proto = model([helper.make_node("Dropout", ["x"], ["y", "m"])], {"x": X}, ["y", "m"], opset=version)
        assert [a.dtype.name for a in evaluate(load_onnx(proto), {"x": X})] == ["float32", dtype]


def test_a_scan_of_batches():
    """Running sums of each batch."""
    infos = [helper.make_tensor_value_info(name, 1, [5]) for name in ("s", "row", "t", "out")]
    nodes = [helper.make_node("Add", ["s", "row"], ["t"]), helper.make_node("Identity", ["t"], ["out"])]
    body = helper.make_graph(nodes, "body", infos[:2], infos[2:])
    given = {"start": X[:, 0], "x": X}
    node = helper.make_node("Scan", ["", *given], ["last", "all"], body=body, num_scan_inputs=1, directions=[1])
    last, every = evaluate(load_onnx(model([node], given, ["last", "all"], opset=8)), given)
    wanted = X[:, :1] + np.cumsum(X[:, ::-1], axis=1)
    close(every, wanted, 8)
    close(last, wanted[:, -1], 8)


def refused(message, operator, version, inputs, **attributes):
    given = {f"x{n}": a for n, a in enumerate(inputs)}
    with pytest.raises(GraphError, match=message):
        load_onnx(model([helper.make_node(operator, [*given], ["y"], **attributes)], given, ["y"], opset=version))


def test_what_early_versions_do_not_say_is_refused():
    refused(r"an operand of \[3\] is not broadcast to \[2, 3, 5\], with axis None", "Add", 6, [X, Y], broadcast=1)
    refused(r"an operand of \[3\] is not broadcast to \[2, 3, 5\], with axis 1", "Add", 6, [X, Y], axis=1)
    refused(r"an operand of \[3, 5\] is not broadcast to \[2, 3, 5\], with axis 2", "Add", 6, [X, X[0]], axis=2, broadcast=1)
    refused("only inference is supported, and is_test is 0", "Dropout", 6, [X])
    refused("only inference is supported, and is_test is 0", "BatchNormalization", 6, [X, *STATISTICS])


def test_every_operator_is_there_in_all_its_versions():
    missing = set()
    for schema in defs.get_all_schemas_with_history():
        name, version = schema.name, schema.since_version
        if not schema.domain and not schema.deprecated and find(name):
            missing |= set() if alternatives(name, version) or has_function(name, version) else {(name, version)}
    assert missing == set()
