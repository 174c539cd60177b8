"""A puzzle, its goals, and the verdict on an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from explorer.answers import Attempt, attempt
from schedule import Schedule, ScheduleError, Trace
from tir.ir import PrimFunc
from tir.nearest import no_such

from .measures import MEASURES, Counted, Subject, Unmeasured

RELATIONS = {"at most": lambda value, bound: value <= bound, "at least": lambda value, bound: value >= bound}


@dataclass(frozen=True)
class Goal:
    """A bound of a measure: `relation` is "at most" or "at least", `of` the buffer or name that the measure counts for, if any.

    `missed` says what it means if the bound is missed. Raises ValueError for an unknown measure or relation.
    """

    measure: str
    relation: str
    bound: float
    of: str = ""
    missed: str = ""

    def __post_init__(self) -> None:
        for what, name, known in (("measure", self.measure, MEASURES), ("relation", self.relation, RELATIONS)):
            if name not in known:
                raise ValueError(no_such(what, name, known))
        if bool(self.of) != ("{}" in MEASURES[self.measure].words):
            raise ValueError(f"the measure {self.measure!r} counts {MEASURES[self.measure].words}; got of={self.of!r}")

    def __str__(self) -> str:
        words = MEASURES[self.measure].words.format(self.of)
        return f"{words}: {'none' if not self.bound and self.relation == 'at most' else f'{self.relation} {self.bound:g}'}"

    def count(self, subject: Subject) -> Counted:
        """The counted number of an attempt. Raises Unmeasured where it does not apply, or needs what is not installed."""
        try:
            return MEASURES[self.measure].count(subject, *([self.of] if self.of else []))
        except ModuleNotFoundError as error:
            raise Unmeasured(f"this goal compiles or learns, and {error.name} is not installed here") from None


def at_most(measure: str, bound: float, of: str = "", missed: str = "") -> Goal:
    return Goal(measure, "at most", bound, of, missed)


def at_least(measure: str, bound: float, of: str = "", missed: str = "") -> Goal:
    return Goal(measure, "at least", bound, of, missed)


@dataclass(frozen=True, repr=False)
class Puzzle:
    """A program and a goal that an answer, a list of steps, reaches or not.

    With `refusal` the answer ends in a step that the compiler must refuse, with this text in its message. `allowed` are the
    primitives of the answer, or all. `hints` come by degrees; `start` is an answer to begin with, which does not suffice.
    """

    name: str
    lesson: int
    title: str
    text: str
    program: Callable[[], PrimFunc]
    goals: tuple[Goal, ...] = ()
    hints: tuple[str, ...] = ()
    start: str = ""
    allowed: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def wanted(self) -> list[str]:
        """The goals as sentences."""
        refused = [f"the last step is refused, and its message says: {self.refusal}"] if self.refusal else []
        steps = [f"steps: {', '.join(self.allowed)}"] if self.allowed else []
        return [*refused, *map(str, self.goals), *steps]

    def described(self, hints: int = 0) -> str:
        """The puzzle as text, with its first hints."""
        parts = [f"{self.title} (lesson {self.lesson})", self.text, self.program().outline().rstrip()]
        parts.append("\n".join(["Goal:", *(f"  {line}" for line in self.wanted)]))
        parts.append("\n".join(["Start:", *(f"  {line}" for line in self.start.splitlines())]))
        parts += [f"Hint {n} of {len(self.hints)}: {hint}" for n, hint in enumerate(self.hints[:hints], 1)]
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        return self.described()


@dataclass(frozen=True, repr=False)
class Verdict:
    """The verdict on an answer: the counted number of each goal, or the refusal."""

    puzzle: Puzzle
    attempt: Attempt
    counted: tuple[Counted, ...] = ()
    met: tuple[bool, ...] = ()
    problems: tuple[str, ...] = field(default=())

    @property
    def solved(self) -> bool:
        """True where every goal is met."""
        return not self.problems and all(self.met)

    @property
    def trace(self) -> Trace:
        """The answer as data."""
        return self.attempt.trace

    @property
    def rank(self) -> tuple[float, ...]:
        """The key that sorts answers to one puzzle, best first: the counted numbers in the order of the goals, then the steps."""
        signs = [-1 if goal.relation == "at least" else 1 for goal in self.puzzle.goals]
        return (*(s * float(c.value) for s, c in zip(signs, self.counted, strict=False)), float(len(self.trace)))

    def __repr__(self) -> str:
        lines = [f"{self.puzzle.name}: {'solved' if self.solved else 'not solved'}"]
        details: set[str] = set()
        for goal, counted, met in zip(self.puzzle.goals, self.counted, self.met, strict=False):
            lines.append(f"  {'✓' if met else '✗'} {goal}; this answer: {counted.value:g}")
            lines += [f"      {counted.detail}"] if counted.detail and counted.detail not in details else []
            details.add(counted.detail)
            lines += [f"      {goal.missed}"] if goal.missed and not met else []
        for problem in self.problems:
            lines += [f"  {line}" for line in problem.splitlines()]
        if self.solved and self.puzzle.refusal:
            lines += [f"  {line}" for line in str(self.attempt.error).splitlines()]
        return "\n".join(lines)


def check(puzzle: Puzzle, answer: str | Schedule | Trace) -> Verdict:
    """The verdict on an answer: a trace or its JSON, a schedule, or calls in Python. Raises AnswerError for another text."""
    trace = answer.trace if isinstance(answer, Schedule) else answer
    return judged(puzzle, attempt(puzzle.program(), trace.to_json() if isinstance(trace, Trace) else trace, puzzle.allowed))


def judged(puzzle: Puzzle, tried: Attempt) -> Verdict:
    """The verdict on an answer that was tried on the puzzle's program."""
    if tried.refused is not None and not puzzle.refusal:
        return Verdict(puzzle, tried, problems=(str(tried.error),))
    subject, counted, met, problems = Subject(tried), [], [], []
    if puzzle.refusal:
        problems += _refusal(puzzle, tried.error)
    for goal in puzzle.goals:
        try:
            found = goal.count(subject)
        except Unmeasured as error:
            problems.append(f"✗ {goal}; not counted: {error}")
            break
        counted.append(found)
        met.append(RELATIONS[goal.relation](found.value, goal.bound))
    return Verdict(puzzle, tried, tuple(counted), tuple(met), tuple(problems))


def _refusal(puzzle: Puzzle, error: ScheduleError | None) -> list[str]:
    if error is None:
        return ["✗ every step was taken, and this puzzle asks for one that is refused"]
    return [] if puzzle.refusal in str(error) else [f"✗ the refusal does not say: {puzzle.refusal}", str(error)]
