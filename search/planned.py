"""Schedules whose steps can be taken again where other names have been made before.

The names of new loops depend on what names are taken. A run of steps that was planned on one variant of a sketch is taken on
others, too; so it says which loop it means by the block below it, and the names are looked up where the run is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from schedule import Schedule
from schedule.primitive import REGISTRY, blocks_below, loops_of, loops_on, path
from schedule.trace import Step
from tir.ir import Block, Buffer, For, PrimFunc, Seq, Stmt, seq
from tir.traverse import walk, walk_stmts

ON_A_NEST = ("split", "fuse", "parallel", "vectorize", "unroll", "annotate")  # primitives that look at one nest and change it
LOOPS = ("loop", "loops", "ordered_loops", "block_or_loop", "x", "y")  # parameters of primitives that take the names of loops


@dataclass(frozen=True, slots=True)
class LoopOf:
    """A loop by its place: number `index`, from the outside, of those around a block."""

    block: str
    index: int


@dataclass(frozen=True, slots=True)
class _Nest:
    """An outermost statement of a function, the names of its loops and blocks, and the buffers that it mentions."""

    stmt: Stmt
    names: frozenset[str]
    buffers: frozenset[str]


@dataclass
class _Memory:
    """What schedules that go on from one another share; by identity, of what is kept here, too."""

    placed: dict[int, tuple[Step, Step]] = field(default_factory=dict)  # steps, and these by place
    nests: dict[int, _Nest] = field(default_factory=dict)
    taken: dict[tuple, tuple[Stmt, Step, Any]] = field(default_factory=dict)  # what a step on a nest made, by `_on_a_nest`


class Planned(Schedule):
    """A schedule that remembers the function before each of its steps. A step that another schedule of the same origin has taken
    on the same nest, beside other ones, is not taken again."""

    before: tuple[PrimFunc, ...]
    _memory: _Memory

    def __init__(self, func: PrimFunc):
        super().__init__(func)
        self.before, self._memory = (), _Memory()

    def by_place(self, step: Step, n: int) -> Step:
        """A step, taken as number `n`, with its loops by place instead of by name."""
        placed = self._memory.placed
        if id(step) not in placed:
            placed[id(step)] = step, by_place(step, self.before[n])
        return placed[id(step)][1]

    @classmethod
    def of(cls, schedule: Schedule) -> Planned:
        """A schedule that goes on from another one."""
        result = cls(schedule.func)
        result._steps = schedule.trace.steps
        if isinstance(schedule, Planned):
            result.before, result._memory = schedule.before, schedule._memory
        else:
            result.before = (schedule.func,) * len(result._steps)
        return result

    def copy(self) -> Planned:
        return Planned.of(self)

    def _apply(self, name: str, *args: Any, **kwargs: Any) -> Any:
        before = self._func
        result = self._on_a_nest(name, args, kwargs) if name in ON_A_NEST else super()._apply(name, *args, **kwargs)
        self.before = (*self.before, before)
        return result

    def _on_a_nest(self, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Take a step on the nest of the loop or block that comes first, or take over what it made there before.

        What it may make depends on the nest, on which of its buffers others use, and on what names are free.
        """
        old = self._func
        nests = [self._nest(s) for s in _outermost(old)]
        here = next((n for n, nest in enumerate(nests) if args[0] in nest.names), None)
        if here is None:
            return super()._apply(name, *args, **kwargs)
        others = nests[:here] + nests[here + 1 :]
        elsewhere = frozenset().union(*(nest.buffers for nest in others))
        key = name, repr((args, kwargs)), id(nests[here].stmt), nests[here].buffers & elsewhere
        if key in self._memory.taken:
            new, step, result = self._memory.taken[key]
            if not any(n in nest.names for n in step.results for nest in others) and elsewhere.isdisjoint(step.results):
                stmts = [nest.stmt for nest in nests]
                self._func = old.with_(body=seq(*stmts[:here], new, *stmts[here + 1 :]))
                self._steps = (*self._steps, step)
                return result
        result = super()._apply(name, *args, **kwargs)
        after, step = _outermost(self._func), self._steps[-1]
        alone = [n for n, (s, nest) in enumerate(zip(after, nests, strict=False)) if s is not nest.stmt] == [here]
        # With a number that makes it new, a name depends on what others are called.
        numbered = any(re.search(r"_[1-9]\d*$", n) for n in step.results if isinstance(n, str))
        if alone and not numbered and len(after) == len(nests) and self._func.allocs is old.allocs:
            self._memory.taken[key] = after[here], step, result
        return result

    def _nest(self, stmt: Stmt) -> _Nest:
        known = self._memory.nests
        if id(stmt) not in known:
            below = [s for s in walk_stmts(stmt) if isinstance(s, (For, Block))]
            variables = {it.var.name for s in below if isinstance(s, Block) for it in s.iters}
            buffers = frozenset(n.name for n in walk(stmt) if type(n) is Buffer)
            known[id(stmt)] = _Nest(stmt, frozenset({s.name for s in below} | variables), buffers)
        return known[id(stmt)]


def _outermost(func: PrimFunc) -> tuple[Stmt, ...]:
    return func.body.stmts if isinstance(func.body, Seq) else (func.body,)


def by_place(step: Step, before: PrimFunc) -> Step:
    """The step with its loops by place instead of by name; `before` is the function that it was planned on."""

    def place(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(place, value))
        above = path(before, For, value)
        if not above:
            return value
        return LoopOf(blocks_below(above[-1])[0].name, len(loops_on(above)) - 1)

    return replace(step, args=tuple((k, place(v) if k in LOOPS else v) for k, v in step.args))


def by_name(func: PrimFunc, steps: Iterable[Step], stand_in: Callable[[Step], Step]) -> tuple[Step, ...]:
    """The steps with the names that their loops and blocks have when they are taken on `func` one after the other.

    `stand_in` gives a step with numbers for what is open in it; open numbers stay in the result.
    """
    made: dict[str, str] = {}
    result: list[Step] = []
    for step in steps:
        func, taken = take(func, step, stand_in, made)
        made |= renamed(step, taken)
        result.append(taken)
    return tuple(result)


def named(func: PrimFunc, step: Step, made: Mapping[str, str]) -> Step:
    """A planned step with the names that loops and blocks have in `func`; `made` are the names of blocks where they differ from
    those planned."""
    return replace(step, args=tuple((k, _named(v, func, made, k)) for k, v in step.args))


def take(func: PrimFunc, step: Step, stand_in: Callable[[Step], Step], made: Mapping[str, str]) -> tuple[PrimFunc, Step]:
    """The function after one planned step, and the step as `named`."""
    schedule = Schedule(func)
    step = named(func, step, made)
    taken, options = REGISTRY[step.name].spread(stand_in(step).bound)
    schedule._apply(step.name, *taken, **options)
    return schedule.func, replace(step, results=schedule.trace[-1].results)


def renamed(planned: Step, taken: Step) -> dict[str, str]:
    """What a step made, by the name that it was planned to have."""
    return {old: new for old, new in zip(planned.results, taken.results, strict=True) if isinstance(old, str)}


def _named(value: Any, func: PrimFunc, made: Mapping[str, str], parameter: str) -> Any:
    match value:
        case LoopOf(block, index):
            return loops_of(func, made.get(block, block))[index].name
        case tuple():
            return tuple(_named(v, func, made, parameter) for v in value)
        case str() if parameter == "block":
            return made.get(value, value)
        case _:
            return value
