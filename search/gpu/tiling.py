"""Multi-level tiling on a GPU: tiles in shared memory, accumulated in registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from schedule import ScheduleError
from schedule.open_schedule import OpenSchedule, Stage, extent, is_spatial
from schedule.open_trace import Role
from schedule.schedule import Schedule
from schedule.templates.structure import epilogue, reuses_data
from tir import dtypes
from tir.ir import Block, Call, Store, Var
from tir.size import mapped
from tir.traverse import loads, stores, walk

from ..rules.rule import Verdict

UNROLL = (16, 0, 64, 512, 1024)
STAGES = (2, 1, 3, 4)  # tiles of shared memory that take turns
RESIDENT = (1, 2, 3)  # blocks for which a multiprocessor shall have registers
WIDEST = 16  # bytes that a thread moves at once
SKEWS = ((1, 0), (8, 4), (2, 1))  # rows of a tile are a multiple of the first and the second elements long


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis of a tiled block: its loops, level by level, outermost first, and the lengths of the levels inside of a block; of
    one iteration, a single loop. `group` is the loop over blocks that run together, for the one axis that has such a level."""

    name: str
    spatial: bool
    loops: tuple[str, ...]
    lengths: tuple[int, ...]
    group: tuple[str, ...] = ()


class TileThroughShared:
    """Rules 3 to 5 of Ansor (table 1) with its cache reads, as on a GPU: a reduction that reuses data is tiled as SSSRRSRS.

    The outermost spatial level is the blocks, then come virtual threads and threads. In each step of the outermost reduction the
    threads of a block load a tile of every operand that is read at one place into shared memory together, a number of elements at
    once that is left open; what makes an operand element by element is computed as it is loaded. Each thread accumulates in
    registers; its elements, or those of the elementwise consumer, are written at the end. What is `ours` is not in the paper:
    sums of plain products are padded with zeros to whole tiles, and their blocks go through the columns some rows together, so
    that what they read stays in the second-level cache; rows of shared memory may be skewed, so that threads that walk a column
    meet different banks; tiles are loaded some steps ahead; registers may be kept for several blocks.
    """

    name = "tiling through shared memory"

    def __init__(self, ours: bool = True):
        self.ours = ours

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        b = state.block(block)
        axes = state.axes(block)
        if block in state.scheduled or len(axes) != len(b.iters) or not isinstance(b.body, Store) or b.init is None:
            return Verdict.SKIP
        if not reuses_data(b) or state.get_loops(block) != [loop for _, loop in axes]:
            return Verdict.SKIP
        return Verdict.ONLY if all(isinstance(i, Var) for i in b.body.indices) else Verdict.SKIP

    def apply(self, state: OpenSchedule, block: str) -> list[OpenSchedule]:
        new = state.fired(self.name, block)
        _tile(new, block, self.ours)
        return [new]


def _tile(state: OpenSchedule, block: str, ours: bool) -> None:
    s = state
    copies = {s.cache_read(block, buffer, "shared"): buffer for buffer in _read_once(state.block(block))}
    after = accumulate(state, block, "local")
    for copy in copies:
        inline_producers(state, copy)
    axes = _split(state, block, ours)
    spatial = [a for a in axes if a.spatial and a.lengths]
    reduce = [a for a in axes if not a.spatial and a.lengths]
    blocks = [a.loops[0] for a in axes if a.spatial and not a.lengths] + [a.loops[0] for a in spatial]
    blocks += [loop for a in spatial for loop in a.group]
    steps = [a.loops[0] for a in axes if not a.spatial]
    dims = [i.name for i in stores(state.block(block).body)[0].indices]  # type: ignore[attr-defined]
    s.reorder(
        *blocks, *steps, *(a.loops[1] for a in spatial), *(a.loops[2] for a in spatial), *(a.loops[1] for a in reduce),
        *(a.loops[3] for a in spatial), *(a.loops[2] for a in reduce), *(a.loops[4] for a in spatial),
    )  # fmt: skip
    for copy in copies:
        s.compute_at(copy, steps[-1], preserve_unit_loops=True)
    s.reverse_compute_at(after, blocks[-1], preserve_unit_loops=True)
    first = s.decompose_reduction(block, steps[0])
    grid = bind_blocks(s, blocks)
    start = s.get_loops(first)[1:]
    n = len(spatial)
    for level, kind in ((start[:n], "vthread"), (start[n : 2 * n], "threadIdx")):
        bind_group(s, level, kind)
    bind_group(s, [a.loops[1] for a in spatial], "vthread")
    bind_group(s, [a.loops[2] for a in spatial], "threadIdx")
    step = s.fuse(*steps) if len(steps) > 1 else steps[0]
    others = [prod(a.lengths[1] for a in spatial[:-1])] if n > 1 else []
    threads = [*others, spatial[-1].lengths[1]]
    _bind_result(state, after, dims, spatial)
    for copy, buffer in copies.items():
        if ours:
            _skew(state, block, copy, buffer)
        fetch(state, block, copy, buffer, threads)
    if ours:
        run_ahead(state, block, grid, step, STAGES)
    unroll_upto(state, block, step, UNROLL)
    for name in (block, f"{block}_update", first, after, *copies):
        state.scheduled[name] = Stage.BOUND


def _read_once(block: Block) -> list[str]:
    """The buffers that a block reads at one place alone; a tile around two places may be as large as the buffer, and none is
    needed around the only one of rank 0."""
    written = {x.buffer.name for x in stores(block)}
    places = [x.buffer.name for x in dict.fromkeys(loads(block.body)) if x.buffer.name not in written and x.indices]
    return [name for name in dict.fromkeys(places) if places.count(name) == 1]


def accumulate(state: OpenSchedule, block: str, scope: str) -> str:
    """Let a block accumulate in buffers of a scope; the stage that writes what it computed: its elementwise consumer, or a
    copy."""
    after = epilogue(state, block)
    if after is not None and after not in state.scheduled and not state.is_output(block):
        state.set_scope(block, 0, scope)
        return after
    return state.cache_write(block, 0, scope)


def run_ahead(state: OpenSchedule, block: str, grid: str, step: str, stages: tuple[int, ...]) -> None:
    """Leave open how many tiles of shared memory take turns, where copies run on their own (two at most elsewhere), and for how
    many blocks registers are kept."""
    known = stages if state.target.machine.modern else tuple(n for n in stages if n <= 2)
    state.annotate(step, "pipeline_stages", state.choose(f"{block} stages", known, block=block, role=Role.STAGES))
    state.annotate(grid, "resident_blocks", state.choose(f"{block} resident", RESIDENT, block=block, role=Role.RESIDENT))


def unroll_upto(state: OpenSchedule, block: str, loop: str, options: tuple[int, ...]) -> None:
    """Leave open how many statements unrolling what is in a loop of a block may make."""
    most = state.choose(f"{block} unroll", options, block=block, role=Role.PRAGMA)
    state.annotate(loop, "pragma_auto_unroll_max_step", most)


def inline_producers(state: OpenSchedule, copy: str) -> None:
    """What makes an operand element by element, such as padding, is computed as it is loaded; but not what is costly and could be
    computed where a reduction makes its input."""
    for name in state.get_producers(copy):
        b = state.block(name)
        if b.init is not None or name in state.scheduled or state.get_consumers(name) != [copy]:
            continue
        if any(isinstance(n, Call) for n in walk(b.body)) and any(state.block(p).is_reduction for p in state.get_producers(name)):
            continue
        try:
            state.compute_inline(name)
        except ScheduleError:
            continue
        state.rules.append(f"{name}: inline")
        if name in state.pending:
            state.pending.remove(name)
        inline_producers(state, copy)
        return


def _paddable(state: OpenSchedule, block: str) -> bool:
    """Whether all axes of a block can be padded to any multiple."""
    try:
        state.copy().pad_einsum(block, [2 * extent(it) + 1 if extent(it) > 1 else 1 for it in state.block(block).iters])
    except ScheduleError:
        return False
    return True


def _split(state: OpenSchedule, block: str, ours: bool) -> list[_Axis]:
    """All axes in levels, those that walk the last dimension written last. Where it is `ours` and they can, they are padded to
    multiples of their tiles first, and the last axis but one has a level of blocks that run together."""
    b = state.block(block)
    store = stores(b.body)[0]
    last = next((i.name for i in reversed(store.indices) if extent(_iter(b, i)) > 1), None)
    order = sorted(b.iters, key=lambda it: it.var.name == last)
    tiled = [it.var.name for it in order if is_spatial(it) and extent(it) > 1]
    padded = ours and _paddable(state, block)
    grouped = tiled[-2] if padded and len(tiled) > 1 else None
    roles = {
        it.var.name: "" if extent(it) == 1 else ("g" if it.var.name == grouped else "") + ("vtss" if is_spatial(it) else "rr")
        for it in b.iters
    }
    bounds = {"perfect": not ours, "padded": padded}
    lengths = {name: state.sizes(block, name, len(own), roles=own, **bounds) for name, own in roles.items() if own}
    if padded:
        pad(state, block, lengths)
    found: dict[str, _Axis] = {}
    for it, loop in state.axes(block):
        name = it.var.name
        levels = roles[name]
        if not levels:
            found[name] = _Axis(name, is_spatial(it), (loop,), ())
            continue
        loops, group = state.split(loop, [None, *lengths[name]]), levels.count("g")
        inner = tuple(lengths[name][group:])
        found[name] = _Axis(name, is_spatial(it), (loops[0], *loops[1 + group :]), inner, tuple(loops[1 : 1 + group]))
    return [found[it.var.name] for it in order]


def pad(
    state: OpenSchedule, block: str, lengths: Mapping[str, Sequence[int]], units: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Pad the axes of a block to multiples of their tiles, which have so many elements level by level, in units of so many."""
    axes = [it.var.name for it in state.block(block).iters]
    state.pad_einsum(block, [prod(lengths[name]) * units.get(name, 1) if name in lengths else 1 for name in axes])


def _iter(block: Block, index):
    return next(it for it in block.iters if it.var == index)


def _bind_result(state: OpenSchedule, after: str, dims: list[str], spatial: list[_Axis]) -> None:
    """The result, whose dimensions are the axes `dims`, goes from registers to its place, by the threads that have it."""
    s = state
    own = s.get_loops(after)[1:]
    parts: dict[str, list[str]] = {}
    for axis in spatial:
        loop = own[dims.index(axis.name)]
        parts[axis.name] = state.split(loop, list(axis.lengths))
    rest = [x for x, axis in zip(own, dims, strict=True) if axis not in parts]
    levels = [[parts[a.name][n] for a in spatial] for n in range(4)]
    s.reorder(*rest, *(x for level in levels for x in level))
    bind_group(s, levels[0], "vthread")
    bind_group(s, levels[1], "threadIdx")
    if dims[-1] == spatial[-1].name:
        s.vectorize(levels[3][-1])


def _skew(state: OpenSchedule, block: str, copy: str, buffer: str) -> None:
    """Leave open how the rows of a tile lie in the banks of shared memory."""
    if len(stores(state.block(copy).body)[0].indices) < 2:
        return
    skew = state.choose(f"{copy} skew", SKEWS, block=block, buffer=buffer)
    state.storage_align(copy, 0, -2, mapped(skew, lambda v: v[0]), mapped(skew, lambda v: v[1]))


def fetch(state: OpenSchedule, block: str, copy: str, buffer: str, threads: Sequence[int]) -> None:
    """All threads of a block load a tile of an operand `buffer` together, neighbours next to each other, an open number of
    elements at once.

    `threads` are the extents of the axes x (last), y and z, and the loops of the copy those inside of the blocks and a step.
    """
    s = state
    own = s.get_loops(copy)[2:]
    nbytes = dtypes.nbytes(stores(state.block(copy).body)[0].buffer.dtype)
    widths = tuple(w for w in (1, 2, 4, 8, 16) if w * nbytes <= WIDEST)
    lanes = state.choose(f"{copy} vector", widths, block=block, role=Role.COPY_WIDTH, buffer=buffer)
    *own, lane = [*own[:-1], *s.split(own[-1], [None, lanes])]
    fused = s.fuse(*own) if len(own) > 1 else own[0]
    _, *names = state.split(fused, [None, *threads])
    for axis, loop in zip("xyz", reversed(names), strict=False):
        s.bind(loop, f"threadIdx.{axis}")
    s.vectorize(lane)


def bind_group(s: Schedule, loops: list[str], kind: str) -> None:
    """Bind the last of some nested loops to x, and the others, fused, to y."""
    s.bind(loops[-1], f"{kind}.x")
    if len(loops) > 1:
        s.bind(s.fuse(*loops[:-1]) if len(loops) > 2 else loops[0], f"{kind}.y")


def bind_blocks(s: Schedule, loops: list[str]) -> str:
    """Bind the outermost loops of a nest to blocks, as one loop: no other axis of a grid has more than 65535."""
    fused = s.fuse(*loops) if len(loops) > 1 else loops[0]
    s.bind(fused, "blockIdx.x")
    return fused
