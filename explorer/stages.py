"""The stages of a page: a program after each step of a schedule, or one of several programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schedule import Schedule, Trace
from schedule.loop_positions import apply_step
from schedule.primitive import REGISTRY
from schedule.trace import Step
from tir.ir import PrimFunc, need_func


@dataclass(frozen=True)
class ProgramStage:
    """A program; of a schedule's step, `title` is its call and `about` its rule. `trace` leads from the original function to the
    program; None for a program that is given as it is."""

    title: str
    func: PrimFunc
    about: str = ""
    trace: Trace | None = None


def of_schedule(s: Schedule) -> list[ProgramStage]:
    """The stages of a schedule: the function as it was written, and after each step."""
    steps = s.trace.steps
    found = [ProgramStage("as written", s.original, "", Trace())]
    for n, func in enumerate(programs(s.original, steps), 1):
        found.append(ProgramStage(str(steps[n - 1]).partition("  # ")[0], func, rule(steps[n - 1]), Trace(steps[:n])))
    return found


def of_programs(named: Mapping[str, PrimFunc]) -> list[ProgramStage]:
    """Programs that follow one another, by their titles."""
    return [ProgramStage(title, need_func(func, "explore")) for title, func in named.items()]


def programs(func: PrimFunc, steps: Sequence[Step]) -> list[PrimFunc]:
    """The function after each of the steps; ScheduleError where one is refused."""
    found = []
    for step in steps:
        func, _ = apply_step(func, step, lambda s: s, {})
        found.append(func)
    return found


def rule(step: Step) -> str:
    """The rule of a primitive: its docstring up to the line that begins with Legal."""
    known = REGISTRY.get(step.name)
    text = "" if known is None or not known.__doc__ else known.__doc__
    kept = []
    for line in text.strip().splitlines():
        if line.strip().startswith("Legal"):
            break
        kept.append(line.removeprefix("    "))
    return "\n".join(kept).strip()
