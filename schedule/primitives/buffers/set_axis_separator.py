"""set_axis_separator: the dimensions of a buffer in groups."""

from __future__ import annotations

from tir.ir import PrimFunc, are_axis_separators
from tir.traverse import replace_buffers

from ...error import ScheduleError
from ...primitive import BlockName, BufferOfBlock, find_block, primitive
from ...rewriting.layouts import buffer_argument


@primitive
def set_axis_separator(
    func: PrimFunc, block: BlockName, buffer: BufferOfBlock, axis_separators: list[int]
) -> tuple[PrimFunc, None]:
    """Divide the dimensions of a buffer into groups, each one dimension of a memory with several.

    The buffer is given as for `transform_layout`. A separator is the number of the first dimension of a group. The memories of
    CPUs and of CUDA have one dimension, where separators change nothing. `transform_layout` replaces the separators by those of
    its index map.

    Rewrite   X = T.alloc_buffer(shape)   =>   X = T.alloc_buffer(shape, axis_separators=[1])
    Legal     if the separators ascend, and each is the number of a dimension after the first.
    Example   chain: s.set_axis_separator("B", ("write", 0), [1])
    """
    user = find_block(func, block)
    target = buffer_argument(user, buffer)
    rank = len(target.shape)
    if not are_axis_separators(axis_separators, rank):
        raise ScheduleError(
            f"axis separators are ascending numbers of dimensions, from 1 to {rank - 1}, got {axis_separators}",
            (user, f"uses {target.name}, of {rank} dimension(s)"),
        )
    return replace_buffers(func, {target.name: target.with_(axis_separators=tuple(axis_separators))}), None
