"""Steps whose loops are given by position instead of by name: number n of the loops around a block.

New loops get names that are not taken, so the same steps may make other names on another variant of an open schedule. Positions
are turned into names when the steps are applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tir.ir import For, PrimFunc

from .primitive import REGISTRY, ArgumentKind, blocks_below, loops_of, loops_on, path
from .random_variables import map_leaves
from .schedule import Schedule
from .trace import Step


@dataclass(frozen=True, slots=True)
class LoopOf:
    """A loop by its position: number `index`, outermost first, of the loops around a block."""

    block: str
    index: int


def with_loop_positions(step: Step, before: PrimFunc) -> Step:
    """The step with its loops by position; `before` is the function that it was planned on."""

    def place(value: Any) -> Any:
        above = path(before, For, value) if isinstance(value, str) else []
        if not above:
            return value
        return LoopOf(blocks_below(above[-1])[-1].name, len(loops_on(above)) - 1)  # the last: one before may be inlined elsewhere

    kinds = REGISTRY[step.name].kinds
    return replace(step, args=tuple((k, map_leaves(v, place) if ArgumentKind.LOOP in kinds[k] else v) for k, v in step.args))


def with_loop_names(func: PrimFunc, steps: Iterable[Step], stand_in: Callable[[Step], Step]) -> tuple[Step, ...]:
    """The steps with names of loops and blocks, found by applying them to `func` one after the other.

    `stand_in` fills the open numbers of a step, so that it can be applied; in the result they stay open.
    """
    made: dict[str, str] = {}
    result: list[Step] = []
    for step in steps:
        func, taken = apply_step(func, step, stand_in, made)
        made |= new_names(step, taken)
        result.append(taken)
    return tuple(result)


def named_step(func: PrimFunc, step: Step, made: Mapping[str, str]) -> Step:
    """A planned step with the names of loops and blocks in `func`; `made` maps planned block names to actual ones."""

    def found(value: Any, kinds: frozenset[ArgumentKind]) -> Any:
        match value:
            case LoopOf(block, index):
                return loops_of(func, made.get(block, block))[index].name
            case str() if ArgumentKind.BLOCK in kinds:
                return made.get(value, value)
        return value

    kinds = REGISTRY[step.name].kinds
    return replace(step, args=tuple((k, map_leaves(v, partial(found, kinds=kinds[k]))) for k, v in step.args))


def apply_step(func: PrimFunc, step: Step, stand_in: Callable[[Step], Step], made: Mapping[str, str]) -> tuple[PrimFunc, Step]:
    """The function after one planned step, and the step with the names of `named_step` and its results."""
    schedule = Schedule(func)
    step = named_step(func, step, made)
    taken, options = REGISTRY[step.name].spread(stand_in(step).bound)
    schedule._apply(step.name, *taken, **options)
    return schedule.func, replace(step, results=schedule.trace[-1].results)


def new_names(planned: Step, taken: Step) -> dict[str, str]:
    """The actual names of a step's results, by their planned names."""
    return {old: new for old, new in zip(planned.results, taken.results, strict=True) if isinstance(old, str)}
