"""How the iterations of a parallel loop are shared out among threads."""

from __future__ import annotations

from typing import NamedTuple

from tir.ir import For, annotation

SCHEDULE = "schedule"
CHUNK = "chunk"

CHUNKS_PER_THREAD = 16  # of a dynamic loop without a chunk size: to take one costs as much as a small iteration


class Chunks(NamedTuple):
    """Iterations in chunks of `size`, each taken by the next thread that is free if `dynamic`, else in turns. Without a size, one
    contiguous share a thread; a dynamic loop is cut into CHUNKS_PER_THREAD chunks a thread then."""

    dynamic: bool
    size: int | None


def chunks(loop: For) -> Chunks:
    """What the annotations `schedule: "static"` or `"dynamic"` and `chunk: n` of a parallel loop ask for; static without them.

    A chunk of 0 says nothing. ValueError for other values.
    """
    schedule = annotation(loop.annotations, SCHEDULE, "static")
    size = annotation(loop.annotations, CHUNK)
    if schedule not in ("static", "dynamic"):
        raise ValueError(f'loop `{loop.name}`: the annotation {SCHEDULE} must be "static" or "dynamic", got {schedule!r}')
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise ValueError(f"loop `{loop.name}`: the annotation {CHUNK} must be an integer from 0 up, got {size!r}")
    return Chunks(schedule == "dynamic", size or None)
