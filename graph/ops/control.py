"""Nodes that hold graphs, as composites of the calls of their branches and steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import Value
from .registry import Apply, Body, composite, scalar
from .sequences import joined

MAX_STEPS = 256  # steps of a loop; a graph of more is too large to compile


@composite("If", operands={0: "condition"})
def branch(apply, *, condition, then_branch, else_branch):
    """The branch that a constant condition chooses."""
    return then_branch() if scalar("the condition", condition) else else_branch()


@composite("If")
def both_branches(apply, condition, *, then_branch, else_branch):
    """The results of the branch that a condition chooses; both branches run."""
    both = zip(then_branch(), else_branch(), strict=True)
    return tuple(_chosen(apply, condition, a, b, "the branches") for a, b in both)


def _chosen(apply: Apply, condition: Value, a: Any, b: Any, what: str) -> Value:
    """The first of two values where a condition, one number, holds, else the second."""
    if not (isinstance(a, Value) and isinstance(b, Value) and (a.shape, a.dtype) == (b.shape, b.dtype)):
        raise ValueError(f"its condition is not constant, and {what} differ in type: {a} and {b}")
    return a if a == b else apply("Where", apply("Reshape", condition, shape=()), a, b)


@composite("Scan", 9)
def scan(
    apply, *inputs, body, num_scan_inputs, scan_input_axes=None, scan_input_directions=None, scan_output_axes=None,
    scan_output_directions=None,
):  # fmt: skip
    """The steps of a loop over slices of its last inputs, one after the other."""
    states, scanned = inputs[:-num_scan_inputs], inputs[-num_scan_inputs:]
    axes, backward = scan_input_axes or (0,) * num_scan_inputs, scan_input_directions or (0,) * num_scan_inputs
    steps, made = scanned[0].shape[axes[0]], []
    if steps > MAX_STEPS:
        raise ValueError(_too_many(steps))
    for step in range(steps):
        indices = (apply.constant(steps - 1 - step if reverse else step, "int64") for reverse in backward)
        slices = [apply("Gather", x, index, axis=axis) for x, index, axis in zip(scanned, indices, axes, strict=True)]
        results = body(*states, *slices)
        states, rest = results[: len(states)], results[len(states) :]
        made.append(rest)
    outputs = body.outputs - len(states)
    order, backward = scan_output_axes or (0,) * outputs, scan_output_directions or (0,) * outputs
    if not made:
        slices = [apply.constant(np.zeros(np.delete(x.shape, axis), x.dtype)) for x, axis in zip(scanned, axes, strict=True)]
        return (*states, *_no_rows(apply, body(*states, *slices)[len(states) :], order))
    rows = zip(zip(*made, strict=True), order, backward, strict=True)
    return (*states, *(joined(apply, parts[::-1] if reverse else parts, axis) for parts, axis, reverse in rows))


@composite("Loop", operands={0: "count"})
def loop(apply, condition=None, *states, body, count=None):
    """The steps of a loop one after the other, until its condition is known to be false.

    A condition that is not constant is computed: where it is false, a step leaves the states as they are."""
    steps = MAX_STEPS + 1 if count is None else int(scalar("the count", count))
    going = apply.constant(True) if condition is None else condition
    made: list[Sequence[Any]] = []
    outputs = body.outputs - 1 - len(states)
    for step in range(steps):
        goes_on = apply.known(going)
        if goes_on is not None and not goes_on.all():
            break
        if steps > MAX_STEPS and (step == MAX_STEPS or goes_on is None or (step == 1 and _unchanging(body))):
            raise ValueError(_too_many("more" if count is None else steps))
        goes, *results = body(apply.constant(step, "int64"), going, *states)
        if condition is None and ((holds := apply.known(goes)) is None or not holds.all()):
            raise ValueError("its body says when it ends, but it is given no condition, which then is not looked at")
        new = results[: len(states)]
        if goes_on is None:
            if outputs:
                raise ValueError("its condition is not constant, on which the shape of its scan outputs depends")
            new = [_chosen(apply, going, a, b, "the states of two steps") for a, b in zip(new, states, strict=True)]
            goes = apply("And", going, goes)
        made.append(results[len(states) :])
        states, going = tuple(new), goes
    if not made and outputs:
        results = body(apply.constant(0, "int64"), apply.constant(True), *states)
        return (*states, *_no_rows(apply, results[1 + len(states) :], (0,) * outputs))
    return (*states, *(joined(apply, parts, 0) for parts in zip(*made, strict=True)))


def _too_many(steps: int | str) -> str:
    return (
        f"loops of up to {MAX_STEPS} steps are supported, this one has {steps}: try several loops, or operators of whole tensors"
    )


def _unchanging(body: Body) -> bool:
    """True where a body's new condition depends on none of its inputs but the condition, so that it is the same in all steps."""
    return body.needed(0) <= {1}


def _no_rows(apply: Apply, results: Sequence[Value], axes: Sequence[int]) -> list[Value]:
    """The scan outputs of a loop without steps: those of a step, with extent 0 along a new axis."""
    rows = (np.expand_dims(np.empty(v.shape, v.dtype), axis).take([], axis) for v, axis in zip(results, axes, strict=True))
    return list(map(apply.constant, rows))
