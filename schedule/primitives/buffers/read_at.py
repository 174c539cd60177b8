"""read_at, write_at: a block reads or writes a buffer through a new copy in each iteration of a loop."""

from __future__ import annotations

from tir.ir import Block, PrimFunc

from ...legality.dataflow import buffer_of, locate, loop_around
from ...primitive import BlockName, BufferPlace, LoopName, loops_of, primitive
from ..placement.compute_at import compute_at
from ..placement.reverse_compute_at import reverse_compute_at
from .cache_read import cache_read
from .cache_write import cache_write


@primitive
def read_at(
    func: PrimFunc, loop: LoopName, block: BlockName, read_buffer_index: BufferPlace, storage_scope: str
) -> tuple[PrimFunc, str]:
    """Read a buffer through a new copy in each iteration of a loop; returns the name of the copying block.

    The buffer and the memory are given as for `cache_read`. All blocks under the loop that read the buffer use the copy.

    Rewrite   for i: S(A[f(i)])
           => for i:
                  for ax0: A_shared[...] = A[...]          # what the iteration reads
                  S(A_shared[f(i)])
    Legal     if the loop is around the block, and `cache_read` for the blocks under it, then `compute_at` the loop, are legal.
    Example   matmul: s.read_at("i", "C", 0, "local")
    """
    scope, leaf = locate(func, block)
    target = leaf.loops[loop_around(leaf, func, loop)]
    source = buffer_of(leaf.block, read_buffer_index, written=False)
    readers = [r for r in scope.readers(source.name) if r.under(target) and type(r.stmt) is Block]
    func, copying = cache_read(func, block, source.name, storage_scope, [r.name for r in readers])
    if not _is_under(func, copying, loop):  # the buffer is written in another loop
        func, _ = compute_at(func, copying, loop)
    return func, copying


@primitive
def write_at(
    func: PrimFunc, loop: LoopName, block: BlockName, write_buffer_index: BufferPlace, storage_scope: str
) -> tuple[PrimFunc, str]:
    """Write a buffer through a copy that each iteration of a loop copies back; returns the name of the copying block.

    The buffer and the memory are given as for `cache_write`.

    Rewrite   for i: S: C[f(i)] = x
           => for i:
                  S: C_shared[f(i)] = x
                  for ax0: C[...] = C_shared[...]          # what the iteration wrote
    Legal     if the loop is around the block, and `cache_write`, then `reverse_compute_at` the loop, are legal.
    Example   matmul: s.write_at("i", "C", 0, "local")
    """
    _, leaf = locate(func, block)
    loop_around(leaf, func, loop)
    func, copying = cache_write(func, block, write_buffer_index, storage_scope)
    if not _is_under(func, copying, loop):  # nothing reads the buffer in the loop
        func, _ = reverse_compute_at(func, copying, loop)
    return func, copying


def _is_under(func: PrimFunc, block: str, loop: str) -> bool:
    return any(x.name == loop for x in loops_of(func, block))
