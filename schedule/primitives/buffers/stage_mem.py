"""stage_mem: a loop or block works on a copy of its window of a buffer."""

from __future__ import annotations

from tir.analysis.regions import accessed
from tir.analysis.write_before_read import writes_before_reads
from tir.arith.intervals import Ranges
from tir.ir import Block, Buffer, For, Load, PrimFunc, Stmt, Store, need_name, seq
from tir.traverse import replace_buffers, walk

from ...error import ScheduleError
from ...legality.dataflow import (
    BlockScope,
    Leaf,
    facts_of,
    locate,
    loops_and_ranges,
    named_buffer,
    need_not_vectorized,
    need_outside,
)
from ...primitive import BufferName, LoopName, LoopOrBlockName, blocks_below, named_at, primitive
from ...rewriting.cache_stages import BufferPart, copy_block, copy_nest, need_scope, proving_part, restrict_to_reads, written_part
from ...rewriting.edits import Names, edited, with_buffer
from ...rewriting.placement import nest_over_windows, required_windows
from .rolling_buffer import with_rolling_buffer


@primitive
def stage_mem(
    func: PrimFunc,
    block_or_loop: LoopOrBlockName,
    buffer: BufferName,
    name: str,
    storage_scope: str = "global",
    keep: LoopName | None = None,
) -> tuple[PrimFunc, list[str]]:
    """Let a loop or block work on a copy of its region of a buffer; returns the names of the copying blocks, in order.

    Inputs are copied before by a block called `name`, like the copy; outputs are copied back after by `name_back`. A block that
    starts from its init needs no copy before, nor does a temporary without other writers. The window is a box around the elements
    that S accesses in one run. `keep` names a loop around S that moves the window: the overlap with the window before is kept, as
    by `rolling_buffer`. Sources: Exo, PLDI 2022 (stage_mem); for `keep` Halide, PLDI 2013, section 4.3 (sliding windows and
    storage folding).

    Rewrite   S(C[i])
           => for ax0 in window: name[ax0] = C[ax0]
              S(name[i])
              for ax0 in window: C[ax0] = name[ax0]
    Kept      for k: S(C[a k : a k + e])
           => for k: for ax0 in range(e) where k == 0 or ax0 >= e - a: name[(a k + ax0) % e] = C[a k + ax0]
                     S(name[... % e])
    Legal     if there is a block in S, the buffer is not allocated in S, `name` is free, and no loop around S is vectorized.
              Either S only reads the buffer, or all blocks in S that use it, each at one place, write the same window. They
              write each element, with all of its reduction, in only one iteration of the loops around S. To keep a window, S
              only reads the buffer, and `rolling_buffer` of the copying block is legal in the loop `keep`.
    Example   matmul: s.split("i", [None, 4]); s.stage_mem("i_1", "C", "tile")
    """
    target, path = named_at(func, block_or_loop)
    need_scope(storage_scope)
    source = named_buffer(target, buffer)
    need_outside(target, buffer)
    inner = blocks_below(target)
    if not inner:
        raise ScheduleError(
            f"`{block_or_loop}` has no block", (target, "no block"), hint="name a block, or a loop with blocks in it"
        )
    scope, _ = locate(func, inner[0].name)
    above = tuple(path[len(scope.around) : -1])
    need_not_vectorized(above, "its lanes cannot copy")
    loops, ranges = loops_and_ranges(above, scope.ranges)
    names = Names.of(func)
    try:
        taken = names.buffer(need_name(name))
    except ValueError as error:
        raise ScheduleError(str(error)) from None
    if taken != name:
        raise ScheduleError(f"`{name}` is the name of something else in this function", hint=f"{taken!r} is free")
    copy = Buffer(name, source.shape, source.dtype, storage_scope)
    before, after, made = _copy_nests(scope, target, source, copy, loops, ranges, names)
    new = seq(before, replace_buffers(target, {buffer: copy}), after)
    func = with_buffer(edited(func, [(target, new)]), scope.block, copy)
    if keep is None:
        return func, made
    if after is not None:
        raise ScheduleError(
            f"`{block_or_loop}` writes `{buffer}`, so that what was kept of it would be old",
            (target, f"writes {buffer}"),
            hint=f"stage_mem without keep={keep!r}",
        )
    try:
        return with_rolling_buffer(func, name, 0, keep), made
    except ScheduleError as error:
        error.func, error.hint = func, f"stage_mem without keep={keep!r} copies the window each time"
        raise


def _copy_nests(
    scope: BlockScope, target: Stmt, source: Buffer, copy: Buffer, loops: list[For], ranges: Ranges, names: Names
) -> tuple[Stmt | None, Stmt | None, list[str]]:
    """The nest that copies before a statement, the one that copies back after it, and the names of their blocks."""
    buffer, facts = source.name, facts_of(scope, loops)
    users = [x for x in scope.leaves_under(target) if buffer in x.reads or buffer in x.writes]
    writers = [x for x in users if buffer in x.writes]
    if not writers:
        copying = copy_block(names, copy.name, source, copy)
        region = accessed(target, ranges, (buffer,))[0][buffer]
        inside = loops or scope.block is not None
        windows = required_windows(copying, {copy.name: region}, ranges, scope.written) if inside else {}
        placed = nest_over_windows(copying, windows, ranges, names, facts=facts)
        before = restrict_to_reads(scope, placed, buffer, users, loops, ranges)
        return before, None, [copying.name]
    _need_writers(users, writers, buffer)
    first: Stmt | None = None
    made: list[str] = []
    back = copy_block(names, f"{copy.name}_back", copy, source)
    part = _part_written(scope, writers, source, back, loops)
    begins = writers[0].block
    held = buffer in scope.outputs or any(not w.under(target) for w in scope.writers(buffer))  # values before
    if held and begins.init is None and not writes_before_reads(begins, source, dict(ranges)):
        copying = copy_block(names, copy.name, source, copy)
        first = copy_nest(copying, part, ranges, names, facts)
        made.append(copying.name)
    return first, copy_nest(back, part, ranges, names, facts), [*made, back.name]


def _need_writers(users: list[Leaf], writers: list[Leaf], buffer: str) -> None:
    """Refuse unless all users of a buffer are blocks that write it, each at one place."""
    for x in users:
        if x not in writers or type(x.stmt) is not Block:
            what = "reads" if x not in writers else "uses"
            raise ScheduleError(
                f"{x.quoted} {what} `{buffer}`, which {writers[0].quoted} writes, and may need more than what that writes",
                (x.stmt, f"{what} {buffer}"),
                (writers[0].stmt, f"writes {buffer}"),
                hint=f"stage {writers[0].quoted} alone, or cache_read what {x.quoted} reads first",
            )
        places = {n.indices for n in walk(x.stmt) if isinstance(n, (Load, Store)) and n.buffer.name == buffer}
        if len(places) > 1:
            raise ScheduleError(
                f"{x.quoted} uses `{buffer}` at {len(places)} places",
                (x.stmt, f"writes {buffer}"),
                hint=f"cache_write({x.name!r}, {buffer!r}, ...) gives it a copy of what it writes",
            )


def _part_written(scope: BlockScope, writers: list[Leaf], source: Buffer, copying: Block, loops: list[For]) -> BufferPart:
    """The part of a buffer that each of the writers writes; refuses different parts."""
    parts = []
    for w in writers:
        with proving_part(w, source, loops):
            parts.append(written_part(scope, w, source, copying, loops))
        if parts[-1] != parts[0]:
            raise ScheduleError(
                f"{writers[0].quoted} and {w.quoted} write different windows of `{source.name}`",
                (writers[0].stmt, "one"),
                (w.stmt, "the other"),
                hint=f"stage {writers[0].quoted} and {w.quoted} one by one",
            )
    return parts[0]
