"""The tiled loop nest of a block of a sketch: the columns of its tile sizes, and its accesses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TileAccess:
    """A buffer read or written in the innermost tile: per dimension, the axes in its index as (axis number, coefficient)."""

    dims: tuple[tuple[tuple[int, int], ...], ...]
    shape: tuple[int, ...]
    nbytes: int  # of one element
    written: bool = False


@dataclass(frozen=True, slots=True)
class TiledNest:
    """A loop nest tiled as SSRSRS. Axis number n has `extents[n]` iterations, is a reduction if `reduce[n]`, and its inner tile
    sizes, outermost first, stand in the columns `columns[n]`. `vector` is the vectorised axis, None if there is none.

    On a GPU it is tiled as SSSRRSRS, or not at all, and `roles[n]` has a letter for each column: g for blocks that run together,
    v for virtual threads, t for threads, s for the elements of a thread, r for steps of a reduction. On tensor cores w stands for
    warps and f for fragments, and the innermost tile is an instruction, which takes `units[n]` iterations. The number of tiles of
    shared memory that take turns stands in the column `stages`, and how many elements of access number n a thread copies there at
    once in the column `widths[n]`.
    """

    extents: tuple[int, ...]
    reduce: tuple[bool, ...]
    columns: tuple[tuple[int, ...], ...]
    accesses: tuple[TileAccess, ...]
    vector: int | None
    element_bits: int = 32
    roles: tuple[str, ...] = ()
    units: tuple[int, ...] = ()
    stages: int | None = None
    widths: tuple[int | None, ...] = ()
