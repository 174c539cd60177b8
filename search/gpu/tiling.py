"""Multi-level tiling on a GPU: tiles in shared memory, accumulated in registers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from schedule import ScheduleError
from schedule.schedule import Schedule
from tir import dtypes
from tir.ir import Block, Call, Store, Var
from tir.traverse import loads, stores, walk

from ..rules.rule import Verdict
from ..rules.tiling import elementwise_consumer, reuses_data
from ..sketch import Hole, Product, State, Tile, element_bits, extent, is_spatial

STRUCTURE = "SSSRRSRS"  # blocks, virtual threads, threads, steps through shared memory, and the work of a thread
GRID_Y = 65535  # blocks along blockIdx.y, at most
UNROLL = (16, 0, 64, 512)
WIDEST = 16  # bytes that a thread moves at once
SKEWS = ((1, 0), (8, 4), (2, 1))  # rows of a tile are a multiple of the first and the second elements long


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis of a tiled block: its loops, level by level, and the columns of the inner ones; of one iteration, a single loop."""

    name: str
    spatial: bool
    loops: tuple[str, ...]
    columns: tuple[int, ...]


class TileThroughShared:
    """Rules 3 to 5 of Ansor (table 1) with its cache reads, as on a GPU: a reduction that reuses data is tiled as SSSRRSRS.

    The outermost spatial level is the blocks, then come virtual threads and threads. In each step of the outermost reduction the
    threads of a block load a tile of every operand into shared memory together, a number of elements at once that is left open;
    what makes an operand element by element is computed as it is loaded. Each thread accumulates in registers; its elements, or
    those of the elementwise consumer, are written at the end. What is `ours` is not
    in the paper: sums of plain products are padded with zeros to whole tiles, rows of shared memory may be skewed, so that
    threads that walk a column meet different banks, and tiles loaded a step ahead.
    """

    name = "tiling through shared memory"

    def __init__(self, ours: bool = True):
        self.ours = ours

    def applies(self, state: State, block: str) -> Verdict:
        b = state.block(block)
        axes = state.axes(block)
        if block in state.marks or len(axes) != len(b.iters) or not isinstance(b.body, Store) or b.init is None:
            return Verdict.SKIP
        if not reuses_data(b) or state.schedule.get_loops(block) != [loop for _, loop in axes]:
            return Verdict.SKIP
        return Verdict.ONLY if all(isinstance(i, Var) for i in b.body.indices) else Verdict.SKIP

    def apply(self, state: State, block: str) -> list[State]:
        new = state.fired(self.name, block)
        try:
            _tile(new, block, self.ours)
        except ScheduleError:
            return []
        return [new]


def _tile(state: State, block: str, ours: bool = True) -> None:
    s = state.schedule
    written = {x.buffer.name for x in stores(state.block(block))}
    reads = dict.fromkeys(x.buffer.name for x in loads(state.block(block).body) if x.buffer.name not in written)
    copies = [s.cache_read(block, buffer, "shared") for buffer in reads]
    after = elementwise_consumer(state, block)
    if after is not None and after not in state.marks and not state.is_output(block):
        s.set_scope(block, 0, "local")
    else:
        after = s.cache_write(block, 0, "local")
    for copy in copies:
        _inline_producers(state, copy)
    padded = ours and _paddable(s, block, state)
    if padded:
        _pad(state, block)
    axes = _split(state, block, padded, perfect=not ours)
    spatial = [a for a in axes if a.spatial and a.columns]
    reduce = [a for a in axes if not a.spatial and a.columns]
    ones = [a.loops[0] for a in axes if a.spatial and not a.columns]
    blocks = [*ones, *(a.loops[0] for a in spatial)]
    rows = prod(extent(it) for it in state.block(block).iters if it.var.name in {a.name for a in spatial[:-1]})
    steps = [a.loops[0] for a in axes if not a.spatial]
    order = [*blocks, *steps, *(a.loops[1] for a in spatial), *(a.loops[2] for a in spatial), *(a.loops[1] for a in reduce)]
    dims = [i.name for i in stores(state.block(block).body)[0].indices]  # type: ignore[attr-defined]
    order += [*(a.loops[3] for a in spatial), *(a.loops[2] for a in reduce), *(a.loops[4] for a in spatial)]
    s.reorder(*order)
    for copy in copies:
        s.compute_at(copy, steps[-1], preserve_unit_loops=True)
    s.reverse_compute_at(after, blocks[-1], preserve_unit_loops=True)
    first = s.decompose_reduction(block, steps[0])
    outside = bind_blocks(s, blocks, rows)
    start = s.get_loops(first)[outside:]
    n = len(spatial)
    for level, kind in ((start[:n], "vthread"), (start[n : 2 * n], "threadIdx")):
        bind_group(s, level, kind)
    bind_group(s, [a.loops[1] for a in spatial], "vthread")
    bind_group(s, [a.loops[2] for a in spatial], "threadIdx")
    step = s.fuse(*steps) if len(steps) > 1 else steps[0]
    others = [Product(tuple(a.columns[1] for a in spatial[:-1]))] if n > 1 else []
    threads = [*others, Hole(spatial[-1].columns[1])]
    _bind_result(state, after, dims, outside, spatial)
    for copy in copies:
        _fetch(state, copy, outside + 1, threads, skewed=ours)
    if ours:
        state.choose(f"{block} double buffer", (1, 0), "ann_val", lambda t, on: t.annotate(step, "double_buffer", on))
    state.choose(f"{block} unroll", UNROLL, "ann_val", lambda t, most: t.annotate(step, "pragma_auto_unroll_max_step", most))
    for name in (block, f"{block}_update", first, after, *copies):
        state.marks[name] = "tiled"


def _inline_producers(state: State, copy: str) -> None:
    """What makes an operand element by element, such as padding, is computed as it is loaded; but not what is costly and could be
    computed where a reduction makes its input."""
    for name in state.schedule.get_producers(copy):
        b = state.block(name)
        if b.init is not None or name in state.marks or state.schedule.get_consumers(name) != [copy]:
            continue
        if any(isinstance(n, Call) for n in walk(b.body)) and any(
            state.block(p).is_reduction for p in state.schedule.get_producers(name)
        ):
            continue
        try:
            state.schedule.compute_inline(name)
        except ScheduleError:
            continue
        state.rules.append(f"{name}: inline")
        if name in state.pending:
            state.pending.remove(name)
        _inline_producers(state, copy)
        return


def _paddable(s: Schedule, block: str, state: State) -> bool:
    """Whether all axes of a block can be padded to any multiple."""
    try:
        s.copy().pad_einsum(block, [2 * extent(it) + 1 if extent(it) > 1 else 1 for it in state.block(block).iters])
    except ScheduleError:
        return False
    return True


def _pad(state: State, block: str) -> None:
    """Pad the axes to multiples of their tiles, whose columns are those that `_split` will make."""
    column = state.columns
    padding: list[int | Product] = []
    for it in state.block(block).iters:
        count = 4 if is_spatial(it) else 2
        padding.append(1 if extent(it) == 1 else Product(tuple(range(column, column + count))))
        column += 0 if extent(it) == 1 else count
    state.schedule.pad_einsum(block, [1] * len(padding))
    state.open_last(padding=tuple(padding))


def _split(state: State, block: str, padded: bool, perfect: bool) -> list[_Axis]:
    """All axes in levels, those that walk the last dimension written last."""
    b = state.block(block)
    bits = element_bits(b)
    store = stores(b.body)[0]
    last = next((i.name for i in reversed(store.indices) if extent(_iter(b, i)) > 1), None)
    found: list[_Axis] = []
    for it, loop in state.axes(block):
        spatial = is_spatial(it)
        if extent(it) == 1:
            found.append(_Axis(it.var.name, spatial, (loop,), ()))
            continue
        names, columns = state.split(loop, 5 if spatial else 3)
        roles = "vtss" if spatial else "rr"
        state.tiles.append(
            Tile(block, it.var.name, extent(it), not spatial, columns, False, bits, perfect, roles=roles, padded=padded)
        )
        found.append(_Axis(it.var.name, spatial, tuple(names), columns))
    return sorted(found, key=lambda a: a.name == last)


def _iter(block: Block, index):
    return next(it for it in block.iters if it.var == index)


def _bind_result(state: State, after: str, dims: list[str], outside: int, spatial: list[_Axis]) -> None:
    """The result, whose dimensions are the axes `dims`, goes from registers to its place, by the threads that have it."""
    s = state.schedule
    own = s.get_loops(after)[outside:]
    parts: dict[str, list[str]] = {}
    for axis in spatial:
        loop = own[dims.index(axis.name)]
        parts[axis.name] = state.split_open(loop, [Hole(c) for c in axis.columns])
    rest = [x for x, axis in zip(own, dims, strict=True) if axis not in parts]
    levels = [[parts[a.name][n] for a in spatial] for n in range(4)]
    s.reorder(*rest, *(x for level in levels for x in level))
    bind_group(s, levels[0], "vthread")
    bind_group(s, levels[1], "threadIdx")
    if dims[-1] == spatial[-1].name:
        s.vectorize(levels[3][-1])


def _fetch(state: State, copy: str, outside: int, threads: list[Hole | Product], skewed: bool) -> None:
    """All threads of a block load a tile together, neighbours next to each other, an open number of elements at once."""
    s = state.schedule
    own = s.get_loops(copy)[outside:]
    buffer = stores(state.block(copy).body)[0].buffer
    widths = [w for w in (1, 2, 4, 8, 16) if w * dtypes.nbytes(buffer.dtype) <= WIDEST]
    if skewed and len(buffer.shape) > 1:
        skew = state.column(f"{copy} skew", tuple(range(len(SKEWS))))
        s.storage_align(copy, 0, -2, *SKEWS[0])
        factors, offsets = zip(*SKEWS, strict=True)
        state.open_last(factor=Hole(skew.column, factors), offset=Hole(skew.column, offsets))
    *own, lane = [*own[:-1], *state.split_choice(f"{copy} vector", own[-1], tuple(widths))]
    fused = s.fuse(*own) if len(own) > 1 else own[0]
    _, *names = state.split_open(fused, [None, *threads])
    for axis, loop in zip(("threadIdx.x", "threadIdx.y"), reversed(names), strict=False):
        s.bind(loop, axis)
    s.vectorize(lane)


def bind_group(s: Schedule, loops: list[str], kind: str) -> None:
    """Bind the last of some nested loops to x, and the others, fused, to y."""
    s.bind(loops[-1], f"{kind}.x")
    if len(loops) > 1:
        s.bind(s.fuse(*loops[:-1]) if len(loops) > 2 else loops[0], f"{kind}.y")


def bind_blocks(s: Schedule, loops: list[str], rows: int) -> int:
    """Bind the outermost loops of a nest to blocks: the last to x, the others, of at most so many iterations, to y, or all to x
    where there may be too many. Returns how many loops these are then."""
    if len(loops) > 1 and rows <= GRID_Y:
        bind_group(s, loops, "blockIdx")
        return 2
    s.bind(s.fuse(*loops) if len(loops) > 1 else loops[0], "blockIdx.x")
    return 1
