"""Mutations and crossover: operators from matrices of rows to matrices of rows (Ansor, section 5.1).

`mutations` is the table of mutations; `Evolution` takes another one, with a user's operators. Every operator returns rows in the
canonical form of `sample.legalize`, so they are legal. A row in which an operator finds nothing to change stays unchanged; the
search drops such copies with all other repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial, wraps
from inspect import unwrap
from typing import TypeVar

import numpy as np

from codegen.target import Target
from schedule.open_trace import Choice, Role, Tile

from ..space.sketch import Sketch
from .cpu import lanes
from .sample import legalize, sample

FACTORS = np.array([2, 3, 4, 5, 7, 8, 16])  # to move between levels of a tile, beside the whole level

T = TypeVar("T")
Operator = Callable[[Sketch, Target, np.ndarray, np.random.Generator], np.ndarray]


def canonical(change: Operator) -> Operator:
    """The operator that makes a change, and brings the rows into canonical form."""

    @wraps(change)  # by which `mutants_of` finds the change alone, to bring the rows of all operators into that form at once
    def operate(sketch: Sketch, target: Target, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return legalize(sketch, target, change(sketch, target, rows, rng))

    return operate


@canonical
def move(sketch: Sketch, target: Target, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Move a factor of one level of an axis to another level of it; the outermost level takes part."""
    result = rows.copy()
    for t, own in _assigned(_open_tiles(sketch), len(rows), rng):
        levels = _levels(t, result[own])
        some = np.arange(len(levels))
        source = np.argmax(rng.random(levels.shape) * (levels > 1), axis=1)
        drain = (source + rng.integers(1, levels.shape[1], size=len(levels))) % levels.shape[1]
        length = levels[some, source]
        candidates = np.concatenate([np.broadcast_to(FACTORS, (len(levels), len(FACTORS))), length[:, None]], axis=1)
        fits = length[:, None] % candidates == 0
        factor = candidates[some, np.argmax(rng.random(fits.shape) * fits, axis=1)]
        levels[some, source] //= factor
        levels[some, drain] *= factor
        result[own[:, None], t.columns] = levels[:, 1:]
    return result


@canonical
def scale(sketch: Sketch, target: Target, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Double or halve one inner level of an axis."""
    result = rows.copy()
    for t, own in _assigned(_open_tiles(sketch), len(rows), rng):
        column = np.array(t.columns)[rng.integers(len(t.columns), size=len(own))]
        size = result[own, column]
        result[own, column] = np.where(rng.random(len(own)) < 0.5, 2 * size, np.maximum(1, size // 2))
    return result


@canonical
def step(sketch: Sketch, target: Target, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Take the next size for one inner level of an axis, dividing or not; a vectorised level changes by one vector."""
    result = rows.copy()
    for t, own in _assigned(_open_tiles(sketch), len(rows), rng):
        position = rng.integers(len(t.columns), size=len(own))
        larger = rng.random(len(own)) < 0.5
        for k, column in enumerate(t.columns):
            here = own[position == k]
            up, down = _beside(sketch, target, t, result[here], k)
            result[here, column] = np.where(larger[position == k], up, down)
    return result


def _beside(sketch: Sketch, target: Target, t: Tile, rows: np.ndarray, position: int) -> tuple[np.ndarray, np.ndarray]:
    """The next larger and smaller sizes of an inner level with another number of tiles."""
    size = rows[:, t.columns[position]]
    if t.vector and position == len(t.columns) - 1:
        width = lanes(sketch, target, t, rows)
        return size + width, np.maximum(1, size - width)
    left = -(-t.extent // np.prod(rows[:, t.columns[position + 1 :]], axis=1))
    count = -(-left // size)
    return np.maximum(size + 1, -(-left // np.maximum(1, count - 1))), np.maximum(
        1, np.minimum(size - 1, -(-left // (count + 1)))
    )


@canonical
def redraw(sketch: Sketch, target: Target, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sample all levels of one axis again."""
    return sampled_again(sketch, target, rows, [t.columns for t in _open_tiles(sketch)], rng)


def sampled_again(
    sketch: Sketch, target: Target, rows: np.ndarray, parts: Sequence[Sequence[int]], rng: np.random.Generator
) -> np.ndarray:
    """The rows, each with the columns of one random part sampled again, not yet in canonical form."""
    result = rows.copy()
    sampled = sample(sketch, target, len(rows), rng)
    for columns, own in _assigned(parts, len(rows), rng):
        result[own[:, None], columns] = sampled[own[:, None], columns]
    return result


def choose(roles: Set[Role]) -> Operator:
    """The operator that takes another option of one choice of these roles."""

    @canonical
    def operate(sketch: Sketch, target: Target, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        result = rows.copy()
        for c, own in _assigned(_open_choices(sketch, roles), len(rows), rng):
            options = np.array(c.options)
            at = np.argmax(options[None, :] == result[own, c.column][:, None], axis=1)
            result[own, c.column] = options[(at + rng.integers(1, len(options), size=len(own))) % len(options)]
        return result

    return operate


def _open_tiles(sketch: Sketch) -> list[Tile]:
    return [t for t in sketch.tiles if t.columns]


def _open_choices(sketch: Sketch, roles: Set[Role]) -> list[Choice]:
    return [c for c in sketch.choices if len(c.options) > 1 and c.role in roles]


@dataclass(frozen=True, slots=True)
class Mutation:
    """An operator, a predicate of the sketches that it suits, and its probability relative to the others."""

    operate: Operator
    suits: Callable[[Sketch], object]
    probability: float = 1.0


TILE_OPERATORS: dict[str, Operator] = {"move": move, "scale": scale, "step": step, "redraw": redraw}
PARALLEL = frozenset({Role.PARALLEL})
LOCATION = frozenset({Role.LOCATION})
PRAGMA = frozenset({Role.PRAGMA, Role.STAGES, Role.RESIDENT})
OTHERS = frozenset(Role) - PARALLEL - LOCATION - PRAGMA  # packing, widths of vectors and the like, which MetaSchedule lacks


def mutations() -> dict[str, Mutation]:
    """The mutations by name, all equally likely.

    MetaSchedule's probabilities are 0.9 for tile sizes together, 0.05 for compute locations, 0.03 for unrolling (0.08 on
    a GPU) and 0.02 for parallel loops. In experiments with a simulated device, the search found slower programs with these.
    """
    roles = {"parallel": PARALLEL, "compute location": LOCATION, "pragma": PRAGMA, "choose": OTHERS}
    table = {name: Mutation(o, _open_tiles) for name, o in TILE_OPERATORS.items()}
    return table | {name: Mutation(choose(own), partial(_open_choices, roles=own)) for name, own in roles.items()}


def mutants_of(
    sketch: Sketch, target: Target, parents: np.ndarray, mutations: Mapping[str, Mutation], rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A mutant of each parent, a row of the sketch, and the numbers of the mutants of each mutation."""
    suitable = {name: m for name, m in mutations.items() if m.suits(sketch)}
    mutants = parents.copy()
    if not suitable or not len(parents):
        return mutants, {}
    likely = np.array([m.probability for m in suitable.values()])
    picked = rng.choice(len(suitable), size=len(parents), p=likely / likely.sum())
    made_by = {name: np.flatnonzero(picked == n) for n, name in enumerate(suitable)}
    for name, own in made_by.items():
        if len(own):
            mutants[own] = unwrap(suitable[name].operate)(sketch, target, parents[own], rng)
    return legalize(sketch, target, mutants), made_by


def crossover(sketch: Sketch, target: Target, mothers: np.ndarray, fathers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One child of each pair of rows: all genes of a block come from one parent (Ansor's node-based crossover)."""
    if not sketch.columns:
        return mothers.copy()
    blocks = {name: n for n, name in enumerate(sketch.tiles_by_block)}
    genes = np.zeros(sketch.columns, dtype=np.int64)  # the number of each column's gene
    for t in sketch.tiles:
        genes[list(t.columns)] = blocks[t.block]
    for n, c in enumerate(sketch.choices, len(blocks)):
        genes[c.column] = blocks.get(c.block, n)
    taken = rng.random((len(mothers), genes.max() + 1))[:, genes] < 0.5
    return legalize(sketch, target, np.where(taken, fathers, mothers))


def neighbours(sketch: Sketch, target: Target, row: np.ndarray) -> np.ndarray:
    """The neighbours of a row, without repeats and itself. Each has one level doubled, halved, or of the next larger or smaller
    size; a factor of two moved between two levels; or another option of a choice."""
    found = []
    for t in sketch.tiles:
        for position, column in enumerate(t.columns):
            up, down = _beside(sketch, target, t, row[None, :], position)
            found += [_with(row, {column: v}) for v in (2 * row[column], max(1, row[column] // 2), int(up[0]), int(down[0]))]
        for a in t.columns:
            found += [_with(row, {a: row[a] // 2, b: row[b] * 2}) for b in t.columns if a != b and row[a] % 2 == 0]
    for c in sketch.choices:
        found += [_with(row, {c.column: v}) for v in c.options]
    rows = np.unique(legalize(sketch, target, sketch.matrix(found)), axis=0)
    return rows[(rows != row).any(axis=1)]


def _with(row: np.ndarray, values: dict[int, int]) -> np.ndarray:
    result = row.copy()
    for column, value in values.items():
        result[column] = value
    return result


def _assigned(things: Sequence[T], n: int, rng: np.random.Generator) -> list[tuple[T, np.ndarray]]:
    """The numbers 0 .. n-1 assigned to things at random: each thing with its numbers, if any."""
    if not things:
        return []
    which = rng.integers(len(things), size=n)
    return [(thing, own) for k, thing in enumerate(things) if len(own := np.flatnonzero(which == k))]


def _levels(t: Tile, rows: np.ndarray) -> np.ndarray:
    """The lengths of all levels of an axis, the outermost first: an (n, 1 + inner levels) matrix."""
    inner = rows[:, t.columns]
    outer = -(-t.extent // np.prod(inner, axis=1))
    return np.concatenate([outer[:, None], inner], axis=1)
