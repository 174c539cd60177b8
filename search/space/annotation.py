"""Annotation as Ansor does it (OSDI 2020, section 4.2): compute locations, parallel loops, unrolling and vectorisation.

The sketch has a column for each number or place that Ansor samples, with the same options. Tile sizes are open here, so limits
that depend on them are left to sampling. The innermost loop may always be vectorised, because no later step does it.
"""

from __future__ import annotations

import itertools
from heapq import heappop, heappush

from schedule.open_schedule import OpenSchedule, Stage
from schedule.open_trace import Role
from schedule.templates.annotate import roots
from schedule.templates.marks import fuse_all
from tir.ir import NOT_SPATIAL, Block, For, Kind
from tir.traverse import axis_loops, blocks, iterations, loops_to, walk_stmts

UNROLL_LIMITS = (0, 16, 64, 512)  # maximum number of statements in an unrolled nest
MAX_VECTOR_ITERATIONS = 16  # maximum number of iterations fused into a vector
MAX_DEPTHS = 4  # maximum number of choices for how many loops are parallel
MAX_PLACEMENTS = 8  # maximum number of combinations of compute locations in a sketch


def annotate(state: OpenSchedule) -> None:
    """Ansor's annotation, with compute locations."""
    placed = _placements(state)
    state.branch("compute locations", {label: _finisher(steps) for label, steps in placed}, role=Role.LOCATION)


def annotate_in_place(state: OpenSchedule) -> None:
    """Ansor's annotation, without compute locations: each stage stays where the rules put it."""
    _annotate(state)


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


def _finisher(steps: tuple[tuple[str, str], ...]):
    """The branch that moves stages to these places and annotates the result."""

    def way(state: OpenSchedule) -> None:
        for block, loop in steps:
            state.compute_at(block, loop, preserve_unit_loops=True)
        _annotate(state)

    return way


# --- parallel, unrolled, vectorised ----------------------------------------------------------------------------------------


def _annotate(state: OpenSchedule) -> None:
    for nest in roots(state):
        _annotate_nest(state, nest)


def _annotate_nest(state: OpenSchedule, nest: str) -> None:
    """Fuse a number of outer spatial loops and make them parallel; then unroll and vectorise loops inside."""
    stages = [b.name for b in walk_stmts(state.loop(nest)) if isinstance(b, Block)]
    if not stages:
        return
    loops = outer_spatial(state.loop(nest), {v for b in stages for v in axis_loops(state.block(b), *NOT_SPATIAL)})
    chain = [loop.name for loop in loops]
    if not chain or state.target.num_cores == 1:
        _finish_nest(state, stages)
        return

    def parallel(depth: int):
        def way(new: OpenSchedule) -> None:
            new.parallel(fuse_all(new, chain[:depth]))
            _finish_nest(new, stages)

        return way

    # First the least number of loops with over 16 iterations a thread, by their known extents; then the numbers nearest to it.
    enough = next((n for n in range(1, len(chain)) if iterations(loops[:n]) > 16 * state.target.num_cores), len(chain))
    depths = sorted(range(1, len(chain) + 1), key=lambda n: (abs(n - enough), -n))[:MAX_DEPTHS]
    owner = next((b for b in stages if state.tiled(b) is not None), stages[-1])
    ways = {f"{n} parallel": parallel(n) for n in depths}
    if not state.branch(f"parallel loops of {stages[-1]}", ways, block=owner, role=Role.PARALLEL):
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


def _finish_nest(state: OpenSchedule, stages: list[str]) -> None:
    for block in stages:
        if state.block(block).is_reduction and state.scheduled.get(block) != Stage.UNROLLED:
            first = _own_loop(state, block)
            if first is not None:
                _unroll(state, block, first)
    for block in stages:
        if state.scheduled.get(block) != Stage.UNROLLED:
            _vectorize(state, block)


def _own_loop(state: OpenSchedule, block: str) -> str | None:
    """The outermost loop that encloses a stage alone, or None."""
    loops = loops_to(state.func.body, block)
    return next((x.name for x in loops if sum(isinstance(s, Block) for s in walk_stmts(x)) == 1), None)


def _unroll(state: OpenSchedule, block: str, loop: str) -> None:
    most = state.choose(f"unroll {block}", UNROLL_LIMITS, block=block, role=Role.PRAGMA)
    state.annotate(loop, "pragma_auto_unroll_max_step", most)


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

    def vector(count: int):
        def way(new: OpenSchedule) -> None:
            new.vectorize(fuse_all(new, names[:count][::-1]))

        return way

    if names:
        counts = range(1, max(2, len(names)))
        state.branch(f"vector of {block}", {f"{n} vectorised": vector(n) for n in counts}, block=block)
