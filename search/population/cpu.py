"""Populations for CPUs: rows whose innermost tiles fit the vector registers.

Tile sizes may be any integer; a last tile that is not full is guarded. They are sampled from the innermost level outwards: the
innermost tile fits the vector registers, the next ones are small multiples. For perfect tiles every exact factorisation of the
extent is equally likely (Ansor, section 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from codegen.target import Target
from schedule.machine import CPU
from schedule.open_trace import Role, Tile

from ..space.sketch import Sketch

MAX_OPERAND_VECTORS = 2  # registers for vectors of an operand, beside the accumulators; more vectors reuse them
DIVIDING_SHARE = 0.75  # probability that a divisor of the extent, which needs no guard, is preferred
MAX_VECTORS = 4  # most vectors of the innermost tile along the vectorised axis
MAX_BODIES = 512  # most copies of the body of a perfect innermost tile, once unrolled: Ansor's largest limit
MAX_ROUNDS = 16  # most rounds of shrinking tiles until accumulators fit


def sample_tiles(sketch: Sketch, target: Target, rows: np.ndarray, rng: np.random.Generator) -> None:
    """Sample the tile sizes of `rows`, in place."""
    for tiles in sketch.tiles_by_block.values():
        _perfect(rows, [t for t in tiles if t.perfect], rng)
        _spatial(sketch, rows, [t for t in tiles if not t.reduce and not t.perfect], target, rng)
        _reduce(rows, [t for t in tiles if t.reduce and not t.perfect], rng)


def legalize(sketch: Sketch, target: Target, rows: np.ndarray) -> None:
    """Bring `rows` into canonical form, in place.

    Tile sizes are clipped to the rest of the extent, and evened out so that the last tile is nearly full. The innermost
    size of the vectorised axis is rounded to whole vectors (see `lanes`). Perfect sizes are rounded down to a divisor. Innermost
    tiles shrink until the accumulators of a block fit the vector registers.
    """
    used = sketch.used(rows)  # depends on branches alone, not on tiles
    rows[:] = sketch.canonical(rows, used)
    for own in sketch.tiles_by_block.values():
        tiles = [t for t in own if not t.reduce and t.columns]
        widths = {t: lanes(sketch, target, t, rows) for t in tiles}
        for t in tiles:
            rows[:, t.columns[-1]] = _innermost(t, widths[t], rows[:, t.columns[-1]])
        _shrink(rows, {t: width for t, width in widths.items() if t.registers}, target)
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
    rows[:] = sketch.canonical(rows, used)


def lanes(sketch: Sketch, target: Target, t: Tile, rows: np.ndarray) -> np.ndarray:
    """Elements of a vector along axis `t`, by row: a register's, or half of them if the row picks that; 1 if not vectorised."""
    if not t.vector:
        return np.ones(len(rows), dtype=np.int64)
    width = np.full(len(rows), target.lanes(t.bits), dtype=np.int64)
    halved = sketch.column_of(t.block, Role.VECTOR_WIDTH)
    return width if halved is None else width // (1 + rows[:, halved])


def _innermost(t: Tile, width: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    sizes = np.clip(sizes, 1, t.extent if t.limit is None else min(t.extent, t.limit))
    if t.perfect:
        return _divisor_below(np.full(len(sizes), t.extent), sizes)
    if t.vector:
        whole = width * np.maximum(1, (sizes + width // 2) // width)
        return np.minimum(np.where(sizes < t.extent, whole, sizes), t.extent if t.limit is None else min(t.extent, t.limit))
    return _even(np.full(len(sizes), t.extent), sizes)


def _shrink(rows: np.ndarray, widths: Mapping[Tile, np.ndarray], target: Target) -> None:
    """Shrink innermost tiles, the longest first, until the block's accumulators fit the registers; `widths` has the elements of a
    vector. Perfect tiles may have MAX_BODIES instead."""
    if not widths:
        return
    perfect = any(t.perfect for t in widths)
    columns = np.array([t.columns[-1] for t in widths])
    width = np.stack(list(widths.values()), axis=1)
    across = np.array([t.vector for t in widths])
    for _ in range(MAX_ROUNDS):
        vectors = -(-rows[:, columns] // width)
        budget = np.full(len(rows), MAX_BODIES) if perfect else _accumulators(target, vectors[:, across])
        over = np.flatnonzero(np.prod(vectors, axis=1) > budget)
        if not len(over):
            return
        longest = np.argmax(vectors[over], axis=1)
        for n, t in enumerate(widths):
            own = over[longest == n]
            excess = np.prod(vectors[own], axis=1) / budget[own]
            smaller = np.maximum(1, np.minimum(vectors[own, n] / excess, vectors[own, n] - 1)).astype(np.int64) * width[own, n]
            rows[own, t.columns[-1]] = _innermost(t, width[own, n], smaller)


def _accumulators(target: Target, vectors: np.ndarray) -> np.ndarray:
    """The largest number of accumulators, by row; `vectors` has the lengths of its tile along vectorised axes, in vectors."""
    operands = np.minimum(np.prod(vectors, axis=1), MAX_OPERAND_VECTORS) if vectors.shape[1] else MAX_OPERAND_VECTORS
    return np.broadcast_to(np.maximum(1, target.machine_as(CPU).accumulators(operands)), len(vectors))


def _even(left: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The smallest sizes with the same number of tiles: the last one is nearly full."""
    return -(-left // -(-left // size))


def _divisor_below(extent: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The largest divisors of `extent` up to `size`."""
    result = np.ones_like(size)
    for value in np.unique(extent):
        divisors = _divisors(int(value))
        here = extent == value
        result[here] = divisors[np.searchsorted(divisors, size[here], side="right") - 1]
    return result


def _perfect(rows: np.ndarray, tiles: Sequence[Tile], rng: np.random.Generator) -> None:
    """Sample all levels of each axis at once: one of the ordered factorisations of its extent."""
    for t in tiles:
        if t.columns:
            table = factorisations(t.extent, len(t.columns), t.limit or t.extent)
            rows[:, t.columns] = table[rng.integers(len(table), size=len(rows))]


@lru_cache(maxsize=1024)
def factorisations(extent: int, levels: int, limit: int) -> np.ndarray:
    """All exact factorisations of `extent` into `levels` factors and an outermost rest, a row each.

    The innermost factor is the last, and at most `limit`."""
    rows = [[d] for d in _divisors(extent).tolist() if d <= limit]
    for _ in range(levels - 1):
        rows = [[d, *inner] for inner in rows for d in _divisors(extent // math.prod(inner)).tolist()]
    return np.array(rows, dtype=np.int64).reshape(-1, levels)


def _spatial(sketch: Sketch, rows: np.ndarray, tiles: Sequence[Tile], target: Target, rng: np.random.Generator) -> None:
    """Sample register tiles whose accumulators fit the vector registers, then levels of multiples."""
    n = len(rows)
    tiles = [t for t in tiles if t.columns]
    across = []
    for t in tiles:
        if not t.vector:
            continue
        width = lanes(sketch, target, t, rows)
        for own in (width == w for w in np.unique(width)):
            rows[own, t.columns[-1]] = _vectors(t.extent, int(width[own][0]), int(own.sum()), rng)
        across.append(-(-rows[:, t.columns[-1]] // width))
    vectors = np.stack(across, axis=1) if across else np.ones((n, 0), dtype=np.int64)
    budget = _accumulators(target, vectors) // np.prod(vectors, axis=1)
    others = [t for t in tiles if not t.vector]
    for k in rng.permutation(len(others)):
        t = others[k]
        # Uniform in the exponent; half of the time the whole budget.
        most = t.extent if t.limit is None else min(t.extent, t.limit)
        top = np.minimum(budget, most) if t.registers else np.full(n, most)
        drawn = _log_uniform(top, rng)
        inner = np.where(rng.random(n) < 0.5, top, drawn)
        inner = _fitting_sizes(t.extent, inner, rng)
        rows[:, t.columns[-1]] = inner
        budget = np.maximum(1, budget // inner) if t.registers else budget
    for t in tiles:
        left = -(-t.extent // rows[:, t.columns[-1]])
        for column in reversed(t.columns[:-1]):
            size = _fitting_sizes(left, _log_uniform(left, rng), rng)
            size = np.where(rng.random(n) < 0.3, 1, size)
            rows[:, column] = size
            left = -(-left // size)


def _vectors(extent: int, width: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """`n` tile lengths in whole vectors of `width` elements, mostly divisors of the extent."""
    lengths = width * np.arange(1, min(MAX_VECTORS, -(-extent // width)) + 1)
    exact = lengths[extent % lengths == 0]
    sampled = rng.choice(lengths, size=n)
    if len(exact):
        sampled = np.where(rng.random(n) < DIVIDING_SHARE, rng.choice(exact, size=n), sampled)
    return np.minimum(sampled, extent)


def _reduce(rows: np.ndarray, tiles: Sequence[Tile], rng: np.random.Generator) -> None:
    """Sample inner reduction loops: short axes mostly whole, long ones from 16 up; then levels of multiples."""
    n = len(rows)
    for t in tiles:
        left = np.full(n, t.extent, dtype=np.int64)
        for column in reversed(t.columns):
            if column == t.columns[-1] and t.extent <= 16:
                size = np.where(rng.random(n) < 0.8, t.extent, 1)
            else:
                size = _fitting_sizes(left, _log_uniform(left, rng, 16.0 if column == t.columns[-1] else 1.0), rng)
            rows[:, column] = size
            left = -(-left // size)


def _log_uniform(upper: np.ndarray, rng: np.random.Generator, lower: float = 1.0) -> np.ndarray:
    """Sizes from `lower` to `upper`, uniform in the exponent."""
    low = np.log(lower)
    sampled = np.exp(low + rng.random(len(upper)) * (np.log(upper + 0.999) - low)).astype(np.int64)
    return np.clip(sampled, 1, upper)


def _fitting_sizes(extent: np.ndarray | int, size: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sizes near `size` that waste little: mostly the largest divisor of `extent` up to `size`, if above half of it. Else the
    smallest size with the same number of tiles, so that the last is nearly full."""
    extent = np.broadcast_to(np.asarray(extent), size.shape)
    divisor = _divisor_below(extent, size)
    near = (2 * divisor > size) & (rng.random(len(size)) < DIVIDING_SHARE)
    return np.where(near, divisor, _even(extent, size))


@lru_cache(maxsize=4096)
def _divisors(n: int) -> np.ndarray:
    """The divisors of n, ascending."""
    small = np.arange(1, math.isqrt(n) + 1)
    small = small[n % small == 0]
    return np.unique(np.concatenate([small, n // small]))
