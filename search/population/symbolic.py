"""The program of a sketch with symbolic tile sizes, built once for all rows of a variant.

The trace is replayed through the real primitives with symbolic integers (`tir.arith.symbolic.SymbolicInt`) in place of plain
ones. So every extent, stride and shape of the result has its formula over the columns. The replay is on a longer problem of the
same structure (`enlarge`), with several tiles and several iterations on every level. So no special case arises, even for short
axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from math import prod

from schedule.loop_positions import apply_step, named_step, new_names
from schedule.open_schedule import is_spatial
from schedule.open_trace import Tile, filled, open_in
from schedule.primitive import loop_at, replace_path
from schedule.rewriting.loops import reordered
from schedule.trace import Step
from tir.arith.symbolic import SymbolicInt
from tir.ir import Const, Kind, PrimFunc, nest
from tir.traverse import blocks, walk

from ..space.sketch import Sketch
from .enlarge import RoundUp, enlarge

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73)
MARKS = {"parallel": Kind.PARALLEL, "vectorize": Kind.VECTORIZED, "unroll": Kind.UNROLLED, "bind": Kind.THREAD}
LEVELS = 4  # different numbers of iterations in turn, so that the levels of an axis differ


# A tree of replayed steps: a step and its numbers lead to the function after it, the step with names, and the later steps.
Replayed = dict[tuple, "tuple[PrimFunc, Step, Replayed]"]


@dataclass
class ReplayCache:
    """The cache for the variants of a function's sketches: enlarged functions by the tiles of witnesses, and replayed steps."""

    longer: dict[tuple, PrimFunc] = field(default_factory=dict)
    replayed: dict[PrimFunc, Replayed] = field(default_factory=dict)


def symbolic(sketch: Sketch, variant: Sequence[int], replays: ReplayCache | None = None) -> PrimFunc:
    """The program of a variant, with `SymbolicInt` constants. ScheduleError if the witness is not legal.

    Where a stage in a tile reads at a divided index, as of a transposed convolution, its extent is that of tiles that are no
    multiples of the divisor; for other rows it is one too large.
    """
    replays = replays or ReplayCache()
    row = witness(sketch, variant)
    numbers = [SymbolicInt.column(n, c) for c, n in enumerate(row)]
    tiled = sketch.tiles, tuple(row[c] for t in sketch.tiles for c in t.columns)
    if tiled not in replays.longer:
        longer = enlarge(sketch.func, _lengths(sketch, row))
        replays.longer[tiled] = next((known for known in replays.replayed if known == longer), longer)
    func = replays.longer[tiled]
    below = replays.replayed.setdefault(func, {})
    made: dict[str, str] = {}
    for step in sketch.planned(variant):
        key = step, tuple(row[c] for _, value in step.args for c in open_in(value))
        if key not in below:
            if step.name in UNCHECKED:
                below[key] = UNCHECKED[step.name](func, named_step(func, step, made)), step, {}
            else:
                below[key] = *apply_step(func, step, lambda s: filled(s, numbers.__getitem__), made), {}
        func, taken, below = below[key]
        made |= new_names(step, taken)
    return func


def _marked(func: PrimFunc, step: Step) -> PrimFunc:
    """The function after a step that only marks a loop."""
    arguments = dict(step.args)
    loop, above = loop_at(func, arguments["loop"])
    return replace_path(func, above, loop.with_(kind=MARKS[step.name], thread=arguments.get("thread_axis", "")))


def _reordered(func: PrimFunc, step: Step) -> PrimFunc:
    """The function after a step that only changes the order of loops."""
    above, chain, order = reordered(func, dict(step.args)["ordered_loops"])
    return replace_path(func, above, nest(order, chain[-1].body))


# Steps that only mark or reorder loops. Their legality is not checked again, which would take most of the time: the rows of a
# sketch are legal, and each measured one is replayed with all checks.
UNCHECKED: dict[str, Callable[[PrimFunc, Step], PrimFunc]] = {**dict.fromkeys(MARKS, _marked), "reorder": _reordered}


def _lengths(sketch: Sketch, row: Sequence[int]) -> dict[tuple[str, str], RoundUp]:
    """Lengths of each tiled axis with more than one tile of the row; the last tile has a single iteration unless tiles are
    perfect. For an axis that steps make of several axes of the block, the length of the first of these."""
    found: dict[tuple[str, str], RoundUp] = {}
    for block in blocks(sketch.func):
        axes = {it.var.name: is_spatial(it) for it in block.iters}
        for t in sketch.tiles_by_block.get(block.name, ()):
            parts = [name for name, spatial in axes.items() if spatial != t.reduce]
            found[block.name, t.axis if t.axis in axes else parts[0]] = _tiles_of(t, prod(row[c] for c in t.columns))
    return found


def _tiles_of(t: Tile, tile: int) -> RoundUp:
    rest = 0 if t.perfect else 1

    def rounded(length: int) -> int:
        count = -(-(length + t.missing) // t.unit)
        return (max(2, -(-(count - rest) // tile)) * tile + rest) * t.unit - t.missing

    return rounded


def witness(sketch: Sketch, variant: Sequence[int]) -> list[int]:
    """A row of a variant with tiles of more than one iteration on every level. Its sizes are primes that divide no constant of
    the function. Its tiles need not fit the function itself."""
    row = [1] * sketch.columns
    known = {n.value for n in walk(sketch.func) if isinstance(n, Const) and isinstance(n.value, int) and n.value > 1}
    primes = cycle(islice((p for p in PRIMES if all(n % p for n in known)), LEVELS))
    for tile in sketch.tiles:
        for column in tile.columns:
            row[column] = next(primes)
    for choice in sketch.choices:
        row[choice.column] = max(choice.options)
    picked: dict[int, int] = {}  # by column; a branch inside of a run that is not picked has the number 0
    for branch, number in zip(sketch.branches, variant, strict=True):
        picked[branch.column] = max(number, picked.get(branch.column, 0))
    for column, number in picked.items():
        row[column] = number
    return row
