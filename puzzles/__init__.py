"""Puzzles: small programs, each with a goal that a schedule reaches or misses without a clock.

An answer is a trace, in JSON or as calls in Python, of which nothing is executed. `answers` reads it, `measures` counts, `puzzle`
compares with the goals, `grading` checks folders and boards; `catalogue` has the puzzles, by the lessons of the course.
"""

from __future__ import annotations

from explorer.answers import AnswerError

from .catalogue import PUZZLES
from .grading import Grades, board, grade, shared
from .puzzle import Goal, Puzzle, Verdict, check

__all__ = ["PUZZLES", "AnswerError", "Goal", "Grades", "Puzzle", "Verdict", "board", "check", "grade", "shared"]
