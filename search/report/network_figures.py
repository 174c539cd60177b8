"""The pictures of the report of a network, drawn with matplotlib, which the extra `report` installs."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .network import TaskTime

PIXELS_PER_INCH = 120
BLUE, ORANGE, GREY = "#2563a8", "#d9822b", "#8a8a8a"
STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


@contextmanager
def _svg_figure(width: float, height: float, label: str) -> Iterator[tuple[Axes, Callable[[], str]]]:
    """The axes of a new figure, and a function that returns its SVG at the end. `label` is the text for screen readers."""
    content = io.BytesIO()
    with _figure(width, height, label, content, "svg") as axes:
        yield axes, lambda: _svg(content.getvalue().decode(), label)


@contextmanager
def _figure(width: float, height: float, label: str, content: io.BytesIO, kind: str) -> Iterator[Axes]:
    """The axes of a new figure, which is written to `content` at the end as a file of this kind."""
    import matplotlib
    from matplotlib.figure import Figure

    # Names within an SVG are hashes; each figure has its own salt, so that names in one page differ.
    style: dict[Any, Any] = {**STYLE, "svg.hashsalt": label}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure.add_subplot()
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(content, format=kind, dpi=PIXELS_PER_INCH, metadata=metadata)


def _svg(text: str, label: str) -> str:
    svg = text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    # Names that nothing refers to are removed: they are the same in every figure.
    return re.sub(r' id="([^"]*)"', lambda name: name[0] if f"#{name[1]}" in svg else "", svg)


def _legend(axes: Axes) -> None:
    """Put the legend above the axes."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=5, fontsize=8, borderaxespad=0.2, handletextpad=0.4, columnspacing=1.2
    )


def bars(tasks: Sequence[TaskTime], kind: str = "page") -> Any:
    """The times of a network's tasks before and after tuning: an SVG element for a page, or a file of this kind."""
    content = io.BytesIO()
    label = "seconds by kernel, before and after tuning"
    with _figure(9.0, 1.0 + 0.3 * len(tasks), label, content, "svg" if kind == "page" else kind) as axes:
        places = np.arange(len(tasks))[::-1]
        axes.barh(places + 0.2, [1e3 * t.before for t in tasks], 0.36, color=GREY, label="default schedule")
        after = axes.barh(places - 0.2, [1e3 * t.after for t in tasks], 0.36, color=BLUE, label="tuned")
        gains = [f"{t.before / t.after:.2f} ×" if t.after < t.before else "" for t in tasks]
        axes.bar_label(after, gains, fontsize=7, padding=2)
        axes.set_yticks(places, [f"{t.label}  ({t.calls})" if t.calls > 1 else t.label for t in tasks], fontsize=7)
        axes.set(xlabel="milliseconds in one call of the network")
        axes.grid(axis="y", visible=False)
        _legend(axes)
    return _svg(content.getvalue().decode(), label) if kind == "page" else content.getvalue()


def latency(curve: Sequence[tuple[float, float]], elapsed: float) -> str:
    """The estimated time of a network, by the seconds of the run."""
    with _svg_figure(7.2, 2.8, "time of the network by seconds of the run") as (axes, svg):
        times, seconds = zip(*curve, (elapsed, curve[-1][1]), strict=True) if curve else ((), ())
        axes.step(times, [1e3 * s for s in seconds], where="post", color=ORANGE)
        axes.set(xlabel="seconds", ylabel="milliseconds", ylim=(0, None))
    return svg()
