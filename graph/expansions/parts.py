"""Parts of tensors where some are empty: those are constants, as they have no elements."""

from __future__ import annotations

import numpy as np

from .body import attributes, expansion


@expansion("Split", operands={1: "split"})
def split(body, node, values, *, split=None):
    """The parts one by one."""
    given = attributes(node)
    axis, sizes = given.get("axis", 0), [int(e) for e in given.get("split", ()) if split is None] or [*map(int, split)]
    if sum(sizes) != values[0].shape[axis]:
        raise ValueError(f"an extent of {values[0].shape[axis]} cannot be split into {sizes}")
    for n, (size, output) in enumerate(zip(sizes, node.output, strict=False)):
        begin = sum(sizes[:n])
        bounds = [body.constant([e], "int64") for e in (begin, begin + size, axis)]
        body.add("Slice", node.input[0], *bounds, output=output)


@expansion("Slice", 10, operands={1: "starts", 2: "ends", 3: "axes", 4: "steps"})
def empty_slice(body, node, values, *, starts, ends, axes=None, steps=None):
    """Nothing, where that is what is left."""
    taken = [slice(None)] * len(values[0].shape)
    for n, axis in enumerate(range(len(starts)) if axes is None else axes.tolist()):
        taken[axis] = slice(int(starts[n]), int(ends[n]), None if steps is None else int(steps[n]))
    shape = [len(range(e)[s]) for e, s in zip(values[0].shape, taken, strict=True)]
    if 0 not in shape:
        raise ValueError("a slice that is not empty")
    body.constants[node.output[0]] = np.empty(shape, values[0].dtype)


@expansion("Compress", 9, operands={1: "condition"})
def compress(body, node, values, *, condition):
    """The elements along an axis for which a constant condition holds; without an axis, of the tensor as a vector."""
    given, x = attributes(node), node.input[0]
    if "axis" not in given:
        x = body.add("Reshape", x, body.constant([-1], "int64"))
    indices = body.constant(np.flatnonzero(condition), "int64")
    body.add("Gather", x, indices, output=node.output[0], axis=given.get("axis", 0))


@expansion("Dropout", 7, operands={1: "ratio", 2: "training_mode"})
def dropout(body, node, values, *, ratio=None, training_mode=None):
    """The input, and a mask that keeps all of it."""
    if training_mode is not None and training_mode:
        raise ValueError("only inference is there")
    body.add("Identity", node.input[0], output=node.output[0])
    body.constants[node.output[1]] = np.ones(values[0].shape, bool)
