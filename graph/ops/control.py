"""Nodes that hold graphs: composites of the calls that are run, as far as that is known while a file is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .registry import composite, scalar
from .sequences import joined

if TYPE_CHECKING:
    import onnx

MAX_STEPS = 256  # beyond that, a graph of all steps is too large to compile


@composite("If", operands={0: "condition"})
def branch(apply, *, condition, then_branch, else_branch):
    """The branch that a constant condition chooses."""
    return apply.inline(then_branch if scalar("the condition", condition) else else_branch)


@composite("Scan", 9)
def scan(
    apply, *inputs, body, num_scan_inputs, scan_input_axes=None, scan_input_directions=None, scan_output_axes=None,
    scan_output_directions=None,
):  # fmt: skip
    """The steps of a loop over slices of its last inputs, one after the other."""
    states, scanned = inputs[:-num_scan_inputs], inputs[-num_scan_inputs:]
    axes, backward = scan_input_axes or (0,) * num_scan_inputs, scan_input_directions or (0,) * num_scan_inputs
    steps, made = _checked(scanned[0].shape[axes[0]]), []
    for step in range(steps):
        places = (apply.constant(steps - 1 - step if turned else step, "int64") for turned in backward)
        slices = [apply("Gather", x, place, axis=axis) for x, place, axis in zip(scanned, places, axes, strict=True)]
        results = apply.inline(body, (*states, *slices))
        states, rest = results[: len(states)], results[len(states) :]
        made.append(rest)
    outputs = len(made[0])
    rows = zip(zip(*made, strict=True), scan_output_axes or (0,) * outputs, scan_output_directions or (0,) * outputs, strict=True)
    return (*states, *(joined(apply, parts[::-1] if turned else parts, axis) for parts, axis, turned in rows))


@composite("Loop", 11, operands={0: "count", 1: "condition"})
def loop(apply, *states, body, count=None, condition=None):
    """The steps of a loop one after the other, if their number is constant and its condition always holds."""
    if count is None or not scalar("the condition", True if condition is None else condition) or not _always_goes_on(body):
        raise ValueError("only loops of a constant number of steps are there")
    true, made = apply.constant(True), []
    for step in range(_checked(int(scalar("the count", count)))):
        _, *results = apply.inline(body, (apply.constant(step, "int64"), true, *states))
        states = results[: len(states)]
        made.append(results[len(states) :])
    return (*states, *(joined(apply, parts, 0) for parts in zip(*made, strict=True)))


def _checked(count: int) -> int:
    """A number of steps, if that many can be written out."""
    if not 1 <= count <= MAX_STEPS:
        raise ValueError(f"loops of 1 to {MAX_STEPS} steps are there, this one has {count}")
    return count


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
