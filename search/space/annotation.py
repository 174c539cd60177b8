"""Annotation as Ansor does it (OSDI 2020, section 4.2): compute locations, parallel loops, unrolling and vectorisation.

The sketch has a column for each number or place that Ansor samples, with the same options. Tile sizes are open here, so limits
that depend on them are left to sampling. The innermost loop may always be vectorised, because no later step does it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush

from schedule.open_schedule import OpenSchedule, Stage
from schedule.open_trace import Role
from schedule.templates.annotate import roots
from schedule.templates.marks import choose_unroll, fuse_all, parallel
from tir.ir import NOT_SPATIAL, Block, For, Kind
from tir.traverse import axis_loops, blocks, iterations, loops_to, walk_stmts

MAX_VECTOR_ITERATIONS = 16  # maximum number of iterations fused into a vector
MAX_DEPTHS = 4  # maximum number of choices for how many loops are parallel
MAX_PLACEMENTS = 8  # maximum number of combinations of compute locations in a sketch


def annotate(state: OpenSchedule) -> None:
    """Ansor's annotation, with compute locations."""
    ways = {label: partial(annotate_in_place, places=places) for label, places in _placements(state)}
    state.branch("compute locations", ways, role=Role.LOCATION)


def annotate_in_place(state: OpenSchedule, places: Sequence[tuple[str, str]] = ()) -> None:
    """Ansor's annotation, with stages at these places, (block, loop) pairs; the others stay where the rules put them."""
    for block, loop in places:
        state.compute_at(block, loop, preserve_unit_loops=True)
    for nest in roots(state):
        _annotate_nest(state, nest)


# --- compute locations ---------------------------------------------------------------------------------------------------


def _placements(state: OpenSchedule) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """Placements of the movable stages as (block, loop) pairs, each with a label.

    The first leaves all stages at root. The others are sorted by the number of stages not at their outermost legal loop."""
    movable = [b.name for b in reversed(blocks(state.func)) if _movable(state, b.name)]
    order = itertools.count(0, -1)
    work: list[tuple[int, int, int, OpenSchedule, tuple[tuple[str, str], ...]]] = [(0, next(order), 0, state, ())]
    found: dict[tuple[tuple[str, str], ...], None] = {(): None}
    while work and len(found) < MAX_PLACEMENTS:
        departures, _, depth, here, steps = heappop(work)
        if depth == len(movable):
            found[steps] = None
            continue
        block = movable[depth]
        options: list[tuple[OpenSchedule, tuple[tuple[str, str], ...]]] = []
        for loop in _candidates(here, block):
            new = here.copy()
            if new.attempt(OpenSchedule.compute_at, block, loop, True):
                options.append((new, (*steps, (block, loop))))
        for n, (new, taken) in reversed(list(enumerate([*options, (here, steps)]))):
            heappush(work, (departures + min(n, 1), next(order), depth + 1, new, taken))
    return [("; ".join(f"{b} at {loop}" for b, loop in steps) or "all at root", steps) for steps in found]


def _movable(state: OpenSchedule, block: str) -> bool:
    """True if a stage is not tiled, not tied to a tiled one, and no output."""
    return state.scheduled.get(block) in (None, Stage.FACTORED) and not state.is_output(block)


def _candidates(state: OpenSchedule, block: str) -> list[str]:
    """The loops at which a stage may be computed: serial loops around all its consumers, outermost first.

    Around an untiled consumer, they end before its first reduction loop; around a tiled one, after the first run of these."""
    consumers = state.get_consumers(block)
    if not consumers:
        return []
    paths = [loops_to(state.func.body, c) for c in consumers]
    open_loops = state.open_loops()
    found: list[str] = []
    reduced = False
    for level in zip(*paths, strict=False):
        loop = level[0]
        if any(x is not loop for x in level) or loop.kind is not Kind.SERIAL:
            break
        reduces = any(loop.name in axis_loops(state.block(b), *NOT_SPATIAL) for b in consumers)
        if reduces and state.tiled(consumers[0]) is None:
            break
        if reduced and not reduces:
            break
        reduced = reduced or reduces
        if not loop.extent.is_one or loop.name in open_loops:
            found.append(loop.name)
    return found


# --- parallel, unrolled, vectorised ----------------------------------------------------------------------------------------


def _annotate_nest(state: OpenSchedule, nest: str) -> None:
    """Fuse a number of outer spatial loops and make them parallel; then unroll and vectorise loops inside."""
    stages = [b.name for b in walk_stmts(state.loop(nest)) if isinstance(b, Block)]
    if not stages:
        return
    loops = outer_spatial(state.loop(nest), {v for b in stages for v in axis_loops(state.block(b), *NOT_SPATIAL)})
    chain = [loop.name for loop in loops] if state.target.num_cores > 1 else []
    # First the least number of loops with over 16 iterations a thread, by their known extents; then the numbers nearest to it.
    enough = next((n for n in range(1, len(chain)) if iterations(loops[:n]) > 16 * state.target.num_cores), len(chain))
    depths = sorted(range(1, len(chain) + 1), key=lambda n: (abs(n - enough), -n))[:MAX_DEPTHS]
    owner = next((b for b in stages if state.tiled(b) is not None), stages[-1])
    ways = {f"{n} parallel": partial(_finish_nest, stages=stages, shared=chain[:n]) for n in depths}
    if not ways or not state.branch(f"parallel loops of {stages[-1]}", ways, block=owner, role=Role.PARALLEL):
        _finish_nest(state, stages)


def outer_spatial(loop: For, reduced: set[str]) -> list[For]:
    """The outermost serial loops of a nest that are not `reduced`, up to and with the first that has several statements."""
    chain: list[For] = []
    while loop.kind is Kind.SERIAL and loop.name not in reduced:
        chain.append(loop)
        if not isinstance(loop.body, For):
            break
        loop = loop.body
    return chain


def _finish_nest(state: OpenSchedule, stages: list[str], shared: Sequence[str] = ()) -> None:
    """Have threads share the `shared` loops; then unroll and vectorise the loops of the stages."""
    if shared:
        parallel(state, shared)
    for block in stages:
        if state.block(block).is_reduction and state.scheduled.get(block) != Stage.UNROLLED:
            choose_unroll(state, block, _own_loop(state, block))
    for block in stages:
        if state.scheduled.get(block) != Stage.UNROLLED:
            _vectorize(state, block)


def _own_loop(state: OpenSchedule, block: str) -> str | None:
    """The outermost loop that encloses a stage alone, or None."""
    loops = loops_to(state.func.body, block)
    return next((x.name for x in loops if sum(isinstance(s, Block) for s in walk_stmts(x)) == 1), None)


def _vectorize(state: OpenSchedule, block: str) -> None:
    """Vectorise the last loop of a stage, or some of the last ones fused."""
    path = loops_to(state.func.body, block)
    own: list[For] = []
    inner: Block | For = state.block(block)
    for loop in reversed(path):
        if loop.body is not inner or loop.kind is not Kind.SERIAL or loop.name in axis_loops(state.block(block), *NOT_SPATIAL):
            break
        inner = loop
        own.append(loop)
        if state.tiled(block) is not None or loop.annotations:
            break
        if iterations(own) > MAX_VECTOR_ITERATIONS and len(own) > 1:
            own.pop()
            break
    names = [x.name for x in own]
    if names:
        counts = range(1, max(2, len(names)))
        ways = {f"{n} vectorised": partial(_vectorize_fused, loops=names[:n][::-1]) for n in counts}
        state.branch(f"vector of {block}", ways, block=block)


def _vectorize_fused(state: OpenSchedule, loops: Sequence[str]) -> None:
    state.vectorize(fuse_all(state, loops))
