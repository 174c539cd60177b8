"""Annotation: loops of a finished derivation made parallel, vectorised and unrolled (the full space's way)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from schedule import ScheduleError
from tir.ir import Block, Const, For, Kind
from tir.traverse import blocks, path_to, stores, variables, walk_stmts

from .packs import Change, choose_packs
from .rules.tiling import walks_memory
from .sketch import State, extent, is_spatial

WORTH_THREADS = 8192  # iterations below which a nest takes no longer than waking the threads does
LONG = 4096  # iterations of a lone loop from which on it is shared among threads
CHUNKS = (1024, 256, 4096)  # iterations of its vectorised part


def annotate(state: State) -> None:
    """Mark the loops of every nest (Ansor, section 4.2; here much of the choice is by structure)."""
    for block in [b.name for b in blocks(state.func)]:
        if state.marks.get(block) == "tiled":
            _annotate_tile(state, block)
    for block in [b.name for b in blocks(state.func)]:
        if state.marks.get(block) not in ("tiled", "packed"):
            _vectorize_last(state, block)
            _combine_lanes(state, block)
    for nest in roots(state):
        _annotate_nest(state, nest)


def attempt(primitive: Callable[..., object], *args: str) -> bool:
    """Apply a primitive if it is legal here; says whether it was."""
    try:
        primitive(*args)
    except ScheduleError:
        return False
    return True


def roots(state: State) -> list[str]:
    """The outermost loops of the function."""
    found: list[str] = []

    def visit(s) -> None:
        if isinstance(s, For):
            found.append(s.name)
        elif not isinstance(s, Block):
            for child in getattr(s, "stmts", ()):
                visit(child)

    visit(state.func.body)
    return found


def iterations(state: State, loop: str) -> int:
    """How often blocks run below a loop."""
    found = [b for b in walk_stmts(state.loop(loop)) if isinstance(b, Block)]
    return sum(prod(extent(it) for it in state.block(b.name).iters) for b in found)


def _annotate_tile(state: State, block: str) -> None:
    inner = state.levels[block][-1]
    vector = {t.axis for t in state.tiles if t.block == block and t.vector}
    drives = {loop: it.var.name for it in state.block(block).iters for loop in variables(it.binding)}
    for n, loop in enumerate(inner):
        if n == len(inner) - 1 and drives.get(loop) in vector:
            attempt(state.schedule.vectorize, loop)
        else:
            attempt(state.schedule.unroll, loop)


def _vectorize_last(state: State, block: str) -> None:
    """Vectorise the loop of an untiled block that walks the last dimension written, moved innermost if it is not."""
    b = state.block(block)
    store = stores(b.body)[0] if stores(b.body) else None
    if store is None or not store.indices:
        return
    nest = [s for s in path_to(state.func.body, block) if isinstance(s, For)]
    if any(x.kind is Kind.VECTORIZED for x in nest):
        return
    names = [loop.name for loop in nest]
    driving = {v for it in b.iters if is_spatial(it) and it.var == store.indices[-1] for v in variables(it.binding)}
    # The innermost of the loops that drive the axis, as those further out are levels of tiles. Computed in a tile, it has an open
    # length, and the one iteration of its stand-in.
    open_lengths = state.marks.get(block) == "fused"
    loop = next((x.name for x in reversed(nest) if x.name in driving and (open_lengths or x.extent != Const(1))), None)
    if loop is None or nest[-1].body is not b or (b.is_reduction and not walks_memory(b)):
        return
    if len(nest) == 1 and state.target.num_cores > 1 and isinstance(nest[0].extent, Const) and nest[0].extent.value >= LONG:
        *_, loop = state.split_choice(f"{block} chunk", loop, CHUNKS)  # so that there is something to share among threads
        names = []
    inner = names[names.index(loop) + 1 :] if loop in names else []
    if not inner or attempt(state.schedule.reorder, *inner, loop):
        attempt(state.schedule.vectorize, loop)


def _combine_lanes(state: State, block: str) -> None:
    """Let the backend combine the partial results of a reduction in lanes in pairs."""
    if state.marks.get(block) == "lanes" and state.block(block).is_reduction:
        innermost = state.loop(state.schedule.get_loops(block)[-1])
        if innermost.kind is Kind.SERIAL:
            state.schedule.annotate(innermost.name, "combine_lanes", True)


def _annotate_nest(state: State, nest: str) -> None:
    """Branches for how many outer loops of a nest are fused and run on the threads, and for what its blocks read copies of."""
    chain = [state.loop(nest)]
    while isinstance(chain[-1].body, For):
        chain.append(chain[-1].body)
    names = [x.name for x in chain]
    inside = [b.name for b in walk_stmts(chain[0]) if isinstance(b, Block)]
    tiled = [b for b in inside if state.marks.get(b) in ("tiled", "packed")]

    def finish(new: State, depth: int) -> None:
        if depth:
            new.schedule.parallel(new.schedule.fuse(*names[:depth]) if depth > 1 else names[0])
        for block in tiled:
            if new.marks[block] == "packed":
                (rows,), (columns,) = new.levels[block][-2:]
                attempt(new.schedule.unroll, rows)
                attempt(new.schedule.vectorize, columns)

    def way(depth: int) -> Change:
        return lambda new: _choose_packs(new, tiled, names[depth - 1] if depth else None, lambda done: finish(done, depth))

    if state.target.num_cores > 1 and iterations(state, nest) >= WORTH_THREADS:
        tried = [d for d in dict.fromkeys(_depths(state, tiled, len(names))) if 0 < d <= len(names)]
        name = f"parallel loops of {inside[-1]}"
        if state.branch(name, [(f"{d} parallel", way(d)) for d in tried]):
            return
        # None of them is legal: as many as are.
        if any(state.branch(name, [(f"{d} parallel", way(d))]) for d in range(max(tried, default=0) - 1, 0, -1)):
            return
    way(0)(state)


def _depths(state: State, tiled: list[str], loops: int) -> list[int]:
    """How many loops of a nest may be parallel: of a tiled block those of the outermost level, or one less; of a packed product
    also blocks of columns, where these come next; elsewhere all but the last of the nest, or one."""
    if not tiled:
        return [max(1, loops - 1), 1]
    levels = state.levels[tiled[0]]
    outermost = len(levels[0])
    if state.marks[tiled[0]] == "tiled":
        return [outermost, outermost - 1]
    return [outermost] if levels[1] else [outermost, outermost + 1]


def _choose_packs(state: State, tiled: list[str], shared: str | None, then: Change) -> None:
    """Branches for what the blocks of a nest read packed copies of; `shared` is the last of the loops that will be parallel."""
    if not tiled:
        then(state)
        return
    block, *rest = tiled
    place = None
    if state.marks[block] == "packed":
        outermost, parts, *_ = state.levels[block]
        place = parts[0] if parts else shared or outermost[-1]
    choose_packs(state, block, place, lambda new: _choose_packs(new, rest, shared, then))
