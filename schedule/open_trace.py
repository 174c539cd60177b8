"""Open traces: traces whose numbers are holes, which the rows of a population fill.

An open trace fixes the structure of a schedule. Its numbers, such as tile sizes, are the columns of an integer matrix with one
row a candidate (Ansor, OSDI 2020, section 4.1). `OpenTrace.trace(row)` fills the holes; no program is built until that trace is
replayed. A column may also select one of a few sequences of steps (`Branch`): the number of parallel loops, say, or the place of
a stage. Candidates that differ in such a column have different loop nests. Candidates of one variant (`OpenTrace.variant`) agree
in all of them, and differ in numbers alone.

Templates, rules and user functions make open traces by calling the primitives of an `OpenSchedule`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from math import prod
from typing import Any, TypedDict

import numpy as np

from tir.arith.symbolic import Formula, SymbolicChoice, SymbolicInt, columns_of, evaluate_formula
from tir.ir import Block, PrimFunc

from .loop_positions import with_loop_names
from .random_variables import leaves, map_leaves
from .trace import Step, Trace


@dataclass(frozen=True, slots=True)
class Hole:
    """An open argument of a step: a formula over the columns of a row (`tir.arith.symbolic`), or its index into `values`."""

    formula: Formula
    values: tuple[Any, ...] = ()

    def filled(self, number: Callable[[int], int]) -> Any:
        """The value, given the number of each column."""
        found = evaluate_formula(self.formula, number)
        if not self.values:
            return found
        value = self.values[found % len(self.values)]
        return SymbolicChoice.of(found, self.values) if isinstance(found, SymbolicInt) and type(value) is not int else value


@dataclass(frozen=True, slots=True)
class Branch:
    """A column that selects one of several sequences of steps, which may be empty: number `value % len(options)`.

    Branches in different sequences of an outer branch may share a column; they need not have as many options.
    """

    column: int
    options: tuple[tuple[Step | Branch, ...], ...]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tile:
    """One axis cut into levels. `columns` are the inner levels, outermost first; the outermost level follows from the extent.

    `vector` marks the axis whose innermost level is vectorised, in lanes of `bits` bits; the innermost levels of the other axes
    are unrolled. `perfect` restricts sampling to divisors of the remaining extent, and `limit` is the maximum size of the
    innermost level; both bound the space, not legality. Tiles in `registers` are limited so that the accumulators of a block's
    innermost levels fit there.

    On a GPU `roles` has a letter for each column: g blocks that run together, w warps, t threads, v virtual threads. The elements
    of a thread have s, the fragments of a warp f, the steps of a reduction r. Tiles of a `padded` axis may exceed the extent.
    `extent` and columns count units of `unit` iterations, of an instruction or of a class that outer loops enumerate. The last
    unit lacks `missing` iterations.
    """

    block: str
    axis: str
    extent: int
    reduce: bool
    columns: tuple[int, ...]
    vector: bool = False
    bits: int = 32
    perfect: bool = False
    limit: int | None = None
    roles: str = ""
    padded: bool = False
    unit: int = 1
    missing: int = 0
    registers: bool = True

    def fills(self, row: Sequence[int]) -> bool:
        """True where the tiles of a row divide the axis exactly."""
        return (self.extent * self.unit - self.missing) % (self.unit * prod(int(row[c]) for c in self.columns)) == 0


class Role(StrEnum):
    """The role of a choice, by which mutations, populations and cost models find columns."""

    OTHER = "other"
    TEMPLATE = "template"  # pattern by which a block is scheduled, at the seed alone
    PARALLEL = "parallel"  # parallel loops, number of threads, sharing of iterations
    LOCATION = "compute location"  # loop of a stage
    PRAGMA = "pragma"  # unrolling, prefetching, non-temporal stores
    PACKING = "packing"  # packed copy of an operand, and its place
    VECTOR_WIDTH = "vector width"  # whole registers (0) or halves (1)
    COPY_WIDTH = "copy width"  # elements that a thread copies to shared memory at once
    STAGES = "stages"  # buffers of a software pipeline in shared memory
    RESIDENT = "resident"  # blocks that an SM runs at once, which bounds registers


@dataclass(frozen=True, slots=True)
class Choice:
    """A column that takes one of a few values, for a branch the numbers of its sequences. They are sampled with the probabilities
    `weights`, by default uniformly.

    `block` is the block whose loops it changes, empty for several; crossover keeps the choice with the tiles of this block.
    `buffer` is the operand that it concerns.
    """

    name: str
    column: int
    options: tuple[int, ...]
    weights: tuple[float, ...] = ()
    block: str = ""
    role: Role = Role.OTHER
    buffer: str = ""


class ChoiceKey(TypedDict, total=False):
    """The fields of a choice that identify it."""

    block: str
    role: Role
    buffer: str


@dataclass(frozen=True, slots=True)
class ProductLimit:
    """An upper bound `maximum` of the product of some choices; where it is exceeded, the first columns are reduced."""

    columns: tuple[int, ...]
    maximum: int


@dataclass(frozen=True)
class OpenTrace:
    """A schedule of `func` with holes. `rules` are the rules that made it, as `block: rule`; `steps` are its trace.

    Each column is described by exactly one of `tiles` and `choices`; `limits` exclude combinations. `seed` is the row that
    formulas give, None where some tile sizes have no formula. `made` are the blocks that rules made or changed before any number
    was open, for reports.
    """

    name: str
    func: PrimFunc
    rules: tuple[str, ...]
    steps: tuple[Step | Branch, ...]
    tiles: tuple[Tile, ...]
    choices: tuple[Choice, ...]
    columns: int
    limits: tuple[ProductLimit, ...] = ()
    made: tuple[Block, ...] = ()
    seed: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        return f"<Sketch {self.name} of {self.func.name}, {self.columns} open numbers>"

    @cached_property
    def tiles_by_block(self) -> dict[str, list[Tile]]:
        """The tiles by block name, in order."""
        found: dict[str, list[Tile]] = {}
        for t in self.tiles:
            found.setdefault(t.block, []).append(t)
        return found

    def column_of(self, block: str, role: Role, buffer: str = "") -> int | None:
        """The column of the choice of this role for a block, or for an operand of it; None without such a choice."""
        return self._roles.get((block, role, buffer))

    @cached_property
    def _roles(self) -> dict[tuple[str, Role, str], int]:
        return {(c.block, c.role, c.buffer): c.column for c in self.choices}

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """All branches, nested ones included, in the order of the trace."""
        return tuple(_nested_branches(self.steps))

    def variant(self, row: Sequence[int]) -> tuple[int, ...]:
        """The numbers of the options that a row picks in `branches`, 0 for branches inside options that it does not pick.

        Rows of one variant take the same steps and differ in numbers alone.
        """
        return tuple(int(v) for v in self.variants(np.asarray([row], dtype=np.int64))[0])

    def variants(self, rows: np.ndarray) -> np.ndarray:
        """The variants of a population: an (n, columns) matrix of rows gives an (n, branches) matrix."""
        found: list[np.ndarray] = []

        def visit(steps: Sequence[Step | Branch], active: np.ndarray) -> None:
            for step in steps:
                if isinstance(step, Branch):
                    picked = np.where(active, rows[:, step.column] % len(step.options), 0)
                    found.append(picked)
                    for n, option in enumerate(step.options):
                        visit(option, active & (picked == n))

        visit(self.steps, np.ones(len(rows), dtype=bool))
        return np.stack(found, axis=1) if found else np.empty((len(rows), 0), dtype=np.int64)

    def used(self, rows: np.ndarray) -> np.ndarray:
        """A mask of the columns that the steps of each row use, of the shape of `rows`."""
        result = np.zeros(rows.shape, dtype=bool)

        def visit(run: _Run, active: np.ndarray) -> None:
            columns, branches = run
            result[active[:, None], np.array(columns, dtype=np.int64)] = True
            for column, options in branches:
                picked = rows[active, column] % len(options)
                for n in np.unique(picked):
                    visit(options[n], active[picked == n])

        visit(self._run, np.arange(len(rows)))
        return result

    def canonical(self, rows: np.ndarray, used: np.ndarray | None = None) -> np.ndarray:
        """The rows in canonical form: unused columns have their first value. `used` is `self.used(rows)`, if known."""
        return np.where(self.used(rows) if used is None else used, rows, self.stand_ins()) if self.branches else rows

    @cached_property
    def _run(self) -> _Run:
        return _columns_in(self.steps)

    def picked(self, variant: Sequence[int]) -> tuple[Step, ...]:
        """The steps of a variant: each branch replaced by the option that it picks, holes left open."""
        if not self.branches:
            return tuple(s for s in self.steps if isinstance(s, Step))
        return self._with_names(tuple(int(v) for v in variant), self.stand_ins())

    def planned(self, variant: Sequence[int]) -> list[Step]:
        """The steps of a variant as they were planned: inside branches with loops by position."""
        numbers = iter(zip(self.branches, variant, strict=True))

        def visit(steps: Sequence[Step | Branch]) -> list[Step]:
            result: list[Step] = []
            for step in steps:
                if isinstance(step, Branch):
                    _, number = next(numbers)
                    runs = [visit(option) for option in step.options]
                    result += runs[number]
                else:
                    result.append(step)
            return result

        return visit(self.steps)

    def matrix(self, rows: Iterable[Sequence[int] | np.ndarray]) -> np.ndarray:
        """Rows as a population: an (n, columns) int64 matrix; n and columns may be 0."""
        found = list(rows)
        return np.array(found, dtype=np.int64).reshape(len(found), self.columns)

    def stand_ins(self) -> list[int]:
        """A row: tiles of 1, and the first option of each choice."""
        row = [1] * self.columns
        for choice in self.choices:
            row[choice.column] = choice.options[0]
        return row

    def trace(self, row: Sequence[int]) -> Trace:
        """The trace with a row's numbers in its holes."""
        if len(row) != self.columns:
            raise ValueError(f"sketch {self.name} has {self.columns} hole(s), got a row of {len(row)}")
        variant = self.variant(row)
        fills = [t.fills(row) for t in self.tiles if t.padded]
        steps = self._with_names(variant, row, *fills) if fills else self.picked(variant)
        return Trace(tuple(filled(step, lambda column: int(row[column])) for step in steps))

    def _with_names(self, variant: tuple[int, ...], row: Sequence[int], *fills: bool) -> tuple[Step, ...]:
        """The steps with the loop names of a variant; padding makes loops, so names depend on `fills`, too."""
        key = variant, fills
        if key not in self._named:
            self._named[key] = with_loop_names(self.func, self.planned(variant), lambda step: filled(step, lambda c: int(row[c])))
        return self._named[key]

    @cached_property
    def _named(self) -> dict[tuple, tuple[Step, ...]]:
        return {}

    def __str__(self) -> str:
        return f"{self.name}: {'; '.join(self.rules)} ({self.columns} holes)"


_Run = tuple[list[int], list[tuple[int, list["_Run"]]]]  # columns used by a sequence of steps; its branches: column and options


def _columns_in(steps: Sequence[Step | Branch]) -> _Run:
    branches = [s for s in steps if isinstance(s, Branch)]
    columns = {c for s in steps if isinstance(s, Step) for _, value in s.args for c in open_in(value)}
    columns |= {b.column for b in branches}
    return sorted(columns), [(b.column, [_columns_in(option) for option in b.options]) for b in branches]


def open_in(value: object) -> tuple[int, ...]:
    """The columns of the open numbers in an argument."""
    return tuple(c for v in leaves(value) if isinstance(v, Hole) for c in columns_of(v.formula))


def _nested_branches(steps: Sequence[Step | Branch]) -> Iterator[Branch]:
    for step in steps:
        if isinstance(step, Branch):
            yield step
            for option in step.options:
                yield from _nested_branches(option)


def filled(step: Step, number: Callable[[int], int]) -> Step:
    """The step with its holes filled; `number` gives the number of a column."""
    return replace(step, args=map_leaves(step.args, lambda v: v.filled(number) if isinstance(v, Hole) else v))
