"""The programs of single schedules for cost models: each is lowered by itself, as the rows of a sketch are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from costmodel import ProgramDescription, SketchPrograms, program
from search.keys import key
from tir.ir import PrimFunc


def schedule_programs(func: PrimFunc, scheduled: Sequence[PrimFunc]) -> SketchPrograms:
    """The programs of any schedules of `func`: a row is the number of one in `scheduled`."""

    def programs(rows: np.ndarray) -> Iterator[tuple[np.ndarray, ProgramDescription]]:
        for n, (number,) in enumerate(rows.tolist()):
            yield np.array([n]), program(scheduled[number])

    return SketchPrograms("schedules", 1, (), key(func), programs, len)
