"""Programs that `torch.export` gives as graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind

from ..ir import Graph, GraphError, Value
from .importer import Importer, decompositions, dtype_name

MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
KEPT = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def imported(program: ExportedProgram, shapes: Mapping[str, Sequence[int]] | None = None) -> Graph:
    """The graph of a program; see `graph.torch.from_torch`."""
    if not isinstance(program, ExportedProgram):
        kind = type(program).__name__
        raise TypeError(f"from_torch takes a program, such as torch.export.export(model, args) gives, got {kind}")
    program = program.run_decompositions(decompositions(torch.export.default_decompositions()))
    signature = program.graph_signature
    name = "program"
    mutated = set(signature.buffers_to_mutate.values())
    bound: dict[str, Any] = {}
    names: dict[str, str] = {}
    given = dict(shapes or {})
    for node, spec in zip((n for n in program.graph.nodes if n.op == "placeholder"), signature.input_specs, strict=True):
        bound[node.name] = _bound(program, node, spec, mutated, given, name)
        if isinstance(bound[node.name], torch.Tensor):
            names[node.name] = str(spec.target)
    if given:
        inputs = [n for n, v in bound.items() if isinstance(v, Value)]
        raise GraphError(f"{name}: shapes names `{next(iter(given))}`; the inputs are {', '.join(inputs) or 'none'}")
    importer = Importer(name, program.graph_module, bound, names)
    results = list(zip(importer.run(), signature.output_specs, strict=True))
    changed = [v for v, s in results if s.kind in MUTATIONS]
    outputs = [v for v, s in results if s.kind not in MUTATIONS and isinstance(v, (Value, torch.Tensor))]
    return importer.graph(*map(importer.value, (*outputs, *changed)))


def _bound(
    program: ExportedProgram, node: torch.fx.Node, spec: InputSpec, mutated: set[str], shapes: dict[str, Sequence[int]], name: str
) -> Any:
    """The meaning of an input of the traced graph: a value, a tensor that is constant, a number or None."""
    if spec.kind in KEPT and spec.target not in mutated:
        return _tensor(program, spec)
    if isinstance(spec.arg, ConstantArgument):
        return spec.arg.value
    tensor = node.meta["val"]
    if not isinstance(tensor, torch.Tensor):
        raise GraphError(
            f"{name}: the input `{node.name}` is a {type(tensor).__name__}; only tensors and constants are supported"
        )
    shape = shapes.pop(node.name, tensor.shape)
    if not all(isinstance(e, int) for e in shape):
        text = ", ".join(map(str, shape))
        raise GraphError(
            f"{name}: the shape of the input `{node.name}` is open, [{text}]; give it: shapes={{{node.name!r}: (...)}}"
        )
    if len(shape) != tensor.dim() or any(isinstance(e, int) and e != s for e, s in zip(tensor.shape, shape, strict=True)):
        raise GraphError(
            f"{name}: the shape {list(shape)} of the input `{node.name}` contradicts the program: {list(tensor.shape)}"
        )
    return Value(node.name, tuple(map(int, shape)), dtype_name(tensor.dtype))


def _tensor(program: ExportedProgram, spec: InputSpec) -> torch.Tensor:
    target = str(spec.target)
    return program.constants[target] if target in program.constants else program.state_dict[target]
