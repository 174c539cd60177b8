"""Reductions of rows, as in softmax, layer norm and products of a matrix and a vector: the threads of a row reduce together. A
row that fits is read once, 16 bytes at a time, and held in registers until its result is written. Costly elements of a longer row
that are used again are kept in shared memory, or computed again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from schedule.machine import GPU, MAX_ACCESS_BYTES, STATIC_SHARED_BYTES
from schedule.open_schedule import Continuation, Declined, OpenSchedule, Stage
from schedule.open_trace import Role
from schedule.primitive import find_block
from schedule.schedule import Schedule
from tir import dtypes
from tir.ir import Block, Call, Const, Load, Store
from tir.memory import WARP
from tir.traverse import loads, walk

from ..block_analysis import epilogue, is_elementwise, reuses_data, size, stored
from ..row_normalisation import Rows, allow_reciprocals, row_producers, written_axes
from ..template import Template, Verdict
from .launch import inline_stage, reduces_along_memory
from .products import few_results, matched_product

STREAMING_THREADS = 256  # threads of a row that is too long for registers, at the seed
MAX_HELD_ELEMENTS = 64  # most elements that a thread holds in registers, of all arrays together
MIN_BLOCK_THREADS = 128  # least threads of a block: short rows share one
MAX_KEPT_BYTES = STATIC_SHARED_BYTES - 4096  # bytes of the rows that a block keeps; the rest is for reductions across warps
THREADS = (32, 64, 128, 256, 512, 1024)
ROWS_PER_BLOCK = (1, 2, 4, 8)  # numbers of rows that a block works on at a time


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The layout of a row in threads: `threads` of them have `width` neighbouring elements each, again and again; `rows` rows
    share a block. `min_threads` is the least number of threads that can hold a row in registers."""

    threads: int
    width: int
    rows: int
    min_threads: int


class CrossThreadReduction(Template):
    """Ansor's cross-thread reduction, with all stages that work by the same rows. Each row, or a few, is a block's, and its
    threads reduce together, element after element of memory.

    Where it is `ours`, rows that fit are held in registers. Elements of others that a later stage reads again stay in shared
    memory; costly elementwise stages in between are kept there, or computed again. A reduction that reuses data is shared so if
    its results are few (Ansor's condition), or if it is `ours` and no product of matrices.
    """

    name = "cross-thread reduction"

    def __init__(self, ours: bool = True):
        self.ours = ours

    def applies(self, s: OpenSchedule, block: str) -> Verdict:
        if block in s.scheduled or group(s, block, self.ours) is None:
            return Verdict.SKIP
        return Verdict.ONLY if self.ours else Verdict.APPLY

    def ways(self, s: OpenSchedule, block: str) -> Iterator[tuple[str, Continuation]]:
        found = group(s, block, self.ours)
        assert found is not None
        costly = any(_is_costly(s, name) for name in found.stages)
        if self.ours:
            yield f"{self.name} in registers", lambda new: build(new, found, held=True)
        yield self.name, lambda new: build(new, found, vectors=self.ours)
        if costly:
            yield f"{self.name}, elements computed again", lambda new: build(new, found, keep=False, vectors=self.ours)


def _rank(b: Block) -> int | None:
    """The number of dimensions of a block's output, if its spatial axes are these in order."""
    axes = written_axes(b)
    return None if axes is None or tuple(axes) != b.spatial else len(axes)


def group(s: OpenSchedule, block: str, ours: bool = True) -> Rows | None:
    """The group of a block and its producers by the same rows, one of which reduces rows along memory; none is tiled."""

    def apart(name: str) -> bool:
        if name in s.scheduled or tiled(name) or _rank(s.block(name)) is None:
            return True
        return ours and any(tiled(p) and epilogue(s, p, anywhere=True) == name for p in s.get_producers(name))

    def tiled(name: str) -> bool:
        """True where tiles pay: many results of a product of matrices, or in the paper of any reduction that reuses data."""
        b = s.block(name)
        if b.init is None or not all(isinstance(it.extent, Const) for it in b.iters):
            return False
        return (matched_product(b) is not None if ours else reuses_data(b)) and not few_results(b, s.target.machine)

    last = s.block(block)
    rank = _rank(last)
    if rank is None or not s.own_loops(block) or tiled(block):
        return None
    for r in (rank, rank - 1):
        if r < 1 and (r < 0 or last.init is None):  # one number: a single block
            continue
        found = row_producers(s, block, r, apart)
        reducing = [*map(s.block, found.reductions), *([last] if last.init is not None else [])]
        if reducing and all(map(reduces_along_memory, reducing)):
            return found
    return None


def _is_costly(s: OpenSchedule, name: str) -> bool:
    """True where an elementwise stage is costly to compute again at each use."""
    b = s.block(name)
    return b.init is None and any(isinstance(n, Call) for n in walk(b.body)) and len(s.get_consumers(name)) > 1


def build(s: OpenSchedule, group: Rows, held: bool = False, keep: bool = True, vectors: bool = True) -> None:
    """Bind the rows to blocks, and the elements of a row to threads, with `vectors` several neighbours at once. Rows are `held`
    in registers, or else costly elementwise stages are kept in shared memory, with `keep`."""
    last, rank = group.last, group.rank
    stages = _inline_cheap_stages(s, group, MAX_KEPT_BYTES if held else MAX_KEPT_BYTES // max(ROWS_PER_BLOCK) if keep else 0)
    lanes = seed(s, (*stages, last), rank, held, s.target.machine)
    known = tuple(n for n in THREADS if n >= lanes.min_threads)
    threads = s.choose(f"{last} threads", known, seed=lanes.threads, block=last, role=Role.PARALLEL)
    several = dict.fromkeys((lanes.rows, *(n for n in ROWS_PER_BLOCK if n <= _row_count(s.block(last), rank))))
    rows = s.choose(f"{last} rows", tuple(several), block=last, role=Role.PARALLEL)
    s.at_most(s.target.machine.threads, rows, threads)
    widths = tuple(w for w in (1, 2, 4, 8, 16) if w <= lanes.width) if vectors else (1,)
    width = s.choose(f"{last} vector", widths, seed=widths[-1], block=last)
    copies = _copy_inputs(s, (*stages, last), rank) if held else []
    loops = s.get_loops(last)[:rank] or [s.add_unit_loop(s.get_loops(last)[0])]
    outer, row = s.split(s.fuse(*loops), [None, rows])
    s.bind(outer, "blockIdx.x")
    s.bind(row, "threadIdx.y")
    for name in (*reversed(stages), *copies):
        s.compute_at(name, row)
    for name in stages:
        single = _rank(s.block(name)) == rank  # a number that each thread of the row has
        s.set_scope(name, 0, "local" if held or single else "shared")
    for name in (*copies, *stages, last):
        _bind_stage(s, name, row, threads, width, held)
        s.scheduled[name] = Stage.BOUND
        if name in s.pending:
            s.pending.remove(name)


def seed(s: Schedule, blocks: Collection[str], rank: int, held: bool, gpu: GPU) -> RowLayout:
    """The threads of a row: as few as hold it in registers, more while SMs idle. ScheduleError where it can't be `held`."""
    found = [find_block(s.func, name) for name in blocks]
    length = max(_row_length(b, rank) for b in found)
    rows = _row_count(found[-1], rank)
    buffers = {x.buffer.name: x.buffer for b in found for x in (b.body, *loads(b.body)) if isinstance(x, (Load, Store))}
    width = max(1, MAX_ACCESS_BYTES // max(dtypes.nbytes(b.dtype) for b in buffers.values()))
    while length % width:
        width //= 2
    regular = all(_row_length(b, rank) in (1, length) and len(_along_axes(b, rank)) <= 1 for b in found)
    arrays = max(1, len({n for n, b in buffers.items() if len(b.shape) > rank and n != stored(found[-1]).buffer.name}))
    most = gpu.threads if held else STREAMING_THREADS
    least = WARP
    while held and least < most and -(-length // (least * width)) * width * arrays > MAX_HELD_ELEMENTS:
        least *= 2
    if held and not (regular and -(-length // (least * width)) * width * arrays <= MAX_HELD_ELEMENTS):
        raise Declined("the rows do not fit registers")
    threads = least
    while threads < most and threads * width < length and rows * threads < gpu.saturating_threads:
        threads *= 2
    return RowLayout(threads, width, max(1, min(rows, MIN_BLOCK_THREADS // threads)), least)


def _row_count(b: Block, rank: int) -> int:
    """The number of rows that a block works on."""
    return size(b.spatial[:rank])


def _copy_inputs(s: Schedule, blocks: Collection[str], rank: int) -> list[str]:
    """Copies in registers of the rows of inputs that more than one of the blocks read."""
    readers: dict[str, list[str]] = {}
    for name in blocks:
        b = find_block(s.func, name)
        own = {x.buffer.name for x in loads(b.body) if _whole_row(x, b, rank)} - {stored(b).buffer.name}
        for buffer in sorted(own):
            readers.setdefault(buffer, []).append(name)
    made = {stored(find_block(s.func, name)).buffer.name for name in blocks}
    return [
        s.cache_read(names[0], buffer, "local", names)
        for buffer, names in readers.items()
        if len(names) > 1 and buffer not in made
    ]


def _whole_row(x: Load, b: Block, rank: int) -> bool:
    """True where a load has all axes of a block as indices, in order: the block's own element of its own row."""
    return len(x.indices) == rank + 1 and x.indices == tuple(it.var for it in b.iters)


def _inline_cheap_stages(s: OpenSchedule, group: Rows, room: int) -> list[str]:
    """The stages that are left after those that cost little, or do not fit `room` bytes, were inlined."""
    kept: list[str] = []
    for name in group.stages:
        b = s.block(name)
        nbytes = _row_length(b, group.rank) * dtypes.nbytes(stored(b).buffer.dtype)
        if is_elementwise(b) and (nbytes > room or not _is_costly(s, name)):
            inline_stage(s, name)
            continue
        if _rank(b) == group.rank + 1:
            room -= nbytes
        kept.append(name)
    return kept


def _along_axes(b: Block, rank: int) -> list:
    """The axes that are not those of the rows."""
    return [*b.spatial[rank:], *b.reduction]


def _row_length(b: Block, rank: int) -> int:
    """The elements of a row that a block works on, along memory."""
    axes = _along_axes(b, rank)
    return int(axes[-1].extent.value) if axes else 1


def _bind_stage(s: OpenSchedule, name: str, row: str, threads: int, width: int, held: bool) -> None:
    """Bind a stage's work for a row to threads."""
    loops = s.get_loops(name)
    inner = loops[loops.index(row) + 1 :]
    if not inner:
        return  # one number, which every thread has
    outer, thread, lane = s.split(inner[-1], [None, threads, width])
    s.reorder(thread, *inner[:-1], outer, lane)
    s.bind(thread, "threadIdx.x")
    allow_reciprocals(s, name, outer)
    if held:
        s.unroll(outer)
    if s.block(name).init is None:
        s.vectorize(lane)
    else:
        s.unroll(lane)
