"""Sequences of tensors, whose lengths are known while a file is read: each tensor is a slice where it is taken out."""

from __future__ import annotations

from .body import Part, attributes, expansion


@expansion("SplitToSequence", 11, operands={1: "split"})
def split_to_sequence(body, node, values, *, split=None):
    """Parts of the sizes given, or of one size, the last perhaps smaller; without a size of 1, kept as an axis or not."""
    given, extent = attributes(node), values[0].shape[attributes(node).get("axis", 0)]
    step = 1 if split is None else int(split.reshape(-1)[0])
    listed = split is not None and split.ndim
    sizes = split.tolist() if listed else [min(step, extent - start) for start in range(0, extent, step)]
    if sum(sizes) != extent:
        raise ValueError(f"an extent of {extent} cannot be split into {sizes}")
    squeezed = split is None and not given.get("keepdims", 1)
    begins = [sum(sizes[:n]) for n in range(len(sizes))]
    body.sequences[node.output[0]] = [
        Part(node.input[0], given.get("axis", 0), b, b + size, squeezed) for b, size in zip(begins, sizes, strict=True)
    ]


@expansion("SequenceAt", 11, operands={1: "position"})
def sequence_at(body, node, values, *, position):
    parts, n = body.sequences[node.input[0]], int(position)
    if not -len(parts) <= n < len(parts):
        raise ValueError(f"the sequence has {len(parts)} tensors, none at {n}")
    part, (output,) = parts[n], node.output
    bounds = [body.constant([e], "int64") for e in (part.begin, part.end, part.axis)]
    kept = body.add("Slice", part.source, *bounds, output=None if part.squeezed else output)
    if part.squeezed and body.opset >= 13:
        body.add("Squeeze", kept, bounds[2], output=output)
    elif part.squeezed:
        body.add("Squeeze", kept, output=output, axes=[part.axis])
