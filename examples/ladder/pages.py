"""The ladder as pages of the schedule explorer: `python -m examples.ladder.pages DIR` writes one page for each rung, one that
goes from rung to rung, and `index.html`. With `--published FOLDER`, the published programs in that folder are a page, too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from explorer import explore
from schedule import Schedule
from search.drawing.html import document
from tir.ir import PrimFunc

from . import RUNGS, Rung, Shape, rung

SHAPE = Shape(256, 512, 512, 192)  # small enough that every step of every rung runs in seconds
LIMIT = 10.0  # seconds of a call: the published naive program takes six


def pages(
    rungs: Sequence[Rung], shape: Shape, published: Path | None
) -> dict[str, tuple[str, Schedule | Mapping[str, PrimFunc]]]:
    """What each page is of, with a title, by the name of its file; rungs whose tiles do not fit the shape are left out."""
    rungs = [r for r in rungs if _fits(r, shape)]
    found: dict[str, tuple[str, Schedule | Mapping[str, PrimFunc]]] = {
        "ladder": ("The ladder, rung by rung", {r.name: r.program(shape) for r in rungs})
    }
    found |= {r.name: (f"{r.name}: {r.summary}", r.scheduled(shape)) for r in rungs if len(r.scheduled(shape).trace)}
    if published is not None:
        from benchmarks.published import program

        files = sorted(published.glob("*.py"))
        if not files:
            raise ValueError(f"there are no programs in {published}")
        found["published"] = ("The published programs", {f.stem: program(f.read_text()) for f in files})
    return found


def _fits(r: Rung, shape: Shape) -> bool:
    try:
        r.check(shape)
    except ValueError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    p = argparse.ArgumentParser(prog="python -m examples.ladder.pages", description=__doc__)
    p.add_argument("folder", metavar="DIR", type=Path, help="where the pages go; made if it is not there")
    p.add_argument("--shape", default=",".join(map(str, SHAPE)), metavar="M,K,L,N", help="the sizes (default: %(default)s)")
    p.add_argument("--rungs", metavar="NAMES", help="some rungs only")
    p.add_argument("--published", type=Path, metavar="FOLDER", help="the folder of the published programs")
    p.add_argument("--no-measure", action="store_true", help="build and time nothing")
    options = p.parse_args(arguments)
    try:
        rungs = [rung(name) for name in options.rungs.split(",")] if options.rungs else RUNGS
        found = pages(rungs, Shape(*map(int, options.shape.split(","))), options.published)
    except (TypeError, ValueError) as error:
        p.error(str(error))
    options.folder.mkdir(parents=True, exist_ok=True)
    links = []
    for name, (title, what) in found.items():
        path = options.folder / f"{name}.html"
        explore(what, path, "llvm -num-cores 1", measure=not options.no_measure, limit=LIMIT, title=title)
        print(path, flush=True)
        links.append(f'<li><a href="{name}.html">{escape(title)}</a></li>')
    about = f"sizes {', '.join(options.shape.split(','))}"
    index = document("The ladder", "F = exp(A·B)·E, step by step", about, [f"<ul>{''.join(links)}</ul>"])
    (options.folder / "index.html").write_text(index, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
