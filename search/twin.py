"""The row of a sketch whose program is most like one that is known to be good.

The schedules of the library are rows of no sketch, but they cut the same axes of the same blocks into tiles, and mostly arrange
their loops as some row does. `twin` looks for that row: its sizes follow from the tiles of the known program, its choices from
what makes the loops most alike. With it evolution begins at what is known, and goes on from there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from codegen import lower
from codegen.passes.unroll import unroll
from codegen.target import Target
from schedule import ScheduleError
from schedule.open_schedule import is_spatial
from schedule.open_trace import Tile, filled, open_in
from schedule.places import renamed, take
from tir.affine import coefficient, polynomial
from tir.ir import Const, For, Kind, Node, PrimFunc, Store
from tir.traverse import blocks, children, path_to

from .sample import fit
from .sketch import Sketch

CLOSEST = 3  # sketches whose choices are made
ALIKE = 0.75  # of the loops of axes of the known program that a twin has at least


class Level(NamedTuple):
    """A loop of an axis: its step and length, whether it is inside of all sums, and whether it is not shared by threads."""

    step: int
    length: int
    deep: bool
    alone: bool


Sizes = dict[tuple[str, str], list[Level]]  # of the axes of blocks, by the names of both, the innermost loop first
Nests = Counter[tuple[tuple[str, int], ...]]  # how many loops there are in such others, each with its kind and length
Distance = tuple[float, float, float]


def twin(sketches: Sequence[Sketch], known: PrimFunc, target: Target) -> tuple[Sketch, np.ndarray] | None:
    """The sketch and its row, (columns,) int64, whose program is most like `known`, a schedule of the same function; None where
    no sketch has most of the loops of its axes."""
    aims = [_Aim(sketch, known, target) for sketch in sketches]
    closest = sorted(aims, key=lambda aim: aim.distance(aim.placed))[:CLOSEST]
    found = min(closest, key=lambda aim: aim.distance(aim.nearest))
    lacking, *_ = found.distance(found.nearest)
    most = (1 - ALIKE) * sum(map(len, found.sizes.values()))
    return (found.sketch, found.fitted(found.nearest)) if lacking <= most else None


class _Aim:
    """A sketch that is to come close to a known program."""

    def __init__(self, sketch: Sketch, known: PrimFunc, target: Target):
        self.sketch, self.target = sketch, target
        own = {block.name for block in blocks(sketch.func)}  # copies are made in many ways
        self.sizes = {axis: levels for axis, levels in _sizes(known).items() if axis[0] in own}
        self.nests = _nests(known, target)
        self._distances: dict[tuple[int, ...], Distance] = {}
        self._taken: dict[Any, Any] = {}  # by a first step with its numbers: what it makes, its names, and so on for the next

    @cached_property
    def placed(self) -> list[int]:
        """A row with the tile sizes of the known program, and the first option of each choice."""
        row = self.sketch.stand_ins()
        for t in self.sketch.tiles:
            for column, size in zip(t.columns, _inner(t, self.sizes.get((t.block, t.axis), [])), strict=True):
                row[column] = size
        return row

    @cached_property
    def nearest(self) -> list[int]:
        """That row after one choice after the other has taken the option that is closest, as long as one helps; the last go
        first, as those before them may leave out what they are about."""
        row, before = self.placed, list[int]()
        while row != before and any(self.distance(row)):
            before = row
            for choice in reversed(self.sketch.choices):
                others = [[*row[: choice.column], option, *row[choice.column + 1 :]] for option in choice.options]
                row = min([row, *others], key=self.distance)
        return row

    def fitted(self, row: list[int]) -> np.ndarray:
        return fit(self.sketch, self.target, np.array([row], dtype=np.int64))[0]

    def distance(self, row: list[int]) -> Distance:
        """How many of the known program's loops of axes and nests that of a row lacks, and how many other nests it has."""
        key = tuple(self.fitted(row).tolist())
        if key not in self._distances:
            self._distances[key] = self._distance(key)
        return self._distances[key]

    def _distance(self, row: Sequence[int]) -> Distance:
        try:
            made = self._program(row)
        except ScheduleError:  # a step can be refused with these numbers
            return math.inf, math.inf, math.inf
        sizes, nests = _sizes(made), _nests(made, self.target)
        lacking = sum(len(set(levels) - set(sizes.get(axis, []))) for axis, levels in self.sizes.items())
        return lacking, (self.nests - nests).total(), (nests - self.nests).total()

    def _program(self, row: Sequence[int]) -> PrimFunc:
        """The program of a row; steps that it shares with others are taken once. ScheduleError where one is refused."""
        func, below, made = self.sketch.func, self._taken, dict[str, str]()
        for step in self.sketch.planned(self.sketch.variant(row)):
            key = step, tuple(row[c] for _, value in step.args for c in open_in(value))
            if key not in below:
                below[key] = *take(func, step, lambda s: filled(s, row.__getitem__), made), {}
            func, taken, below = below[key]
            made |= renamed(step, taken)
        return func


def _sizes(func: PrimFunc) -> Sizes:
    """The loops that drive each axis of each block alone."""
    found: Sizes = {}
    for block in blocks(func):
        nest = [x for x in path_to(func.body, block.name) if isinstance(x, For) and x.extent != Const(1)]
        forms = {it.var.name: polynomial(it.binding) for it in block.iters}
        sums = [forms[it.var.name] for it in block.iters if not is_spatial(it)]
        last = max((n for n, x in enumerate(nest) if any(coefficient(form, x.name) for form in sums)), default=-1)
        shared = min((n for n, x in enumerate(nest) if x.kind is Kind.PARALLEL), default=-1)
        for axis, form in forms.items():
            loops = [(coefficient(form, x.name), x.extent, n > last, n > shared) for n, x in enumerate(nest)]
            found[block.name, axis] = sorted(
                Level(int(step), int(n.value), *where) for step, n, *where in loops if step and isinstance(n, Const)
            )
    return found


def _inner(t: Tile, levels: Sequence[Level]) -> list[int]:
    """The sizes of the columns of a tile, outermost first. The innermost level of a spatial axis is what is inside of all sums,
    the others are loops outside; one that makes the axis whole is its outermost level, which has no column, where threads share
    it or columns are too few."""
    own, count = [x for x in levels if x.step % t.unit == 0], len(t.columns)
    if t.reduce:
        inner = [x.length for x in own][:count]
        return [*[1] * (count - len(inner)), *reversed(inner)]
    innermost = math.prod(x.length for x in own if x.deep)
    outer = [x for x in reversed(own) if not x.deep]
    whole = innermost * math.prod(x.length for x in outer) >= t.extent
    if outer and whole and (len(outer) >= count or not outer[0].alone):
        outer = outer[1:]
    return [*[*(x.length for x in outer), *[1] * count][: count - 1], innermost][:count]


def _nests(func: PrimFunc, target: Target) -> Nests:
    """The loops of a function, each with those around it, and the statements, without. Loops of a kind, one right inside the
    other, are one: in how many dimensions a copy is counted makes no difference."""
    found: Nests = Counter()

    def visit(node: Node, nest: tuple[tuple[str, int], ...], around: For | None) -> None:
        if isinstance(node, For):
            length = int(node.extent.value) if isinstance(node.extent, Const) else 0
            if around is not None and around.kind is node.kind:
                found[nest] -= 1
                *outer, (_, outside) = nest
                nest, length = tuple(outer), outside * length
            nest = (*nest, (node.kind.value, length))
            found[nest] += 1
        if isinstance(node, Store):
            found[()] += 1
        for child in children(node):
            visit(child, nest, node if isinstance(node, For) else None)

    visit(unroll(lower(func, target, after="simplify_all"), target).body, (), None)
    return +found
