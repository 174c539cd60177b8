"""The program of a sketch with symbolic tile sizes, built once for all rows of a variant.

The trace is replayed through the real primitives with numbers that remember their formulas (`tir.size.Size`) in place of
plain ones, so that every extent, stride and shape of the result tells how it depends on the row. It is replayed on a longer
problem of the same structure (`search.stretched`), with tiles of several iterations on every level and several tiles, so that no
special case arises, however short the axes of the function itself are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from math import gcd, prod

import numpy as np

from schedule.primitive import path_to_loop, replace_path
from schedule.trace import Step
from tir.affine import coefficient, polynomial
from tir.ir import Binary, Const, For, Kind, PrimFunc, Seq, Stmt, seq
from tir.size import Formula, Size, formula
from tir.traverse import blocks, loads, path_to, walk

from .planned import named, renamed, take
from .sketch import Branch, Sketch, Tile, filled, is_spatial
from .stretched import Rounded, stretched

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73)
MARKS = {"parallel": Kind.PARALLEL, "vectorize": Kind.VECTORIZED, "unroll": Kind.UNROLLED, "bind": Kind.THREAD}
LEVELS = 4  # different numbers of iterations; levels of an axis have each its own


# What the steps taken so far make, by the next one: a function, the step with names, and what the steps after it make.
Replayed = dict[Step, "tuple[PrimFunc, Step, Replayed]"]


@dataclass(frozen=True, slots=True)
class Alignment:
    """An axis, by the columns of its inner levels, that is part of an index that is divided; of its loops the outermost one and
    those of the first `outside` columns are around what needs the index."""

    columns: tuple[int, ...]
    outside: int
    divisor: int


@dataclass
class Memory:
    """What was made for one variant of a sketch and serves others: what runs of steps make, and for nests (by identity, so they
    are kept, too) the first that was equal."""

    replayed: Replayed = field(default_factory=dict)
    nests: dict[int, tuple[Stmt, Stmt]] = field(default_factory=dict)
    equal: dict[tuple[str, tuple[Formula, ...]], Stmt] = field(default_factory=dict)
    longer: PrimFunc | None = None  # the function with axes that are long enough for the witness


def symbolic(
    sketch: Sketch,
    variant: Sequence[int],
    memory: Memory | None = None,
    like: Mapping[Alignment, tuple[int, int]] | None = None,
) -> PrimFunc:
    """The program of a variant, with constants that are `Size`; of its rows that are `aligned` so, where that matters. Raises
    ScheduleError where no witness is legal.

    Variants made with the same `memory` share the nests in which they don't differ, as the same objects.
    """
    memory = memory or Memory()
    row = witness(sketch, variant, like)
    still = _still(like or {})
    memory.longer = memory.longer or stretched(sketch.func, _lengths(sketch, row))
    func, below = memory.longer, memory.replayed
    made: dict[str, str] = {}
    for step in sketch.planned(variant):
        if step not in below:
            if step.name in MARKS:
                below[step] = _marked(func, named(func, step, made)), step, {}
            else:
                below[step] = *take(func, step, lambda s: _filled(s, row, still), made), {}
        func, taken, below = below[step]
        made |= renamed(step, taken)
    nests = func.body.stmts if isinstance(func.body, Seq) else (func.body,)
    for nest in nests:
        if id(nest) not in memory.nests:
            memory.nests[id(nest)] = nest, memory.equal.setdefault((repr(nest), _formulas(nest)), nest)
    return func.with_(body=seq(*(memory.nests[id(nest)][1] for nest in nests)))


def _marked(func: PrimFunc, step: Step) -> PrimFunc:
    """The function after a step that only marks a loop. Whether that is legal is not asked again, which would take longer than
    all the rest: the rows of a sketch are legal, and each that is measured is replayed with all checks."""
    arguments = dict(step.args)
    above = path_to_loop(func, arguments["loop"])
    loop: For = above[-1]  # type: ignore[assignment]
    return replace_path(func, above, loop.with_(kind=MARKS[step.name], thread=arguments.get("thread_axis", "")))


def _formulas(stmt: Stmt) -> tuple[Formula, ...]:
    """The formulas of all constants, which the text of nodes does not show."""
    return tuple(formula(n.value) for n in walk(stmt) if isinstance(n, Const) and isinstance(n.value, Size))


def _lengths(sketch: Sketch, row: Sequence[int]) -> dict[tuple[str, str], Rounded]:
    """For each tiled axis the lengths that have more than one tile of the row, the last one of a single iteration unless tiles
    are to divide; where an axis is one that steps make of those of the block, for the first of these."""
    found: dict[tuple[str, str], Rounded] = {}
    for block in blocks(sketch.func):
        axes = {it.var.name: is_spatial(it) for it in block.iters}
        for t in sketch.tiles:
            if t.block == block.name:
                parts = t.parts or [name for name, spatial in axes.items() if spatial != t.reduce]
                found[block.name, t.axis if t.axis in axes else parts[0]] = _tiles_of(t, prod(row[c] for c in t.columns))
    return found


def _tiles_of(t: Tile, tile: int) -> Rounded:
    rest = 0 if t.perfect else 1

    def rounded(length: int) -> int:
        count = -(-(length + t.missing) // t.unit)
        return (max(2, -(-(count - rest) // tile)) * tile + rest) * t.unit - t.missing

    return rounded


def alignments(sketch: Sketch, variant: Sequence[int], memory: Memory) -> tuple[Alignment, ...]:
    """What decides how much of an index that is divided changes in the tiles in which a variant computes stages; its program is
    made with `memory`. Raises ScheduleError where that is refused."""
    divided = [(t, divisor) for t in sketch.tiles for divisor in _divisors(sketch, t)]
    if not divided:
        return ()
    func = symbolic(sketch, variant, memory)
    paths = {b.name: _columns_around(func, b.name) for b in blocks(func)}
    moved = [dict(step.args)["block"] for step in sketch.planned(variant) if step.name == "compute_at"]
    outside = [columns for name, columns in paths.items() if name in moved]
    found: dict[Alignment, None] = {}
    for t, divisor in divided:
        for columns in outside:
            depth = max((n + 1 for n, c in enumerate(t.columns) if c in columns), default=0)
            found[Alignment(t.columns, depth, divisor)] = None
    return tuple(found)


def _columns_around(func: PrimFunc, block: str) -> set[int]:
    """The columns of the levels that have loops around a block and others."""
    shared = [s for s in path_to(func.body, block) if isinstance(s, For) and len(blocks(s)) > 1]
    return {c for s in shared if isinstance(s.extent, Const) for c in _columns(formula(s.extent.value))}


def _columns(f: Formula) -> set[int]:
    """The columns among the factors of a formula."""
    match f:
        case ("column", n):
            return {n}
        case ("*", a, b):
            return _columns(a) | _columns(b)
        case _:
            return set()


def _divisors(sketch: Sketch, t: Tile) -> set[int]:
    """By what a block divides indices that a tiled axis is part of."""
    body = next((b.body for b in blocks(sketch.func) if b.name == t.block), None)
    found: set[int] = set()
    for load in loads(body) if body is not None else ():
        for n in (n for index in load.indices for n in walk(index)):
            if isinstance(n, Binary) and n.op in ("//", "%") and isinstance(n.b, Const):
                step = (coefficient(polynomial(n.a), t.axis) or 0) * t.unit
                if step and step % n.b.value:
                    found.add(n.b.value // gcd(step, n.b.value))
    return found


def aligned(found: Sequence[Alignment], rows: np.ndarray) -> np.ndarray:
    """For each alignment how many of the loops outside move by a multiple of the divisor, and whether nothing moves inside: an
    (n, 2 alignments) matrix; rows that agree in it share a program."""
    keys = np.empty((len(rows), 2 * len(found)), dtype=np.int64)
    for n, a in enumerate(found):
        steps = [np.prod(rows[:, a.columns[level:]], axis=1) for level in range(a.outside + 1)]
        keys[:, 2 * n] = sum(step % a.divisor == 0 for step in steps)
        keys[:, 2 * n + 1] = steps[-1] == 1
    return keys


def witness(sketch: Sketch, variant: Sequence[int], like: Mapping[Alignment, tuple[int, int]] | None = None) -> list[int]:
    """A row of a variant with tiles of more than one iteration on every level, and numbers that have nothing in common with each
    other or the function, but for what rows have that are `aligned` so. Its tiles need not fit the function itself."""
    row = [1] * sketch.columns
    known = {n.value for n in walk(sketch.func) if isinstance(n, Const) and isinstance(n.value, int) and n.value > 1}
    primes = cycle(islice((p for p in PRIMES if all(n % p for n in known)), LEVELS))
    for tile in sketch.tiles:
        for column in tile.columns:
            row[column] = next(primes)
    for a, (multiples, _) in (like or {}).items():
        if multiples:
            row[a.columns[multiples - 1]] *= a.divisor
    for column in _still(like or {}):
        row[column] = 1
    for choice in sketch.choices:
        row[choice.column] = max(choice.options)
    numbers = iter(variant)

    def visit(steps: Sequence[Step | Branch], taken: bool) -> None:
        for step in steps:
            if isinstance(step, Branch):
                number = next(numbers)
                if taken:
                    row[step.column] = number
                for n, option in enumerate(step.options):
                    visit(option, taken and n == number)

    visit(sketch.steps, True)
    return row


def _still(like: Mapping[Alignment, tuple[int, int]]) -> set[int]:
    """The columns that are 1 in all rows that are `aligned` so."""
    return {c for a, (_, still) in like.items() if still for c in a.columns[a.outside :]}


def _filled(step: Step, row: Sequence[int], still: set[int]) -> Step:
    return filled(step, lambda column: 1 if column in still else Size.column(row[column], column))
