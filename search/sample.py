"""Populations: integer matrices with one row a candidate, drawn at random from a sketch.

Tile sizes may be any integer: where they do not divide, the last tile is guarded. They are drawn from inside to outside, from
what the machine offers: the innermost tile fits the vector registers, the next ones are small multiples. Where a sketch asks for
perfect tiles, every exact factorisation of the extent is as likely as any other (Ansor, section 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from codegen.target import Target
from schedule.trace import Step

from .geometry import machine
from .gpu import population
from .sketch import Branch, Hole, Product, Sketch, Tile

OPERANDS = 4  # vector registers that accumulators leave to operands
EXACT = 0.75  # how often a size that divides is preferred where there is one: it needs no guard
BODIES = 512  # copies of its body that a perfect innermost tile may unroll to, Ansor's largest limit
ROUNDS = 16  # of shrinking tiles until accumulators fit; each halves or better what is too much


def sample(sketch: Sketch, target: Target, n: int, rng: np.random.Generator) -> np.ndarray:
    """`n` rows of the sketch's holes, an (n, columns) int64 matrix; every row is a legal candidate in canonical form (`fit`)."""
    rows = np.ones((n, sketch.columns), dtype=np.int64)
    for choice in sketch.choices:
        rows[:, choice.column] = rng.choice(choice.options, size=n)
    if target.kind == "cuda":
        population.draw(sketch, target, rows, rng)
        return fit(sketch, target, rows)
    for block in dict.fromkeys(t.block for t in sketch.tiles):
        tiles = [t for t in sketch.tiles if t.block == block]
        _perfect(rows, [t for t in tiles if t.perfect], rng)
        _spatial(rows, [t for t in tiles if not t.reduce and not t.perfect], target, rng)
        _reduce(rows, [t for t in tiles if t.reduce and not t.perfect], rng)
    return fit(sketch, target, rows)


def fit(sketch: Sketch, target: Target, rows: np.ndarray) -> np.ndarray:
    """The rows in canonical form, a new matrix: of rows that lead to the same program, or to one that only guards more, one.

    Sizes are clipped to what is left of the extent, and evened out so that the last tile is nearly full; the vectorised one is
    made of whole vectors; perfect ones become the largest divisor that is no larger. Innermost tiles shrink until the
    accumulators of a block fit the vector registers. Columns of runs of steps that a branch did not pick are set to their first
    value. Applying it twice changes nothing more. For a GPU see `search.gpu.population`.
    """
    rows = rows.copy()
    if target.kind == "cuda":
        population.fit(sketch, target, rows)
        _still(sketch, rows)
        return rows
    for block in dict.fromkeys(t.block for t in sketch.tiles):
        tiles = [t for t in sketch.tiles if t.block == block and not t.reduce and t.columns]
        for t in tiles:
            rows[:, t.columns[-1]] = _innermost(t, target, rows[:, t.columns[-1]])
        _shrink(rows, tiles, target)
    for t in sketch.tiles:
        left = np.full(len(rows), t.extent, dtype=np.int64)
        for column in reversed(t.columns):
            size = np.clip(rows[:, column], 1, left)
            if t.perfect:
                size = _divisor_below(left, size)
            elif not (t.vector and column == t.columns[-1]):
                size = _even(left, size)
            rows[:, column] = size
            left = -(-left // size)
    _still(sketch, rows)
    return rows


def _innermost(t: Tile, target: Target, sizes: np.ndarray) -> np.ndarray:
    sizes = np.clip(sizes, 1, t.extent if t.limit is None else min(t.extent, t.limit))
    if t.perfect:
        return _divisor_below(np.full(len(sizes), t.extent), sizes)
    if t.vector:
        lanes = target.lanes(t.bits)
        whole = lanes * np.maximum(1, (sizes + lanes // 2) // lanes)
        return np.minimum(np.where(sizes < t.extent, whole, sizes), t.extent if t.limit is None else min(t.extent, t.limit))
    return _even(np.full(len(sizes), t.extent), sizes)


def _shrink(rows: np.ndarray, tiles: Sequence[Tile], target: Target) -> None:
    """Halve innermost tiles, the longest first, until the accumulators of the block fit."""
    if not tiles:
        return
    budget = max(1, BODIES if any(t.perfect for t in tiles) else machine(target).registers - OPERANDS)
    columns = np.array([t.columns[-1] for t in tiles])
    lanes = np.array([target.lanes(t.bits) if t.vector else 1 for t in tiles])
    for _ in range(ROUNDS):
        vectors = -(-rows[:, columns] // lanes)
        over = np.flatnonzero(np.prod(vectors, axis=1) > budget)
        if not len(over):
            return
        longest = np.argmax(vectors[over], axis=1)
        for n, t in enumerate(tiles):
            own = over[longest == n]
            excess = np.prod(vectors[own], axis=1) / budget
            smaller = np.maximum(1, np.minimum(vectors[own, n] / excess, vectors[own, n] - 1)).astype(np.int64) * lanes[n]
            rows[own, t.columns[-1]] = _innermost(t, target, smaller)


def _even(left: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The least sizes that make as many tiles: the last one is nearly full."""
    return -(-left // -(-left // size))


def _divisor_below(extent: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The largest divisors of `extent` that are no larger than `size`."""
    result = np.ones_like(size)
    for value in np.unique(extent):
        divisors = _divisors(int(value))
        here = extent == value
        result[here] = divisors[np.searchsorted(divisors, size[here], side="right") - 1]
    return result


def _still(sketch: Sketch, rows: np.ndarray) -> None:
    """Set the columns that a row does not use, because a branch did not pick their steps, to their first value."""
    if not sketch.branches:
        return
    first = np.ones(sketch.columns, dtype=np.int64)
    for choice in sketch.choices:
        first[choice.column] = choice.options[0]
    used = np.zeros(rows.shape, dtype=bool)

    def visit(steps: Sequence[Step | Branch], active: np.ndarray) -> None:
        for entry in steps:
            if isinstance(entry, Branch):
                used[active, entry.column] = True
                picked = rows[:, entry.column] % len(entry.options)
                for n, option in enumerate(entry.options):
                    if option:
                        visit(option, active & (picked == n))
            else:
                for hole in (hole for _, value in entry.args for hole in _holes(value)):
                    used[active, hole.column] = True

    visit(sketch.steps, np.ones(len(rows), dtype=bool))
    rows[:] = np.where(used, rows, first)


def _holes(value: object) -> list[Hole]:
    match value:
        case Hole():
            return [value]
        case Product(columns):
            return [Hole(c) for c in columns]
        case tuple() | list():
            return [hole for v in value for hole in _holes(v)]
        case _:
            return []


def _perfect(rows: np.ndarray, tiles: Sequence[Tile], rng: np.random.Generator) -> None:
    """All levels of each axis at once: one of the ordered factorisations of its extent."""
    for t in tiles:
        if t.columns:
            table = factorisations(t.extent, len(t.columns), t.limit or t.extent)
            rows[:, t.columns] = table[rng.integers(len(table), size=len(rows))]


@lru_cache(maxsize=1024)
def factorisations(extent: int, levels: int, limit: int) -> np.ndarray:
    """All ways to cut `extent` into `levels` inner levels and an outermost one that is left, exactly: a matrix with a row each,
    the innermost level last and at most `limit`."""
    rows = [[d] for d in _divisors(extent).tolist() if d <= limit]
    for _ in range(levels - 1):
        rows = [[d, *inner] for inner in rows for d in _divisors(extent // math.prod(inner)).tolist()]
    return np.array(rows, dtype=np.int64).reshape(-1, levels)


def _spatial(rows: np.ndarray, tiles: Sequence[Tile], target: Target, rng: np.random.Generator) -> None:
    """Register tiles of which the accumulators fit the vector registers, then levels of multiples."""
    n = len(rows)
    tiles = [t for t in tiles if t.columns]
    budget = np.full(n, machine(target).registers - OPERANDS, dtype=np.int64)
    for t in tiles:
        if not t.vector:
            continue
        lanes = target.lanes(t.bits)
        if t.extent <= lanes:
            inner = np.full(n, t.extent, dtype=np.int64)
        else:
            menu = lanes * np.arange(1, min(4, -(-t.extent // lanes)) + 1)
            exact = menu[t.extent % menu == 0]
            inner = rng.choice(menu, size=n)
            if len(exact):
                inner = np.where(rng.random(n) < EXACT, rng.choice(exact, size=n), inner)
        rows[:, t.columns[-1]] = np.minimum(inner, t.extent)
        budget //= np.maximum(1, -(-inner // lanes))
    others = [t for t in tiles if not t.vector]
    for k in rng.permutation(len(others)):
        t = others[k]
        # Uniform in the exponent, half of the time all that the budget allows.
        top = np.minimum(budget, t.extent if t.limit is None else min(t.extent, t.limit))
        drawn = np.exp(rng.random(n) * np.log(top + 0.999)).astype(np.int64)
        inner = np.where(rng.random(n) < 0.5, top, np.clip(drawn, 1, top))
        inner = _fitting(t.extent, inner, rng)
        rows[:, t.columns[-1]] = inner
        budget = np.maximum(1, budget // inner)
    for t in tiles:
        left = -(-t.extent // rows[:, t.columns[-1]])
        for column in reversed(t.columns[:-1]):
            drawn = np.exp(rng.random(n) * np.log(left + 0.999)).astype(np.int64)
            size = _fitting(left, np.clip(drawn, 1, left), rng)
            size = np.where(rng.random(n) < 0.3, 1, size)
            rows[:, column] = size
            left = -(-left // size)


def _reduce(rows: np.ndarray, tiles: Sequence[Tile], rng: np.random.Generator) -> None:
    """Inner reduction loops: short axes whole, long ones from a few dozen up; then levels of multiples."""
    n = len(rows)
    for t in tiles:
        left = np.full(n, t.extent, dtype=np.int64)
        for column in reversed(t.columns):
            if column == t.columns[-1] and t.extent <= 16:
                size = np.where(rng.random(n) < 0.8, t.extent, 1)
            else:
                low = np.log(16.0) if column == t.columns[-1] else 0.0
                size = np.exp(low + rng.random(n) * (np.log(left + 0.999) - low)).astype(np.int64)
                size = _fitting(left, np.clip(size, 1, left), rng)
            rows[:, column] = size
            left = -(-left // size)


def _fitting(extent: np.ndarray | int, size: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sizes near `size` that waste little: mostly the largest divisor of `extent` that is not much smaller, else the least size
    that makes as many tiles, so that the last is nearly full."""
    extent = np.broadcast_to(np.asarray(extent), size.shape)
    divisor = _divisor_below(extent, size)
    near = (2 * divisor > size) & (rng.random(len(size)) < EXACT)
    return np.where(near, divisor, _even(extent, size))


@lru_cache(maxsize=4096)
def _divisors(n: int) -> np.ndarray:
    """The divisors of n, ascending."""
    small = np.arange(1, math.isqrt(n) + 1)
    small = small[n % small == 0]
    return np.unique(np.concatenate([small, n // small]))
