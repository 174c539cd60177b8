"""The compiler as a backend of `torch.compile`.

torch gives a traced graph, and calls what is made of it with parameters and inputs. A model is compiled at the first call, when
the parameters are known: they are constants of it, and packed once. Where torch leaves sizes open, the first ones have a model of
their own, and the second ones begin a model for all sizes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support

from codegen import Target
from tir.arrays import as_torch

from ..compilation import compile
from ..ir import Graph as IrGraph
from ..ir import GraphError, Value
from ..model import Model
from ..sizes import OpenGraph
from ..variants import OpenModel
from .importer import (
    Importer,
    Missing,
    UnsupportedNodes,
    array_of,
    decompositions,
    dtype_name,
    open_inputs,
    operator_name,
)
from .recurrent import keep_recurrences

OPTIONS = ("cache", "plan", "records", "target", "winograd")  # of `tir.compile`
OF_MEMORY = ("aten.as_strided",)  # operators whose results depend on strides, which results of compiled parts do not keep
MAX_MODELS = 64  # models of one traced graph, of other parameters or sizes
MAX_OPEN_MODELS = 4  # models for all sizes, of other parameters
TRAINING = "tir compiles inference only, and a model that needs gradients runs in eager mode: call it under torch.no_grad()"


def compiled(
    module: GraphModule, examples: Sequence[Any], options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable:
    """The compiled function of a traced graph; see `graph.torch.torch_backend`."""
    given = {"target": Target("llvm", num_cores=torch.get_num_threads()), **(options or {})}
    if unknown := sorted(set(given) - set(OPTIONS)):
        raise ValueError(f"tir has no option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
    if mode not in (None, "default"):
        raise ValueError(f"tir has no mode {mode!r}; it has options: {', '.join(OPTIONS)}")
    if torch.is_grad_enabled() and any(isinstance(e, torch.Tensor) and e.requires_grad for e in examples):
        warnings.warn(TRAINING, stacklevel=2)
        return module.forward

    keep_recurrences(module)

    def of_traced(traced: GraphModule, _: Sequence[Any]) -> Callable:
        return CompiledGraph(traced, given, _constant_inputs())

    table = decompositions(core_aten_decompositions())
    return aot_autograd(fw_compiler=of_traced, inference_compiler=of_traced, decompositions=table)(module, examples)


class CompiledGraph:
    """A traced graph as a function of a list of its inputs, which gives the list of its outputs."""

    _boxed_call = True  # the list of inputs is the function's: it may empty it

    def __init__(self, traced: GraphModule, options: Mapping[str, Any], static: Sequence[int]):
        self.traced, self.options, self.static = traced, options, static
        self.placeholders = [n for n in traced.graph.nodes if n.op == "placeholder"]
        self.warned = False
        self.models: dict[tuple, Callable] = {}
        self.open: dict[tuple, Callable | None] = {}  # for all sizes, by parameters; None where there is none
        self.last: tuple[tuple, Callable] | None = None

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        given = list(inputs)
        inputs.clear()
        key = self._key(given)
        last = self.last  # which another thread may replace
        if last is None or last[0] != key:
            self.last = last = key, self._model(key, given)
        return last[1](given)

    def _key(self, given: Sequence[Any]) -> tuple:
        """The key of a model: parameters, by the memory and the number of their changes, and sizes."""
        parameters = tuple(map(_state, (given[n] for n in self.static)))
        if len(self.static) == len(given):
            return (parameters,)
        fixed = set(self.static)
        rest = (v for n, v in enumerate(given) if n not in fixed)
        return parameters, *(tuple(v.shape) if isinstance(v, torch.Tensor) else v for v in rest)

    def _model(self, key: tuple, given: Sequence[Any]) -> Callable:
        if key not in self.models:
            if len(self.models) >= MAX_MODELS:
                del self.models[next(iter(self.models))]
            again = any(known[0] == key[0] for known in self.models)
            self.models[key] = (self._of_all_sizes(key[0], given) if again else None) or self._made(given)
        return self.models[key]

    def _of_all_sizes(self, parameters: tuple, given: Sequence[Any]) -> Callable | None:
        """The model for all sizes, which is made when second ones are called; None where torch leaves none open, or where some
        of the results are no tensors, or some of the graph is not compiled."""
        if parameters not in self.open:
            while len(self.open) >= MAX_OPEN_MODELS:
                del self.open[next(iter(self.open))]
            try:
                self.open[parameters] = OfAllSizes(self, given)
            except (GraphError, TypeError):
                self.open[parameters] = None
        return self.open[parameters]

    def _made(self, given: Sequence[Any]) -> Callable:
        """The compiled model for these parameters and sizes; what is not supported is in eager mode."""
        try:
            return Bound(self, given)
        except UnsupportedNodes as error:
            whole = any(operator_name(n).startswith(OF_MEMORY) for n in error.nodes)
            count = len(error.nodes) if not whole else len(self.traced.graph.nodes) - len(self.placeholders)
            self._warn("\n  ".join([f"{count} node(s) of a traced graph run in eager mode", *error.reasons]))
            if not whole:
                return parted(self, error.nodes)
        except (GraphError, TypeError) as error:
            self._warn(f"a traced graph runs in eager mode: {error}")
        forward = self.traced.forward
        return lambda given: forward(*given)

    def _warn(self, message: str) -> None:
        """Say once what is not compiled, for all sizes."""
        if not self.warned:
            warnings.warn(message, stacklevel=2)
        self.warned = True


def parted(whole: CompiledGraph, eager: Sequence[Node]) -> Callable:
    """The function of a traced graph of which some nodes run in eager mode, between parts that are compiled."""
    graph, copies = Graph(), dict[Node, Node]()
    graph.output(graph.graph_copy(whole.traced.graph, copies))
    own = {copies[n] for n in whole.traced.graph.nodes if n.op == "call_function" and n not in set(eager)}
    module = CapabilityBasedPartitioner(
        GraphModule(whole.traced, graph), create_op_support(lambda _, node: node in own), allows_single_node_partition=True
    ).partition_and_fuse()
    constant = {copies[whole.placeholders[n]].name for n in whole.static}  # by name: fusion has copied the nodes
    for node in module.graph.nodes:
        if node.op == "call_module":
            static = [n for n, argument in enumerate(node.args) if argument.name in constant or argument.op == "get_attr"]
            part = getattr(module, node.target)
            delattr(module, node.target)
            setattr(module, node.target, _function_of(CompiledGraph(part, whole.options, static)))
    return lambda given: module.forward(*given)


def _function_of(part: CompiledGraph) -> Callable:
    """A compiled part as a function of its inputs, whose result is as the part has it."""
    (output,) = (n for n in part.traced.graph.nodes if n.op == "output")
    if isinstance(output.args[0], tuple):
        return lambda *given: tuple(part(list(given)))
    output.args = ((output.args[0],),)
    return lambda *given: part(list(given))[0]


class Bound:
    """A model of a traced graph for parameters and sizes, as a function of the list of all inputs."""

    def __init__(self, compiled: CompiledGraph, given: Sequence[Any]):
        self.compiled, self.given = compiled, given
        self.static = set(compiled.static)
        # Positions of the model's inputs among those of the traced graph.
        self.positions = [n for n, v in enumerate(given) if isinstance(v, torch.Tensor) and n not in self.static]
        self.parameters = [given[n] for n in compiled.static]  # whose memory the constants are
        self.model = self._model()
        self.given = ()
        outputs = () if self.model is None else self.graph.outputs
        self.bfloat16 = [v.dtype == "bfloat16" for v in outputs]

    def _model(self) -> Model | OpenModel | None:
        nodes = self.compiled.placeholders
        values = {nodes[n].name: _input(nodes[n].name, self.given[n]) for n in self.positions}
        importer, results = self._read(values)
        self.rest = list(results)
        self.outputs = [n for n, v in enumerate(results) if isinstance(v, Value)]
        if not self.outputs:
            return None
        self.graph = importer.graph(*(importer.value(results[n]) for n in self.outputs))
        return self._compiled()

    def _compiled(self) -> Model | OpenModel:
        return compile(self.graph, **self.compiled.options)

    def _read(self, inputs: Mapping[str, Any], numbers: Mapping[str, int] | None = None) -> tuple[Importer, Sequence[Any]]:
        """The traced graph as it is for these inputs, and for numbers in place of those that were given."""
        bound = {node.name: value for node, value in zip(self.compiled.placeholders, self.given, strict=True)}
        importer = Importer("torch.compile", self.compiled.traced, bound | dict(numbers or {}) | dict(inputs))
        return importer, importer.run()

    def __call__(self, given: Sequence[Any]) -> Sequence[Any]:
        results = list(self.rest)
        if self.model is not None:
            found = self.model(*(_array(given[n]) for n in self.positions))
            for n, array, half in zip(self.outputs, found, self.bfloat16, strict=True):
                results[n] = as_torch(array, "bfloat16" if half else array.dtype.name, torch)
        return results


class OfAllSizes(Bound):
    """A model for parameters and all sizes, of which those given are to be fast. GraphError where none is open."""

    def _compiled(self) -> Model | OpenModel:
        nodes = self.compiled.placeholders
        traced = {nodes[n].name: nodes[n].meta["val"] for n in self.positions}
        inputs, sizes = open_inputs(traced)
        if not sizes or any(v is not None and not isinstance(v, Value) for v in self.rest):
            raise GraphError("torch leaves no size of inputs open, or results are no tensors")
        names = {expression: name for name, expression in sizes.items()}
        # Numbers among the inputs, which are sizes of tensors, by the names of these.
        symbols = {n.name: n.meta["val"].node.expr for n in nodes if isinstance(n.meta.get("val"), torch.SymInt)}
        numbers = {n: names[e] for n, e in symbols.items() if e in names}
        if numbers.keys() != symbols.keys() or not all(e.is_Symbol for e in sizes.values()):
            raise GraphError("a number among the inputs is no size of a tensor")
        given = tuple(self.given)

        def read(shapes: Mapping[str, Sequence[int]]) -> IrGraph:
            row = {d: e for v in inputs for d, e in zip(v.shape, shapes[v.name], strict=True) if isinstance(d, str)}
            if min(row.values()) < 2:
                raise GraphError("torch traces another graph for sizes below 2")
            self.given = given
            values = {v.name: Value(v.name, tuple(shapes[v.name]), v.dtype) for v in inputs}
            importer, results = self._read(values, {n: row[d] for n, d in numbers.items()})
            return importer.graph(*(importer.value(results[n]) for n in self.outputs))

        graph = OpenGraph("torch.compile", tuple(inputs), tuple(v.name for v in self.graph.outputs), read)
        return compile(graph, sizes=graph.sizes_of([self.given[n].shape for n in self.positions]), **self.compiled.options)


def _input(name: str, given: torch.Tensor) -> Value | Missing:
    try:
        return Value(name, tuple(given.shape), dtype_name(given.dtype))
    except TypeError:
        return Missing()


def _constant_inputs() -> list[int]:
    """The positions of parameters, and of buffers that no call writes, among the inputs of the graph that is being traced."""
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None:
        return []
    written = {n for n, info in enumerate(metadata.input_info) if info.mutates_data}  # their elements differ in each call
    return sorted(set(metadata.static_input_indices or ()) - written)


def _state(tensor: torch.Tensor) -> tuple[int, int]:
    """The address of a tensor, and the number of its changes, which inference tensors do not count."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _array(tensor: torch.Tensor) -> np.ndarray:
    """The elements of a tensor, which are not copied; those of bfloat16 as bits."""
    if tensor.dtype is torch.bfloat16:
        return array_of(tensor).view(np.uint16)
    return tensor.detach().numpy()
