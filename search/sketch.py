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
from schedule.primitive import find_block, find_loop
from schedule.trace import Step
from tir import dtypes
from tir.ir import Axis, Block, Const, For, Iter, PrimFunc, Var
from tir.simplify import simplify
from tir.traverse import loops, stores, variables

if TYPE_CHECKING:
    from codegen.target import Target


@dataclass(frozen=True, slots=True)
class Hole:
    """A number of the trace, still open: a column of the population."""

    column: int


@dataclass(frozen=True, slots=True)
class Tile:
    """One axis cut into levels. `columns` are the inner levels, outermost first; the outermost level follows from the extent.

    `vector` marks the axis whose innermost level is vectorised, in lanes of `bits` bits; the innermost levels of the other axes
    are unrolled.
    """

    block: str
    axis: str
    extent: int
    reduce: bool
    columns: tuple[int, ...]
    vector: bool = False
    bits: int = 32


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
    """A sketch in the making: a schedule in which every hole has a stand-in number.

    Rules call the primitives of `schedule` as usual, except that open numbers come from `split` and `split_choice` below; these
    are the steps in `open`, by their number in the trace. Stand-ins are 1 (or the first option): a rule must not conclude
    anything from the extent of a loop that has one, for the trace has to be legal with all numbers.
    """

    schedule: Schedule
    target: Target
    pending: list[str]  # the blocks still to visit, last first; a rule may put back its own, or add new ones
    rules: list[str] = field(default_factory=list)
    open: dict[int, Step] = field(default_factory=dict)
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
            self.schedule.copy(), self.target, list(self.pending), list(self.rules), dict(self.open), list(self.tiles),
            list(self.choices), self.columns, dict(self.marks), dict(self.levels),
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

    # --- open numbers ---

    def split(self, loop: str, parts: int) -> tuple[list[str], tuple[int, ...]]:
        """Split a loop into `parts` levels with open inner lengths; returns the loops and the columns of the lengths."""
        return self._split(loop, [1] * (parts - 1))

    def split_choice(self, name: str, loop: str, options: tuple[int, ...]) -> list[str]:
        """Split a loop in two with an inner length from a few options; returns the loops."""
        names, (column,) = self._split(loop, [options[0]])
        self.choices.append(Choice(name, column, options))
        return names

    def _split(self, loop: str, standins: list[int]) -> tuple[list[str], tuple[int, ...]]:
        names = self.schedule.split(loop, [None, *standins])
        columns = tuple(range(self.columns, self.columns + len(standins)))
        self.columns += len(standins)
        trace = self.schedule.trace
        self.open[len(trace) - 1] = trace[-1].with_args(factors=(None, *map(Hole, columns)))
        return names, columns

    def finish(self, name: str, func: PrimFunc) -> Sketch:
        """The sketch of `func` that this state has become."""
        steps = tuple(self.open.get(n, step) for n, step in enumerate(self.schedule.trace))
        return Sketch(name, func, tuple(self.rules), steps, tuple(self.tiles), tuple(self.choices), self.columns)


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


def uses(expr, it: Iter) -> bool:
    return it.var.name in variables(expr)
