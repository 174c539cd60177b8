"""Annotation of a finished derivation: loops become parallel, vectorised and unrolled, and stages get their places."""

from __future__ import annotations

from collections.abc import Sequence

from schedule.open_schedule import Continuation, OpenSchedule, Stage, Tiled
from schedule.open_trace import Role
from schedule.primitive import blocks_below
from tir.ir import Block, For, Kind, Store
from tir.traverse import blocks, loops_to, stores, variables, walk_stmts

from ..rewriting.edits import statements_of
from . import elementwise, normal_form
from .block_analysis import driven_axes, size, walks_memory
from .marks import annotate_shares, choose_unroll, parallel, prefetch, stream
from .pack_branches import choose_packs

MIN_VECTOR_BITS = 256  # least bits of half a register for which vectors of halves are tried
WIDTH_WEIGHTS = (0.9, 0.1)  # probabilities of sampling whole registers, and halves


def annotate(state: OpenSchedule) -> None:
    """Mark the loops of every nest that no template finished (Ansor, section 4.2; here much of the choice is by structure)."""
    _place_stages(state, [b.name for b in reversed(blocks(state.func)) if _movable(state, b.name)])
    normal_form.restore(state)


def roots(state: OpenSchedule) -> list[str]:
    """The outermost loops of the function."""
    return [s.name for s in statements_of(state.func.body) if isinstance(s, For)]


# --- compute locations -----------------------------------------------------------------------------------------------------


def _movable(state: OpenSchedule, block: str) -> bool:
    """True where a stage, such as the padding of a convolution, may be computed within the one tiled block that reads it."""
    consumers = state.get_consumers(block)
    if block in state.scheduled or state.is_output(block) or state.block(block).is_reduction or len(consumers) != 1:
        return False
    return state.tiled(consumers[0]) is not None and isinstance(state.block(block).body, Store)


def _place_stages(state: OpenSchedule, movable: list[str]) -> None:
    """Branch over the place of each movable stage: a nest of its own, a level of its consumer's tiles, or inline."""
    if not movable:
        _annotate(state)
        return
    block, *rest = movable
    (consumer,) = state.get_consumers(block)

    def at(loop: str) -> Continuation:
        def way(new: OpenSchedule) -> None:
            new.compute_at(block, loop, preserve_unit_loops=True)
            new.scheduled[block] = Stage.FUSED
            _place_stages(new, rest)

        return way

    def inline(new: OpenSchedule) -> None:
        new.compute_inline(block)
        _place_stages(new, rest)

    ways: dict[str, Continuation] = {"a nest of its own": lambda new: _place_stages(new, rest)}
    ways |= {f"at {loop}": at(loop) for loop in state.tiling(consumer).places}
    state.branch(f"place of {block}", ways | {"inline": inline}, block=consumer, role=Role.LOCATION)


# --- loops -----------------------------------------------------------------------------------------------------------------


def _annotate(state: OpenSchedule) -> None:
    for block in [b.name for b in blocks(state.func)]:
        if elementwise.matches(state.block(block)) and block not in state.scheduled and _owns_its_loops(state, block):
            elementwise.build(state, block)
        elif state.tiled(block) is None and not _is_finished(state, block):
            _vectorize_last(state, block)
    for nest in roots(state):
        if not all(_is_finished(state, b.name) for b in walk_stmts(state.loop(nest)) if isinstance(b, Block)):
            _annotate_nest(state, nest)


def _owns_its_loops(state: OpenSchedule, block: str) -> bool:
    """True where a block has its loops to itself."""
    nest = state.get_loops(block)
    return bool(nest) and len(blocks_below(state.loop(nest[0]))) == 1 and len(nest) == len(state.axes(block))


def _is_finished(state: OpenSchedule, block: str) -> bool:
    """True where a block needs no annotation: its template finished it, or it is a view, which goes at the end."""
    return state.scheduled.get(block) in (Stage.DONE, Stage.VIEW)


def _mark_tile(state: OpenSchedule, block: str) -> None:
    """Unroll the loops of a block's register tile but the vector, which fills whole registers, or half of one."""
    tiled = state.tiling(block)
    loops = [loop for level in tiled.levels[-tiled.tile :] for loop in level]
    if not loops:  # every axis has one element
        return
    *others, last = loops
    for loop in others:
        state.attempt(OpenSchedule.unroll, loop)
    drives = driven_axes(state.block(block))
    tile = next((t for t in state.tiles if t.block == block and t.vector and t.axis == drives.get(last)), None)
    if tile is None:
        state.attempt(OpenSchedule.unroll, last)
        return
    half = state.target.lanes(tile.bits) // 2

    def halves(new: OpenSchedule) -> None:
        outer, lanes = new.split(last, [None, half])
        new.unroll(outer)
        new.vectorize(lanes)

    ways: dict[str, Continuation] = {"whole registers": lambda new: new.attempt(OpenSchedule.vectorize, last)}
    if half * tile.bits >= MIN_VECTOR_BITS and tile.extent > half:
        ways["half registers"] = halves
    state.branch(f"{block} vectors", ways, weights=WIDTH_WEIGHTS, block=block, role=Role.VECTOR_WIDTH)


def _vectorize_last(state: OpenSchedule, block: str) -> None:
    """Vectorise the loop of an untiled block that walks the last dimension written; it becomes the innermost one."""
    b = state.block(block)
    store = stores(b.body)[0] if stores(b.body) else None
    if store is None or not store.indices:
        return
    nest = loops_to(state.func.body, block)
    if any(x.kind is Kind.VECTORIZED for x in nest):
        return
    names = [loop.name for loop in nest]
    driving = {v for it in b.spatial if it.var == store.indices[-1] for v in variables(it.binding)}
    # The innermost loop that drives the axis: those further out are levels of tiles. In a tile of another block its length is
    # open, with a stand-in of one iteration.
    open_lengths = state.scheduled.get(block) == Stage.FUSED
    loop = next((x.name for x in reversed(nest) if x.name in driving and (open_lengths or not x.extent.is_one)), None)
    if loop is None or nest[-1].body is not b or (b.is_reduction and not walks_memory(b)):
        return
    inner = names[names.index(loop) + 1 :]
    if not inner or state.attempt(OpenSchedule.reorder, *inner, loop):
        state.attempt(OpenSchedule.vectorize, loop)


def _annotate_nest(state: OpenSchedule, nest: str) -> None:
    """Branch over the number of fused parallel loops, and over packed copies; then choose the numbers of the nest."""
    chain = [state.loop(nest)]
    while isinstance(chain[-1].body, For):
        chain.append(chain[-1].body)
    names = [x.name for x in chain]
    inside = [b.name for b in walk_stmts(chain[0]) if isinstance(b, Block)]
    tiled = [b for b in inside if state.tiled(b) is not None]
    owner = (tiled or inside[-1:] or [""])[0]

    def finish(new: OpenSchedule, depth: int) -> None:
        if depth:
            parallel(new, names[:depth])
            annotate_shares(new, inside[-1], owner, alike=bool(tiled), uneven=any(new.tiling(b).uneven for b in tiled))
        for block in inside:
            if (own := new.tiled(block)) is not None:
                choose_unroll(new, block, own.pragma, seed=own.statements)
            prefetch(new, block)
            stream(new, block)
        for block in tiled:
            _mark_tile(new, block)

    first = state.tiled(tiled[0]) if tiled else None

    def way(depth: int) -> Continuation:
        shared = names[depth - 1] if depth else None
        return lambda new: _choose_packs(new, tiled, shared, lambda done: finish(done, depth), few=len(tiled) > 1)

    if state.at_seed and first is not None and first.shared is not None:
        way(first.shared)(state)
        return
    work = sum(size(state.block(b.name).iters) for b in walk_stmts(state.loop(nest)) if isinstance(b, Block))
    machine = state.target.machine
    if machine.threads(work * machine.core.latency) > 1:  # each iteration may wait for the one before it
        units = next((n for n, x in enumerate(chain) if not x.extent.is_one), len(chain)) if not tiled else 0
        tried = [d for d in dict.fromkeys(_parallel_depths(first, len(names), units)) if units < d <= len(names)]
        lower = range(max(tried, default=0) - 1, units, -1)
        legal = [d for d in tried if _can_be_parallel(state, names[:d])] or [
            d for d in lower if _can_be_parallel(state, names[:d])
        ][:1]
        serial = {"none parallel": way(0)} if work * machine.fma_cycles(32) < machine.memory.wake else {}
        ways = {_depth_label(d): way(d) for d in legal} | serial
        seed = None if first is None or first.shared is None else _depth_label(first.shared)
        if state.branch(f"parallel loops of {inside[-1]}", ways, seed=seed, block=owner, role=Role.PARALLEL):
            return
    way(0)(state)


def _depth_label(depth: int) -> str:
    return f"{depth} parallel" if depth else "none parallel"


def _can_be_parallel(state: OpenSchedule, loops: list[str]) -> bool:
    """True where the outer loops of a nest may be fused and run on the threads."""
    return state.copy().attempt(parallel, loops)


def _parallel_depths(first: Tiled | None, loops: int, units: int) -> Sequence[int]:
    """The numbers of loops of a nest that may be parallel. A tiled block, the `first` of the nest, has its own, with the seed. In
    other nests it is all loops but the last, or one after the `units` outermost loops of one iteration."""
    if first is None:
        return [loops - 1, units + 1]
    return [*first.depths, *([first.shared] if first.shared else [])]


def _choose_packs(state: OpenSchedule, tiled: list[str], shared: str | None, then: Continuation, few: bool) -> None:
    """Branch over the packed copies that the blocks of a nest read; `shared` is the last loop that will be parallel."""
    if not tiled:
        then(state)
        return
    block, *rest = tiled
    found = state.tiling(block)
    assert found.operands is not None
    outermost, parts, *_ = found.levels
    place = [*outermost, *parts][-1] if found.operands.by_blocks else None
    if found.operands.in_front or (shared is not None and shared not in outermost):
        place = None  # threads share columns, and each of them needs all rows
    choose_packs(state, block, place, lambda new: _choose_packs(new, rest, shared, then, few), few)
