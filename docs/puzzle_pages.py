"""Writes docs/puzzles, a page of each puzzle and a list of them: `python -m docs.puzzle_pages`."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from puzzles import PUZZLES, Puzzle

FOLDER = Path(__file__).with_name("puzzles")
LESSONS = {int(p.name[:2]): p.name for p in Path(__file__).with_name("tutorial").glob("[0-9]*.py")}

INTRODUCTION = """\
# Puzzles

Each puzzle is a small program and a goal that a schedule reaches or misses: misses of a simulated cache, steps, registers,
bytes, or a refusal of the compiler. No goal needs a clock, so the verdict is the same on every machine. They are grouped as
the lessons of [the course](../tutorial/README.md). This page and those of the puzzles are written by `python -m
docs.puzzle_pages`.

```bash
python -m tir.puzzles                                    # the list
python -m tir.puzzles first-swap                         # one of them
python -m tir.puzzles first-swap --hint 2                # and its first two hints
python -m tir.puzzles first-swap --begin answer.py       # writes the start, to be edited
python -m tir.puzzles first-swap answer.py               # the verdict
python -m tir.puzzles first-swap answer.py --watch       # the nest and the verdict, again whenever the file is saved
python -m tir.puzzles first-swap answer.py --explore page.html    # the answer in the explorer, step by step
```

An answer is a list of calls of [primitives](../primitives.md) on a schedule `s`, or the JSON of a trace. It is read, not
executed: names of results, constants, lists, and queries such as `s.get_loops("C")` are all that an answer may have. A
block has the name of the buffer that it writes. Loops of the program are named in quotes, those that a step makes by its
results, as in `i_0, i_1 = s.split("i", [None, 4])`. In a program, `# from 0` means that C is set to 0 before the sum; this is
a statement, too. The same in Python, as in a notebook:

```python
import tir

puzzle = tir.puzzles.PUZZLES["first-swap"]
print(puzzle)
verdict = tir.puzzles.check(puzzle, 's.reorder("i", "k", "j")')
print(verdict)
assert verdict.solved

s = tir.Schedule(puzzle.program())
s.reorder("k", "i", "j")
assert not tir.puzzles.check(puzzle, s).solved
```

What is counted is explained in the lessons: the cache of 16 lines of 4 elements in [lesson
1](../tutorial/01_loop_nests.py), steps in [lesson 5](../tutorial/05_vectors.py), bytes of temporaries in [lesson
6](../tutorial/06_placement.py). Machine code is that for `{target}`, which is compiled and read, not run, so that an
AArch64 machine counts the same.

## The puzzles

{table}

## For a class

`--share NAME` prints a solved answer as one line. Lines of many people in a file are a board: `python -m tir.puzzles
--board FILE` checks each trace anew and ranks them by the counted numbers, then by the number of steps.

`tir.puzzles.grade(folder)`, or `python -m tir.puzzles --grade DIR`, grades a class: the folder has a folder for each
person, with answers by the puzzles' names, as `first-swap.py`. `--lab N`, or `grade(folder, N)`, grades one of five labs.

{labs}

A puzzle of your own is a program, goals and a start:

```python
from tir import te
from tir.puzzles import Goal, Puzzle, check

A = te.placeholder((16, 16), name="A")
B = te.compute((16, 16), lambda i, j: A[i, j] + 1.0, name="B")
own = Puzzle(
    name="in-eights",
    lesson=5,
    title="Eight at a time",
    text="Make vectors of 8 lanes.",
    program=lambda: te.create_prim_func([A, B]),
    goals=(Goal("steps", "at most", 32, missed="256 elements in 32 steps: 8 lanes."),),
    start='s.split("i", [None, 8])',
)
assert not check(own, own.start).solved
assert check(own, '_, lanes = s.split("j", [None, 8])\\ns.vectorize(lanes)').solved
```

A goal bounds one of these measures, `at most` or `at least`; `of` fills in the braces.

{measures}
"""

EXPLAINED = {  # what a page says below its goals, by measure
    "misses": "The cache has 16 lines of 4 neighbouring elements: an access to a line that is not in it is a miss, and the "
    "line that was not used for longest makes room.",
    "steps": "A statement of one iteration is a step; the lanes of a vector, and two workers, share one. Setting an element to 0 "
    "before a sum is a statement, too.",
    "distance": "Setting C to 0 is a statement, too, and comes between two uses.",
    "guards": "A split whose length does not divide the loop adds a condition. `tail` says what becomes of the rest "
    "([split](../primitives/loops.md#split)).",
}


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def index() -> str:
    """The page that lists the puzzles."""
    from puzzles.grading import LABS, lab
    from puzzles.measures import MEASURES, X86

    rows = ["| lesson | puzzle | name | goal |", "|---|---|---|---|"]
    rows += [
        f"| {_lesson(p.lesson)} | [{p.title}]({p.name}.md) | `{p.name}` | {cell('; '.join(p.wanted))} |" for p in PUZZLES.values()
    ]
    labs = ["| lab | lessons | puzzles |", "|---|---|---|"]
    for number in LABS:
        found = lab(number)
        lessons = ", ".join(str(lesson) for lesson, _ in groupby(p.lesson for p in found))
        labs.append(f"| {number} | {lessons} | {', '.join(f'`{p.name}`' for p in found)} |")
    measures = ["| measure | counts |", "|---|---|", *(f"| `{name}` | {cell(m.words)} |" for name, m in MEASURES.items())]
    parts = {"target": str(X86), "table": "\n".join(rows), "labs": "\n".join(labs), "measures": "\n".join(measures)}
    return re.sub(r"^{(\w+)}$|{(target)}", lambda found: parts[found[1] or found[2]], INTRODUCTION, flags=re.MULTILINE)


def _lesson(number: int) -> str:
    return f"[{number}](../tutorial/{LESSONS[number]})"


def page(puzzle: Puzzle) -> str:
    """The page of a puzzle."""
    names = list(PUZZLES)
    at = names.index(puzzle.name)
    hints = "\n".join(f"<details><summary>Hint {n}</summary>\n\n{hint}\n\n</details>\n" for n, hint in enumerate(puzzle.hints, 1))
    command = f"python -m tir.puzzles {puzzle.name}"
    following = names[at + 1 : at + 2]
    parts = [
        f"# {puzzle.title}",
        f"`{puzzle.name}`, of lesson {_lesson(puzzle.lesson)}. [All puzzles](README.md)",
        puzzle.text,
        f"```text\n{puzzle.program().outline().rstrip()}\n```",
        "## Goal",
        "\n".join(f"- {line}" for line in puzzle.wanted),
        *(EXPLAINED[name] for name in dict.fromkeys(g.measure for g in puzzle.goals) if name in EXPLAINED),
        "## Start",
        "This answer does not reach the goal; change it.",
        f"```text\n{puzzle.start}\n```",
        f"```bash\n{command} --begin answer.py\n{command} answer.py --watch\n```",
        "## Hints",
        hints.rstrip(),
        *(f"Next: [{PUZZLES[name].title}]({name}.md)" for name in following),
    ]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """All pages, by file name."""
    return {"README.md": index(), **{f"{p.name}.md": page(p) for p in PUZZLES.values()}}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    found = pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in found:
            old.unlink()
    for name, text in found.items():
        (FOLDER / name).write_text(text)
