"""Sequences of tensors, whose lengths are known while a file is read: composites of their tensors."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import TensorSequence, Value
from .registry import Apply, composite, known_number, scalar
from .rows import normal_axes


def joined(apply: Apply, tensors: Sequence[Value], axis: int) -> Value:
    """Tensors one after the other along a new axis."""
    return apply("Concat", *(apply("Unsqueeze", x, axes=(axis,)) for x in tensors), axis=axis)


@composite("SplitToSequence", 11, operands={1: "split"})
def split_to_sequence(apply, x, *, split=None, axis=0, keepdims=1):
    """Parts of the given sizes, or of one size, the last perhaps smaller; by default of size 1, without the axis unless kept."""
    extent = x.shape[normal_axes([axis], len(x.shape))[0]]
    step = 1 if split is None else split
    sizes = split if isinstance(split, tuple) else [min(step, extent - start) for start in range(0, extent, step)]
    if sum(sizes) != extent:
        raise ValueError(f"an extent of {extent} cannot be split into {list(sizes)}")
    begins = [sum(sizes[:n]) for n in range(len(sizes))]
    parts = [
        apply("Slice", x, starts=(begin,), ends=(begin + size,), axes=(axis,)) for begin, size in zip(begins, sizes, strict=True)
    ]
    if split is None and not keepdims:
        parts = [apply("Squeeze", part, axes=(axis,)) for part in parts]
    return TensorSequence(tuple(parts))


composite("SequenceConstruct", 11)(lambda apply, *xs: TensorSequence(xs))
composite("SequenceEmpty", 11)(lambda apply, *, dtype="float32": TensorSequence(()))


@composite("SequenceAt", 11)
def sequence_at(apply, sequence, position):
    """The tensor at a position, which must be constant unless all have one type."""
    if (number := known_number(apply, "the position", position)) is not None:
        return sequence.tensors[_index(sequence, number, 0)]
    if not sequence.tensors or len({(x.shape, x.dtype) for x in sequence.tensors}) > 1:
        raise ValueError("its position must be constant, as the tensors of the sequence differ in type")
    return apply("Gather", joined(apply, sequence.tensors, 0), apply("Reshape", position, shape=()), axis=0)


@composite("SequenceInsert", 11, operands={2: "position"})
def sequence_insert(apply, sequence, x, *, position=None):
    index = len(sequence.tensors) if position is None else _index(sequence, position, 1)
    return TensorSequence((*sequence.tensors[:index], x, *sequence.tensors[index:]))


@composite("SequenceErase", 11, operands={1: "position"})
def sequence_erase(apply, sequence, *, position=-1):
    index = _index(sequence, position, 0)
    return TensorSequence((*sequence.tensors[:index], *sequence.tensors[index + 1 :]))


composite("SequenceLength", 11)(lambda apply, sequence: apply.constant(len(sequence.tensors), "int64"))


@composite("ConcatFromSequence", 11)
def concat_from_sequence(apply, sequence, *, axis, new_axis=0):
    return joined(apply, sequence.tensors, axis) if new_axis else apply("Concat", *sequence.tensors, axis=axis)


def _index(sequence: TensorSequence, position: int | tuple[int, ...], more: int) -> int:
    """A position counted from the front; it may be `more` than the last one."""
    number, count = int(scalar("the position", position)), len(sequence.tensors)
    if not -count <= number < count + more:
        raise ValueError(f"the sequence has {count} tensors, none at {number}")
    return number + count if number < 0 else number
