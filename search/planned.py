"""Schedules whose steps can be taken again where other names have been made before.

The names of new loops depend on what names are taken. A run of steps that was planned on one variant of a sketch is taken on
others, too; so it says which loop it means by the block below it, and the names are looked up where the run is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from schedule import Schedule
from schedule.primitive import REGISTRY, blocks_below, loops_of
from schedule.trace import Step
from tir.ir import PrimFunc
from tir.traverse import loops, path_to

LOOPS = ("loop", "loops", "ordered_loops", "block_or_loop", "x", "y")  # parameters of primitives that take the names of loops


@dataclass(frozen=True, slots=True)
class LoopOf:
    """A loop by its place: number `index`, from the outside, of those around a block."""

    block: str
    index: int


class Planned(Schedule):
    """A schedule that remembers the function before each of its steps."""

    before: tuple[PrimFunc, ...] = ()

    @classmethod
    def of(cls, schedule: Schedule) -> Planned:
        """A schedule that goes on from another one."""
        result = cls(schedule.func)
        result._steps = schedule.trace.steps
        result.before = schedule.before if isinstance(schedule, Planned) else (schedule.func,) * len(result._steps)
        return result

    def copy(self) -> Planned:
        return Planned.of(self)

    def _apply(self, name: str, *args: Any, **kwargs: Any) -> Any:
        before = self._func
        result = super()._apply(name, *args, **kwargs)
        self.before = (*self.before, before)
        return result


def by_place(step: Step, before: PrimFunc) -> Step:
    """The step with its loops by place instead of by name; `before` is the function that it was planned on."""
    known = {x.name for x in loops(before.body)}

    def place(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(place, value))
        if value not in known:
            return value
        block = blocks_below(path_to(before.body, value)[-1])[0].name
        return LoopOf(block, [x.name for x in loops_of(before, block)].index(value))

    return replace(step, args=tuple((k, place(v) if k in LOOPS else v) for k, v in step.args))


def by_name(func: PrimFunc, steps: Iterable[Step], stand_in: Callable[[Step], Step]) -> tuple[Step, ...]:
    """The steps with the names that their loops and blocks have when they are taken on `func` one after the other.

    `stand_in` gives a step with numbers for what is open in it; open numbers stay in the result.
    """
    made: dict[str, str] = {}
    result: list[Step] = []
    for step in steps:
        func, named = take(func, step, stand_in, made)
        made |= renamed(step, named)
        result.append(named)
    return tuple(result)


def take(func: PrimFunc, step: Step, stand_in: Callable[[Step], Step], made: Mapping[str, str]) -> tuple[PrimFunc, Step]:
    """The function after one planned step, and the step with names; `made` are the names of blocks where they differ from those
    planned."""
    schedule = Schedule(func)
    named = replace(step, args=tuple((k, _named(v, func, made, k)) for k, v in step.args))
    taken, options = REGISTRY[step.name].spread(stand_in(named).bound)
    schedule._apply(step.name, *taken, **options)
    return schedule.func, replace(named, results=schedule.trace[-1].results)


def renamed(planned: Step, named: Step) -> dict[str, str]:
    """What a step made, by the name that it was planned to have."""
    return {old: new for old, new in zip(planned.results, named.results, strict=True) if isinstance(old, str)}


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
