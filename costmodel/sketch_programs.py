"""Sketches as a cost model sees them: their tiled loop nests and their symbolic programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from .loopnest import ProgramDescription


@dataclass(frozen=True, slots=True)
class TileAccess:
    """A buffer read or written in the innermost tile: per dimension, the axes in its index as (axis number, coefficient)."""

    dims: tuple[tuple[tuple[int, int], ...], ...]
    shape: tuple[int, ...]
    nbytes: int  # of one element
    written: bool = False


@dataclass(frozen=True, slots=True)
class TiledNest:
    """A loop nest tiled as SSRSRS.

    Axis number n has `extents[n]` iterations, is a reduction if `reduce[n]`, and its inner tile sizes, outermost first, stand in
    the columns `columns[n]`. `vector` is the vectorised axis, or None.

    On a GPU the nest is tiled as SSSRRSRS, or not at all. The string `roles[n]` has a letter for each column: g for blocks that
    run together, v for virtual threads, t for threads, s for elements of a thread, r for reduction steps. On tensor cores w
    stands for warps and f for fragments, and the innermost tile is an instruction, which takes `units[n]` iterations. The column
    `stages` has the number of tiles of shared memory that take turns. The column `widths[n]` has the elements of access number n
    in one copy of a thread.
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


Programs = Callable[[np.ndarray], Iterable[tuple[np.ndarray, ProgramDescription]]]


@dataclass(frozen=True)
class SketchPrograms:
    """The programs of one sketch, symbolic if possible.

    - `task` names the computation. `device` names the device that measured, empty for the one that is scored: times are compared
      within one task and device.
    - `nests` are the tiled loop nests for analytic models.
    - `programs(rows)` yields pairs of row numbers and the program that describes these rows; its formulas refer to the columns of
      `rows`. Rows without a legal program are in no pair.
    - `count_concrete(rows)` is the number of rows without a symbolic program, each a program of its own. At most `max_concrete`
      such rows are worth lowering at a time for their scores.
    """

    name: str
    columns: int
    nests: tuple[TiledNest, ...] = ()
    task: str = ""
    programs: Programs = lambda rows: ()
    count_concrete: Callable[[np.ndarray], int] = lambda rows: 0
    max_concrete: float = math.inf
    device: str = ""
