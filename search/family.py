"""A sketch, as cost models see it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from costmodel import Family, Program, program
from costmodel.loopnest import Known
from schedule import ScheduleError, replay

from .geometry import nests
from .sketch import Sketch
from .symbolic import Memory, symbolic
from .task import key


@lru_cache(maxsize=512)
def family(sketch: Sketch) -> Family:
    """What a cost model is given about a sketch; the same object for equal sketches.

    Programs are built when a model first asks for them: one for each variant, with symbolic numbers; where that is refused, one
    for each row.
    """
    known: dict[tuple[int, ...], Program | None] = {}
    memory = Memory()
    described = Known()

    def programs(rows: np.ndarray) -> Iterator[tuple[np.ndarray, Program]]:
        for variant, members in _variants(sketch, rows):
            if variant not in known:
                known[variant] = _symbolic(sketch, variant, memory, described)
            shared = known[variant]
            if shared is not None:
                yield members, shared
                continue
            for n in members:
                try:
                    yield np.array([n]), program(replay(sketch.func, sketch.trace(rows[n])).func)
                except ScheduleError:
                    continue

    return Family(sketch.name, sketch.columns, nests(sketch), key(sketch.func), programs)


def _variants(sketch: Sketch, rows: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """The variants among rows, and the numbers of the rows of each."""
    if not len(rows):
        return
    if not sketch.branches:
        yield (), np.arange(len(rows))
        return
    variants, which = np.unique(sketch.variants(rows), axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    for variant, members in zip(variants.tolist(), np.split(order, np.cumsum(np.bincount(which.ravel()))[:-1]), strict=True):
        yield tuple(variant), members


def _symbolic(sketch: Sketch, variant: tuple[int, ...], memory: Memory, described: Known) -> Program | None:
    try:
        return program(symbolic(sketch, variant, memory), described)
    except ScheduleError:
        return None
