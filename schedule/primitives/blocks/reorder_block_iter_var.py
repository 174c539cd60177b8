"""reorder_block_iter_var: the iteration variables of a block in another order."""

from __future__ import annotations

from tir.ir import PrimFunc

from ...error import ScheduleError
from ...primitive import BlockName, block_at, primitive, replace_path


@primitive
def reorder_block_iter_var(func: PrimFunc, block: BlockName, new_order: list[int]) -> tuple[PrimFunc, None]:
    """Put the iteration variables of a block into another order: first number `new_order[0]`, then number `new_order[1]`, ...

    The numbers are the old ones, from 0.

    Rewrite   vi, vj, vk = T.axis.remap("SSR", [i, j, k])   =>   vk, vi, vj = T.axis.remap("RSS", [k, i, j])
    Legal     if `new_order` is a permutation of the numbers: each variable keeps its name, its binding and its meaning.
    Example   matmul: s.reorder_block_iter_var("C", [2, 0, 1])
    """
    target, above = block_at(func, block)
    count = len(target.iters)
    if sorted(new_order) != list(range(count)):
        raise ScheduleError(
            f"`new_order` must be a permutation of the numbers 0 to {count - 1}, got {new_order}",
            (target, f"has {count} iteration variables"),
        )
    return replace_path(func, above, target.with_(iters=tuple(target.iters[n] for n in new_order))), None
