"""The default stochastic schedule of any function, and postprocessors (MetaSchedule, NeurIPS 2022, section 4).

`multi_level_tiles` is written as by a user: with the public steps of `Schedule` alone.
"""

from __future__ import annotations

from contextlib import suppress

from codegen.target import Target
from schedule import Schedule, ScheduleError
from schedule.primitive import find_block, find_loop
from schedule.templates.marks import parallel, plain_loops
from tir.ir import NOT_SPATIAL, Axis, Kind, Var
from tir.traverse import axis_loops, blocks, iterations, loops_to

from ..space.annotation import outer_spatial

MAX_UNROLLED = 512  # most copies of a body by unrolled loops and vectors together
MAX_VECTOR = 64  # most iterations of a vector
UNROLL = (0, 16, 64, 512)  # limits of the statements in an unrolled nest


def multi_level_tiles(s: Schedule) -> None:
    """Tile every stage, consumers first, as S R S. A stage that is no reduction and no output may instead be inlined or computed
    at a consumer."""
    plain_loops(s)
    outputs = s.get_output_blocks()
    for block in reversed(s.get_child_blocks("root")):
        if block not in outputs and not find_block(s.func, block).is_reduction:
            location = s.sample_compute_location(block)
            if location == "inline":
                s.compute_inline(block)
                continue
            if location != "root":
                s.compute_at(block, location)
                continue
        _tile(s, block)


def _tile(s: Schedule, block: str) -> None:
    """Tile a stage: outer spatial loops, reductions, inner spatial loops; axes of several loops stay unchanged."""
    node = find_block(s.func, block)
    driven = {it.binding.name: it.axis for it in node.iters if isinstance(it.binding, Var)}
    own = [loop for loop in s.get_loops(block) if loop in driven and not find_loop(s.func, loop).extent.is_one]
    outer: list[str] = []
    reduced: list[str] = []
    inner: list[str] = []
    for loop in own:
        spatial = driven[loop] is Axis.SPATIAL
        first, second = s.split(loop, [*s.sample_tile(loop, 2, max_innermost_factor=MAX_VECTOR if spatial else -1)])
        (outer if spatial else reduced).append(first)
        (inner if spatial else reduced).append(second)
    if len(outer + reduced + inner) > 1:
        s.reorder(*outer, *reduced[::2], *reduced[1::2], *inner)
    if reduced:
        s.annotate(reduced[-1], "pragma_auto_unroll_max_step", s.sample_categorical([*UNROLL], [1 / len(UNROLL)] * len(UNROLL)))


# --- postprocessors: each changes a schedule, or refuses it by a ScheduleError -------------------------------------------------


def run_in_parallel(s: Schedule, target: Target) -> None:
    """Fuse the outer spatial loops of each nest, as many as threads need, and run them in parallel."""
    if target.num_cores == 1:
        return
    for nest in dict.fromkeys(s.get_loops(b.name)[0] for b in blocks(s.func) if s.get_loops(b.name)):
        loop = find_loop(s.func, nest)
        chain = outer_spatial(loop, {v for b in blocks(loop) for v in axis_loops(b, *NOT_SPATIAL)})
        enough = next((n for n in range(1, len(chain)) if iterations(chain[:n]) >= 16 * target.num_cores), len(chain))
        names = [x.name for x in chain[:enough]]
        if names:
            with suppress(ScheduleError):
                parallel(s, names)


def run_in_vectors(s: Schedule, target: Target) -> None:
    """Vectorise the innermost loop of each stage if it is spatial and short."""
    for block in blocks(s.func):
        path = loops_to(s.func.body, block.name)
        own = path and path[-1].body is block and path[-1].name not in axis_loops(block, *NOT_SPATIAL)
        if own and iterations(path[-1:]) <= MAX_VECTOR:
            with suppress(ScheduleError):
                s.vectorize(path[-1].name)


def refuse_large_bodies(s: Schedule, target: Target) -> None:
    """Refuse bodies of which vectors and unrolled loops make more than MAX_UNROLLED copies."""
    for block in blocks(s.func):
        marked = [x for x in loops_to(s.func.body, block.name) if x.kind in (Kind.VECTORIZED, Kind.UNROLLED)]
        if iterations(marked) > MAX_UNROLLED:
            raise ScheduleError(f"`{block.name}` would have {iterations(marked)} copies of its body, of at most {MAX_UNROLLED}")


POSTPROCESSORS = (run_in_parallel, run_in_vectors, refuse_large_bodies)
