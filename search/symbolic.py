"""The program of a sketch with symbolic tile sizes, built once for all rows of a variant.

The trace is replayed through the real primitives with numbers that remember their formulas (`tir.size.Size`) in place of
plain ones, so that every extent, stride and shape of the result tells how it depends on the row. The numbers of the witness are
chosen such that no special case arises: tiles of more than one iteration, and more than one tile, where the extent allows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle

from schedule import replay
from schedule.trace import Step
from tir.affine import coefficient, polynomial
from tir.ir import Const, For, Node, PrimFunc, Stmt
from tir.size import Size, lesser
from tir.traverse import blocks, loops, rewrite, variables

from .sketch import Hole, Sketch, Tile

PRIMES = (3, 2, 5, 7)


def symbolic(sketch: Sketch, variant: Sequence[int]) -> PrimFunc:
    """The program of a variant, with constants that are `Size`. Raises ScheduleError where the witness is refused."""
    row = witness(sketch, variant)
    steps = [_filled(step, row) for step in sketch.picked(variant)]
    made = {name for step in steps if step.name in ("split", "fuse") for name in step.results}
    func = replay(sketch.func, steps).func
    return func.with_(body=_clipped(func.body, made | {x.name for x in loops(sketch.func.body)}))


def _clipped(stmt: Stmt, cut: set[str]) -> Stmt:
    """The loops that the primitives made to compute a block within a tile (all but `cut`) with the shorter of two lengths: that
    of what the tile needs, as it is where there are several tiles, and that of the axis, as it is where there is one."""
    limits: dict[str, int] = {}
    for block in blocks(stmt):
        for it in block.iters:
            p = polynomial(it.binding)
            for name in variables(it.binding) - cut:
                if coefficient(p, name) == 1 and isinstance(it.extent, Const):
                    limits[name] = it.extent.value

    def clip(n: Node) -> Node | None:
        if isinstance(n, For) and n.name in limits and isinstance(n.extent, Const):
            return n.with_(extent=Const(lesser(n.extent.value, limits[n.name]), n.extent.dtype))
        return None

    return rewrite(stmt, clip)


def witness(sketch: Sketch, variant: Sequence[int]) -> list[int]:
    """A row of a variant whose numbers are as different as the extents allow."""
    row = [1] * sketch.columns
    primes = cycle(PRIMES)
    for tile in sketch.tiles:
        for column, size in zip(tile.columns, _sizes(tile, [next(primes) for _ in tile.columns]), strict=True):
            row[column] = size
    for choice in sketch.choices:
        row[choice.column] = max(choice.options)
    for branch, value in zip(sketch.branches, variant, strict=True):
        row[branch.column] = value
    return row


def _sizes(tile: Tile, wanted: list[int]) -> list[int]:
    """Sizes near `wanted`, but such that at least two tiles fit the extent if it is larger than 1."""
    sizes: list[int] = []
    left = max(1, (tile.extent - 1))
    for n, size in enumerate(wanted):
        further = 2 ** (len(wanted) - n - 1)  # what the levels further in would like to have
        sizes.append(max(1, min(size, left // further if left >= 2 * further else left, left)))
        left //= sizes[-1]
    return sizes


def _filled(step: Step, row: Sequence[int]) -> Step:
    def fill(value):
        if isinstance(value, Hole):
            return Size.column(row[value.column], value.column)
        return tuple(fill(v) for v in value) if isinstance(value, tuple) else value

    return replace(step, args=tuple((k, fill(v)) for k, v in step.args))
