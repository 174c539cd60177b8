"""Loops of a known number of steps: their steps one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .body import Body, all_nodes, attributes, expansion, renamed_node

if TYPE_CHECKING:
    import onnx

MOST_STEPS = 256  # beyond that, a graph of all steps is too large to compile


def write_step(body: Body, graph: onnx.GraphProto, given: Mapping[str, str]) -> list[str]:
    """Add the nodes of one step, whose inputs have the names `given`; returns the names of its outputs."""
    from onnx import numpy_helper

    renamed = dict(given) | {i.name: body.constant(numpy_helper.to_array(i)) for i in graph.initializer}
    for node in all_nodes(graph.node):
        renamed |= {name: body.name(name) for name in node.output if name}
    body.nodes += [renamed_node(node, renamed) for node in graph.node]
    return [renamed.get(o.name, o.name) for o in graph.output]


def checked_steps(count: int) -> int:
    """A number of steps, if that many can be written out."""
    if not 1 <= count <= MOST_STEPS:
        raise ValueError(f"loops of 1 to {MOST_STEPS} steps are there, this one has {count}")
    return count


def write_stacked(body: Body, parts: list[str], axis: int, output: str) -> None:
    """Join what the steps made along a new axis."""
    if body.opset < 13:  # when axes were an attribute
        widened = [body.add("Unsqueeze", part, axes=[axis]) for part in parts]
    else:
        widened = [body.add("Unsqueeze", part, body.constant([axis], "int64")) for part in parts]
    body.add("Concat", *widened, output=output, axis=axis)


@expansion("Scan", 9)
def scan(body: Body, node, values):
    given = attributes(node)
    graph, count = given["body"], given["num_scan_inputs"]
    kept = len(node.input) - count
    axes = given.get("scan_input_axes", [0] * count)
    backward = given.get("scan_input_directions", [0] * count)
    outputs = len(node.output) - kept
    steps = checked_steps(values[kept].shape[axes[0]])
    states, made = list(node.input[:kept]), []
    for step in range(steps):
        slices = []
        for name, axis, turned in zip(node.input[kept:], axes, backward, strict=True):
            slices.append(body.add("Gather", name, body.constant(steps - 1 - step if turned else step, "int64"), axis=axis))
        names = [i.name for i in graph.input]
        results = write_step(body, graph, dict(zip(names, [*states, *slices], strict=True)))
        states = results[:kept]
        made.append(results[kept:])
    for state, output in zip(states, node.output, strict=False):
        body.add("Identity", state, output=output)
    turned_outputs = given.get("scan_output_directions", [0] * outputs)
    for n, axis in enumerate(given.get("scan_output_axes", [0] * outputs)):
        if node.output[kept + n]:
            parts = [results[n] for results in (made[::-1] if turned_outputs[n] else made)]
            write_stacked(body, parts, axis, node.output[kept + n])


@expansion("Loop", 11, operands={0: "count", 1: "condition"})
def loop(body: Body, node, values, *, count=None, condition=None):
    """A loop whose number of steps is constant, and whose condition always holds."""
    graph = attributes(node)["body"]
    if count is None or (condition is not None and not condition.all()) or not _always_goes_on(graph):
        raise ValueError("only loops of a constant number of steps are there")
    states, made = list(node.input[2:]), []
    true = body.constant(True)
    for step in range(checked_steps(int(count.reshape(())))):
        names = [i.name for i in graph.input]
        given = dict(zip(names, [body.constant(step, "int64"), true, *states], strict=True))
        _, *results = write_step(body, graph, given)
        states = results[: len(states)]
        made.append(results[len(states) :])
    for state, output in zip(states, node.output, strict=False):
        if output:
            body.add("Identity", state, output=output)
    for n, output in enumerate(node.output[len(states) :]):
        if output:
            write_stacked(body, [results[n] for results in made], 0, output)


def _always_goes_on(graph: onnx.GraphProto) -> bool:
    """Whether the condition that a step gives is the one it was given, or a constant that holds."""
    from onnx import numpy_helper

    name = graph.output[0].name
    makers = {n.output[0]: n for n in graph.node if n.output}
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    if name in makers and makers[name].op_type == "Constant":
        return bool(numpy_helper.to_array(makers[name].attribute[0].t).all())
    holds = {i.name: bool(numpy_helper.to_array(i).all()) for i in graph.initializer}
    return holds.get(name, name == graph.input[1].name)
