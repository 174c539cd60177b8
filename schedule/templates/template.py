"""Templates: a pattern, and the ways to schedule a block that matches it, with open numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, Protocol

from schedule.error import ScheduleError
from schedule.machine import CPU
from schedule.open_schedule import Continuation, Declined, OpenSchedule
from tir.ir import Block
from tir.notices import degraded

from .block_analysis import epilogue


class Verdict(Enum):
    """The answer of a template, or of a rule of the search, for a block."""

    SKIP = "does not apply"
    APPLY = "applies, and so may others"
    ONLY = "applies, and no later one does"


class RefusedRule(UserWarning):
    """A warning: a step of a template or a rule was refused, and a block is not scheduled by it. The message says why."""


def warn_of(rule: str, block: str, error: ScheduleError) -> None:
    """Warn that a template or a rule is left out for a block."""
    degraded(f"the rule {rule!r} makes nothing of block `{block}`: {error}", RefusedRule)


class Template:
    """A pattern, and the ways to schedule a block that matches it. `ways` gives these by label, the one that the formula prefers
    first; a single one is `change`.

    A template is a rule of the search, too: `apply` makes an open schedule of each legal way, or at the seeds of the first.
    """

    name: str

    def applies(self, s: OpenSchedule, block: str) -> Verdict:
        raise NotImplementedError

    def change(self, new: OpenSchedule, block: str) -> object:
        raise NotImplementedError

    def ways(self, s: OpenSchedule, block: str) -> Iterator[tuple[str, Continuation]]:
        yield self.name, lambda new: self.change(new, block)

    def apply(self, s: OpenSchedule, block: str) -> list[OpenSchedule]:
        made: list[OpenSchedule] = []
        for label, way in self.ways(s, block):
            new = s.fired(label, block)
            try:
                way(new)
            except Declined:
                continue
            except ScheduleError as error:
                warn_of(label, block, error)
                continue
            made.append(new)
            if s.at_seed:
                break
        return made


@dataclass(frozen=True, slots=True)
class WholeNest(Template):
    """The template of a nest with all stages that it takes along: `matches(s, block)` gives the match that ends with a block, or
    None, and `build` schedules it. No later rule is tried, unless it is one of `several` ways."""

    name: str
    matches: Callable[[OpenSchedule, str], Any]
    build: Callable[[OpenSchedule, Any], object]
    several: bool = False

    def applies(self, s: OpenSchedule, block: str) -> Verdict:
        if not s.untouched(block) or block in s.copies or self.matches(s, block) is None:
            return Verdict.SKIP
        return Verdict.APPLY if self.several else Verdict.ONLY

    def change(self, new: OpenSchedule, block: str) -> None:
        self.build(new, self.matches(new, block))
        new.pending = [b for b in new.pending if new.is_unscheduled(b)]


class Pattern(Protocol):
    """A module that recognises blocks of one formula, and schedules them. An optional `variants(found, processor, given)` gives
    the variants of `build` that are each worth a sketch, the seed's first; no stage computes the buffers `given`."""

    NAME: str

    def matches(self, block: Block, /) -> Any:
        """The match of a block; None without one."""

    def suits(self, found: Any, processor: CPU, /) -> bool:
        """True where to build the match is legal, and worth a sketch."""

    def cycles(self, found: Any, processor: CPU, constants: frozenset[str], /) -> float:
        """The estimated cycles of one core. Copies of the buffers `constants` take no time."""

    @property
    def build(self) -> Callable[..., object]:
        """Schedules the match on an OpenSchedule, in a variant if it has any."""


@dataclass(frozen=True, slots=True)
class SumOfProducts(Template):
    """The template of a pattern of sums of products with an elementwise consumer: a way for each variant."""

    pattern: Pattern

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.pattern.NAME

    def found(self, s: OpenSchedule, block: str) -> Any:
        """The match of a block with the pattern, if it suits; None else."""
        found = self.pattern.matches(s.block(block))
        return found if found is not None and self.pattern.suits(found, s.target.machine) else None

    def cycles(self, s: OpenSchedule, block: str) -> float:
        """The estimated cycles of a block, of the busiest core times the cores; infinite where this template does not suit."""
        found = self.found(s, block)
        return inf if found is None else float(self.pattern.cycles(found, s.target.machine, s.constants))

    def applies(self, s: OpenSchedule, block: str) -> Verdict:
        if not s.untouched(block) or block in s.copies or epilogue(s, block) in s.scheduled:
            return Verdict.SKIP
        return Verdict.SKIP if self.found(s, block) is None else Verdict.APPLY

    def ways(self, s: OpenSchedule, block: str) -> Iterator[tuple[str, Continuation]]:
        found = self.pattern.matches(s.block(block))
        variants = getattr(self.pattern, "variants", None)
        for variant in [()] if variants is None else [(v,) for v in variants(found, s.target.machine, s.given)]:
            yield "".join((self.name, *variant)), self._way(found, *variant)

    def _way(self, found: Any, *variant: str) -> Continuation:
        return lambda new: self.pattern.build(new, found, *variant)
