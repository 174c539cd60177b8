"""set_scope: a temporary moves to another memory."""

from __future__ import annotations

from tir.ir import PrimFunc
from tir.traverse import replace_buffers

from ...error import ScheduleError
from ...legality.dataflow import buffer_of
from ...primitive import BlockName, BufferPlace, find_block, need_not_parameter, need_own_memory, primitive
from ...rewriting.cache_stages import need_scope
from ...rewriting.edits import Names


@primitive
def set_scope(func: PrimFunc, block: BlockName, buffer_index: BufferPlace, storage_scope: str) -> tuple[PrimFunc, str]:
    """Put a temporary into another memory; returns its name there, `X_local` for X and the scope "local".

    The buffer is given by its number among those that `block` writes, from 0, or by name. Memories are "global", "shared" (of a
    block of threads), "local" (of a thread), and the others of `tir.memory.SCOPES`.

    Rewrite   X = T.alloc_buffer(shape)   =>   X_local = T.alloc_buffer(shape, scope="local")
    Legal     if the buffer is a temporary, is passed to no foreign call, and has another scope.
    Example   chain: s.set_scope("B", 0, "local")
    """
    writer = find_block(func, block)
    memory = need_scope(storage_scope)
    buffer = buffer_of(writer, buffer_index, written=True)
    mark = (writer, f"writes {buffer.name}")
    hint = f"cache_write({block!r}, {buffer_index!r}, {storage_scope!r})"
    need_not_parameter(func, buffer, "stays where the caller put it", mark, hint)
    if buffer.scope == storage_scope:
        raise ScheduleError(f"`{buffer.name}` is in scope {storage_scope!r} already", mark, hint="there is nothing to change")
    need_own_memory(func, buffer)
    new = buffer.with_(name=Names.of(func).buffer(f"{buffer.name}_{memory}"), scope=storage_scope)
    return replace_buffers(func, {buffer.name: new}), new.name
