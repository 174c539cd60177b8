"""The program of a sketch with symbolic tile sizes, built once for all rows of a variant.

The trace is replayed through the real primitives with numbers that remember their formulas (`tir.size.Size`) in place of
plain ones, so that every extent, stride and shape of the result tells how it depends on the row. The numbers of the witness are
chosen such that no special case arises: tiles of more than one iteration on every level, and more than one tile. An axis may be
too short for that; then rows that agree in which of its levels have one iteration share a program, with one of them as the
witness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from schedule import ScheduleError
from schedule.trace import Step
from tir.affine import coefficient, polynomial
from tir.ir import Const, For, Node, PrimFunc, Seq, Stmt, seq
from tir.size import Formula, Size, formula, lesser
from tir.traverse import blocks, loops, rewrite, variables, walk

from .planned import renamed, take
from .sketch import Branch, Sketch, Tile, filled

PRIMES = (3, 2, 5, 7)


# What the steps taken so far make, by the next one: a function, the step with names, and what the steps after it make.
Replayed = dict[Step, "tuple[PrimFunc, Step, Replayed]"]


@dataclass
class Memory:
    """What was made for one variant of a sketch and serves others: what runs of steps make, and nests (by identity, so the old
    ones are kept, too) with their loops clipped, of which equal ones are one object."""

    replayed: Replayed = field(default_factory=dict)
    clipped: dict[int, tuple[Stmt, Stmt]] = field(default_factory=dict)
    equal: dict[tuple[str, tuple[Formula, ...]], Stmt] = field(default_factory=dict)
    dividing: Memory | None = None  # what was made with tiles that divide


def symbolic(sketch: Sketch, variant: Sequence[int], memory: Memory | None = None, like: Sequence[int] | None = None) -> PrimFunc:
    """The program of a variant, with constants that are `Size`. Raises ScheduleError where no witness is legal.

    Where axes are short, the program is that of the rows whose `degenerate` levels are those of the row `like`. Variants made
    with the same `memory` share the nests in which they don't differ, as the same objects. Where steps are legal for tiles that
    divide only, these are the witness.
    """
    memory = memory or Memory()
    try:
        return _symbolic(sketch, variant, memory, witness(sketch, variant, like=like))
    except ScheduleError:
        if not any(t.perfect for t in sketch.tiles):
            raise
        memory.dividing = memory.dividing or Memory()
        return _symbolic(sketch, variant, memory.dividing, witness(sketch, variant, divides=True, like=like))


def _symbolic(sketch: Sketch, variant: Sequence[int], memory: Memory, row: list[int]) -> PrimFunc:
    cut = {x.name for x in loops(sketch.func.body)}
    made: dict[str, str] = {}
    func, below = sketch.func, memory.replayed
    for step in sketch.planned(variant):
        if step not in below:
            below[step] = *take(func, step, lambda s: _filled(s, row), made), {}
        func, named, below = below[step]
        made |= renamed(step, named)
        if step.name in ("split", "fuse"):
            cut.update(named.results)
    nests = func.body.stmts if isinstance(func.body, Seq) else (func.body,)
    for nest in nests:
        if id(nest) not in memory.clipped:
            clipped = _clipped(nest, cut)
            memory.clipped[id(nest)] = nest, memory.equal.setdefault((repr(clipped), _formulas(clipped)), clipped)
    return func.with_(body=seq(*(memory.clipped[id(nest)][1] for nest in nests)))


def _formulas(stmt: Stmt) -> tuple[Formula, ...]:
    """The formulas of all constants, which the text of nodes does not show."""
    return tuple(formula(n.value) for n in walk(stmt) if isinstance(n, Const) and isinstance(n.value, Size))


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


def degenerate(sketch: Sketch, rows: np.ndarray) -> np.ndarray:
    """Which levels of the short axes have one iteration, outermost levels included: a boolean matrix with a row each."""
    found = [np.empty((len(rows), 0), dtype=bool)]
    for tile in _short(sketch):
        inner = rows[:, tile.columns]
        outer = -(-tile.extent // np.prod(inner, axis=1))
        found.append(np.concatenate([outer[:, None], inner], axis=1) == 1)
    return np.concatenate(found, axis=1)


def _short(sketch: Sketch) -> list[Tile]:
    """The axes that have fewer iterations than levels for two iterations each need."""
    return [t for t in sketch.tiles if t.columns and -(-t.extent // 2 ** len(t.columns)) == 1]


def witness(sketch: Sketch, variant: Sequence[int], divides: bool = False, like: Sequence[int] | None = None) -> list[int]:
    """A row of a variant whose numbers are as different as the extents allow, and tiles divide if need be; on short axes the
    sizes of the row `like`."""
    row = [1] * sketch.columns
    primes = cycle(PRIMES)
    short = _short(sketch) if like is not None else []
    for tile in sketch.tiles:
        sizes = _sizes(tile.extent, [next(primes) for _ in tile.columns], divides)
        for column, size in zip(tile.columns, sizes, strict=True):
            row[column] = int(like[column]) if like is not None and tile in short else size
    for choice in sketch.choices:
        row[choice.column] = max(choice.options)
    numbers = iter(variant)

    def visit(steps: Sequence[Step | Branch], taken: bool) -> None:
        for step in steps:
            if isinstance(step, Branch):
                number = next(numbers)
                if taken:
                    row[step.column] = number
                for n, option in enumerate(step.options):
                    visit(option, taken and n == number)

    visit(sketch.steps, True)
    return row


def _sizes(extent: int, wanted: list[int], divides: bool) -> list[int]:
    """Sizes near `wanted`, but such that at least two tiles fit the extent if it is larger than 1; all divide it if need be."""
    sizes: list[int] = []
    left = extent if divides else max(1, extent - 1)
    for n, size in enumerate(wanted):
        if divides:
            most = max(1, left // min(2 ** (len(wanted) - n), left))  # leaves 2 for each of the other levels if there is as much
            divisors = [d for d in range(1, most + 1) if left % d == 0]
            sizes.append(next((d for d in divisors if d >= size), divisors[-1]))
        else:
            further = 2 ** (len(wanted) - n - 1)  # what the levels further in would like to have
            sizes.append(max(1, min(size, left // further if left >= 2 * further else left)))
        left //= sizes[-1]
    return sizes


def _filled(step: Step, row: Sequence[int]) -> Step:
    return filled(step, lambda column: Size.column(row[column], column))
