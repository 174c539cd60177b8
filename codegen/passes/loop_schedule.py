"""Division of the iterations of a parallel loop among threads."""

from __future__ import annotations

from typing import NamedTuple

from schedule.annotation_values import value_of
from tir.ir import For

CHUNKS_PER_THREAD = 16  # of a dynamic loop without a chunk size: to take one costs as much as a small iteration


class Chunks(NamedTuple):
    """Iterations in chunks of `size`, each taken by the next thread that is free if `dynamic`, else in turns. Without a size, one
    contiguous share a thread; a dynamic loop is cut into CHUNKS_PER_THREAD chunks a thread then."""

    dynamic: bool
    size: int | None


def chunks(loop: For) -> Chunks:
    """The division of a loop by its annotations `schedule: "static"` or `"dynamic"` and `chunk: n`; static without them.

    A chunk of 0 says nothing. ValueError for other values.
    """
    return Chunks(value_of(loop, "schedule", "static") == "dynamic", value_of(loop, "chunk", 0) or None)
