"""Rows that are reduced, as in softmax, layer norm, sums of rows and products of a matrix and a vector: a block a row, whose
threads reduce together. What is used more than once and costs much is kept in shared memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from schedule.primitive import blocks_below, find_block, loops_of
from schedule.schedule import Schedule
from tir import dtypes
from tir.ir import Axis, Block, Call, Const, Store, Var
from tir.traverse import loads, variables, walk

from ..library.structure import is_elementwise

SHARED = 48 * 1024  # bytes of shared memory of a block
WARP = 32
MOST = 256  # threads of a block, at most
LEAST = 32  # elements of a row that are worth a warp


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
        if reducing and all(_along(find_block(s.func, x)) for x in reducing):
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


def _along(b: Block) -> bool:
    """Whether the innermost reduce axis walks the memory of what is reduced, and is long enough for a warp."""
    sums = [it for it in b.iters if it.axis is Axis.REDUCE]
    if not sums or not isinstance(b.body, Store):
        return False
    inner = sums[-1]
    read = [x for x in loads(b.body.value) if x.buffer.name != b.body.buffer.name and x.indices]
    walks = any(inner.var.name in variables(x.indices[-1]) for x in read)
    return walks and isinstance(inner.extent, Const) and int(inner.extent.value) >= LEAST


def apply(s: Schedule, group: Rows) -> None:
    """Bind the rows to blocks, and the elements of a row to threads."""
    stages = _shortened(s, group)
    blocks = (*stages, group.last)
    longest = max(_width(s, name, group.rank) for name in blocks)
    threads = min(MOST, max(WARP, 1 << (longest - 1).bit_length()))
    loops = s.get_loops(group.last)[: group.rank]
    if not loops:
        loops = [s.add_unit_loop(s.get_loops(group.last)[0])]
    row = s.fuse(*loops) if len(loops) > 1 else loops[0]
    for name in reversed(stages):
        s.compute_at(name, row)
        s.set_scope(name, 0, "shared")
    s.bind(row, "blockIdx.x")
    for name in blocks:
        _spread(s, name, row, threads)


def _shortened(s: Schedule, group: Rows) -> list[str]:
    """The stages, after those that cost little, or do not fit shared memory, were put into their consumers."""
    room = SHARED - 4096
    kept: list[str] = []
    for name in group.stages:
        b = find_block(s.func, name)
        size = _width(s, name, group.rank) * dtypes.nbytes(b.body.buffer.dtype)  # type: ignore[attr-defined]
        costly = any(isinstance(n, Call) for n in walk(b.body)) and len(s.get_consumers(name)) > 1
        if is_elementwise(b) and (size > room or not costly):
            s.compute_inline(name)
            continue
        if _rank(b) == group.rank + 1:
            room -= size
        kept.append(name)
    return kept


def _width(s: Schedule, name: str, rank: int) -> int:
    """The elements of a row that a stage works on."""
    total = 1
    for it in [it for it in find_block(s.func, name).iters if it.axis is Axis.SPATIAL][rank:]:
        total *= int(it.extent.value)  # type: ignore[attr-defined]
    for it in find_block(s.func, name).iters:
        if it.axis is Axis.REDUCE:
            total *= int(it.extent.value)  # type: ignore[attr-defined]
    return total


def _spread(s: Schedule, name: str, row: str, threads: int) -> None:
    """Bind what a stage does for a row to threads."""
    loops = [x.name for x in loops_of(s.func, name)]
    inner = loops[loops.index(row) + 1 :]
    b = find_block(s.func, name)
    summing = set().union(*(variables(it.binding) for it in b.iters if it.axis is Axis.REDUCE), set())
    own = [x for x in inner if x in summing] or inner
    if not own:
        own = [s.add_unit_loop(name)]
    fused = s.fuse(*own) if len(own) > 1 else own[0]
    if b.init is not None and [x for x in inner if x not in summing]:
        s.reorder(*[x for x in inner if x not in summing], fused)
    _, thread = s.split(fused, [None, threads])
    if b.init is not None:
        outer = [x.name for x in loops_of(s.func, name)]
        s.reorder(thread, outer[outer.index(thread) - 1])
    s.bind(thread, "threadIdx.x")
