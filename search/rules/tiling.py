"""Multi-level tiling of blocks that reuse data, with or without an elementwise consumer computed in the tile."""

from __future__ import annotations

from schedule import ScheduleError
from tir.ir import Block, Store, Var
from tir.traverse import loads, stores, variables

from ..sketch import State, Tile, element_bits, extent, is_spatial
from .rule import Verdict

STRUCTURE = "SSRSRS"  # levels of tiles on a CPU, outermost first: S all spatial axes, R all reduction axes


def reuses_data(block: Block) -> bool:
    """Whether a reduction reads elements again in other iterations: some operand lacks a spatial axis.

    Ansor (section 4.1, HasDataReuse) also counts blocks without a reduction in which two operands lack an axis, as in a
    normalisation; tiling gains nothing there, and keeps producers from being fused row by row.
    """
    if not block.is_reduction:
        return False
    written = {s.buffer.name for s in stores(block)}
    spatial = [it for it in block.iters if is_spatial(it) and extent(it) > 1]
    for load in loads(block.body):
        if load.buffer.name not in written:
            used = set().union(*(variables(i) for i in load.indices), set())
            if any(it.var.name not in used for it in spatial):
                return True
    return False


def elementwise_consumer(state: State, block: str) -> str | None:
    """The only consumer of a block, if it reads exactly one element a point, in the order of the block's axes."""
    consumers = state.schedule.get_consumers(block)
    if len(consumers) != 1:
        return None
    consumer = state.block(consumers[0])
    written = {s.buffer.name: s for s in stores(state.block(block))}
    if len(written) != 1 or consumer.is_reduction or not isinstance(consumer.body, Store):
        return None
    (name,) = written
    order = [it.var for it in consumer.iters]
    for load in loads(consumer.body):
        if load.buffer.name == name and list(load.indices) != order:
            return None
    return consumer.name if list(consumer.body.indices) == order else None


def walks_memory(block: Block) -> bool:
    """Whether the axis that walks the last dimension written walks the last dimension of something read too, so that vectors of
    it are loaded in one piece (a matrix product does; one with a transposed right side, or with a vector, does not)."""
    store = stores(block.body)[0]
    if not store.indices or not isinstance(store.indices[-1], Var):
        return False
    axis = store.indices[-1].name
    reads = [load for load in loads(block.body) if load.buffer.name != store.buffer.name and load.indices]
    return any(axis in variables(load.indices[-1]) for load in reads)


def tileable(state: State, block: str) -> bool:
    b = state.block(block)
    if block in state.marks or not reuses_data(b) or not walks_memory(b) or len(state.axes(block)) != len(b.iters):
        return False
    return state.schedule.get_loops(block) == [loop for _, loop in state.axes(block)]


def tile(state: State, block: str) -> None:
    """Split and reorder the loops of a block into STRUCTURE with open tile sizes; axes of one iteration stay outermost."""
    levels: list[list[str]] = [[] for _ in STRUCTURE]
    spatial = [n for n, letter in enumerate(STRUCTURE) if letter == "S"]
    reduce = [n for n, letter in enumerate(STRUCTURE) if letter == "R"]
    bits = element_bits(state.block(block))
    store = stores(state.block(block).body)[0]
    last = store.indices[-1] if store.indices else None
    for it, loop in state.axes(block):
        places = spatial if is_spatial(it) else reduce
        if extent(it) == 1:
            levels[places[0]].append(loop)
            continue
        names, columns = state.split(loop, len(places))
        vector = is_spatial(it) and isinstance(last, Var) and last.name == it.var.name
        state.tiles.append(Tile(block, it.var.name, extent(it), not is_spatial(it), columns, vector, bits))
        for place, name in zip(places, names, strict=True):
            levels[place].append(name)
    # The vectorised axis goes innermost.
    vector_loops = {t.axis for t in state.tiles if t.block == block and t.vector}
    bound = {loop: it.var.name for it, loop in _drivers(state, block)}
    levels[-1].sort(key=lambda loop: bound.get(loop) in vector_loops)
    ordered = [loop for level in levels for loop in level]
    if len(ordered) > 1:
        state.schedule.reorder(*ordered)
    state.marks[block] = "tiled"
    state.levels[block] = levels


def _drivers(state: State, block: str):
    return [(it, loop) for it in state.block(block).iters for loop in sorted(variables(it.binding))]


class MultiLevelTiling:
    """Rule 3 of Ansor (table 1): tile a block that reuses data."""

    name = "multi-level tiling"

    def applies(self, state: State, block: str) -> Verdict:
        return Verdict.ONLY if tileable(state, block) else Verdict.SKIP

    def apply(self, state: State, block: str) -> list[State]:
        new = state.fired(self.name, block)
        tile(new, block)
        return [new]


class TilingWithFusion:
    """Rule 4 of Ansor (table 1): tile a block that reuses data and compute its elementwise consumer in the tile: after the first
    or after the second level of spatial loops, one sketch each."""

    name = "tiling with fusion"

    def applies(self, state: State, block: str) -> Verdict:
        if not tileable(state, block) or elementwise_consumer(state, block) is None:
            return Verdict.SKIP
        consumer = elementwise_consumer(state, block)
        if consumer in state.marks:
            return Verdict.SKIP
        # A consumer that is the copy out of a cache stage exists only to be fused.
        return Verdict.ONLY if state.marks.get(f"copy of {block}") == consumer else Verdict.APPLY

    def apply(self, state: State, block: str) -> list[State]:
        results = []
        for depth in (1, 2):
            new = state.fired(f"{self.name} at level {depth}", block)
            consumer = elementwise_consumer(new, block)
            assert consumer is not None
            tile(new, block)
            at = [loop for level in new.levels[block][:depth] for loop in level]
            if not at:
                continue
            try:
                new.schedule.reverse_compute_at(consumer, at[-1], preserve_unit_loops=True)
            except ScheduleError:
                continue
            new.marks[consumer] = "fused"
            results.append(new)
        return results
