"""Warm start: the recorded candidates of other tasks as rows of their sketches, for cost models to learn from."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from tir.script.error import ScriptError

from ..measure import Candidate, Measurement
from ..measure.provenance import fingerprint
from ..records import Records
from ..space.sketch import Sketch
from ..task import Task

Example = tuple[Sketch, np.ndarray, np.ndarray]  # a sketch, an (n, columns) matrix of rows, and their seconds

MAX_TASKS = 8  # other tasks to learn from
MAX_CANDIDATES = 256  # of a task, the latest
MAX_SECONDS = 5.0  # seconds after which no other task is read


def examples(records: Records, task: Task, taught: Collection[str] = ()) -> Iterator[Example]:
    """Measured candidates of other functions, on the target and processor of `task`: a sketch, an (n, columns) int64 matrix of
    rows, and their seconds. Those of failures are infinite. Functions of the same structure come first, then the most recent. For
    a model that was `taught` tasks, given by their keys, only other functions of the same structure come.

    A row counts only if today's rules make the recorded trace from it. After `MAX_SECONDS` seconds no other function is read, so
    a busy machine may learn from fewer.
    """
    from ..space.generation import generate

    own = fingerprint(task.target)
    others = [s for s in records.summaries() if s.fingerprint == own and s.valid and s.workload not in {task.key, *taught}]
    like = {s.workload for s in records.near(task.func, task.key)}
    if taught:
        others = [s for s in others if s.workload in like]
    begin = time.monotonic()
    for summary in sorted(others, key=lambda s: (s.workload not in like, -s.last))[:MAX_TASKS]:
        if time.monotonic() - begin > MAX_SECONDS:
            return
        try:
            func = records.func(summary.workload)
        except ScriptError:  # written by an earlier version, in another dialect
            continue
        found = [r.measurement for r in records.of(summary.workload, task.target)[-MAX_CANDIDATES:]]
        yield from by_sketch(found, generate(func, task.resolved))


def by_sketch(measured: Sequence[Measurement], sketches: Sequence[Sketch]) -> Iterator[Example]:
    """The measurements of each sketch, as examples; those of other spaces and versions are left out."""
    for sketch in sketches:
        same = [m for m in measured if m.candidate.sketch == sketch.name and is_of(m.candidate, sketch)]
        if same:
            yield sketch, sketch.matrix(m.candidate.row for m in same), np.array([m.seconds for m in same])


def is_of(candidate: Candidate, sketch: Sketch) -> bool:
    """True if the sketch makes the trace of the candidate from its row; sketches of other spaces and versions share names."""
    if len(candidate.row) != sketch.columns or any(candidate.row[c.column] not in c.options for c in sketch.choices):
        return False
    return sketch.trace(candidate.row).as_json() == candidate.trace
