"""Rows that are reduced, as in softmax, layer norm, sums of rows and products of a matrix and a vector: the threads of a row
reduce it together. A row that fits is read once, 16 bytes at a time, and held in registers until its result is written; of a
longer one, what is used more than once and costs much is kept in shared memory.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

from schedule.machine import GPU, H100, STATIC_SHARED
from schedule.primitive import blocks_below, find_block, loops_of
from schedule.schedule import Schedule
from tir import dtypes
from tir.ir import Axis, Block, Call, Const, Load, Store, Var
from tir.memory import WARP
from tir.traverse import loads, variables, walk

from ..templates.structure import is_elementwise
from .launch import LANES

STREAMING = 256  # threads of a row that is too long for registers
HELD = 64  # elements that a thread holds, of all rows together
BLOCK = 128  # threads of a block: short rows share one
LEAST = 32  # elements of a row that are worth a warp


@dataclass(frozen=True, slots=True)
class Lanes:
    """How a row lies in threads: `threads` of them have `width` neighbouring elements each, again and again; `rows` rows share a
    block. `held` says whether the elements stay in registers."""

    threads: int
    width: int
    rows: int
    held: bool


@dataclass(frozen=True, slots=True)
class Rows:
    """`last` ends the computation; `stages` come before it, in program order; `rank` axes of each are the row."""

    last: str
    stages: tuple[str, ...]
    rank: int


def matches(s: Schedule, name: str, taken: Collection[str]) -> Rows | None:
    """What ends with the block `name`, with all its producers that work by the same rows, of which one at least reduces a row
    along its memory."""
    last = find_block(s.func, name)
    rank = _rank(last)
    if rank is None:
        return None
    for r in (rank, rank - 1):
        if r < 1 and (r < 0 or last.init is None):  # one number: a single block
            continue
        stages = _stages(s, name, r, taken)
        reducing = [x for x in (*stages, name) if find_block(s.func, x).init is not None]
        if reducing and all(along(find_block(s.func, x)) for x in reducing):
            return Rows(name, tuple(stages), r)
    return None


def _rank(b: Block) -> int | None:
    """The dimensions of what a block writes, if each is an axis of its own, in order."""
    if not isinstance(b.body, Store) or not all(isinstance(it.extent, Const) and isinstance(it.binding, Var) for it in b.iters):
        return None
    names = [i.name for i in b.body.indices if isinstance(i, Var)]
    spatial = [it.var.name for it in b.iters if it.axis is Axis.SPATIAL]
    return len(names) if names == spatial and len(names) == len(b.body.indices) else None


def _stages(s: Schedule, last: str, rank: int, taken: Collection[str]) -> list[str]:
    """The producers of `last`, direct or not, that share its first `rank` axes and are used by nobody else."""
    names = [b.name for b in blocks_below(s.func.body)]
    found: list[str] = []
    outputs = set(s.get_output_blocks())
    rows = _extents(find_block(s.func, last))[:rank]
    for name in reversed(names[: names.index(last)]):
        b = find_block(s.func, name)
        consumers = set(s.get_consumers(name))
        own = _rank(b)
        if name in taken or name in outputs or own is None or not rank <= own <= rank + 1 or not consumers:
            continue
        if b.init is not None and own > rank:  # a row of reductions has rows of its own to work by
            continue
        if not consumers <= {last, *found} or _extents(b)[:rank] != rows:
            continue
        if all(_same_row(find_block(s.func, c), b.body.buffer.name, rank) for c in consumers):  # type: ignore[attr-defined]
            found.insert(0, name)
    return found


def _same_row(consumer: Block, buffer: str, rank: int) -> bool:
    axes = [it for it in consumer.iters if it.axis is Axis.SPATIAL][:rank]
    return all(
        i == it.var or (i == Const(0) and it.extent == Const(1))
        for x in loads(consumer.body)
        if x.buffer.name == buffer
        for i, it in zip(x.indices[:rank], axes, strict=True)
    )


def _extents(b: Block) -> list:
    return [it.extent for it in b.iters if it.axis is Axis.SPATIAL]


def along(b: Block) -> bool:
    """Whether the innermost reduce axis walks the memory of all that is reduced, and is long enough for a warp."""
    sums = [it for it in b.iters if it.axis is Axis.REDUCE]
    if not sums or not isinstance(b.body, Store):
        return False
    inner = sums[-1]
    read = [x for x in loads(b.body.value) if x.buffer.name != b.body.buffer.name and x.indices]
    using = [x for x in read if any(inner.var.name in variables(i) for i in x.indices)]
    walks = all(inner.var.name in variables(x.indices[-1]) for x in using)
    return bool(using) and walks and isinstance(inner.extent, Const) and int(inner.extent.value) >= LEAST


def apply(s: Schedule, group: Rows, gpu: GPU = H100) -> None:
    """Bind the rows to blocks, and the elements of a row to threads."""
    stages = _shortened(s, group)
    blocks = (*stages, group.last)
    lanes = layout(s, blocks, group.rank, gpu)
    copies = _copies(s, blocks, group.rank) if lanes.held else []
    loops = s.get_loops(group.last)[: group.rank]
    if not loops:
        loops = [s.add_unit_loop(s.get_loops(group.last)[0])]
    row = s.fuse(*loops)
    block, row = s.split(row, [None, lanes.rows])
    s.bind(block, "blockIdx.x")
    s.bind(row, "threadIdx.y")
    for name in (*reversed(stages), *copies):
        s.compute_at(name, row)
    for name in stages:
        single = _rank(find_block(s.func, name)) == group.rank  # a number that each thread of the row has
        s.set_scope(name, 0, "local" if lanes.held or single else "shared")
    for name in (*copies, *blocks):
        _spread(s, name, row, lanes)


def layout(s: Schedule, blocks: Collection[str], rank: int, gpu: GPU) -> Lanes:
    """The threads of a row: as few as can hold it in registers, but more while processors would idle."""
    found = [find_block(s.func, name) for name in blocks]
    length = max(_length(b, rank) for b in found)
    rows = prod(int(e.value) for e in _extents(found[-1])[:rank])
    buffers = {x.buffer.name: x.buffer for b in found for x in (b.body, *loads(b.body)) if isinstance(x, (Load, Store))}
    width = max(1, LANES // max(dtypes.nbytes(b.dtype) for b in buffers.values()))
    while length % width:
        width //= 2
    regular = all(_length(b, rank) in (1, length) and len(_along_axes(b, rank)) <= 1 for b in found)
    result = found[-1].body.buffer.name  # type: ignore[attr-defined]
    arrays = max(1, len({n for n, b in buffers.items() if len(b.shape) > rank and n != result}))
    held = regular and -(-length // (gpu.threads * width)) * width * arrays <= HELD
    most = gpu.threads if held else STREAMING
    threads = WARP
    while threads < most and (
        (held and -(-length // (threads * width)) * width * arrays > HELD)
        or (threads * width < length and rows * threads < gpu.busy)
    ):
        threads *= 2
    return Lanes(threads, width, max(1, min(rows, BLOCK // threads)), held)


def _copies(s: Schedule, blocks: Collection[str], rank: int) -> list[str]:
    """Copies in registers of the rows of inputs that more than one of the blocks read."""
    readers: dict[str, list[str]] = {}
    for name in blocks:
        b = find_block(s.func, name)
        own = {x.buffer.name for x in loads(b.body) if _whole_row(x, b, rank)} - {b.body.buffer.name}  # type: ignore[attr-defined]
        for buffer in sorted(own):
            readers.setdefault(buffer, []).append(name)
    made = {find_block(s.func, name).body.buffer.name for name in blocks}  # type: ignore[attr-defined]
    return [
        s.cache_read(names[0], buffer, "local", names)
        for buffer, names in readers.items()
        if len(names) > 1 and buffer not in made
    ]


def _whole_row(x: Load, b: Block, rank: int) -> bool:
    """Whether an element is that of the row which the block works on, at the place where it is: all axes in order."""
    return len(x.indices) == rank + 1 and x.indices == tuple(it.var for it in b.iters)


def _shortened(s: Schedule, group: Rows) -> list[str]:
    """The stages, after those that cost little, or do not fit shared memory, were put into their consumers."""
    room = STATIC_SHARED - 4096
    kept: list[str] = []
    for name in group.stages:
        b = find_block(s.func, name)
        size = _length(b, group.rank) * dtypes.nbytes(b.body.buffer.dtype)  # type: ignore[attr-defined]
        costly = any(isinstance(n, Call) for n in walk(b.body)) and len(s.get_consumers(name)) > 1
        if is_elementwise(b) and (size > room or not costly):
            s.compute_inline(name)
            continue
        if _rank(b) == group.rank + 1:
            room -= size
        kept.append(name)
    return kept


def _along_axes(b: Block, rank: int) -> list:
    """The axes that are not those of the rows."""
    spatial = [it for it in b.iters if it.axis is Axis.SPATIAL]
    return [*spatial[rank:], *(it for it in b.iters if it.axis is Axis.REDUCE)]


def _length(b: Block, rank: int) -> int:
    """The elements of a row that a block works on, along memory."""
    axes = _along_axes(b, rank)
    return int(axes[-1].extent.value) if axes else 1


def _spread(s: Schedule, name: str, row: str, lanes: Lanes) -> None:
    """Bind what a stage does for a row to threads."""
    loops = [x.name for x in loops_of(s.func, name)]
    inner = loops[loops.index(row) + 1 :]
    if not inner:
        return  # one number, which every thread has
    outer, thread, lane = s.split(inner[-1], [None, lanes.threads, lanes.width])
    s.reorder(thread, *inner[:-1], outer, lane)
    s.bind(thread, "threadIdx.x")
    if lanes.held:
        s.unroll(outer)
    if lanes.width > 1 and find_block(s.func, name).init is None:
        s.vectorize(lane)
    else:
        s.unroll(lane)
