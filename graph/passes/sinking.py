"""Views and transposes move behind elementwise calls, toward the end of the graph.

There they cancel with others, and the calls that they separated become one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ..ir import Call, Value
from ..kinds import elementwise, moves, widens
from .rewriting import Rewriting, each_call, fits_elementwise


@each_call
def sink_layouts(r: Rewriting, call: Call) -> list[Call] | None:
    """f(reshape(x), y) becomes reshape(f(x, reshape(y))), and f(transpose(x), transpose(y)) transpose(f(x, y)), for elementwise
    f. x must be the result of a call, and a transposed value have no other reader."""
    if not elementwise(call) or moves(call):
        return None
    return next((calls for v in dict.fromkeys(call.values) if (calls := _sunk(r, call, v)) is not None), None)


def _sunk(r: Rewriting, call: Call, operand: Value) -> list[Call] | None:
    """The calls in place of one with a view or a transpose as an operand, which then follows it; None where it stays."""
    moved, result = r.producer(operand, "Reshape", "Transpose"), call.outputs[0]
    if moved is None or operand.shape != result.shape or moved.values[0] not in r.producers:
        return None
    source = moved.values[0]
    alone = r.read_once(operand) and r.read_once(source)
    if not alone and (moved.operator == "Transpose" or widens(call)):  # each reader converts what takes less memory
        return None
    calls, inputs = list[Call](), list[Value | None]()
    for value in call.inputs:
        before = None if value is None else _unmoved_operand(r, moved, value)
        if value is not None and before is None:
            return None
        calls += [] if before is None else before[0]
        inputs.append(None if before is None else before[1])
    if calls and not alone:  # views that would stand between calls of one group
        return None
    inner = replace(call, inputs=tuple(inputs), outputs=(r.value(f"{result.name}_unmoved", source.shape, result.dtype),))
    if not fits_elementwise(inner):
        return None
    return [*calls, *(_sunk(r, inner, source) or [inner]), replace(moved, inputs=inner.outputs, outputs=(result,))]


def _unmoved_operand(r: Rewriting, moved: Call, value: Value) -> tuple[list[Call], Value] | None:
    """The calls that make an operand as it is before a view or a transpose, and that operand; None where they cost a kernel."""
    source, result = moved.values[0], moved.outputs[0]
    same = moved if value == result else r.producer(value, moved.operator)
    if same is not None and _key(same) == _key(moved) and (same.operator == "Reshape" or r.read_once(value)):
        return [], same.values[0]
    if prod(value.shape) == 1:
        return _viewed(r, value, value.shape if len(value.shape) <= len(source.shape) else ())
    own = (1,) * (len(result.shape) - len(value.shape)) + value.shape
    if moved.operator == "Reshape":
        shape = source.shape if value.shape == result.shape else _broadcast(own, result.shape, source.shape)
        return None if shape is None else _viewed(r, value, shape)
    order = moved.attribute("perm") or range(len(own))[::-1]
    back = [list(order).index(n) for n in range(len(own))]
    if (array := r.known(value)) is not None:
        return [], r.constant(np.ascontiguousarray(array.reshape(own).transpose(back)), name=f"{value.name}_transposed")
    return _viewed(r, value, tuple(own[n] for n in back)) if sum(e > 1 for e in own) == 1 else None


def _key(moved: Call) -> object:
    return moved.operator, moved.attributes, moved.values[0].shape, moved.outputs[0].shape


def _broadcast(own: tuple[int, ...], after: tuple[int, ...], before: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that broadcasts before a view as `own` does after it; None unless it is a whole tail, or units come and go."""
    kept = [n for n, extent in enumerate(after) if extent > 1]
    if [after[n] for n in kept] == [e for e in before if e > 1]:  # only dimensions of extent 1 come and go
        extents = iter([own[n] for n in kept])
        return tuple(next(extents) if e > 1 else 1 for e in before)
    first = next((n for n, extent in enumerate(own) if extent > 1), len(own))
    size = prod(own[first:])
    begin = next((n for n in range(len(before) + 1) if prod(before[n:]) == size), None)
    return before[begin:] if begin is not None and own[first:] == after[first:] else None


def _viewed(r: Rewriting, value: Value, shape: Sequence[int]) -> tuple[list[Call], Value]:
    if value.shape == tuple(shape):
        return [], value
    if (array := r.known(value)) is not None:
        return [], r.constant(array.reshape(shape), name=f"{value.name}_viewed")
    view = r.call("Reshape", [value], f"{value.name}_viewed", shape=tuple(shape))
    return [view], view.outputs[0]
