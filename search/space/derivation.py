"""Search spaces, and the derivation of a function's sketches by the rules of one, block by block."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from codegen.target import Target
from schedule import ScheduleError, templates
from schedule.open_schedule import Declined, OpenSchedule, extent
from schedule.templates import annotate, gpu, warn_of
from schedule.templates.gpu import elements
from schedule.templates.marks import plain_loops
from tir.ir import PrimFunc
from tir.traverse import blocks

from . import annotation
from .rules import ANSOR, DEFAULT, LIMITED, Rule, Skip, Verdict
from .sketch import Sketch

MAX_RULES_A_BLOCK = 100  # applications of rules to one block; more mean that a rule makes its block pending again and again
MAX_LISTED_BLOCKS = 10  # blocks of a function; the placements of more take minutes to list
MAX_SKETCHES = 64  # those with the fewest departures from the first rule that applies


@dataclass(frozen=True, slots=True)
class Space:
    """A search space: the rules that derive its sketches, and the function that annotates their loops at the end. `templates`
    schedules the blocks that match a template and returns the other blocks; the first sketches begin with its result."""

    name: str
    rules: tuple[Rule, ...]
    annotate: Callable[[OpenSchedule], None]
    templates: Callable[[OpenSchedule], list[str]] | None = None

    def sketch(self, state: OpenSchedule, name: str, func: PrimFunc) -> Sketch:
        """The sketch of `func` from a finished derivation."""
        self.annotate(state)
        return state.finish(name, func)


SPACES: dict[str, Space] = {
    s.name: s
    for s in (
        Space("full", DEFAULT, annotate.annotate, templates.build),
        Space("ansor", ANSOR, annotation.annotate),
        Space("limited", LIMITED, annotation.annotate_in_place),
    )
}

# The rules of the spaces for GPUs are the templates, with open numbers.
GPU_SPACES: dict[str, Space] = {
    name: Space(name, (*rules, Skip()), elements.bind_rest) for name, rules in (("full", gpu.TEMPLATES), ("ansor", gpu.ANSOR))
}


@dataclass(frozen=True, slots=True)
class Partial:
    """An incomplete schedule, with pending blocks, and the number of its departures from the first rule that applies."""

    schedule: OpenSchedule
    departures: int = 0


@dataclass(frozen=True, slots=True)
class Derivation:
    """The derivation of the sketches of a function, step by step: `start`, then `expand` while blocks are pending.

    The tree of incomplete schedules can be searched in any order: `best_first` is one, a beam search another. `templates` is that
    of a `Space`.
    """

    func: PrimFunc
    target: Target
    rules: tuple[Rule, ...]
    templates: Callable[[OpenSchedule], list[str]] | None = None

    def start(self) -> list[Partial]:
        """The roots of the tree: first the function with its matched blocks scheduled by templates, if any; then the unscheduled
        function, unless templates match all of more than MAX_LISTED_BLOCKS blocks. ValueError if a size is symbolic."""
        check_shapes(self.func)
        nothing = OpenSchedule(self.func, self.target)
        plain_loops(nothing)
        nothing.pending = nothing.unscheduled()
        if self.templates is None:
            return [Partial(nothing)]
        known = nothing.copy()
        known.pending = self.templates(known)
        if not known.pending and len(nothing.pending) > MAX_LISTED_BLOCKS:
            return [Partial(known)]
        return [Partial(known), Partial(nothing)] if known.scheduled else [Partial(nothing)]

    def expand(self, partial: Partial) -> list[Partial]:
        """The states after the rules for the last pending block, most preferred first; empty without a pending block."""
        if not partial.schedule.pending:
            return []
        if len(partial.schedule.rules) > MAX_RULES_A_BLOCK * len(blocks(self.func)):
            raise ValueError(f"the derivation of {self.func.name} does not end; the last rule: {partial.schedule.rules[-1]}")
        state = partial.schedule.copy()
        made = _branches(state, state.pending.pop(), self.rules)
        return [Partial(new, partial.departures + min(n, 1)) for n, new in enumerate(made)]


Value = Callable[[Partial], float]  # the value of an incomplete schedule; the lowest is expanded first


def departures(partial: Partial) -> float:
    """The value of limited discrepancy search: the number of departures from the first choice."""
    return partial.departures


def best_first(derivation: Derivation, max_sketches: int = MAX_SKETCHES, value: Value = departures) -> list[OpenSchedule]:
    """The first `max_sketches` complete schedules of a best-first search. The incomplete one with the lowest value is expanded
    next; among equal values the newest, and among its successors the most preferred."""
    order = itertools.count(0, -1)
    work = [(value(start), next(order), start) for start in reversed(derivation.start())]
    heapify(work)
    finished: list[OpenSchedule] = []
    while work and len(finished) < max_sketches:
        *_, partial = heappop(work)
        if not partial.schedule.pending:
            finished.append(partial.schedule)
        for new in reversed(derivation.expand(partial)):
            heappush(work, (value(new), next(order), new))
    return finished


def check_shapes(func: PrimFunc) -> None:
    """ValueError if a size of the function is symbolic."""
    symbols = [p.name for p in func.sizes]
    if symbols:
        raise ValueError(
            f"{func.name} takes its size{'s' if symbols[1:] else ''} {', '.join(symbols)} when it is called, but tuning needs "
            "constant shapes: make the function with numbers instead"
        )
    for b in blocks(func):
        for it in b.iters:
            extent(it)


def _states_of(rule: Rule, state: OpenSchedule, block: str) -> list[OpenSchedule]:
    """The states that a rule makes; none, with a warning, if a step is refused."""
    try:
        made = rule.apply(state, block)
    except Declined:
        return []
    except ScheduleError as error:
        warn_of(rule.name, block, error)
        return []
    if not isinstance(made, Sequence) or not all(isinstance(s, OpenSchedule) for s in made):
        raise TypeError(f"apply of the rule {rule.name!r} should give a list of schedule.OpenSchedule, got {made!r}")
    return list(made)


def _branches(state: OpenSchedule, block: str, rules: Sequence[Rule]) -> list[OpenSchedule]:
    """The states after the rules for the next block, most preferred first."""
    branches: list[OpenSchedule] = []
    for rule in rules:
        verdict = rule.applies(state, block)
        if not isinstance(verdict, Verdict):
            raise TypeError(f"applies of the rule {rule.name!r} should give a search.space.rules.Verdict, got {verdict!r}")
        made = [] if verdict is Verdict.SKIP else _states_of(rule, state, block)
        branches += made
        if verdict is Verdict.ONLY and made:
            break
    if not branches:
        names = ", ".join(rule.name for rule in rules) or "none"
        raise ValueError(f"no rule applies to block `{block}` (tried: {names}); end the rules with Skip(), which always does")
    return branches
