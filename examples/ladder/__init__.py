"""A ladder of programs for F = exp(A·B)·E, from the plain formula to one that is faster than hand-written matrix products.

Each rung is given twice: as a program in the script dialect (`scripts`) and as a schedule of the naive program (`schedules`).
`python -m examples.ladder` checks that both are the same program, that it computes what numpy does, and times it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schedule import Schedule
from tir.ir import PrimFunc

from . import schedules, scripts


class Shape(NamedTuple):
    """The sizes of A [M, K], B [K, L], E [L, N] and F [M, N]."""

    M: int
    K: int
    L: int
    N: int


DEFAULT = Shape(1024, 2048, 1024, 3072)
SMALLEST = Shape(1, 1, 1, 1)


@dataclass(frozen=True)
class Rung:
    """One program of the ladder, written out by `script` and made from the naive one by `schedule`.

    `multiples` are what the sizes must be multiples of, since its tiles are written without tails, and `least` are the smallest
    sizes; `published` are the seconds of the program of a tutorial that the rung follows (TVM, 2024, one core, the default
    shape), where there is such a program.
    """

    name: str
    script: Callable[[int, int, int, int], PrimFunc]
    schedule: Callable[[Schedule], None]
    multiples: Shape
    published: float | None = None
    least: Shape = SMALLEST

    @property
    def summary(self) -> str:
        """The rung in a sentence."""
        return self.script.__doc__ or ""

    def check(self, shape: Sequence[int]) -> Shape:
        """The sizes by name; ValueError where the tiles do not divide them, or one is too small."""
        sizes = Shape(*shape)
        for name, size, step, least in zip(Shape._fields, sizes, self.multiples, self.least, strict=True):
            if size < least or size % step:
                smallest = f" from {least} up" if least > step else ""
                given = ",".join(map(str, sizes))
                raise ValueError(f"{self.name}: {name} must be a multiple of {step}{smallest}, got {size} in {given}")
        return sizes

    def program(self, shape: Sequence[int] = DEFAULT) -> PrimFunc:
        """The script at a shape; ValueError where the tiles do not divide it."""
        return self.script(*self.check(shape))

    def scheduled(self, shape: Sequence[int] = DEFAULT) -> Schedule:
        """The schedule of the naive program at a shape; ScheduleError where a step is refused."""
        s = Schedule(scripts.naive(*shape))
        self.schedule(s)
        return s


RUNGS = (
    Rung("naive", scripts.naive, schedules.naive, Shape(1, 1, 1, 1), 6.2369),
    Rung("reorder", scripts.reorder, schedules.reorder, Shape(1, 1, 1, 1), 0.4165),
    Rung("tile_k", scripts.tile_k, schedules.tile_k, Shape(1, 8, 8, 1), 0.3838),
    Rung("tile_all", scripts.tile_all, schedules.tile_all, Shape(16, 8, 8, 8), 0.3761),
    Rung("tile_whole", scripts.tile_whole, schedules.tile_whole, Shape(16, 8, 8, 8), 1.0224),
    Rung("merge_exp", scripts.merge_exp, schedules.merge_exp, Shape(16, 8, 8, 8), 0.879),
    Rung("merge_rows", scripts.merge_rows, schedules.merge_rows, Shape(16, 8, 8, 8), 0.7925),
    Rung("vectorize", scripts.vectorize, schedules.vectorize, Shape(16, 8, 8, 8), 0.2237),
    Rung("decompose", scripts.decompose, schedules.decompose, Shape(16, 8, 8, 8)),
    Rung("searched", scripts.searched, schedules.searched, Shape(256, 16, 32, 192), 0.17),
    # With one block of 256 sums, `pack` has no dimension for blocks, which the script is written with.
    Rung("packed", scripts.packed, schedules.packed, Shape(256, 256, 256, 64), least=Shape(256, 512, 512, 64)),
)


def rung(name: str) -> Rung:
    """The rung of that name; ValueError with the list of those there are."""
    for r in RUNGS:
        if r.name == name:
            return r
    raise ValueError(f"no rung is named {name!r}; there are: {', '.join(r.name for r in RUNGS)}")
