"""What a cost model is given about a sketch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from .geometry import Nest
from .loopnest import Program

Programs = Callable[[np.ndarray], Iterable[tuple[np.ndarray, Program]]]


@dataclass(frozen=True)
class Family:
    """The candidates of one sketch: rows of numbers for the same columns.

    `task` names the computation, so that a model knows which times can be compared. `nests` are the tiled nests
    that formulas look at. `programs(rows)` yields pairs of row numbers and the program that these rows are, whose formulas are
    about the columns; rows that are no legal program are in no pair. `alone(rows)` counts those that `programs` gave a program of
    their own, as none with symbolic numbers could be made.
    """

    name: str
    columns: int
    nests: tuple[Nest, ...] = ()
    task: str = ""
    programs: Programs = lambda rows: ()
    alone: Callable[[np.ndarray], int] = lambda rows: 0
