"""stage_mem: a loop or block works on a copy of the window of a buffer that it accesses."""

from __future__ import annotations

from tir.analysis.regions import accessed
from tir.ir import Block, Buffer, For, Kind, Load, PrimFunc, Seq, Stmt, Store
from tir.traverse import replace_buffers, walk

from .cache_read import copy_block, need_scope
from .cache_write import finished
from .dataflow import Insertion, Leaf, Names, Scope, edited, locate, with_buffer
from .error import ScheduleError, listing, nearest
from .placement import laid_out, loops_and_ranges, needed
from .primitive import KIND_WORDS, blocks_below, path_to_named, primitive
from .window import Window


@primitive
def stage_mem(
    func: PrimFunc, block_or_loop: str, buffer: str, name: str, storage_scope: str = "global"
) -> tuple[PrimFunc, list[str]]:
    """Let a loop or block work on a copy of what it accesses of a buffer; returns the names of the copying blocks.

    What it reads is copied before, by a block called `name`, as the copy is; what it writes is copied back after, by `name_back`.
    A block that starts from its init needs no copy before.

    Rewrite   S(C[i])
           => for ax0 in window: name[ax0] = C[ax0]
              S(name[i])
              for ax0 in window: C[ax0] = name[ax0]
    Legal     if S only reads the buffer; or the blocks in it that use the buffer all write the same window, each element in one
              iteration of the loops around S only, with all of its reduction.
    Example   matmul: s.split("i", [None, 4]); s.stage_mem("i_1", "C", "tile")
    """
    path = path_to_named(func, block_or_loop)
    target = path[-1]
    need_scope(storage_scope)
    source = _buffer(target, buffer)
    inner = blocks_below(target)
    if not inner:
        raise ScheduleError(f"there is no block in `{block_or_loop}`", (target, "no block"))
    scope, _ = locate(func, inner[0].name)
    above = tuple(path[len(scope.around) : -1])
    for s in above:
        if type(s) is For and s.kind is Kind.VECTORIZED:
            raise ScheduleError(
                f"`{s.name}` is vectorized, and its lanes cannot copy", (s, KIND_WORDS[s.kind]), hint="vectorize afterwards"
            )
    loops, ranges = loops_and_ranges(above, scope.ranges)
    users = [x for x in scope.leaves_under(target) if buffer in x.reads or buffer in x.writes]
    writers = [x for x in users if buffer in x.writes]
    names = Names.of(func)
    taken = names.buffer(name)
    if taken != name:
        raise ScheduleError(f"`{name}` is the name of something else in this function", hint=f"{taken!r} is free")
    copy = Buffer(name, source.shape, source.dtype, storage_scope)

    made: list[str] = []
    before = after = None
    if not writers:
        copying = copy_block(names, name, source, copy)
        region = accessed(target, ranges)[0][buffer]
        windows = needed(copying, {name: type(region)(copy, region.ranges)}, ranges) if loops else {}
        before = laid_out(copying, windows, ranges, names)
        made.append(copying.name)
    else:
        _need_writers(users, writers, buffer)
        if _reads_before(writers[0], buffer):
            copying = copy_block(names, name, source, copy)
            before = laid_out(copying, _same_window(scope, writers, source, copying, loops), ranges, names)
            made.append(copying.name)
        back = copy_block(names, f"{name}_back", copy, source)
        after = laid_out(back, _same_window(scope, writers, source, back, loops), ranges, names)
        made.append(back.name)

    new = replace_buffers(target, {buffer: copy})
    func = edited(func, [(target, new)])
    if before is not None:
        func = edited(func, [], _beside(func, new, before, 0))
    if after is not None:
        func = edited(func, [], _beside(func, new, after, 1))
    return with_buffer(func, scope, copy), made


def _buffer(stmt: Stmt, name: str) -> Buffer:
    """The buffer of this name that a statement uses."""
    found = {n.name: n for n in walk(stmt) if type(n) is Buffer}
    if name not in found:
        quoted = stmt.name  # type: ignore[attr-defined]
        raise ScheduleError(
            f"`{quoted}` uses no buffer called `{name}`, but {listing(found)}", (stmt, "here"), hint=nearest(name, found)
        )
    return found[name]


def _reads_before(writer: Leaf, buffer: str) -> bool:
    """Whether a block reads elements of what it writes that it has not written itself."""
    block: Block = writer.stmt  # type: ignore[assignment]
    return buffer in writer.reads and block.init is None


def _need_writers(users: list[Leaf], writers: list[Leaf], buffer: str) -> None:
    """Refuse unless all users of a buffer are blocks that write it, each at one place."""
    for x in users:
        if x not in writers or type(x.stmt) is not Block:
            what = "reads" if x not in writers else "uses"
            raise ScheduleError(
                f"{x.quoted} {what} `{buffer}`, which {writers[0].quoted} writes, and may need more than what that writes",
                (x.stmt, f"{what} {buffer}"),
                (writers[0].stmt, f"writes {buffer}"),
            )
        places = {n.indices for n in walk(x.stmt) if isinstance(n, (Load, Store)) and n.buffer.name == buffer}
        if len(places) > 1:
            raise ScheduleError(f"{x.quoted} uses `{buffer}` at {len(places)} places", (x.stmt, f"writes {buffer}"))


def _same_window(scope: Scope, writers: list[Leaf], source: Buffer, copying: Block, loops: list[For]) -> dict[str, Window]:
    """The windows of the copying block's axes that all the writers write."""
    first = finished(scope, writers[0], source, copying, loops)
    if source.shape and not first:
        raise ScheduleError(
            f"it cannot be shown which part of `{source.name}` is written by {writers[0].quoted}",
            (writers[0].stmt, f"writes {source.name}"),
        )
    for w in writers[1:]:
        if finished(scope, w, source, copying, loops) != first:
            raise ScheduleError(
                f"{writers[0].quoted} and {w.quoted} write different windows of `{source.name}`",
                (writers[0].stmt, "one"),
                (w.stmt, "the other"),
            )
    return first


def _beside(func: PrimFunc, stmt: Stmt, new: Stmt, offset: int) -> Insertion:
    """The insertion of a statement before (0) or after (1) another."""
    for s in walk(func.body):
        if type(s) is Seq and any(x is stmt for x in s.stmts):
            return Insertion(s, next(n for n, x in enumerate(s.stmts) if x is stmt) + offset, new)
    return Insertion(stmt, offset, new)
