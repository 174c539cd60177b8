"""`python -m tir.puzzles`: the list of the puzzles; with NAME one of them; with NAME and FILE the verdict on an answer.

Exit status 0 on success, 1 for an answer that does not solve the puzzle, 2 for bad usage; after Ctrl-C 130, SIGTERM 143.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from .options import Parser, Usage, accessing, positive_int, refusing, writable
from .process import guarded

if TYPE_CHECKING:
    from puzzles import Puzzle, Verdict

POLL_SECONDS = 0.2  # between looks at a file that is watched


def parser() -> argparse.ArgumentParser:
    p = Parser(prog="python -m tir.puzzles", description="Puzzles on schedules.", allow_abbrev=False)
    p.add_argument("name", nargs="?", metavar="NAME", help="a puzzle (default: the list of them)")
    p.add_argument("answer", nargs="?", metavar="FILE", help="an answer: calls such as s.split(...), or a trace's JSON")
    p.add_argument("--hint", type=positive_int, nargs="?", const=1, metavar="N", help="the first N hints (default: 1)")
    p.add_argument("--watch", action="store_true", help="check the answer again whenever its file is saved, until Ctrl-C")
    p.add_argument("--serve", action="store_true", help="solve it in a page, served on this machine alone, until Ctrl-C")
    p.add_argument("--begin", metavar="FILE", help="write the puzzle's start to a new file")
    p.add_argument("--explore", metavar="FILE.html", help="write a page that steps through the answer")
    p.add_argument("--share", metavar="AUTHOR", help="print the answer as a line for a board, if it solves the puzzle")
    p.add_argument("--board", metavar="FILE", help="the ranks of shared answers, each checked anew")
    p.add_argument("--grade", metavar="DIR", help="the grades of a class: a folder for each person, with answers NAME.py")
    p.add_argument("--lab", type=positive_int, metavar="N", help="the lab to grade, 1 to 5 (default: all puzzles)")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    p = parser()
    return guarded(p.prog, lambda: _run(p.parse_args(argv)))


def _run(args: argparse.Namespace) -> int:
    if args.serve and (args.name is None or args.answer is not None):
        raise Usage("--serve: give NAME, and no FILE")
    if args.lab is not None and args.grade is None:
        raise Usage("--lab: give --grade DIR, too")
    if args.answer is None and (args.watch or args.explore or args.share):
        raise Usage("--watch, --explore and --share: give NAME and FILE, too")
    if args.grade is not None:
        return _grade(args.grade, args.lab)
    if args.board is not None:
        return _board(args.board, args.name)
    if args.name is None:
        return _list()
    puzzle = _puzzle(args.name)
    if args.serve:
        return _serve(puzzle)
    if args.begin is not None:
        return _begin(puzzle, args.begin)
    if args.answer is None:
        print(puzzle.described(args.hint or 0))
        print(f"\nThe start: --begin answer.py. Hints: --hint N, of {len(puzzle.hints)}.")
        return 0
    if args.watch:
        return _watch(puzzle, Path(args.answer))
    return _check(puzzle, args)


def _list() -> int:
    from puzzles import PUZZLES

    width = max(map(len, PUZZLES))
    for lesson, group in groupby(PUZZLES.values(), lambda p: p.lesson):
        print(f"Lesson {lesson}")
        for puzzle in group:
            print(f"  {puzzle.name:<{width}}  {puzzle.title}")
    print("\npython -m tir.puzzles NAME shows one; docs/puzzles has a page of each.")
    return 0


def _puzzle(name: str) -> Puzzle:
    from puzzles import PUZZLES
    from tir.nearest import no_such

    if name not in PUZZLES:
        raise Usage(no_such("puzzle", name, PUZZLES))
    return PUZZLES[name]


def _read(path: str | Path) -> str:
    with accessing(f"cannot read {path}"), refusing(f"{path} is not text", UnicodeError):
        return Path(path).read_text("utf-8")


def _begin(puzzle: Puzzle, name: str) -> int:
    path = writable("--begin", name)
    if path.exists():
        raise Usage(f"--begin: {path} exists already")
    path.write_text(f'"""{puzzle.title}: {puzzle.text}"""\n\n{puzzle.start}\n', "utf-8")
    print(f"{path}; check it with: python -m tir.puzzles {puzzle.name} {path} --watch")
    return 0


def _serve(puzzle: Puzzle) -> int:
    from explorer.answers import Attempt
    from explorer.served import Desk
    from puzzles.puzzle import judged

    from .explore import serve

    def verdict(tried: Attempt) -> str:
        return str(judged(puzzle, tried))

    return serve(
        Desk(puzzle.title, puzzle.program(), puzzle.start, allowed=puzzle.allowed, about=puzzle.described(), judged=verdict), 0
    )


def _verdict(puzzle: Puzzle, path: str | Path) -> Verdict:
    from puzzles import AnswerError, check

    with refusing(str(path), AnswerError):
        return check(puzzle, _read(path))


def _check(puzzle: Puzzle, args: argparse.Namespace) -> int:
    page = None if args.explore is None else writable("--explore", args.explore)
    verdict = _verdict(puzzle, args.answer)
    print(verdict)
    if not verdict.solved and args.hint:
        print("\n".join(f"  hint: {hint}" for hint in puzzle.hints[: args.hint]))
    if page is not None:
        from explorer import explore

        explore(verdict.attempt.schedule, page, measure=False, title=puzzle.title)
    if args.share is not None and verdict.solved:
        from puzzles import shared

        print(shared(verdict, args.share))
    return 0 if verdict.solved else 1


def _watch(puzzle: Puzzle, path: Path) -> int:
    """Show the nest and the verdict, again after each change of the file."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    def view() -> Group:
        try:
            verdict = _verdict(puzzle, path)
        except Usage as error:
            return Group(Text(puzzle.title, "bold"), Text(str(error), "red"))
        nest = Text(verdict.attempt.schedule.func.outline())
        return Group(Text(puzzle.title, "bold"), nest, Text(str(verdict), "green" if verdict.solved else "yellow"))

    def saved() -> float:
        with accessing(f"cannot read {path}"):
            return path.stat().st_mtime

    before = saved()
    with Live(view(), console=Console(), auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            time.sleep(POLL_SECONDS)
            try:
                now = saved()
            except Usage:  # an editor is replacing it
                continue
            if now != before:
                before = now
                live.update(view(), refresh=True)


def _board(path: str, name: str | None) -> int:
    from puzzles import AnswerError, board

    with refusing(path, AnswerError):
        found = board(_read(path))
    for puzzle, entries in found.items():
        if name in (None, puzzle):
            print(puzzle)
            for rank, (by, verdict) in enumerate(entries, 1):
                counts = ", ".join(f"{counted.value:g}" for counted in verdict.counted)
                print(f"  {rank:>3}  {by}  {counts}{'; ' if counts else ''}{len(verdict.trace)} step(s)")
    return 0


def _grade(folder: str, number: int | None) -> int:
    from puzzles import grade

    with accessing(f"--grade: cannot read {folder}"), refusing("--lab"):
        print(grade(folder, number))
    return 0
