"""Programs that `torch.export` gives as graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, TensorArgument

from ..ir import Graph, GraphError, Value
from ..sizes import OpenGraph, with_sizes
from .importer import Importer, decompositions, open_inputs

NAME = "program"  # of the graph
MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
KEPT = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def imported(program: ExportedProgram, shapes: Mapping[str, Sequence[int] | int | str] | None = None) -> Graph | OpenGraph:
    """The graph of a program; see `graph.torch.from_torch`."""
    if not isinstance(program, ExportedProgram):
        kind = type(program).__name__
        raise TypeError(f"from_torch takes a program, such as torch.export.export(model, args) gives, got {kind}")
    program = program.run_decompositions(decompositions(torch.export.default_decompositions()))
    signature = program.graph_signature
    mutated = set(signature.buffers_to_mutate.values())
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    bound, traced = dict[str, Any](), dict[str, torch.Tensor]()
    for node, spec in zip(nodes, signature.input_specs, strict=True):
        bound[node.name], given = None, node.meta.get("val")
        if spec.kind in KEPT and spec.target not in mutated:
            bound[node.name] = _tensor(program, spec)
        elif isinstance(spec.arg, ConstantArgument):
            bound[node.name] = spec.arg.value
        elif isinstance(given, torch.Tensor):
            traced[node.name] = given
        else:
            kind = type(given).__name__
            raise GraphError(f"{NAME}: the input `{node.name}` is a {kind}; only tensors and constants are supported")
    specs = zip(nodes, signature.input_specs, strict=True)
    names = {n.name: str(s.target) for n, s in specs if isinstance(bound[n.name], torch.Tensor)}
    stated, sizes = open_inputs(traced)
    inputs = with_sizes(NAME, stated, shapes or {}, "program")

    def at(given: Mapping[str, Sequence[int]]) -> Graph:
        _check(program, sizes, {d: e for v in stated for d, e in zip(v.shape, given[v.name], strict=True) if isinstance(d, str)})
        values = {v.name: Value(v.name, tuple(map(int, given[v.name])), v.dtype) for v in stated}
        importer = Importer(NAME, program.graph_module, bound | values, names)
        results = list(zip(importer.run(), signature.output_specs, strict=True))
        changed = [v for v, s in results if s.kind in MUTATIONS]
        outputs = [v for v, s in results if s.kind not in MUTATIONS and isinstance(v, (Value, torch.Tensor))]
        return importer.graph(*map(importer.value, (*outputs, *changed)))

    if all(isinstance(d, int) for v in inputs for d in v.shape):
        return at({v.name: v.known for v in inputs})
    made = [s for s in signature.output_specs if isinstance(s.arg, TensorArgument)]
    return OpenGraph(NAME, inputs, tuple(s.arg.name for s in sorted(made, key=lambda s: s.kind in MUTATIONS)), at)


def _check(program: ExportedProgram, sizes: Mapping[str, Any], given: Mapping[str, int]) -> None:
    """Refuse sizes that the program was not traced for: outside of their range, or that contradict others."""
    known = {sizes[name]: n for name, n in given.items() if sizes[name].is_Symbol}
    for name, n in given.items():
        meant, allowed = sizes[name].xreplace(known), program.range_constraints.get(sizes[name])
        if allowed is not None and not allowed.lower <= n <= allowed.upper:
            raise GraphError(f"{NAME}: the size `{name}` is {n}, but the program is for {allowed.lower} to {allowed.upper}")
        if not getattr(meant, "free_symbols", ()) and int(meant) != n:
            raise GraphError(f"{NAME}: the size `{name}` is {n}, but {sizes[name]} is {meant}")


def _tensor(program: ExportedProgram, spec: InputSpec) -> torch.Tensor:
    target = str(spec.target)
    return program.constants[target] if target in program.constants else program.state_dict[target]
