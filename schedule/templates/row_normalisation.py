"""Row normalisation, as in softmax and layer norm: rows are reduced and then used again, all stages in one loop over rows.

A row stays in the first-level cache between the passes over it. Sums and maxima run in the lanes of a few vector registers, which
are combined in pairs at the end of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile

from schedule.machine import PAGE_BYTES
from schedule.open_schedule import Declined, OpenSchedule, extent, lane_bits
from schedule.open_trace import Role
from schedule.primitive import blocks_below, find_block, loops_of
from schedule.schedule import Schedule
from tir import dtypes
from tir.intrinsics import INTRINSICS
from tir.ir import Binary, Block, Buffer, Call, Const, Expr, Iter, Kind, Load, Store, Var, buffer_nbytes
from tir.traverse import blocks, loads, variables, walk

from .block_analysis import contraction, is_elementwise, loop_of, regular, size, stored
from .lanes import in_lanes, partial_results
from .marks import done, one_of, prefetch, share_out, stream


@dataclass(frozen=True, slots=True)
class Rows:
    """The stages of a computation by rows: `last`, and the `stages` before it in program order, of which `reductions` reduce a
    row. The first `rank` axes of each number the rows."""

    last: str
    stages: tuple[str, ...]
    reductions: tuple[str, ...]
    rank: int


def matches(s: Schedule, block: str, taken: Collection[str] = ()) -> Rows | None:
    """The computation by rows that ends with an elementwise block over rows and columns; None if no stage reduces rows. Its
    stages are all producers that work by the same rows, if nothing else uses their results. Blocks in `taken` are left alone."""
    b = find_block(s.func, block)
    axes = written_axes(b)
    if axes is None or len(axes) < 2 or not is_elementwise(b):
        return None

    def apart(name: str) -> bool:
        x = find_block(s.func, name)
        fits = is_elementwise(x) if x.init is None else len(x.iters) == len(axes)
        return name in taken or not fits or contraction(x) is not None

    found = row_producers(s, block, len(axes) - 1, apart)
    return found if found.reductions else None


def written_axes(b: Block) -> list[Iter] | None:
    """The spatial axes of a block in the order of the dimensions that it writes. None unless each dimension has another one, and
    all axes have constant extents and loops of their own."""
    if not isinstance(b.body, Store) or not regular(b):
        return None
    spatial = {it.var: it for it in b.spatial}
    indices = b.body.indices
    return [spatial[i] for i in indices] if len(indices) == len(spatial) and set(indices) == set(spatial) else None  # type: ignore[index]


def row_producers(s: Schedule, last: str, rank: int, apart: Callable[[str], bool]) -> Rows:
    """The producers of `last`, direct or not, over the same first `rank` axes, but for those that stand `apart`. Each makes a
    row, or a number for each row, and no other block uses it."""
    extents = [it.extent for it in (written_axes(find_block(s.func, last)) or [])[:rank]]
    outputs, found = s.get_output_blocks(), list[str]()
    for b in reversed([*takewhile(lambda b: b.name != last, blocks_below(s.func.body))]):
        axes = written_axes(b)
        longest = rank + (b.init is None)  # a row of reductions has rows of its own to work by
        if axes is None or not rank <= len(axes) <= longest or [it.extent for it in axes[:rank]] != extents:
            continue
        consumers = set(s.get_consumers(b.name))
        if not consumers or not consumers <= {last, *found} or b.name in outputs or apart(b.name):
            continue
        if all(own_row(find_block(s.func, c), stored(b).buffer.name, rank) for c in consumers):
            found.insert(0, b.name)
    return Rows(last, tuple(found), tuple(name for name in found if find_block(s.func, name).init is not None), rank)


def own_row(consumer: Block, buffer: str, rank: int) -> bool:
    """True where a block reads only its own row of a buffer."""
    axes = (written_axes(consumer) or [])[:rank]
    read = [x.indices[:rank] for x in loads(consumer.body) if x.buffer.name == buffer]
    return all(is_place(indices, axes) for indices in read)


def is_place(indices: Sequence[Expr], axes: Sequence[Iter]) -> bool:
    """True where indices are the variables of axes in order; where an extent is 1, also 0."""
    return len(indices) == len(axes) and all(
        i == it.var or (i == Const(0) and it.extent.is_one) for i, it in zip(indices, axes, strict=True)
    )


def _is_cheap(block: Block, rank: int) -> bool:
    """True where elements of a row are computed again at each use at less cost than keeping the row: only sums and products."""
    whole = is_elementwise(block) and len(block.iters) == rank
    return whole and all(
        isinstance(n, Load | Const | Var | Buffer) or (isinstance(n, Binary) and n.op in "+-*") for n in walk(stored(block).value)
    )


def build(s: OpenSchedule, found: Rows) -> None:
    """Schedule the stages of a computation by rows: one loop over rows (threads), vectors along each row. Declined where threads
    have no row each. ScheduleError where a step is refused."""
    machine, last = s.target.machine, s.block(found.last)
    bits, work = lane_bits(last), sum(size(s.block(name).iters) for name in (*found.stages, found.last))
    if size((written_axes(last) or [])[: found.rank]) < machine.threads(size(last.iters) * machine.read_cycles(bits)):
        raise Declined(f"`{found.last}` has fewer rows than threads: each stage is shared among them")
    loops = nest(s, found)
    share_out(s, found.last, loops[:-1], work, machine.core.latency / machine.lanes(bits))
    stages = [b.name for b in blocks_below(s.func.body) if b.name in found.stages]
    stream(s, found.last, stages)


def nest(s: OpenSchedule, found: Rows) -> list[str]:
    """Put all stages below one loop over rows, in vectors along each row; returns the loops of the last one."""
    last = s.block(found.last)
    axes = {it.var.name: it for it in last.iters}
    order = [axes[i.name] for i in stored(last).indices]  # type: ignore[attr-defined]
    loops = [loop_of(it) for it in order]
    if [x.name for x in loops_of(s.func, found.last)] != loops:
        s.reorder(*loops)
    machine, bits = s.target.machine, lane_bits(last)
    cheap = [name for name in found.stages if _is_cheap(s.block(name), len(order))]
    for stage in reversed(found.stages):
        _place_stage(s, stage, loops[-2], whole=len(s.block(stage).iters) == len(order), cheap=stage in cheap)
    for stage in found.reductions:
        length = extent(s.block(stage).reduction[0])
        if length < 2 * machine.lanes(bits):
            s.annotate(s.get_loops(stage)[-1], "combine_lanes", True)
        else:
            prefetch(s, in_lanes(s, stage, partial_results(s, stage, length, machine.lanes(bits))))
    _vectorize(s, found.last)
    done(s, found.last)
    return loops


def _vectorize(s: OpenSchedule, block: str) -> None:
    """Run a block's innermost loop in vectors, prefetching the next row; quotients by a row's number may be products."""
    loop = s.get_loops(block)[-1]
    s.vectorize(loop)
    _fetch_next_row(s, block)
    allow_reciprocals(s, block, loop)


def allow_reciprocals(s: Schedule, block: str, loop: str) -> None:
    """Allow quotients by a number of the row to be products with its reciprocal, in a loop along a row of a block."""
    b = find_block(s.func, block)
    quotients = [n for n in walk(b.body) if isinstance(n, Binary) and n.op == "/" and dtypes.is_float(n.dtype)]
    if any(b.iters[-1].var.name not in variables(n.b) for n in quotients):
        s.annotate(loop, "allow_reciprocal", True)


def _fetch_next_row(s: OpenSchedule, stage: str) -> None:
    """Have a stage prefetch the next row of the parameters that it reads along its rows: one with a costly function of each
    element, or one that reads a row again which takes half a page or more. Else memory idles in the meantime: a hardware
    prefetcher stops at the end of a page."""
    block, loop, machine = s.block(stage), loops_of(s.func, stage)[-1], s.target.machine
    functions = [n for n in walk(block.body) if isinstance(n, Call) and INTRINSICS[n.op].ulps[0] > 0.5]  # no single instruction
    if loop.kind is not Kind.VECTORIZED or len(block.iters) < 2:
        return
    again = {x.buffer for b in blocks(s.func) if b.name != stage for x in loads(b.body)}
    *rows, column = (it.var for it in block.iters)
    length, along = extent(block.iters[-1]), {v.name for v in rows}

    def waits(parameter: Buffer) -> bool:
        row = length * dtypes.nbytes(parameter.dtype)
        fits = buffer_nbytes(parameter) > machine.l1 and 3 * row <= machine.l2  # this row, its result, and the next one
        return fits and (bool(functions) or (parameter in again and 2 * row >= PAGE_BYTES))

    large = {
        x.buffer.name: (x.buffer.name, length)
        for x in loads(block.body)
        if x.buffer in s.func.buffers and x.indices and x.indices[-1] == column and variables(*x.indices[:-1]) == along
        and x.buffer.shape[-1] == Const(length) and waits(x.buffer)
    }  # fmt: skip
    if large:
        ahead = s.choose(f"{stage} prefetch", (tuple(large.values()), ()), block=stage, role=Role.PRAGMA)
        s.annotate(loop.name, "prefetch", ahead)


def _place_stage(s: OpenSchedule, stage: str, row: str, whole: bool, cheap: bool) -> None:
    """Branch over the place of a stage: below the loop over rows, vectorised if `whole`, or inlined if it is no reduction."""

    def keep(new: OpenSchedule) -> None:
        new.compute_at(stage, row, preserve_unit_loops=True)
        if whole and not new.block(stage).is_reduction:
            _vectorize(new, stage)

    ways = {"kept": keep} | ({} if s.block(stage).is_reduction else {"again": lambda new: new.compute_inline(stage)})
    one_of(s, f"place of {stage}", ways, seed="again" if cheap else "kept", block=stage, role=Role.LOCATION)
