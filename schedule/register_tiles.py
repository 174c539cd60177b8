"""Register tiles: those that fit the registers of a processor, as arrays, and the one with which a nest takes the fewest cycles.

A population is a pair of arrays, the rows and the vectors of columns of each tile, smaller tiles first. A template says which
tiles are legal, and how many of each its nest has. `CPU.tile_cycles` says what one takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from .machine import CPU

MAX_TILE_VECTORS = 4  # most vectors of columns in a register tile, unless it has all columns: estimates of wider ones are too low
# Least speed-up by a larger tile: on a Zen 4, 12 rows by 32 columns are 5 % faster than 14, though estimated 0.1 % slower.
MIN_GAIN_OF_LARGER_TILES = 1.005


class RegisterTile(NamedTuple):
    """The rows and columns of a register tile, in elements, and the cycles of all tiles of a nest."""

    rows: int
    columns: int
    cycles: float


def fitting(processor: CPU, rows: Iterable[int], vectors: Iterable[int], spare: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The tiles of these rows and vectors that leave `spare` registers. Beside accumulators, registers hold the fewer of rows and
    vectors, or all of more than MAX_TILE_VECTORS vectors."""
    v, m = (x.ravel() for x in np.meshgrid([*vectors], [*rows], indexing="ij"))
    fits = m * v + spare <= processor.accumulators(np.where(v <= MAX_TILE_VECTORS, np.minimum(m, v), v))
    return m[fits], v[fits]


def fewest_cycles(
    rows: np.ndarray, columns: np.ndarray, cycles: np.ndarray, gain: float = MIN_GAIN_OF_LARGER_TILES, stores: Any = 0.0
) -> RegisterTile:
    """The first tile that no other one is faster than by `gain`. Cycles of `stores` count in the choice, not in the result."""
    total = cycles + stores
    best = int(np.argmax(total <= gain * total.min()))
    return RegisterTile(int(rows[best]), int(columns[best]), float(cycles[best]))


def product_tile(
    M: int,
    N: int,
    K: int,
    lanes: int,
    processor: CPU,
    dividing: bool = False,
    padded: bool = True,
    transposed: bool = False,
    columns: int = 0,
) -> RegisterTile:
    """The tile of M rows and N columns with the fewest cycles of all sums of K steps. With `dividing`, its columns divide N, a
    multiple of the lanes; `columns` are its columns where they are known. Where rows are not `padded`, the last tile has only
    those left. A `transposed` result is stored in vectors of rows, of which wide tiles have more: on a Zen 4, 6 of 28 rows by 64
    columns take 1.01 x as long as 14 by 32."""
    # A tile as wide as the matrix may end in a part of a vector, of more than one lane. In other tiles such a part takes twice as
    # long where columns are too few to be packed: each step has a mask. The last tile of packed columns is as wide as the others.
    vectors, few = ceil(N / lanes), N * K * processor.vector_bits // (8 * lanes) <= processor.l1
    whole = vectors if N % lanes > 1 else 0
    widths = {v for v in range(1, MAX_TILE_VECTORS + 1) if (v == 1 or v * lanes <= N) and not (dividing and N % (v * lanes))}
    tried = [ceil(columns / lanes)] if columns else sorted({*widths, whole} - {0})
    m, v = fitting(processor, range(1, min(M, processor.registers) + 1), tried)
    full, left = np.divmod(M, m)

    def panel(vectors: np.ndarray) -> np.ndarray:
        """Cycles of all tiles of rows for one panel of columns."""
        rest = processor.tile_cycles(m if padded else left, vectors, K)
        return full * processor.tile_cycles(m, vectors, K) + np.where(left > 0, rest, 0.0)

    panels, last = np.divmod(vectors, v)
    masked = (few and whole > 0) * (v != whole) / v
    ends = panel(np.maximum(last, 1) if few else v)
    cycles = panel(v) * (panels + masked) + np.where(last > 0, ends, 0.0)
    stores = N * (full * np.ceil(m / lanes) + np.ceil(left / lanes)) * processor.uops_per_vector
    return fewest_cycles(m, np.minimum(v * lanes, N), cycles, stores=transposed * stores)
