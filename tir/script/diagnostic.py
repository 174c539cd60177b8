"""Lines of a program with marks under them, for error messages of scripts, `verify` and schedules."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir import PrimFunc, Stmt
from .printer import FIRST_LINE, printed

Mark = tuple[Stmt, str]  # a statement and a note on it
CONTEXT = 3  # lines between two marks that are shown; more of them become an ellipsis


def source_line(number: int, text: str) -> str:
    """A line of a program with its number, from 1."""
    return f"{number:5} | {text}"


def carets(start: int, end: int, note: str = "") -> str:
    """The line below a source line, which marks its columns `start` to `end` (from 0, `end` excluded; at least one)."""
    return f"      | {' ' * start}{'^' * max(1, end - start)} {note}".rstrip()


def excerpt(func: PrimFunc, marks: Iterable[Mark]) -> list[str]:
    """The lines of a function's script on which marked statements begin, each mark with its note below; line numbers are those
    of `func.script()`. Marks on statements outside the function are left out."""
    out = printed(func)
    notes: dict[int, list[tuple[int, int, str]]] = {}
    for stmt, note in marks:
        if id(stmt) in out.spans:
            line, start, end = out.spans[id(stmt)]
            notes.setdefault(line, []).append((start, end, note))
    lines: list[str] = []
    previous = None
    for line in sorted(notes):
        if previous is not None and line - previous > CONTEXT + 1:
            lines.append("      ...")
        elif previous is not None:
            lines += [source_line(n + FIRST_LINE, out.lines[n]) for n in range(previous + 1, line)]
        lines.append(source_line(line + FIRST_LINE, out.lines[line]))
        lines += [carets(*mark) for mark in sorted(notes[line])]
        previous = line
    return lines
