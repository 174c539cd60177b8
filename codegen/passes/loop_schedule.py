"""Division of the iterations of a parallel loop among threads."""

from __future__ import annotations

from typing import NamedTuple

from schedule.annotation_values import value_of
from tir.ir import For

CHUNKS_PER_THREAD = 16  # chunks of a dynamic loop without a chunk size; taking one costs as much as a small iteration


class Chunks(NamedTuple):
    """Chunks of `size` iterations: the next free thread takes one if `dynamic`, else threads take turns. Without a size, one
    contiguous share a thread, or CHUNKS_PER_THREAD chunks a thread if `dynamic`."""

    dynamic: bool
    size: int | None


def chunks(loop: For) -> Chunks:
    """The division of a loop by its annotations `schedule: "static"` or `"dynamic"` and `chunk: n`; static without them.

    A chunk of 0 is the default. Raises ValueError for other values.
    """
    return Chunks(value_of(loop, "schedule", "static") == "dynamic", value_of(loop, "chunk", 0) or None)
