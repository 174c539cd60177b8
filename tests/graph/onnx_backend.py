"""The compiler as a backend of the ONNX package, whose own tests are run on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.base import Backend, BackendRep

from graph.compilation import compile
from graph.ir import Graph, GraphError, typed
from graph.model import Model
from graph.onnx import load_onnx
from graph.onnx.functions import ordered
from graph.onnx.inputs import element_type
from graph.onnx.refusals import MEASURES, OF_CONSTANTS
from graph.ops import alternatives
from graph.ops.narrow_types import NARROW, held_as, narrow_name

# The inputs, by operator, on which the calls that it is written out as depend.
DECIDING = {"If": (0,), "Loop": (0,), "SequenceAt": (1,), "RNN": (4,), "GRU": (4,), "LSTM": (4,)}


class PreparedModel(BackendRep):
    """A model of ONNX that compiles when it is first run. Inputs give the shapes that the file leaves open, and the values that
    operators need as constants, such as the shape of a Reshape. It compiles anew where these change."""

    def __init__(self, model: onnx.ModelProto, target: str):
        self.model, self.target = model, target
        initial = {i.name for i in model.graph.initializer}
        self.inputs = [i.name for i in model.graph.input if i.name not in initial]
        self.fixed = [name for name in operands(model) if name in self.inputs]
        self._compiled: dict[object, Model] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[np.ndarray, ...]:
        """The outputs for arrays in the order of the inputs. Raises the errors of `load_onnx` and `compile`."""
        if not all(isinstance(a, (np.ndarray, np.generic)) for a in inputs):
            raise GraphError(f"{self.model.graph.name}: the inputs must be arrays; sequences are not supported")
        arrays = dict(zip(self.inputs, map(np.asarray, inputs), strict=True))
        model = self._model(arrays)
        found = model({v.name: held(arrays[v.name]) for v in model.graph.inputs})
        numbers = [o.type.tensor_type.elem_type for o in self.model.graph.output]
        wanted = [element_type(n, "an output") if n else "" for n in numbers]
        rows = zip(model.graph.outputs, found, wanted, strict=True)
        return tuple(_as_onnx(a, kind if kind in NARROW else v.dtype) for v, a, kind in rows)

    def graph(self, arrays: dict[str, np.ndarray]) -> Graph:
        """The graph for these inputs by name, with those that must be constant as constants."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        model.graph.initializer.extend(numpy_helper.from_array(arrays[name], name) for name in self.fixed)
        graph = load_onnx(model, {name: a.shape for name, a in arrays.items() if name not in self.fixed})
        assert isinstance(graph, Graph), graph  # all shapes are given
        return graph

    def _model(self, arrays: dict[str, np.ndarray]) -> Model:
        values = tuple((a.shape, a.tobytes() if name in self.fixed else b"") for name, a in arrays.items())
        if values not in self._compiled:
            self._compiled[values] = compile(self.graph(arrays), self.target)
        return self._compiled[values]


def held(array: np.ndarray) -> np.ndarray:
    """An array in the type that holds its numbers in a graph, which is a wider one for a narrow type."""
    kind = narrow_name(array.dtype)
    return array.astype(held_as(kind)) if kind else array


class TirBackend(Backend):
    """The backend interface of ONNX. Its device is CPU."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", target: str = "llvm", **kwargs: Any) -> PreparedModel:
        super().prepare(model, device, **kwargs)  # checks the model
        return PreparedModel(model, target)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        return tuple(cls.prepare(model, device, **kwargs).run(inputs))

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        names = [name for name in node.input if name]
        infos = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.asarray(a).dtype), np.shape(a))
            for name, a in zip(names, inputs, strict=True)
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "node", infos, outputs))
        return PreparedModel(model, kwargs.get("target", "llvm")).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def operands(model: onnx.ModelProto) -> Sequence[str]:
    """The names of all values that must be constant: operands that become attributes, and the values that make them."""
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    return sorted(_operands(model.graph, opset, set()) - {""})


def _operands(graph: onnx.GraphProto, opset: int, wanted: set[str]) -> set[str]:
    """The names that must be constant in a graph, given some of them."""
    for node in (graph.node[number] for number in reversed(ordered(graph.node))):
        ours = node.domain in ("", "ai.onnx")
        found = alternatives(node.op_type, opset) if ours else []
        wanted |= {node.input[n] for o in found[:1] for n, _ in o.taken(node.input, lambda _: False)[0]}
        wanted |= {node.input[n] for n in DECIDING.get(node.op_type, ()) if ours and n < len(node.input)}
        makes_shape = ours and node.op_type in OF_CONSTANTS
        if makes_shape or (node.op_type not in MEASURES and any(name in wanted for name in node.output)):
            wanted |= set(node.input)
            for inner in (a.g for a in node.attribute if a.HasField("g")):
                wanted |= _operands(inner, opset, {o.name for o in inner.output})
    return wanted


def _as_onnx(array: np.ndarray, dtype: str) -> np.ndarray:
    """An array of numbers of an element type in ONNX's dtype for it."""
    if dtype in NARROW:
        return array.astype(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(dtype.upper())))
    return typed(array, dtype)
