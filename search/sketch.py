"""Sketches: schedule traces whose numbers are holes, and the state from which rules derive them.

A sketch fixes the structure of a schedule: which stages are inlined, tiled, cached, and where each is computed. Its numbers, the
tile sizes and the like, are the columns of an integer matrix with one row a candidate (Ansor, OSDI 2020, section 4.1).
`Sketch.trace(row)` puts a row's numbers into the holes; no program is touched until a worker replays that trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from schedule import Schedule, Trace
from schedule.trace import Step
from tir.ir import Axis, Block, Const, For, Iter, PrimFunc, Var
from tir.simplify import simplify
from tir.traverse import blocks, loops, path_to, variables

if TYPE_CHECKING:
    from codegen.target import Target


@dataclass(frozen=True, slots=True)
class Hole:
    """A number of the trace, still open: a column of the population."""

    column: int


@dataclass(frozen=True, slots=True)
class Tile:
    """One axis cut into levels. `columns` are the inner levels, outermost first; the outermost level follows from the extent.

    `vector` marks the axis whose innermost level is vectorised, `register` the axes whose innermost level is unrolled.
    """

    block: str
    axis: str
    extent: int
    reduce: bool
    columns: tuple[int, ...]
    vector: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """A column that takes one of a few values."""

    name: str
    column: int
    options: tuple[int, ...]


@dataclass(frozen=True)
class Sketch:
    """A schedule with holes. `rules` are the rules that made it, as `block: rule`; `steps` its trace."""

    name: str
    func: PrimFunc
    rules: tuple[str, ...]
    steps: tuple[Step, ...]
    tiles: tuple[Tile, ...]
    choices: tuple[Choice, ...]
    columns: int

    def trace(self, row: Sequence[int]) -> Trace:
        """The trace with a row's numbers in its holes."""
        if len(row) != self.columns:
            raise ValueError(f"sketch {self.name} has {self.columns} hole(s), got a row of {len(row)}")
        return Trace(tuple(_filled(step, row) for step in self.steps))

    def __str__(self) -> str:
        return f"{self.name}: {'; '.join(self.rules)} ({self.columns} holes)"


def _filled(step: Step, row: Sequence[int]) -> Step:
    def fill(value):
        if isinstance(value, Hole):
            return int(row[value.column])
        return tuple(fill(v) for v in value) if isinstance(value, tuple) else value

    return replace(step, args=tuple((k, fill(v)) for k, v in step.args))


@dataclass
class State:
    """A sketch in the making: a schedule in which every hole has a stand-in number, and the steps with their holes."""

    schedule: Schedule
    target: Target
    rules: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    columns: int = 0
    marks: dict[str, str] = field(default_factory=dict)  # what a rule made of a block: "tiled", "row", "lanes"
    levels: dict[str, list[list[str]]] = field(default_factory=dict)  # the loops of a tiled block, level by level

    @property
    def func(self) -> PrimFunc:
        return self.schedule.func

    def copy(self) -> State:
        return State(
            self.schedule.copy(), self.target, list(self.rules), list(self.steps), list(self.tiles), list(self.choices),
            self.columns, dict(self.marks), dict(self.levels),
        )  # fmt: skip

    def fired(self, rule: str, block: str) -> State:
        """A copy to which a rule is about to be applied."""
        result = self.copy()
        result.rules.append(f"{block}: {rule}")
        return result

    # --- looking ---

    def block(self, name: str) -> Block:
        return next(b for b in blocks(self.func) if b.name == name)

    def is_output(self, name: str) -> bool:
        return name in self.schedule.get_output_blocks()

    def loop(self, name: str) -> For:
        return path_to(self.func.body, name)[-1]  # type: ignore[return-value]

    def axes(self, name: str) -> list[tuple[Iter, str]]:
        """The block's iteration variables, each with the loop that drives it; those driven by more than a loop are left out."""
        return [(it, it.binding.name) for it in self.block(name).iters if isinstance(it.binding, Var)]

    def driver(self, it: Iter) -> str | None:
        """The loop that alone drives an iteration variable; loops of one iteration beside it don't count."""
        units = {x.name: (0, 0) for x in loops(self.func.body) if x.extent == Const(1)}
        binding = simplify(it.binding, units)
        return binding.name if isinstance(binding, Var) else None

    # --- steps ---

    def step(self, primitive: str, *args, **kwargs):
        """Apply a primitive without holes."""
        result = getattr(self.schedule, primitive)(*args, **kwargs)
        self.steps.append(self.schedule.trace[-1])
        return result

    def hole(self) -> Hole:
        self.columns += 1
        return Hole(self.columns - 1)

    def split(self, loop: str, parts: int) -> tuple[list[str], tuple[int, ...]]:
        """Split a loop into `parts` levels with open inner lengths; returns the loops and the columns of the lengths."""
        holes = tuple(self.hole() for _ in range(parts - 1))
        names = self.schedule.split(loop, [None, *([1] * len(holes))])
        self.steps.append(self.schedule.trace[-1].with_args(factors=(None, *holes)))
        return names, tuple(h.column for h in holes)

    def split_choice(self, name: str, loop: str, options: tuple[int, ...]) -> list[str]:
        """Split a loop in two with an inner length from a few options."""
        hole = self.hole()
        self.choices.append(Choice(name, hole.column, options))
        names = self.schedule.split(loop, [None, options[0]])
        self.steps.append(self.schedule.trace[-1].with_args(factors=(None, hole)))
        return names

    def finish(self, name: str, func: PrimFunc) -> Sketch:
        return Sketch(name, func, tuple(self.rules), tuple(self.steps), tuple(self.tiles), tuple(self.choices), self.columns)


def extent(it: Iter) -> int:
    """The constant extent of an axis; ValueError where it is symbolic."""
    if not isinstance(it.extent, Const):
        raise ValueError(f"axis {it.var.name} has the symbolic extent {it.extent}; tuning needs constant shapes")
    return int(it.extent.value)


def is_spatial(it: Iter) -> bool:
    return it.axis is Axis.SPATIAL


def uses(expr, it: Iter) -> bool:
    return it.var.name in variables(expr)
