"""The symbolic programs of a sketch: what a cost model is given about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from .loopnest import Program
from .tiled_nest import TiledNest

Programs = Callable[[np.ndarray], Iterable[tuple[np.ndarray, Program]]]


@dataclass(frozen=True)
class SketchPrograms:
    """The programs of one sketch, with symbolic numbers where that is possible.

    `task` names the computation, so that a model knows which times can be compared. `nests` are the tiled loop nests that
    analytic models look at. `programs(rows)` yields pairs of row numbers and the program that describes these rows; the formulas
    in a program refer to the columns of `rows`. Rows that are no legal program are in no pair. `count_concrete(rows)` is the
    number of rows that have no symbolic program, so that each of them is a program of its own.
    """

    name: str
    columns: int
    nests: tuple[TiledNest, ...] = ()
    task: str = ""
    programs: Programs = lambda rows: ()
    count_concrete: Callable[[np.ndarray], int] = lambda rows: 0
