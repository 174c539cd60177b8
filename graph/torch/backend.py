"""The compiler as a backend of `torch.compile`.

torch gives a traced graph, and calls what is made of it with parameters and inputs. A model is compiled at the first call, when
the parameters are known: they are constants of it, and packed once. Where torch leaves sizes open, each has a model of its own.
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
from torch.fx import GraphModule

from codegen import Target

from ..compilation import compile
from ..ir import GraphError, Value
from ..model import Model
from ..ops import alternatives
from .importer import Importer, array_of, dtype_name

OPTIONS = ("cache", "plan", "records", "target", "winograd")  # of `tir.compile`
MAX_MODELS = 64  # models of one traced graph, of other parameters or sizes
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

    def of_traced(traced: GraphModule, _: Sequence[Any]) -> Callable:
        return CompiledGraph(traced, given)

    return aot_autograd(fw_compiler=of_traced, inference_compiler=of_traced, decompositions=decompositions)(module, examples)


def decompositions() -> dict[Any, Callable]:
    """torch's decompositions to core ATen, without those of operators that are supported as they are."""
    return {
        operator: rule
        for operator, rule in core_aten_decompositions().items()
        if not alternatives(str(operator).removesuffix(".default"))
    }


class CompiledGraph:
    """A traced graph as a function of a list of its inputs, which gives the list of its outputs."""

    _boxed_call = True  # the list of inputs is the function's: it may empty it

    def __init__(self, traced: GraphModule, options: Mapping[str, Any]):
        self.traced, self.options = traced, options
        self.placeholders = [n for n in traced.graph.nodes if n.op == "placeholder"]
        context = TracingContext.try_get()
        metadata = None if context is None else context.fw_metadata
        self.static = [] if metadata is None else sorted(metadata.static_input_indices or ())
        if metadata is not None:  # buffers that calls write are inputs, as their elements differ in each
            written = {n for n, info in enumerate(metadata.input_info) if info.mutates_data}
            self.static = [n for n in self.static if n not in written]
        self.models: dict[tuple, Callable] = {}
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
            self.models[key] = self._made(given)
        return self.models[key]

    def _made(self, given: Sequence[Any]) -> Callable:
        """The compiled model for these parameters and sizes; in eager mode where that is not supported."""
        try:
            return Bound(self, given)
        except (GraphError, TypeError) as error:
            warnings.warn(f"this part runs in eager mode: {error}", stacklevel=2)
            forward = self.traced.forward
            return lambda given: forward(*given)


class Bound:
    """A model of a traced graph for parameters and sizes, as a function of the list of all inputs."""

    def __init__(self, compiled: CompiledGraph, given: Sequence[Any]):
        static = set(compiled.static)
        bound: dict[str, Any] = {}
        self.positions = []  # of the model's inputs among those of the traced graph
        for n, (node, value) in enumerate(zip(compiled.placeholders, given, strict=True)):
            if isinstance(value, torch.Tensor) and n not in static:
                self.positions.append(n)
                bound[node.name] = Value(node.name, tuple(value.shape), dtype_name(value.dtype))
            else:
                bound[node.name] = value
        importer = Importer("torch.compile", compiled.traced, bound)
        results = importer.run()
        self.parameters = [given[n] for n in compiled.static]  # whose memory the constants are
        self.rest = list(results)
        self.outputs = [n for n, v in enumerate(results) if isinstance(v, Value)]
        self.model: Model | None = None
        if self.outputs:
            self.model = compile(importer.graph(*(importer.value(results[n]) for n in self.outputs)), **compiled.options)
            self.bfloat16 = [v.dtype == "bfloat16" for v in self.model.graph.outputs]

    def __call__(self, given: Sequence[Any]) -> Sequence[Any]:
        results = list(self.rest)
        if self.model is not None:
            found = self.model(*(_array(given[n]) for n in self.positions))
            for n, array, half in zip(self.outputs, found, self.bfloat16, strict=True):
                results[n] = _tensor(array, half)
        return results


def _state(tensor: torch.Tensor) -> tuple[int, int]:
    """The address of a tensor, and the number of its changes, which inference tensors do not count."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _array(tensor: torch.Tensor) -> np.ndarray:
    """The elements of a tensor, which are not copied; those of bfloat16 as bits."""
    if tensor.dtype is torch.bfloat16:
        return array_of(tensor).view(np.uint16)
    return tensor.detach().numpy()


def _tensor(array: np.ndarray, half: bool) -> torch.Tensor:
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if half else torch.from_numpy(array)
