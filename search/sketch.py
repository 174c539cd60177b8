"""Sketches: schedule traces whose numbers are holes, and the state from which rules derive them.

A sketch fixes the structure of a schedule: which stages are inlined, tiled, cached, and where each is computed. Its numbers, the
tile sizes and the like, are the columns of an integer matrix with one row a candidate (Ansor, OSDI 2020, section 4.1).
`Sketch.trace(row)` puts a row's numbers into the holes; no program is touched until a worker replays that trace.

A column may also pick one of a few runs of steps (`Branch`): how many loops run in parallel, say, or where a stage is computed.
Candidates of one sketch that differ in such a column have loop nests of different shapes; those that agree in all of them
(`Sketch.variant`) differ in numbers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from schedule import Schedule, ScheduleError, Trace
from schedule.primitive import find_block, find_loop
from schedule.trace import Step
from tir import dtypes
from tir.ir import Axis, Block, Const, For, Iter, PrimFunc, Var
from tir.simplify import simplify
from tir.size import Chosen, Size
from tir.traverse import loops, stores

from .planned import Planned, by_name

if TYPE_CHECKING:
    from codegen.target import Target


@dataclass(frozen=True, slots=True)
class Hole:
    """A number of the trace, still open: a column of the population; with `values`, the number of one of these, which stands
    there in its place."""

    column: int
    values: tuple[Any, ...] = ()

    def filled(self, number: int) -> Any:
        """What stands there for a number of the column."""
        if not self.values:
            return number
        value = self.values[number % len(self.values)]
        return Chosen.of(number, self.values) if isinstance(number, Size) and type(value) is not int else value


@dataclass(frozen=True, slots=True)
class Product:
    """The product of open numbers, and of a fixed one, as one argument."""

    columns: tuple[int, ...]
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Branch:
    """A place of the trace where a column picks one of several runs of steps, which may be empty: number `value % len(options)`.

    A column may be shared by branches in different runs of one further out, which need not have as many options.
    """

    column: int
    options: tuple[tuple[Step | Branch, ...], ...]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tile:
    """One axis cut into levels. `columns` are the inner levels, outermost first; the outermost level follows from the extent.

    `vector` marks the axis whose innermost level is vectorised, in lanes of `bits` bits; the innermost levels of the other axes
    are unrolled. `perfect` asks of those who draw sizes that each divides what is left of the extent, and `limit` is the largest
    size of the innermost level; both bound the space, not what is legal.

    On a GPU `roles` has a letter for each column: g for blocks that run together, v for virtual threads, t for threads, w for
    warps, s for the elements of a thread, f for the fragments of a warp, r for steps of a reduction. Those of a `padded` axis may
    exceed the extent: the tile is filled up. Where `unit` iterations are taken as one (those of an instruction, or
    classes that loops further out go through), `extent` and columns count these, and the last one lacks `missing` iterations.
    An axis that steps make of others counts through `parts`, axes of the function, the last of them fastest.
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
    parts: tuple[str, ...] = ()

    def fills(self, row: Sequence[int]) -> bool:
        """Whether the tiles of a row fill the axis exactly."""
        return (self.extent * self.unit - self.missing) % (self.unit * prod(int(row[c]) for c in self.columns)) == 0


class Role(StrEnum):
    """What a choice decides. Mutations, populations and cost models find the columns that they need by it."""

    OTHER = "other"
    PARALLEL = "parallel"  # which loops run in parallel, on how many threads, and how threads share the iterations
    LOCATION = "compute location"  # where a stage is computed
    PRAGMA = "pragma"  # unrolling, prefetching, stores that bypass the caches
    PACKING = "packing"  # whether an operand is copied, and where
    VECTOR_WIDTH = "vector width"  # whole registers (0) or halves (1)
    COPY_WIDTH = "copy width"  # elements that a thread copies to shared memory at once
    STAGES = "stages"  # tiles of shared memory that take turns
    RESIDENT = "resident"  # blocks for which a multiprocessor shall have registers


@dataclass(frozen=True, slots=True)
class Choice:
    """A column that takes one of a few values; for the column of a branch they are the numbers of its runs. They are drawn with
    the probabilities `weights`, all alike if there are none.

    `block` is the block whose loops it changes, whose tiles it goes with in crossover; empty where it concerns several. `buffer`
    is the operand that it is about.
    """

    name: str
    column: int
    options: tuple[int, ...]
    weights: tuple[float, ...] = ()
    block: str = ""
    role: Role = Role.OTHER
    buffer: str = ""


class About(TypedDict, total=False):
    """The fields of a choice by which it is found."""

    block: str
    role: Role
    buffer: str


@dataclass(frozen=True, slots=True)
class Limit:
    """The product of some columns, all of them choices, is at most `most`; the first ones give way."""

    columns: tuple[int, ...]
    most: int


@dataclass(frozen=True)
class Sketch:
    """A schedule with holes. `rules` are the rules that made it, as `block: rule`; `steps` its trace.

    Each column is described by exactly one of `tiles` and `choices`; `limits` say which numbers don't go together. `made`
    are blocks that rules made or changed before any number was open, as they were then, for those who describe the sketch.
    """

    name: str
    func: PrimFunc
    rules: tuple[str, ...]
    steps: tuple[Step | Branch, ...]
    tiles: tuple[Tile, ...]
    choices: tuple[Choice, ...]
    columns: int
    limits: tuple[Limit, ...] = ()
    made: tuple[Block, ...] = ()

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """All branches, those inside runs of others included, in the order of the trace."""
        return tuple(_branches(self.steps))

    def variant(self, row: Sequence[int]) -> tuple[int, ...]:
        """The numbers of the runs that a row picks in `branches`, 0 for those inside runs that it does not pick.

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
        """Which columns the steps of each row have numbers from: an (n, columns) boolean matrix for one of rows."""
        result = np.zeros(rows.shape, dtype=bool)

        def visit(run: _Run, active: np.ndarray) -> None:
            columns, branches = run
            result[np.ix_(active, columns)] = True
            for column, options in branches:
                picked = rows[active, column] % len(options)
                for n in np.unique(picked):
                    visit(options[n], active[picked == n])

        visit(self._run, np.arange(len(rows)))
        return result

    @cached_property
    def _run(self) -> _Run:
        return _columns_in(self.steps)

    def picked(self, variant: Sequence[int]) -> tuple[Step, ...]:
        """The steps of a variant: each branch replaced by the run that it picks, holes left open."""
        key = tuple(int(v) for v in variant)
        if key not in self._picked:
            self._picked[key] = self._pick(key)
        return self._picked[key]

    @cached_property
    def _picked(self) -> dict[tuple[int, ...], tuple[Step, ...]]:
        return {}

    def _pick(self, variant: tuple[int, ...]) -> tuple[Step, ...]:
        if not self.branches:
            return self.steps  # type: ignore[return-value]
        row = self.stand_ins()
        return by_name(self.func, self.planned(variant), lambda step: _filled(step, row))

    def planned(self, variant: Sequence[int]) -> list[Step]:
        """The steps of a variant as they were planned: with loops by place in what is inside of branches."""
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

    def column_of(self, block: str, role: Role, buffer: str = "") -> int | None:
        """The column of the choice of this role for a block, and an operand of it; None if there is none."""
        return self._roles.get((block, role, buffer))

    @cached_property
    def _roles(self) -> dict[tuple[str, Role, str], int]:
        return {(c.block, c.role, c.buffer): c.column for c in self.choices}

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
        steps = self._padded(variant, row) if any(t.padded for t in self.tiles) else self.picked(variant)
        return Trace(tuple(_filled(step, row) for step in steps))

    def _padded(self, variant: tuple[int, ...], row: Sequence[int]) -> tuple[Step, ...]:
        """The steps of a row of a sketch with padded axes: padding makes loops, so names depend on which axes it changes."""
        key = variant, tuple(t.fills(row) for t in self.tiles if t.padded)
        if key not in self._named:
            self._named[key] = by_name(self.func, self.planned(variant), lambda step: _filled(step, row))
        return self._named[key]

    @cached_property
    def _named(self) -> dict[tuple, tuple[Step, ...]]:
        return {}

    def __str__(self) -> str:
        return f"{self.name}: {'; '.join(self.rules)} ({self.columns} holes)"


_Run = tuple[list[int], list[tuple[int, list["_Run"]]]]  # columns in a run of steps; the branches in it: column and runs


def _columns_in(steps: Sequence[Step | Branch]) -> _Run:
    branches = [s for s in steps if isinstance(s, Branch)]
    columns = {c for s in steps if isinstance(s, Step) for _, value in s.args for c in open_in(value)}
    columns |= {b.column for b in branches}
    return sorted(columns), [(b.column, [_columns_in(option) for option in b.options]) for b in branches]


def open_in(value: object) -> tuple[int, ...]:
    """The columns of what is open in an argument."""
    match value:
        case Hole(column):
            return (column,)
        case Product(columns):
            return columns
        case tuple():
            return tuple(c for v in value for c in open_in(v))
        case _:
            return ()


def _branches(steps: Sequence[Step | Branch]) -> Iterator[Branch]:
    for step in steps:
        if isinstance(step, Branch):
            yield step
            for option in step.options:
                yield from _branches(option)


def _filled(step: Step, row: Sequence[int]) -> Step:
    return filled(step, lambda column: int(row[column]))


def filled(step: Step, number: Callable[[int], int]) -> Step:
    """The step with what `number` says of each column in place of what is open."""

    def fill(value):
        match value:
            case Hole(column):
                return value.filled(number(column))
            case Product(columns, factor):
                return prod((number(c) for c in columns[1:]), start=number(columns[0])) * factor
            case tuple():
                return tuple(fill(v) for v in value)
            case _:
                return value

    return replace(step, args=tuple((k, fill(v)) for k, v in step.args))


@dataclass(frozen=True, slots=True)
class Run:
    """Steps of a schedule in the making that its sketch has otherwise: `length` of them from number `start` on become `entry`."""

    start: int
    length: int
    entry: Step | Branch


@dataclass
class State:
    """A sketch in the making: a schedule in which every hole has a stand-in number.

    Rules call the primitives of `schedule` as usual, except that open numbers come from `split`, `split_choice` and `choose`
    below, and open runs of steps from `branch`. Stand-ins are 1 (or the first option): a rule must not conclude anything from the
    extent of a loop that has one, for the trace has to be legal with all numbers.
    """

    schedule: Planned
    target: Target
    pending: list[str]  # the blocks still to visit, last first; a rule may put back its own, or add new ones
    rules: list[str] = field(default_factory=list)
    open: list[Run] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    columns: int = 0
    shared: dict[str, Choice] = field(default_factory=dict)  # made in other runs of the branch that is being made, by name
    marks: dict[str, str] = field(default_factory=dict)  # what a rule made of a block: "tiled", "row", "lanes"
    levels: dict[str, list[list[str]]] = field(default_factory=dict)  # the loops of a tiled block, level by level
    limits: list[Limit] = field(default_factory=list)
    made: dict[str, Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Planned):
            self.schedule = Planned.of(self.schedule)

    @property
    def func(self) -> PrimFunc:
        return self.schedule.func

    def copy(self) -> State:
        return State(
            self.schedule.copy(), self.target, list(self.pending), list(self.rules), list(self.open), list(self.tiles),
            list(self.choices), self.columns, dict(self.shared), dict(self.marks), dict(self.levels),
            list(self.limits), dict(self.made),
        )  # fmt: skip

    def fired(self, rule: str, block: str) -> State:
        """A copy for a rule to change, on which it is recorded that the rule was applied to the block."""
        result = self.copy()
        result.rules.append(f"{block}: {rule}")
        return result

    # --- looking ---

    def block(self, name: str) -> Block:
        return find_block(self.func, name)

    def is_output(self, name: str) -> bool:
        return name in self.schedule.get_output_blocks()

    def loop(self, name: str) -> For:
        return find_loop(self.func, name)

    def axes(self, name: str) -> list[tuple[Iter, str]]:
        """The block's iteration variables, each with the loop that drives it; those driven by more than a loop are left out."""
        return [(it, it.binding.name) for it in self.block(name).iters if isinstance(it.binding, Var)]

    def driver(self, it: Iter) -> str | None:
        """The loop that alone drives an iteration variable; loops of one iteration beside it don't count.

        Not for blocks below loops with open lengths: their stand-ins have one iteration, too.
        """
        units = {x.name: (0, 0) for x in loops(self.func.body) if x.extent == Const(1)}
        binding = simplify(it.binding, units)
        return binding.name if isinstance(binding, Var) else None

    def open_loops(self) -> set[str]:
        """The loops that a split with open lengths made."""
        found = [run.entry.results for run in self.open if isinstance(run.entry, Step) and run.entry.name == "split"]
        return {name for results in found for name in results}

    # --- open numbers; `about` are the fields `block`, `role` and `buffer` of a choice ---

    def split(self, loop: str, parts: int, inner: Sequence[int] = ()) -> tuple[list[str], tuple[int, ...]]:
        """Split a loop into `parts` levels with open inner lengths, and `inner` ones of these lengths; returns the loops and the
        columns of the open lengths."""
        names = self.schedule.split(loop, [None, *[1] * (parts - 1), *inner])
        columns = tuple(range(self.columns, self.columns + parts - 1))
        self.columns += parts - 1
        self._open(factors=(None, *map(Hole, columns), *inner))
        return names, columns

    def split_choice(self, name: str, loop: str, options: tuple[int, ...], **about: Unpack[About]) -> list[str]:
        """Split a loop in two with an inner length from a few options; returns the loops."""
        names = self.schedule.split(loop, [None, options[0]])
        self._open(factors=(None, self.column(name, options, **about)))
        return names

    def split_open(self, loop: str, factors: Sequence[int | Hole | Product | None]) -> list[str]:
        """Split a loop into levels some of whose lengths are columns, or products of columns, that there are already."""
        first = {c.column: c.options[0] for c in self.choices}

        def stand_in(factor: int | Hole | Product | None) -> int | None:
            match factor:
                case Hole(column):
                    return first.get(column, 1)
                case Product(columns, fixed):
                    return fixed * prod(first.get(c, 1) for c in columns)
                case _:
                    return factor

        names = self.schedule.split(loop, [stand_in(f) for f in factors])
        self._open(factors=tuple(factors))
        return names

    def open_last(self, **holes: object) -> None:
        """Note that arguments of the last step, which has stand-ins for them, are open."""
        self._open(**holes)

    def choose(
        self, name: str, options: tuple[int, ...], argument: str, step: Callable[[Schedule, int], object], **about: Unpack[About]
    ) -> None:
        """Take a step of which one argument is a number from a few options: `step` calls the primitive with the number, and
        `argument` is the name of the primitive's parameter that gets it."""
        step(self.schedule, options[0])
        self._open(**{argument: self.column(name, options, **about)})

    def pick(
        self, name: str, values: Sequence[Any], argument: str, step: Callable[[Schedule, Any], object], **about: Unpack[About]
    ) -> None:
        """Like `choose`, with an argument that is one of a few values of any kind (tuples for lists), as of an annotation."""
        step(self.schedule, values[0])
        self._open(**{argument: replace(self.column(name, tuple(range(len(values))), **about), values=tuple(values))})

    def column(self, name: str, options: tuple[int, ...], **about: Unpack[About]) -> Hole:
        """A choice of a few values that no step has yet: a new column, or that of the choice of this name in another run of the
        branch being made."""
        if any(c.name == name for c in self.choices):
            raise ValueError(f"there is a choice named {name!r} already")
        known = self.shared.get(name)
        if known is not None and known.options == options:
            column = known.column
        else:
            column = self.columns
            self.columns += 1
        self.choices.append(Choice(name, column, options, **about))
        return Hole(column)

    def _open(self, **holes: object) -> None:
        """Note that arguments of the last step are open."""
        trace = self.schedule.trace
        self.open.append(Run(len(trace) - 1, 1, trace[-1].with_args(**holes)))

    def branch(
        self,
        name: str,
        options: Sequence[tuple[str, Callable[[State], object]]],
        weights: tuple[float, ...] = (),
        **about: Unpack[About],
    ) -> int:
        """Let a column pick one of several ways to go on, each a label and a function that changes the state it is given.

        Ways that raise ScheduleError are left out, as are those that take the same steps as an earlier one; where one is left
        there is no column. What follows is planned on the first way, and has to be legal after all of them. Choices of one name
        in several ways share a column. Where all ways are there, `weights` say how often each is drawn. Returns how many there
        are.
        """
        here = len(self.schedule.trace), len(self.open)
        if any(c.name == name for c in self.choices):
            raise ValueError(f"there is a choice named {name!r} already")
        made: list[tuple[str, State, tuple[Step | Branch, ...]]] = []
        shared = dict(self.shared)
        columns = self.columns
        for label, way in options:
            new = self.copy()
            new.columns, new.shared = columns, shared
            try:
                way(new)
            except ScheduleError:
                continue
            entries = new._entries(*here)
            if all(entries != others for _, _, others in made):
                made.append((label, new, entries))
                shared = shared | {c.name: c for c in new.choices[len(self.choices) :]}
                columns = new.columns
        if len(made) == 1:
            ((_, only, _),) = made
            self._become(only, only.tiles, only.choices, only.open)
        elif made:
            own = self.shared.get(name, Choice(name, columns, (), **about))
            entry = Branch(own.column, tuple(entries for _, _, entries in made), tuple(label for label, _, _ in made))
            first = made[0][1]
            tiles = {t: None for _, new, _ in made for t in new.tiles[len(self.tiles) :]}
            choices = {c.column: c for _, new, _ in made for c in new.choices[len(self.choices) :]}
            own = replace(own, options=tuple(range(max(len(made), len(own.options)))))
            if len(own.options) == len(weights):
                own = replace(own, weights=weights)
            run = Run(here[0], len(first.schedule.trace) - here[0], entry)
            first.columns = max(columns, own.column + 1)
            self._become(first, [*self.tiles, *tiles], [*self.choices, own, *choices.values()], [*self.open, run])
        return len(made)

    def take(self, other: State) -> None:
        """Become what a copy of this state has become."""
        for f in fields(self):
            setattr(self, f.name, getattr(other, f.name))

    def _become(self, other: State, tiles: list[Tile], choices: list[Choice], opened: list[Run]) -> None:
        """Go on where a copy of this state has come to."""
        shared = self.shared
        self.take(other)
        self.shared, self.tiles, self.choices, self.open = shared, list(tiles), list(choices), list(opened)

    def _entries(self, start: int = 0, opened: int = 0, named: bool = False) -> tuple[Step | Branch, ...]:
        """The trace as the sketch has it, from step `start` on, of which `open` knows from its entry `opened` on.

        Loops are given by place, up to the first branch by name if `named` is set.
        """
        entries: list[Step | Branch] = []
        steps = self.schedule.trace.steps

        def add(step: Step | Branch, n: int) -> None:
            nonlocal named
            named = named and not isinstance(step, Branch)
            entries.append(step if named or isinstance(step, Branch) else self.schedule.by_place(step, n))

        for run in self.open[opened:]:
            for n in range(start, run.start):
                add(steps[n], n)
            add(run.entry, run.start)
            start = run.start + run.length
        for n in range(start, len(steps)):
            add(steps[n], n)
        return tuple(entries)

    def finish(self, name: str, func: PrimFunc) -> Sketch:
        """The sketch of `func` that this state has become."""
        named = not any(t.padded for t in self.tiles)
        entries, described = (
            self._entries(named=named),
            (tuple(self.tiles), tuple(self.choices), self.columns, tuple(self.limits), tuple(self.made.values())),
        )
        return Sketch(name, func, tuple(self.rules), entries, *described)


def extent(it: Iter) -> int:
    """The constant extent of an axis; ValueError where it is symbolic."""
    if not isinstance(it.extent, Const):
        raise ValueError(f"axis {it.var.name} has the symbolic extent {it.extent}; tuning needs constant shapes")
    return int(it.extent.value)


def element_bits(block: Block) -> int:
    """The width of the elements that a block computes, in which vector lanes are counted; halves are computed in 32 bits."""
    written = {s.buffer.dtype for s in stores(block.body)}
    return max(32 if dtypes.is_float(dtype) and dtypes.bits(dtype) < 32 else dtypes.bits(dtype) for dtype in written)


def is_spatial(it: Iter) -> bool:
    return it.axis is Axis.SPATIAL
