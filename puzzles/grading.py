"""Answers of many: a folder of a class, and a board of traces, each checked anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from explorer.answers import AnswerError
from tir.nearest import no_such

from .catalogue import PUZZLES
from .puzzle import Puzzle, Verdict, check

LABS = {1: (1, 2, 3, 4), 2: (5, 8), 3: (6,), 4: (7,), 5: (9, 10, 11, 12, 13, 14, 15)}  # the lessons of each lab
SUFFIXES = (".json", ".py", ".txt")
MAX_LINES = 10_000  # of a board


def lab(number: int) -> list[Puzzle]:
    """The puzzles of a lab. Raises ValueError for an unknown number."""
    if number not in LABS:
        raise ValueError(no_such("lab", number, map(str, LABS)))
    return [p for p in PUZZLES.values() if p.lesson in LABS[number]]


@dataclass(frozen=True, repr=False)
class Grades:
    """The verdicts on the answers of a class, by person and puzzle; a text where an answer could not be read."""

    puzzles: tuple[Puzzle, ...]
    verdicts: dict[str, dict[str, Verdict | str]]

    @property
    def points(self) -> dict[str, int]:
        """The number of puzzles that each person has solved."""
        return {who: sum(isinstance(v, Verdict) and v.solved for v in found.values()) for who, found in self.verdicts.items()}

    def __repr__(self) -> str:
        width = max((len(who) for who in self.verdicts), default=0)
        lines = []
        for who, points in self.points.items():
            found = self.verdicts[who]
            wrong = [name for name, v in found.items() if not isinstance(v, Verdict) or not v.solved]
            missing = [p.name for p in self.puzzles if p.name not in found]
            rest = [f"not solved: {', '.join(wrong)}"] * bool(wrong) + [f"no answer: {', '.join(missing)}"] * bool(missing)
            lines.append(f"{who:<{width}}  {points:>3} of {len(self.puzzles)}  {'; '.join(rest)}".rstrip())
        return "\n".join(lines)


def grade(folder: str | Path, number: int | None = None) -> Grades:
    """The grades of a class: `folder` has a folder for each person, with answers NAME.py or NAME.json by the puzzles' names.

    `number` selects a lab of the five. Raises FileNotFoundError for a folder that does not exist, ValueError for an unknown lab.
    """
    wanted = list(PUZZLES.values()) if number is None else lab(number)
    people = sorted(p for p in Path(folder).iterdir() if p.is_dir() and not p.name.startswith("."))
    return Grades(tuple(wanted), {p.name: dict(_graded(p, wanted)) for p in people})


def _graded(folder: Path, wanted: list[Puzzle]) -> Iterator[tuple[str, Verdict | str]]:
    for puzzle in wanted:
        answer = next((p for suffix in SUFFIXES if (p := folder / f"{puzzle.name}{suffix}").is_file()), None)
        if answer is None:
            continue
        try:
            yield puzzle.name, check(puzzle, answer.read_text("utf-8"))
        except (AnswerError, OSError, UnicodeError) as error:
            yield puzzle.name, f"{answer.name}: {error}"


def shared(verdict: Verdict, by: str) -> str:
    """An answer as a line of a board."""
    return json.dumps({"puzzle": verdict.puzzle.name, "by": by, "trace": verdict.trace.as_json()}, ensure_ascii=False)


def board(text: str) -> dict[str, list[tuple[str, Verdict]]]:
    """The ranks of a board's lines, by puzzle: the solved answers, best first, with their authors; each is checked anew.

    Raises AnswerError, with its line, for a line that is none of `shared`.
    """
    found: dict[str, list[tuple[str, Verdict]]] = {}
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        raise AnswerError(f"a board has at most {MAX_LINES} lines, this one has {len(lines)}")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            name, by, trace = entry["puzzle"], entry["by"], entry["trace"]
            if name not in PUZZLES:
                raise AnswerError(no_such("puzzle", name, PUZZLES))
            verdict = check(PUZZLES[name], json.dumps(trace))
        except AnswerError as error:
            raise AnswerError(f"line {number}: {error}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise AnswerError(f"line {number}: a line is an object with `puzzle`, `by` and `trace`, got {line[:60]!r}") from None
        if verdict.solved:
            found.setdefault(name, []).append((str(by), verdict))
    return {name: sorted(own, key=lambda entry: entry[1].rank) for name, own in found.items()}
