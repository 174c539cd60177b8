"""The puzzles, in the order of the course's lessons."""

from __future__ import annotations

from ..puzzle import Puzzle
from . import cores, legality, loop_nests, networks, placement, searches

PUZZLES: dict[str, Puzzle] = {
    p.name: p
    for p in sorted(
        (p for module in (loop_nests, cores, placement, legality, searches, networks) for p in module.PUZZLES),
        key=lambda p: p.lesson,
    )
}
