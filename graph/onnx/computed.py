"""Operands that a network computes, of which the shape of a result, or its places in an input, follow.

They are constants in most files. Where they are not, but the file states the shape of the result, as exporters do for what they
know, a node is written with that shape, or reads elements at computed places.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir import Value
from ..sizes import length
from .inputs import dimensions

if TYPE_CHECKING:
    import onnx

    from ..ops.registry import Apply

Shape = tuple[int, ...]


def needs_shape(node: onnx.NodeProto, known: Container[str]) -> bool:
    """True for a node that can be imported by the stated shape of its result alone."""
    operands = {"ConstantOfShape": node.input, "Pad": (*node.input[1:2], *node.input[3:]), "Range": node.input}
    named = operands.get(node.op_type, node.input[1:])
    return node.op_type in _RULES and not node.domain and any(name and name not in known for name in named)


def stated_shapes(graph: onnx.GraphProto, inputs: Sequence[Value]) -> dict[str, Shape]:
    """The shapes of values that a file states, by name. Named sizes, and sums of these, are those of the inputs."""
    known = {v.name: v.shape for v in inputs}
    given = [(dimensions(i) or (), known[i.name]) for i in graph.input if i.name in known]
    sizes = {str(d): n for names, shape in given for d, n in zip(names, shape, strict=False)}
    shapes: dict[str, Shape] = {}
    for info in (*graph.value_info, *graph.output):
        with suppress(KeyError):  # a size of no input
            if (stated := dimensions(info)) is not None:
                shapes[info.name] = tuple(length(d, sizes) for d in stated)
    return shapes


def with_stated_shape(
    apply: Apply, node: onnx.NodeProto, inputs: Sequence[Any], attributes: Mapping[str, Any], shape: Shape
) -> tuple[Value, ...]:
    """The results of a node with computed operands, the first one of that shape. Raises ValueError if it cannot have it."""
    found = _RULES[node.op_type](apply, shape, *inputs, **attributes)
    results = found if isinstance(found, tuple) else (found,)
    if results[0].shape != shape:
        raise ValueError(f"its result has the shape {list(results[0].shape)}, and the file states {list(shape)}")
    return results


def _filled(apply: Apply, shape: Shape, _: Value, *, value: Any = None) -> Value:
    return apply.constant(np.zeros(shape, "float32") if value is None else np.full(shape, value.item(), value.dtype))


def _sliced(
    apply: Apply, shape: Shape, x: Value, starts: Value, _: Value, axes: Value | None = None, steps: Value | None = None
) -> Value:
    count = starts.shape[0]
    along = np.arange(count) if axes is None else _known(apply, "axes", axes)
    strides = np.ones(count, int) if steps is None else _known(apply, "steps", steps)
    for n, axis, step in zip(range(count), along % len(x.shape), strides, strict=True):
        extent, start = x.shape[axis], _number(apply, starts, n)
        start = apply("Where", apply("Less", start, _integers(apply, 0)), apply("Add", start, _integers(apply, extent)), start)
        start = apply("Clip", start, min=0, max=extent if step > 0 else extent - 1)
        x = _at(apply, x, axis, apply("Add", start, _integers(apply, np.arange(shape[axis]) * step)))
    return x


def _padded(
    apply: Apply,
    shape: Shape,
    x: Value,
    pads: Value,
    value: Value | None = None,
    axes: Value | None = None,
    *,
    mode: str = "constant",
) -> Value:
    if mode != "constant":
        raise ValueError(f"its pads must be constant where its mode is {mode}")
    along = np.arange(len(x.shape)) if axes is None else _known(apply, "axes", axes)
    outside = apply.constant(0, x.dtype) if value is None else apply("Reshape", value, shape=())
    for n, axis in enumerate(along % len(x.shape)):
        place = apply("Sub", _integers(apply, np.arange(shape[axis])), _number(apply, pads, n))
        inside = apply("Equal", place, apply("Clip", place, min=0, max=x.shape[axis] - 1))
        there = apply("Reshape", inside, shape=(-1, *(1,) * (len(x.shape) - 1 - axis)))
        x = apply("Where", there, _at(apply, x, axis, place), outside)
    return x


def _at(apply: Apply, x: Value, axis: int, places: Value) -> Value:
    """The elements at places along an axis, which are clamped to it."""
    return apply("Gather", x, apply("Clip", places, min=0, max=x.shape[axis] - 1), axis=int(axis))


def _number(apply: Apply, numbers: Value, n: int) -> Value:
    """One of several integers, as int64."""
    return apply("Cast", apply("Gather", numbers, _integers(apply, n), axis=0), to="int64")


def _integers(apply: Apply, numbers: Any) -> Value:
    return apply.constant(numbers, "int64")


def _known(apply: Apply, name: str, value: Value) -> np.ndarray:
    """The integers of an operand that must be constant."""
    if (array := apply.known(value)) is None:
        raise ValueError(f"its {name}, `{value.name}`, must be constant")
    return array.reshape(-1)


_RULES: dict[str, Callable[..., Any]] = {
    "ConstantOfShape": _filled,
    "Expand": lambda apply, shape, x, _: apply("Expand", x, shape=shape),
    "Pad": _padded,
    "Range": lambda apply, shape, start, _, step: apply(
        "Add", start, apply("Mul", apply.constant(np.arange(*shape), start.dtype), step)
    ),
    "Reshape": lambda apply, shape, x, _, **attributes: apply("Reshape", x, shape=shape, allowzero=1),
    "Slice": _sliced,
    "Tile": lambda apply, shape, x, _: apply(
        "Tile", x, repeats=tuple(n // max(1, own) for n, own in zip(shape, x.shape, strict=True))
    ),
    "TopK": lambda apply, shape, x, _, *, axis=-1, **attributes: apply("TopK", x, k=shape[axis], axis=axis, **attributes),
}
