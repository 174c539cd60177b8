"""What benchmarks keep in a folder: results, the page that is made of all of them, and pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHADES = (
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf",
)  # fmt: skip


def remember(path: Path, key: str, result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Keep a result in a file of results, in place of an earlier one with the same key; returns all that the file holds."""
    from tir.files import write_atomically

    known = json.loads(path.read_text()) if path.exists() else {}
    known[key] = result
    write_atomically(path, json.dumps(known, indent=1, allow_nan=False) + "\n")
    return known


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown; every column but the first is set to the right."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def circumstances(results: Sequence[dict[str, Any]]) -> str:
    """On what machine, and at which commits, results were measured: a sentence."""
    machines = dict.fromkeys(f"{r['machine']['processor']} ({r['machine']['mcpu']})" for r in results)
    commits = dict.fromkeys(r["commit"] for r in results)
    return f"On {' and '.join(machines)}, commit {', '.join(commits)}."


def figure(width: float, height: float) -> Figure | None:
    """An empty figure of so many inches; None where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    return Figure(figsize=(width, height), layout="constrained")


def draw(picture: Figure, path: Path) -> None:
    """Write a figure to an SVG file: text as text, and the same file for the same figure."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem}):
        picture.savefig(path, metadata={"Date": None})
