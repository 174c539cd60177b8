"""The symbolic programs of a sketch, which cost models score."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from costmodel import ProgramDescription, SketchPrograms, program
from costmodel.loopnest import DescriptionCache
from schedule import ScheduleError, replay
from tir.ir import PrimFunc

from ..keys import key
from ..space.sketch import Sketch
from .symbolic import ReplayCache, symbolic
from .tiled_nests import nests

MAX_CONCRETE_ROWS = 16  # lowered at a time for scores: each takes about 40 ms, a measurement ten times as long


@lru_cache(maxsize=512)
def sketch_programs(sketch: Sketch) -> SketchPrograms:
    """The programs of a sketch for cost models; the same object for equal sketches.

    Programs are built at the first request of a model: a symbolic one for each variant. If a primitive refuses that, each row has
    its own. The sketches of a function share equal parts.
    """
    replays, descriptions = _shared(sketch.func)
    known: dict[tuple[int, ...], ProgramDescription | None] = {}

    def shared(variant: tuple[int, ...]) -> ProgramDescription | None:
        if variant not in known:
            try:
                known[variant] = program(symbolic(sketch, variant, replays), descriptions)
            except ScheduleError:
                known[variant] = None
        return known[variant]

    def programs(rows: np.ndarray) -> Iterator[tuple[np.ndarray, ProgramDescription]]:
        for variant, members in _groups(sketch.variants(rows)):
            if (found := shared(variant)) is not None:
                yield members, found
            else:
                yield from ((members[one], own) for one, own in _replayed(sketch, rows[members]))

    def count_concrete(rows: np.ndarray) -> int:
        return sum(len(members) for variant, members in _groups(sketch.variants(rows)) if shared(variant) is None)

    return SketchPrograms(
        sketch.name, sketch.columns, nests(sketch), key(sketch.func), programs, count_concrete, max_concrete=MAX_CONCRETE_ROWS
    )


def _replayed(sketch: Sketch, rows: np.ndarray) -> Iterator[tuple[np.ndarray, ProgramDescription]]:
    for n, row in enumerate(rows):
        try:
            yield np.array([n]), program(replay(sketch.func, sketch.trace(row)).func)
        except ScheduleError:
            continue


@lru_cache(maxsize=64)
def _shared(func: PrimFunc) -> tuple[ReplayCache, DescriptionCache]:
    """The caches for all sketches of a function: results of steps, and descriptions of nests."""
    return ReplayCache(), DescriptionCache()


def _groups(keys: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """The distinct rows of a matrix, each with the numbers of its rows."""
    members: dict[tuple[int, ...], list[int]] = {}
    for n, group in enumerate(map(tuple, keys.tolist())):
        members.setdefault(group, []).append(n)
    for group in sorted(members):
        yield group, np.array(members[group])
