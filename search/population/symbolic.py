"""The program of a sketch with symbolic tile sizes, built once for all rows of a variant.

The trace is replayed through the real primitives with symbolic integers (`tir.arith.symbolic.SymbolicInt`) in place of plain
ones. So every extent, stride and shape of the result has its formula over the columns. The replay is on a longer problem of the
same structure (`enlarge`), with several tiles and several iterations on every level. So no special case arises, even for short
axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from math import gcd, prod

import numpy as np

from schedule.loop_positions import apply_step, named_step, new_names
from schedule.open_schedule import is_spatial
from schedule.open_trace import Tile, filled, open_in
from schedule.primitive import loop_at, replace_path
from schedule.rewriting.loops import reordered
from schedule.trace import Step
from tir.arith.polynomial import coefficient, polynomial
from tir.arith.symbolic import SymbolicInt, columns_of, formula
from tir.ir import Const, Expr, Kind, PrimFunc, nest
from tir.traverse import blocks, divisions, loads, loops_to, variables, walk

from ..space.sketch import Sketch
from .enlarge import RoundUp, enlarge

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73)
MARKS = {"parallel": Kind.PARALLEL, "vectorize": Kind.VECTORIZED, "unroll": Kind.UNROLLED, "bind": Kind.THREAD}
LEVELS = 4  # different numbers of iterations in turn, so that the levels of an axis differ


# A tree of replayed steps: a step and its numbers lead to the function after it, the step with names, and the later steps.
Replayed = dict[tuple, "tuple[PrimFunc, Step, Replayed]"]


@dataclass(frozen=True, slots=True)
class Multiples:
    """The number of an axis's loops around a stage whose stride in a divided index is a multiple of the divisor. `inside` has the
    columns of the levels inside each loop, outermost first."""

    inside: tuple[tuple[int, ...], ...]
    divisor: int

    def of(self, rows: np.ndarray) -> np.ndarray:
        return sum(np.prod(rows[:, columns], axis=1) % self.divisor == 0 for columns in self.inside)  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Unmoved:
    """True where a divided index is constant inside a stage: all of these columns are 1."""

    columns: tuple[int, ...]

    def of(self, rows: np.ndarray) -> np.ndarray:
        return (rows[:, self.columns] == 1).all(axis=1)


Alignment = Multiples | Unmoved  # a property of rows that decides the part of a divided index that a stage needs
AlignmentValues = Mapping[Alignment, int]  # the results of `of` for rows that share a program


@dataclass
class ReplayCache:
    """The cache for the variants of a function's sketches: enlarged functions by the tiles of witnesses, and replayed steps."""

    longer: dict[tuple, PrimFunc] = field(default_factory=dict)
    replayed: dict[PrimFunc, Replayed] = field(default_factory=dict)


def symbolic(
    sketch: Sketch, variant: Sequence[int], replays: ReplayCache | None = None, like: AlignmentValues | None = None
) -> PrimFunc:
    """The program of a variant, with `SymbolicInt` constants; `like` restricts it to the rows of one alignment. ScheduleError if
    the witness is not legal."""
    replays = replays or ReplayCache()
    row = witness(sketch, variant, like)
    unit = _unit_columns(like or {})
    numbers = [1 if c in unit else SymbolicInt.column(n, c) for c, n in enumerate(row)]
    tiled = sketch.tiles, tuple(row[c] for t in sketch.tiles for c in t.columns)
    if tiled not in replays.longer:
        longer = enlarge(sketch.func, _lengths(sketch, row))
        replays.longer[tiled] = next((known for known in replays.replayed if known == longer), longer)
    func = replays.longer[tiled]
    below = replays.replayed.setdefault(func, {})
    made: dict[str, str] = {}
    for step in sketch.planned(variant):
        key = step, tuple((row[c], c in unit) for _, value in step.args for c in open_in(value))
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
            parts = t.parts or [name for name, spatial in axes.items() if spatial != t.reduce]
            found[block.name, t.axis if t.axis in axes else parts[0]] = _tiles_of(t, prod(row[c] for c in t.columns))
    return found


def _tiles_of(t: Tile, tile: int) -> RoundUp:
    rest = 0 if t.perfect else 1

    def rounded(length: int) -> int:
        count = -(-(length + t.missing) // t.unit)
        return (max(2, -(-(count - rest) // tile)) * tile + rest) * t.unit - t.missing

    return rounded


def alignments(sketch: Sketch, variant: Sequence[int], replays: ReplayCache) -> tuple[Alignment, ...]:
    """The alignments that decide the extent of a divided index in tiles with stages. Replays; raises ScheduleError."""
    divided = _divided(sketch)
    if not divided:
        return ()
    func = symbolic(sketch, variant, replays)
    bindings = {(b.name, it.var.name): it.binding for b in blocks(func) for it in b.iters}
    found: dict[Alignment, None] = {}
    for name in (dict(step.args)["block"] for step in sketch.planned(variant) if step.name == "compute_at"):
        around = {s.name for s in loops_to(func.body, name)}
        for index in divided:
            inside = [_inside(bindings.get((t.block, t.axis), Const(0)), around) for t, _ in index]
            found |= {Multiples(i, divisor): None for i, (_, divisor) in zip(inside, index, strict=True) if i}
            if all(inside):
                found[Unmoved(tuple(sorted({c for i in inside for c in i[-1]})))] = None
    return tuple(found)


def _inside(binding: Expr, around: set[str]) -> tuple[tuple[int, ...], ...]:
    """The columns of the levels inside each loop of a binding that is `around` a stage, outermost first."""
    steps = [c for atoms, c in polynomial(binding).items() if any(variables(atom) & around for atom in atoms)]
    return tuple(tuple(sorted(set(columns_of(formula(step))))) for step in sorted(steps, reverse=True))


def _divided(sketch: Sketch) -> list[list[tuple[Tile, int]]]:
    """The divided indices of blocks: the tiled axes of each, with the divisor that the tile of an axis must be a multiple of."""
    found: list[list[tuple[Tile, int]]] = []
    for block in blocks(sketch.func):
        for n in divisions(*(index for load in loads(block.body) for index in load.indices)):
            if isinstance(n.b, Const):
                p, divisor = polynomial(n.a), n.b.value
                steps = [(t, (coefficient(p, t.axis) or 0) * t.unit) for t in sketch.tiles_by_block.get(block.name, ())]
                found.append([(t, divisor // gcd(step, divisor)) for t, step in steps if step % divisor])
    return [index for n, index in enumerate(found) if index and index not in found[:n]]


def aligned(found: Sequence[Alignment], rows: np.ndarray) -> np.ndarray:
    """The value of each alignment in each row, an (n, alignments) matrix; rows with equal values share a program."""
    return np.stack([a.of(rows) for a in found], axis=1) if found else np.empty((len(rows), 0), dtype=np.int64)


def witness(sketch: Sketch, variant: Sequence[int], like: AlignmentValues | None = None) -> list[int]:
    """A row of a variant with tiles of more than one iteration on every level. Its sizes are primes that divide no constant of
    the function, except where `like` needs multiples or ones. Its tiles need not fit the function itself."""
    row = [1] * sketch.columns
    known = {n.value for n in walk(sketch.func) if isinstance(n, Const) and isinstance(n.value, int) and n.value > 1}
    primes = cycle(islice((p for p in PRIMES if all(n % p for n in known)), LEVELS))
    for tile in sketch.tiles:
        for column in tile.columns:
            row[column] = next(primes)
    for a, way in (like or {}).items():
        if isinstance(a, Multiples) and way:
            row[min(a.inside[way - 1])] *= a.divisor  # its outermost column is inside of no further loop
    for column in _unit_columns(like or {}):
        row[column] = 1
    for choice in sketch.choices:
        row[choice.column] = max(choice.options)
    picked: dict[int, int] = {}  # by column; a branch inside of a run that is not picked has the number 0
    for branch, number in zip(sketch.branches, variant, strict=True):
        picked[branch.column] = max(number, picked.get(branch.column, 0))
    for column, number in picked.items():
        row[column] = number
    return row


def _unit_columns(like: AlignmentValues) -> set[int]:
    """The columns that are 1 in all rows of an alignment."""
    return {c for a, unit in like.items() if isinstance(a, Unmoved) and unit for c in a.columns}
