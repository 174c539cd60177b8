"""The backend for ONNX's tools, on a sample of ONNX's own node tests; `make conformance` runs all of them."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import TensorProto, helper

from graph.ir import GraphError
from tests.graph.onnx_backend import TirBackend, operands
from tests.sweeps import one_in

from .conformance import absolute_tolerance, cases, check, operator_of

SAMPLE = 80  # tests; each compiles a model
SEED = 0


def sample():
    """Tests of as many operators, drawn one from each in turn."""
    rng = np.random.default_rng(SEED)
    known = cases()
    names = sorted(known)
    rng.shuffle(names)
    groups = itertools.groupby(sorted(names, key=lambda n: operator_of(known[n], known)), lambda n: operator_of(known[n], known))
    firsts = [next(group) for _, group in groups]
    return [firsts[n] for n in rng.permutation(len(firsts))[:SAMPLE]]


def test_fourier_transforms_may_be_off_by_a_unit_of_their_own_type():
    case = next(iter(cases().values()))
    for dtype in (np.dtype("f2"), np.dtype("f8"), np.dtype(ml_dtypes.bfloat16)):
        wanted = max(case.atol, 4096 * float(ml_dtypes.finfo(dtype).eps))
        assert absolute_tolerance(case, "DFT", [np.array([1, -4096], dtype)]) == wanted
        assert absolute_tolerance(case, "Add", [np.array([1, -4096], dtype)]) == case.atol


@one_in(2)
@pytest.mark.parametrize("part", range(2))
def test_a_sample_of_node_tests(part):
    found = [check(name) for name in sample()[part::2]]
    assert not [o for o in found if o.result == "wrong"]
    assert sum(o.result == "right" for o in found) >= SAMPLE // 4


def reshape():
    """A model whose shape is an input."""
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"]),
        helper.make_tensor_value_info("s", TensorProto.INT64, [1]),
    ]
    nodes = [helper.make_node("Neg", ["s"], ["t"]), helper.make_node("Reshape", ["x", "t"], ["y"])]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["k"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_inputs_that_say_shapes_become_constants():
    prepared = TirBackend.prepare(reshape())
    assert operands(prepared.model) == ["s", "t"] and prepared.fixed == ["s"]
    for shape, size in (((3, 5), 1), ((7, 1), 1)):
        x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
        (y,) = prepared.run([x, np.array([size])])
        np.testing.assert_array_equal(y, x.reshape(-1))
    assert len(prepared._compiled) == 2
    with pytest.raises(GraphError, match="is no shape"):
        prepared.run([x, np.array([2])])


def test_inputs_that_are_empty_are_known():
    for axis in (0, 1):
        x, empty = np.ones((2, 3), "float32"), np.zeros((2, 0) if axis else (0, 3), "float32")
        (y,) = TirBackend.run_node(helper.make_node("Concat", ["a", "b"], ["y"], axis=axis), [x, empty])
        np.testing.assert_array_equal(y, x)


def test_a_node_runs_alone():
    x = np.array([-1.5, 2.5], "float32")
    (y,) = TirBackend.run_node(helper.make_node("Relu", ["x"], ["y"]), [x])
    np.testing.assert_array_equal(y, [0, 2.5])
    assert TirBackend.supports_device("CPU") and not TirBackend.supports_device("CUDA")


def test_onnx_runs_its_tests_on_it():
    suite = onnx.backend.test.BackendTest(TirBackend, __name__).include("^test_(relu|add|softmax_example)_cpu$").test_cases
    case = suite["OnnxBackendNodeModelTest"]
    for name in ("test_relu_cpu", "test_add_cpu", "test_softmax_example_cpu"):
        case(name).debug()
