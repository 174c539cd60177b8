"""Copies of operands in the order in which the loops of a tiled block walk them: which to make, and where, as branches."""

from __future__ import annotations

from collections.abc import Callable

from schedule import ScheduleError
from tir.ir import Var
from tir.traverse import loads, stores, variables

from .sketch import State, is_spatial

Change = Callable[[State], object]
ALIGNED, SKEWED = 32, 16  # elements: rows of a copy start in different sets of the cache


def choose_packs(state: State, block: str, place: str | None, then: Change) -> None:
    """Branches for the operands of a tiled block: each read as it is or from a copy that `pack` makes; `then` follows in each.

    An operand without the vectorised axis is copied at the loop `place`, block by block, or in front where that is None; if its
    rows lie along the sum, it may be copied so that they still do, which makes vectors of the copying. One with the vectorised
    axis is copied in front, by all threads.
    """
    _visit(state, block, place, _operands(state, block), then)


def _operands(state: State, block: str) -> list[str]:
    """The buffers that a block reads and can read through a packed copy."""
    b = state.block(block)
    written = {s.buffer.name for s in stores(b)}
    found = []
    for buffer in dict.fromkeys(load.buffer.name for load in loads(b.body) if load.buffer.name not in written):
        try:
            state.schedule.copy().pack(block, buffer, preserve_unit_loops=True)
        except ScheduleError:
            continue
        found.append(buffer)
    return found


def _visit(state: State, block: str, place: str | None, operands: list[str], then: Change) -> None:
    if not operands:
        then(state)
        return
    buffer, *rest = operands

    def way(copy: Change) -> Change:
        def change(new: State) -> None:
            copy(new)
            _visit(new, block, place, rest, then)

        return change

    ways: list[tuple[str, Change]] = [("as it is", way(lambda new: None))]
    load = next(load for load in loads(state.block(block).body) if load.buffer.name == buffer)
    axes = set().union(*(variables(i) for i in load.indices))
    vector = {t.axis for t in state.tiles if t.block == block and t.vector}
    if axes & vector or place is None:
        ways.append(("in front", way(lambda new: _in_front(new, block, buffer))))
    else:
        last = load.indices[-1]
        sums = {it.var.name for it in state.block(block).iters if not is_spatial(it)}
        if isinstance(last, Var) and last.name in sums:
            ways.append(("by rows", way(lambda new: _by_rows(new, block, buffer, place))))
        ways.append(("by tiles", way(lambda new: _by_tiles(new, block, buffer, place))))
    state.branch(f"pack {buffer} for {block}", ways)


def _in_front(state: State, block: str, buffer: str) -> None:
    copy = state.schedule.pack(block, buffer, preserve_unit_loops=True)
    loops = state.schedule.get_loops(copy)
    state.schedule.vectorize(loops[-1])
    if state.target.num_cores > 1 and len(loops) > 2:
        state.schedule.parallel(state.schedule.fuse(*loops[:-2]) if len(loops) > 3 else loops[0])


def _by_tiles(state: State, block: str, buffer: str, place: str) -> None:
    copy = state.schedule.pack(block, buffer, preserve_unit_loops=True)
    state.schedule.compute_at(copy, place, preserve_unit_loops=True)
    state.schedule.vectorize(state.schedule.get_loops(copy)[-1])


def _by_rows(state: State, block: str, buffer: str, place: str) -> None:
    """Like `_by_tiles`, with the sum inside the rows of a tile while the order is taken down."""
    (sum_loop,), (row_loop,) = state.levels[block][-3][-1:], state.levels[block][-2]
    state.schedule.reorder(row_loop, sum_loop)
    copy = state.schedule.pack(block, buffer, preserve_unit_loops=True)
    state.schedule.reorder(sum_loop, row_loop)
    state.schedule.compute_at(copy, place, preserve_unit_loops=True)
    state.schedule.vectorize(state.schedule.get_loops(copy)[-1])
    state.schedule.storage_align(copy, 0, -2, ALIGNED, SKEWED)
