"""What benchmarks keep in a folder: results, the page that is made of all of them, and pictures."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import exp, log, nan
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

SHADES = (
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf",
)  # fmt: skip


Kept = dict[str, dict[str, Any]]  # results by row and number of threads, as in softmax/2
Lines = tuple[list[str], list[list[str]]]  # the columns of a table, and its lines
Write = Callable[[Kept, Path], None]  # writes the page of all results into a folder


def keep(folder: str | None, name: str, row: str, result: dict[str, Any], write: Write | None = None) -> None:
    """Keep a result of a row in the file NAME.json of a folder, in place of an earlier one of so many threads, and write the page
    of all that are there; nothing where there is no folder."""
    if folder is None:
        return
    from tir.files import write_atomically

    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    kept = known(folder, name)
    kept[f"{row}/{result['threads']}"] = {"row": row, **result}
    write_atomically(place / f"{name}.json", json.dumps(kept, indent=1, allow_nan=False) + "\n")
    if write is not None:
        write(kept, place)


def known(folder: str | None, name: str) -> Kept:
    """The results that are kept in a folder."""
    path = None if folder is None else Path(folder) / f"{name}.json"
    return json.loads(path.read_text()) if path is not None and path.exists() else {}


def by_threads(kept: Kept, rows: Sequence[str]) -> Iterator[tuple[int, str, list[dict[str, Any]]]]:
    """For each number of threads it, a heading, and the results in the order of the rows."""
    for threads in sorted({r["threads"] for r in kept.values()}):
        results = [kept[key] for row in rows if (key := f"{row}/{threads}") in kept]
        yield threads, f"{threads} thread{'s' * (threads > 1)}", results


def geometric_mean(ratios: Sequence[float]) -> float:
    """NaN of no ratios."""
    return exp(fmean(map(log, ratios))) if ratios else nan


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown; every column but the first is set to the right."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def console(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], **options: Any) -> Table:
    """A table for the console; every column but the first is set to the right."""
    from rich.table import Table

    t = Table(title=title, title_justify="left", caption_justify="left", **options)
    for n, name in enumerate(columns):
        t.add_column(name, justify="right" if n else "left", no_wrap=True)
    for row in rows:
        t.add_row(*row)
    return t


def writer(
    name: str, introduction: str, section: Callable[[list[dict[str, Any]]], Iterable[str]], rows: Sequence[str] | None = None
) -> Write:
    """What writes the page NAME.md: for each number of threads, on what was measured, and the paragraphs that `section` makes of
    the results."""

    def write(kept: Kept, folder: Path) -> None:
        paragraphs = [introduction.rstrip()]
        order = rows if rows is not None else list(dict.fromkeys(r["row"] for r in kept.values()))
        for _, heading, results in by_threads(kept, order):
            paragraphs += [f"## {heading}", circumstances(results), *section(results)]
        (folder / f"{name}.md").write_text("\n\n".join(paragraphs) + "\n")

    return write


def failed(result: dict[str, Any]) -> list[str]:
    """The line of a result that is an error."""
    return [result["row"], str(result["threads"]), f"[red]{result.get('error', 'failed')}[/red]"]


def both(
    name: str, caption: str, introduction: str, rows: Sequence[str], lines: Callable[[Sequence[dict[str, Any]]], Lines]
) -> tuple[Callable[[Sequence[dict[str, Any]]], Table], Write]:
    """What makes the table for the console, and what writes the page, of a benchmark with the same lines in both."""
    write = writer(name, introduction, lambda results: [table(*lines(results))], rows)
    return lambda results: console(f"{name} ({caption})", *lines(results)), write


def circumstances(results: Sequence[dict[str, Any]]) -> str:
    """On what machine, and at which commits, results were measured, and which kernels libraries had there: sentences."""
    machines = dict.fromkeys(f"{r['machine']['processor']} ({r['machine']['mcpu']})" for r in results)
    commits = dict.fromkeys(r["commit"] for r in results)
    kernels = dict.fromkeys(f"{library} ({name})" for r in results for library, name in r.get("library_kernels", {}).items())
    slow = dict.fromkeys(note for r in results for note in r.get("handicapped", ()))
    ran = f" Kernels of {', '.join(kernels)}." if kernels else ""
    return f"On {' and '.join(machines)}, commit {', '.join(commits)}.{ran}{''.join(f' **{note}.**' for note in slow)}"


def figure(width: float, height: float) -> Figure | None:
    """An empty figure of so many inches; None where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    return Figure(figsize=(width, height), layout="constrained")


def draw(picture: Figure, path: Path) -> None:
    """Write a figure to an SVG file: text as text, paths in tenths of a point, and the same file for the same figure."""
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.sans-serif": ["DejaVu Sans"]}):
        picture.savefig(text, format="svg", metadata={"Date": None})
    shortened = re.sub(r' d="[^"]*"', lambda d: re.sub(r"\d+\.\d+", _tenths, d[0].replace("\n", "")), text.getvalue())
    path.write_text(shortened)


def _tenths(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}"
