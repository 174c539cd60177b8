"""Populations: integer matrices with one row a candidate, drawn at random from a sketch.

Tile sizes may be any integer: where they do not divide, the last tile is guarded. They are drawn from inside to outside, from
what the machine offers: the innermost tile fits the vector registers, the next ones are small multiples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from codegen.target import Target

from .geometry import machine
from .sketch import Sketch, Tile

OPERANDS = 4  # vector registers that accumulators leave to operands
EXACT = 0.75  # how often a size that divides is preferred where there is one: it needs no guard


def sample(sketch: Sketch, target: Target, n: int, rng: np.random.Generator) -> np.ndarray:
    """`n` rows of the sketch's holes, an (n, columns) int64 matrix; every row is a legal candidate."""
    rows = np.ones((n, sketch.columns), dtype=np.int64)
    for choice in sketch.choices:
        rows[:, choice.column] = rng.choice(choice.options, size=n)
    for block in dict.fromkeys(t.block for t in sketch.tiles):
        spatial = [t for t in sketch.tiles if t.block == block and not t.reduce]
        reduce = [t for t in sketch.tiles if t.block == block and t.reduce]
        _spatial(rows, spatial, target, rng)
        _reduce(rows, reduce, rng)
    return rows


def _spatial(rows: np.ndarray, tiles: Sequence[Tile], target: Target, rng: np.random.Generator) -> None:
    """Register tiles of which the accumulators fit the vector registers, then two levels of multiples."""
    n = len(rows)
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
        top = np.minimum(budget, t.extent)
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
    """Inner reduction loops: short axes whole, long ones from a few dozen up."""
    n = len(rows)
    for t in tiles:
        if t.extent <= 16:
            inner = np.where(rng.random(n) < 0.8, t.extent, 1)
        else:
            low = np.log(16.0)
            inner = np.exp(low + rng.random(n) * (np.log(t.extent + 0.999) - low)).astype(np.int64)
            inner = _fitting(t.extent, np.clip(inner, 1, t.extent), rng)
        rows[:, t.columns[-1]] = inner


def _fitting(extent: np.ndarray | int, size: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sizes near `size` that waste little: mostly the largest divisor of `extent` that is not much smaller, else the least size
    that makes as many tiles, so that the last is nearly full."""
    extent = np.broadcast_to(np.asarray(extent), size.shape)
    even = -(-extent // -(-extent // size))
    divisor = np.ones_like(size)
    for value in np.unique(extent):
        divisors = _divisors(int(value))
        here = extent == value
        divisor[here] = divisors[np.searchsorted(divisors, size[here], side="right") - 1]
    near = (2 * divisor > size) & (rng.random(len(size)) < EXACT)
    return np.where(near, divisor, even)


@lru_cache(maxsize=4096)
def _divisors(n: int) -> np.ndarray:
    """The divisors of n, ascending."""
    small = np.arange(1, math.isqrt(n) + 1)
    small = small[n % small == 0]
    return np.unique(np.concatenate([small, n // small]))


def neighbours(sketch: Sketch, parents: np.ndarray, target: Target, rng: np.random.Generator) -> np.ndarray:
    """One mutant of each parent: all levels of one axis, or one choice, drawn anew. Same shape as `parents`."""
    drawn = sample(sketch, target, len(parents), rng)
    groups = [t.columns for t in sketch.tiles] + [(c.column,) for c in sketch.choices]
    if not groups:
        return parents.copy()
    mask = np.zeros((len(groups), sketch.columns), dtype=bool)
    for g, columns in enumerate(groups):
        mask[g, list(columns)] = True
    return np.where(mask[rng.integers(len(groups), size=len(parents))], drawn, parents)
