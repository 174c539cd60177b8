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
from .symbolic import Memory, degenerate, symbolic
from .task import key


@lru_cache(maxsize=512)
def family(sketch: Sketch) -> Family:
    """What a cost model is given about a sketch; the same object for equal sketches.

    Programs are built when a model first asks for them: one for each variant (and on short axes for each way in which levels have
    one iteration), with symbolic numbers; where that is refused, one for each row.
    """
    known: dict[tuple[int, ...], Program | None] = {}
    memories: dict[tuple[int, ...], Memory] = {}
    described = Known()

    def programs(rows: np.ndarray) -> Iterator[tuple[np.ndarray, Program]]:
        for group, members in _groups(sketch, rows):
            if group not in known:
                variant, levels = group[: len(sketch.branches)], group[len(sketch.branches) :]
                memory = memories.setdefault(levels, Memory())
                known[group] = _symbolic(sketch, variant, memory, described, rows[members[0]])
            shared = known[group]
            if shared is not None:
                yield members, shared
                continue
            for n in members:
                try:
                    yield np.array([n]), program(replay(sketch.func, sketch.trace(rows[n])).func)
                except ScheduleError:
                    continue

    return Family(sketch.name, sketch.columns, nests(sketch), key(sketch.func), programs)


def _groups(sketch: Sketch, rows: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """What rows that share a program have in common, their variant and then their degenerate levels, and the numbers of the rows
    of each."""
    if not len(rows):
        return
    keys = np.concatenate([sketch.variants(rows), degenerate(sketch, rows)], axis=1)
    if not keys.shape[1]:
        yield (), np.arange(len(rows))
        return
    groups, which = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    for group, members in zip(groups.tolist(), np.split(order, np.cumsum(np.bincount(which.ravel()))[:-1]), strict=True):
        yield tuple(group), members


def _symbolic(sketch: Sketch, variant: tuple[int, ...], memory: Memory, described: Known, like: np.ndarray) -> Program | None:
    try:
        return program(symbolic(sketch, variant, memory, like), described)
    except ScheduleError:
        return None
