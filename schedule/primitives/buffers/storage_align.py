"""storage_align: a chosen stride of a temporary."""

from __future__ import annotations

from tir.ir import PrimFunc, annotated, annotation

from ...error import ScheduleError
from ...legality.dataflow import buffer_of, used_buffers
from ...primitive import BlockName, BufferPlace, block_at, need_not_parameter, need_own_memory, primitive, replace_path

ALIGNMENT_ANNOTATION = "buffer_dim_align"


@primitive
def storage_align(
    func: PrimFunc, block: BlockName, buffer_index: BufferPlace, axis: int, factor: int, offset: int
) -> tuple[PrimFunc, None]:
    """Make the stride of a temporary along an axis `k * factor + offset` elements for some k.

    The buffer is given by its number among those that `block` writes, from 0, or by name; negative axes count from the end. The
    block is annotated with `buffer_dim_align`, a list of [buffer, axis, factor, offset]. The backend pads the next dimension, if
    some multiple of that one's stride has the form. Rows in different cache sets, or banks of shared memory, avoid conflicts.

    Rewrite   with T.block("B"): S   =>   with T.block("B"): T.block_attr({"buffer_dim_align": [[0, 0, 32, 8]]}); S
    Legal     if the buffer is a temporary and passed to no foreign call, and 0 <= offset < factor. The axis is not the last one,
              whose stride is 1.
    Example   chain: s.storage_align("B", 0, 0, 16, 4)
    """
    target, above = block_at(func, block)
    buffer = buffer_of(target, buffer_index, written=True)
    mark = (target, f"writes {buffer.name}")
    need_not_parameter(func, buffer, "laid out by the caller", mark, f"cache_write({block!r}, {buffer_index!r}, 'global')")
    need_own_memory(func, buffer)
    rank = len(buffer.shape)
    if not -rank <= axis < rank:
        raise ScheduleError(f"`{buffer.name}` has {rank} dimension(s), got axis {axis}", mark)
    axis %= rank
    if axis == rank - 1:
        raise ScheduleError(f"the last axis of `{buffer.name}` has the stride 1, which cannot be changed", mark)
    if factor < 1 or not 0 <= offset < factor:
        raise ScheduleError(f"`factor` must be positive and `offset` from 0 to below it, got {factor} and {offset}", mark)
    number = list(used_buffers(target, written=True)).index(buffer.name)
    old = [entry for entry in annotation(target.annotations, ALIGNMENT_ANNOTATION, []) if entry[:2] != [number, axis]]
    notes = annotated(target.annotations, ALIGNMENT_ANNOTATION, sorted([*old, [number, axis, factor, offset]]))
    return replace_path(func, above, target.with_(annotations=notes)), None
