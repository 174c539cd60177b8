"""stage_mem: a loop or block works on a copy of the window of a buffer that it accesses."""

from __future__ import annotations

from tir.analysis.regions import accessed
from tir.analysis.write_before_read import writes_before_reads
from tir.arith.bounds import ranges_of
from tir.arith.intervals import Ranges
from tir.arith.polynomial import coefficient, polynomial
from tir.arith.simplify import simplify
from tir.ir import (
    FALSE,
    Axis,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Kind,
    Load,
    PrimFunc,
    Region,
    Stmt,
    Store,
    conjunction,
    need_name,
    nest,
    seq,
)
from tir.nearest import did_you_mean
from tir.traverse import loops_in, replace_buffers, substitute, variables, walk

from ...error import ScheduleError, listing
from ...legality.axis_windows import Window
from ...legality.dataflow import Leaf, Scope, buffer_called, facts_of, locate, loops_and_ranges, need_not_vectorized, need_outside
from ...primitive import KIND_WORDS, BufferName, LoopName, LoopOrBlockName, blocks_below, named_at, nest_at, primitive
from ...rewriting.cache_stages import Part, copy_block, finished, need_scope, proving_part, where_read, where_written
from ...rewriting.edits import Names, edited, with_accesses, with_buffer
from ...rewriting.placement import laid_out, needed


@primitive
def stage_mem(
    func: PrimFunc,
    block_or_loop: LoopOrBlockName,
    buffer: BufferName,
    name: str,
    storage_scope: str = "global",
    keep: LoopName | None = None,
) -> tuple[PrimFunc, list[str]]:
    """Let a loop or block work on a copy of what it accesses of a buffer; returns the names of the copying blocks, in order.

    What it reads is copied before, by a block called `name`, as the copy is; what it writes is copied back after, by `name_back`.
    A block that starts from its init needs no copy before, nor does a temporary that nothing else writes. The window is a box
    around the elements that S accesses in one run. `keep` names the loop around S in whose iterations the window advances: what
    it shares with the one before is kept, in a circular copy of `e` places, or all where there are fewer, and only what is new is
    copied. Sources: Exo, PLDI 2022 (stage_mem); for `keep` Halide, PLDI 2013, section 4.3 (sliding windows and storage folding).

    Rewrite   S(C[i])
           => for ax0 in window: name[ax0] = C[ax0]
              S(name[i])
              for ax0 in window: C[ax0] = name[ax0]
    Kept      for k: S(C[a k + b : a k + b + e])
           => for k: for ax0 in range(e - a): where(k == 0); name[(b + ax0) % e] = C[b + ax0]      # name_first
                     for ax0 in range(a): name[(a k + b + e - a + ax0) % e] = C[a k + b + e - a + ax0]
                     S(name[... % e])
              A copy of what is beyond the ends of C alone is left out.
    Legal     if there is a block in S, the buffer is not allocated in S, `name` is free, no loop around S is vectorized, and S
              only reads the buffer; or the blocks in it that use the buffer, each at one place, all write the same window, each
              element in one iteration of the loops around S only, with all of its reduction. To keep a window, nothing in the
              loop `keep` may write the buffer, that loop must be the innermost around S, and the window must have a constant
              extent e and move along one dimension, by a constant step a, 0 < a < e. No loop around may then be parallel or
              bound: its iterations would share the copy (`blockize` first gives each its own).
    Example   matmul: s.split("i", [None, 4]); s.stage_mem("i_1", "C", "tile")
    """
    target, path = named_at(func, block_or_loop)
    need_scope(storage_scope)
    source = buffer_called(target, buffer)
    need_outside(target, buffer)
    inner = blocks_below(target)
    if not inner:
        raise ScheduleError(
            f"there is no block in `{block_or_loop}`", (target, "no block"), hint="name a block, or a loop with blocks in it"
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
    if keep is not None:
        return _with_sliding_window(func, scope, target, above, source, copy, keep, names)
    before, after, made = _copy_nests(scope, target, source, copy, loops, ranges, names)
    new = seq(before, replace_buffers(target, {buffer: copy}), after)
    return with_buffer(edited(func, [(target, new)]), scope.block, copy), made


def _copy_nests(
    scope: Scope, target: Stmt, source: Buffer, copy: Buffer, loops: list[For], ranges: Ranges, names: Names
) -> tuple[Stmt | None, Stmt | None, list[str]]:
    """The nest that copies before a statement, the one that copies back after it, and the names of their blocks."""
    buffer, facts = source.name, facts_of(scope, loops)
    users = [x for x in scope.leaves_under(target) if buffer in x.reads or buffer in x.writes]
    writers = [x for x in users if buffer in x.writes]
    if not writers:
        copying = copy_block(names, copy.name, source, copy)
        region = accessed(target, ranges, (buffer,))[0][buffer]
        windows = needed(copying, {copy.name: region}, ranges, scope.written) if loops or scope.block is not None else {}
        placed = laid_out(copying, windows, ranges, names, facts=facts)
        before = where_read(scope, placed, buffer, users, loops, ranges)
        return before, None, [copying.name]
    _need_writers(users, writers, buffer)
    first: Stmt | None = None
    made: list[str] = []
    back = copy_block(names, f"{copy.name}_back", copy, source)
    part = _part_written(scope, writers, source, back, loops)
    begins = writers[0].block
    held = buffer in scope.outputs or any(not w.under(target) for w in scope.writers(buffer))  # something, before
    if held and begins.init is None and not writes_before_reads(begins, source, dict(ranges)):  # nor does it write that first
        copying = copy_block(names, copy.name, source, copy)
        first = where_written(copying, part, ranges, names, facts)
        made.append(copying.name)
    return first, where_written(back, part, ranges, names, facts), [*made, back.name]


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


def _part_written(scope: Scope, writers: list[Leaf], source: Buffer, copying: Block, loops: list[For]) -> Part:
    """The part that each of the writers writes; refuses where that is not the same."""
    parts = []
    for w in writers:
        with proving_part(w, source, loops):
            parts.append(finished(scope, w, source, copying, loops))
        if parts[-1] != parts[0]:
            raise ScheduleError(
                f"{writers[0].quoted} and {w.quoted} write different windows of `{source.name}`",
                (writers[0].stmt, "one"),
                (w.stmt, "the other"),
                hint=f"stage {writers[0].quoted} and {w.quoted} one by one",
            )
    return parts[0]


# --- sliding windows ----------------------------------------------------------------------------------------------------------


def _with_sliding_window(
    func: PrimFunc,
    scope: Scope,
    target: For | Block,
    above: tuple[Stmt, ...],
    source: Buffer,
    copy: Buffer,
    keep: str,
    names: Names,
) -> tuple[PrimFunc, list[str]]:
    """The rewrite with a circular copy.

    Theorem: up to iteration k the places p(0) .. p(k) + e - 1 that there are have been copied, each once and in order, place x to
    x % e. Of two places in one slot the distance is at least e, so that what has overwritten a place x >= p(k) would be beyond
    p(k) + e - 1. Where there are fewer than e places in all, so many slots do: each has its own.
    """
    loop = _advancing(scope, target, above, source.name, keep)
    _, ranges = loops_and_ranges(above, scope.ranges)
    region = accessed(target, ranges, (source.name,))[0][source.name]
    axis, step, extent = _advance(region, target, loop)
    dim = source.shape[axis]
    size = Const(min(extent, dim.value) if type(dim) is Const else extent, dim.dtype)
    copy = copy.with_(shape=tuple(size if n == axis else dim for n, dim in enumerate(source.shape)))
    first = _circular_copy(names, f"{copy.name}_first", source, copy, axis, size)
    further = _circular_copy(names, copy.name, source, copy, axis, size)

    start: Expr = region.ranges[axis].min
    at_first = substitute(start, {loop.name: Const(0, loop.var.dtype)})
    fixed = {n: r for n, r in enumerate(region.ranges) if n != axis}
    starting = loop.var.equal(Const(0, loop.var.dtype))
    placed: list[Stmt] = []
    made: list[str] = []
    for copying, begin, count in ((first, at_first, extent - step), (further, start + (extent - step), step)):
        windows = {copying.iters[n].var.name: Window(r.min, r.extent) for n, r in fixed.items()}
        windows[copying.iters[axis].var.name] = Window(simplify(begin, ranges), Const(count, size.dtype))
        nested, block = nest_at(laid_out(copying, windows, ranges, names, exact=True))
        assert type(block) is Block
        if simplify(block.predicate, ranges_of(nested, ranges)) != FALSE:  # else the buffer ends before what is to be copied
            at_start = (starting,) if copying is first else ()
            placed.append(nest(nested, block.with_(predicate=conjunction(*at_start, block.predicate))))
            made.append(copying.name)

    def circular(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(simplify(i % size) if d == axis else i for d, i in enumerate(indices))

    new = seq(*placed, with_accesses(target, {source.name: (copy, circular)}))
    return with_buffer(edited(func, [(target, new)]), scope.block, copy), made


def _advancing(scope: Scope, target: For | Block, above: tuple[Stmt, ...], buffer: str, keep: str) -> For:
    """The loop in which the window advances; refuses one in which it could not be kept."""
    loops = loops_in(above)
    loop = next((x for x in loops if x.name == keep), None)
    if loop is None:
        raise ScheduleError(
            f"`{keep}` is not a loop around `{target.name}`; these are {listing(x.name for x in loops)}",
            (target, "to be staged"),
            hint=did_you_mean(keep, [x.name for x in loops]),
        )
    if loop is not loops[-1]:
        raise ScheduleError(
            f"`{keep}` is not the innermost loop around `{target.name}`", (loop, "the loop"), (loops[-1], "comes between"),
            hint=f"stage `{loops[-1].name}`",
        )  # fmt: skip
    for x in loops:
        if x.kind in (Kind.PARALLEL, Kind.THREAD):
            raise ScheduleError(
                f"`{x.name}` is {KIND_WORDS[x.kind]}, and its iterations would share the window",
                (x, KIND_WORDS[x.kind]),
                hint="stage before loops are marked" if x is loop else "blockize the inner loops first, or mark it afterwards",
            )
    writer = next((x for x in scope.leaves_under(loop) if buffer in x.writes), None)
    if writer is not None:
        raise ScheduleError(
            f"{writer.quoted} writes `{buffer}` in `{keep}`, so that what was kept of it would be old",
            (loop, "the loop"),
            (writer.stmt, f"writes {buffer}"),
            hint=f"stage_mem without keep={keep!r}",
        )
    return loop


def _advance(region: Region, target: Stmt, loop: For) -> tuple[int, int, int]:
    """The dimension along which a window moves with a loop, its step, and its extent."""
    name = region.buffer.name
    moving = [n for n, r in enumerate(region.ranges) if loop.name in variables(r.min)]
    if len(moving) != 1:
        how = "does not move with" if not moving else "moves along several dimensions with"
        raise ScheduleError(
            f"the window of `{name}` {how} `{loop.name}`", (loop, "the loop"), (target, f"reads {name}"),
            hint="stage it outside of the loop" if not moving else None,
        )  # fmt: skip
    (axis,) = moving
    r = region.ranges[axis]
    step = coefficient(polynomial(r.min), loop.name)
    if step is None or step < 1 or type(r.extent) is not Const:
        raise ScheduleError(
            f"the window of `{name}` starts at `{r.min}` and is `{r.extent}` long: it does not move on by a constant step",
            (loop, "the loop"),
            (target, f"reads {name}"),
            hint=f"stage_mem without keep={loop.name!r}",
        )
    extent = r.extent.value
    if step >= extent:
        raise ScheduleError(
            f"windows of `{name}` in different iterations of `{loop.name}` have nothing in common: they are {extent} long, "
            f"and the step is {step}",
            (loop, "the loop"),
            (target, f"reads {name}"),
            hint=f"stage_mem without keep={loop.name!r}",
        )
    return axis, step, extent


def _circular_copy(names: Names, wanted: str, source: Buffer, copy: Buffer, axis: int, size: Const) -> Block:
    """A block that copies a buffer into slots along one dimension, in order."""
    block = copy_block(names, wanted, source, copy)
    iters = tuple(it.with_(axis=Axis.OPAQUE) if n == axis else it for n, it in enumerate(block.iters))
    slot = tuple(it.var % size if n == axis else it.var for n, it in enumerate(iters))
    return block.with_(iters=iters, body=block.body.with_(indices=slot))
