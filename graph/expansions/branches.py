"""Nodes that hold graphs."""

from __future__ import annotations

from .body import Body, attributes, expansion


@expansion("If", operands={0: "condition"})
def branch(body: Body, node, values, *, condition):
    """The branch that a constant condition chooses."""
    from onnx import numpy_helper

    graph = attributes(node)["then_branch" if condition.reshape(()) else "else_branch"]
    body.constants |= {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    body.nodes += graph.node
    for inner, outer in zip(graph.output, node.output, strict=True):
        body.add("Identity", inner.name, output=outer)
