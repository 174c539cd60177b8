"""Writes what the lessons of the course print and draw for the site, docs/tutorial/printed/NN_name.txt and pictures/NN_name.svg:
`python -m docs.lessons [NAME ...]`.

A lesson is a script in percent cells. A cell tagged `machine` prints what depends on the machine: times, machine code, the tiles
of its processor, the last digits of learned models. Its output is kept as one machine gave it, which the first line of the file
names. That of all other cells is the same everywhere, and the tests compare it. A cell tagged `native` compiles, too. Without
these two kinds of cells, the first seven lessons run where nothing can be compiled, as in a browser.
"""

from __future__ import annotations

import ast
import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

COURSE = Path(__file__).with_name("tutorial")
PRINTED = COURSE / "printed"


class Cell(NamedTuple):
    """A cell of a script: its number, its first line, its header after `# %%`, and its text."""

    number: int
    line: int
    header: str
    text: str

    @property
    def prose(self) -> bool:
        return "[markdown]" in self.header

    @property
    def markdown(self) -> str:
        """The text of a cell of prose."""
        return re.sub(r"^# ?", "", self.text, flags=re.MULTILINE).strip()

    @property
    def of_machine(self) -> bool:
        return '"machine"' in self.header

    @property
    def native(self) -> bool:
        """True for a cell that compiles, or uses what one has compiled."""
        return self.of_machine or '"native"' in self.header


def cells(text: str) -> list[Cell]:
    """The percent cells of a script."""
    found = list(re.finditer(r"^# %%(.*)\n", text, re.MULTILINE))
    ends = [m.start() for m in found[1:]] + [len(text)]
    starts = (text.count("\n", 0, m.start()) + 1 for m in found)
    return [Cell(n, line, m[1], text[m.end() : end]) for n, (m, line, end) in enumerate(zip(found, starts, ends, strict=True))]


def run(path: Path, wanted: Callable[[Cell], bool] = lambda cell: True) -> dict[int, str]:
    """The output of each `wanted` cell of a lesson by its number; cells that print nothing are left out."""
    text = path.read_text()
    tree, names, printed = ast.parse(text), {"__name__": "__main__", "__file__": str(path)}, {}
    for cell in cells(text):
        if not wanted(cell):
            continue
        statements = [s for s in tree.body if cell.line <= s.lineno <= cell.line + cell.text.count("\n")]
        output = io.StringIO()
        with redirect_stdout(output):  # with the lines of the file, for tracebacks and for what reads its own source
            exec(compile(ast.Module(statements, []), str(path), "exec"), names)
        if output.getvalue().strip():
            printed[cell.number] = output.getvalue().rstrip("\n") + "\n"
    return printed


def kept(name: str) -> dict[int, str]:
    """What the cells of a lesson print, as it is kept."""
    path = PRINTED / f"{name}.txt"
    return {c.number: c.text for c in _kept_cells(path.read_text())} if path.exists() else {}


def _kept_cells(text: str) -> Iterator[Cell]:
    for cell in cells(text):
        yield cell._replace(number=int(cell.header.split()[0]), text=cell.text.rstrip("\n") + "\n")


def machine(name: str) -> str:
    """The machine that ran a lesson, as its first line says."""
    path = PRINTED / f"{name}.txt"
    return path.read_text().partition("\n")[0].removeprefix("# On ")


def write(name: str, printed: dict[int, str]) -> None:
    """Keep what a lesson prints."""
    from codegen import Target
    from codegen.processor import host_name

    marks = {c.number: " (depends on the machine)" for c in cells((COURSE / f"{name}.py").read_text()) if c.of_machine}
    parts = [f"# On {host_name()} ({Target('llvm')})\n", *(f"# %% {n}{marks.get(n, '')}\n{text}" for n, text in printed.items())]
    PRINTED.mkdir(exist_ok=True)
    (PRINTED / f"{name}.txt").write_text("\n".join(parts))


def lessons() -> list[str]:
    """The names of the lessons, in order."""
    return sorted(p.stem for p in COURSE.glob("[0-9]*.py"))


if __name__ == "__main__":
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    sys.path.insert(0, str(COURSE))
    import_module("course").PICTURES = COURSE / "pictures"  # type: ignore[attr-defined]
    with chdir(COURSE):
        for name in sys.argv[1:] or lessons():
            write(name, run(COURSE / f"{name}.py"))
            plt.close("all")  # a lesson draws on no other's figure
