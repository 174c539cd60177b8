"""Rows that are reduced and then used again, as in softmax and in layer norm: all stages of a row in one loop over rows.

A row stays in the first-level cache between the passes over it. Sums and maxima run in the lanes of a few vector registers, which
are combined in pairs at the end of the row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from schedule.open_schedule import OpenSchedule, element_bits
from schedule.open_trace import Role
from schedule.primitive import blocks_below, find_block, loops_of
from schedule.schedule import Schedule
from tir.ir import Axis, Binary, Block, Buffer, Const, Iter, Load, Store, Var
from tir.traverse import loads, walk

from .lanes import in_lanes, partial_results
from .marks import done, fetch, one_of, share_out, stream
from .structure import contraction, extent, is_elementwise, loop_of, size, stored


@dataclass(frozen=True, slots=True)
class Rows:
    """The stages of a computation by rows: `last`, and those before it in program order, of which `reductions` reduce a row."""

    last: str
    stages: tuple[str, ...]
    reductions: tuple[str, ...]


def matches(s: Schedule, block: str, taken: Collection[str] = ()) -> Rows | None:
    """What ends with an elementwise block over rows and columns, with all producers that work by the same rows: at least one of
    them reduces the row, and no one else uses what they make. Blocks in `taken` are left alone."""
    b = find_block(s.func, block)
    if not is_elementwise(b) or not _constant(b) or len(b.iters) < 2:
        return None
    rows = _rows(b, len(b.iters) - 1)
    if rows is None:
        return None
    all_blocks = [x.name for x in blocks_below(s.func.body)]
    stages: set[str] = set()
    reductions: set[str] = set()
    outputs = set(s.get_output_blocks())
    for name in reversed(all_blocks[: all_blocks.index(block)]):
        consumers = set(s.get_consumers(name))
        if name in taken or not consumers or not consumers <= stages | {block} or name in outputs:
            continue
        stage = find_block(s.func, name)
        if contraction(stage) is not None or not _constant(stage) or _rows(stage, len(rows)) != rows:
            continue
        if not all(_reads_own_row(s, stage, find_block(s.func, c), len(rows)) for c in consumers):
            continue
        if stage.init is not None:
            if len(stage.iters) != len(rows) + 1 or len(stored(stage).indices) != len(rows):
                continue
            reductions.add(name)
        elif not is_elementwise(stage) or len(stage.iters) > len(rows) + 1:
            continue
        stages.add(name)
    if not reductions:
        return None
    ordered = [name for name in all_blocks if name in stages]
    return Rows(block, tuple(ordered), tuple(name for name in ordered if name in reductions))


def _constant(block: Block) -> bool:
    return all(isinstance(it.extent, Const) and isinstance(it.binding, Var) for it in block.iters)


def _rows(block: Block, count: int) -> tuple[int, ...] | None:
    """The extents of the axes that are the first `count` indices of what a block stores; None unless they are axes in order."""
    if not isinstance(block.body, Store) or len(block.body.indices) < count:
        return None
    iters = {it.var.name: it for it in block.iters}
    found: list[Iter] = []
    for i in block.body.indices[:count]:
        if not isinstance(i, Var) or i.name not in iters or iters[i.name].axis is not Axis.SPATIAL:
            return None
        found.append(iters[i.name])
    return tuple(extent(it) for it in found)


def _reads_own_row(s: Schedule, producer: Block, consumer: Block, count: int) -> bool:
    """Whether a consumer reads of a producer only the row that it works on."""
    own = stored(consumer).indices[:count]
    buffer = stored(producer).buffer.name
    return all(x.indices[:count] == own for x in loads(consumer.body) if x.buffer.name == buffer)


def _cheap(block: Block, rank: int) -> bool:
    """Whether to compute each element of a row again where it is used is cheaper than to keep the row: sums and products."""
    whole = is_elementwise(block) and len(block.iters) == rank
    return whole and all(
        isinstance(n, Load | Const | Var | Buffer) or (isinstance(n, Binary) and n.op in "+-*") for n in walk(stored(block).value)
    )


def build(s: OpenSchedule, found: Rows) -> None:
    """Schedule the stages of a computation by rows: one loop over rows (threads), vectors along each row. ScheduleError where a
    step is refused."""
    last = s.block(found.last)
    axes = {it.var.name: it for it in last.iters}
    order = [axes[i.name] for i in stored(last).indices]  # type: ignore[attr-defined]
    loops = [loop_of(it) for it in order]
    if [x.name for x in loops_of(s.func, found.last)] != loops:
        s.reorder(*loops)
    machine, bits = s.target.machine, max(32, element_bits(last))
    cheap = [name for name in found.stages if _cheap(s.block(name), len(order))]
    for stage in reversed(found.stages):
        _place(s, stage, loops[-2], whole=len(s.block(stage).iters) == len(order), cheap=stage in cheap)
    for stage in found.reductions:
        length = extent(next(it for it in s.block(stage).iters if it.axis is Axis.REDUCE))
        if length < 2 * machine.lanes(bits):
            s.annotate(s.get_loops(stage)[-1], "combine_lanes", True)
        else:
            fetch(s, in_lanes(s, stage, partial_results(s, stage, length, machine.lanes(bits))))
    s.vectorize(s.get_loops(found.last)[-1])
    share_out(s, found.last, loops[:-1], size(tuple(order)), machine.transforming(bits))
    stream(s, found.last)
    done(s, found.last)


def _place(s: OpenSchedule, stage: str, row: str, whole: bool, cheap: bool) -> None:
    """Compute a stage below the loop over rows; what is no reduction may be computed again where it is used instead. Where it
    has a `whole` row, in vectors."""

    def keep(new: OpenSchedule) -> None:
        new.compute_at(stage, row, preserve_unit_loops=True)
        if whole and not new.block(stage).is_reduction:
            new.vectorize(new.get_loops(stage)[-1])

    ways = {"kept": keep} | ({} if s.block(stage).is_reduction else {"again": lambda new: new.compute_inline(stage)})
    one_of(s, f"place of {stage}", ways, seed="again" if cheap else "kept", block=stage, role=Role.LOCATION)
