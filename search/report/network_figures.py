"""The picture of a tuned network, drawn with matplotlib, which the extra `report` installs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .network import TaskTime

PIXELS_PER_INCH = 120
BLUE, GREY = "#2563a8", "#8a8a8a"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kernels",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def picture(tasks: Sequence[TaskTime], kind: str) -> bytes:
    """The times of a network's tasks before and after tuning: the content of a file of this kind, png or svg."""
    import matplotlib
    from matplotlib.figure import Figure

    content = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 1.0 + 0.3 * len(tasks)), layout="constrained")
        axes, heights = figure.add_subplot(), np.arange(len(tasks))[::-1]
        axes.barh(heights + 0.2, [1e3 * t.before for t in tasks], 0.36, color=GREY, label="default schedule")
        after = axes.barh(heights - 0.2, [1e3 * t.after for t in tasks], 0.36, color=BLUE, label="tuned")
        axes.bar_label(after, [t.gain for t in tasks], fontsize=7, padding=2)
        axes.set_yticks(heights, [t.title for t in tasks], fontsize=7)
        axes.set(xlabel="milliseconds in one call of the network")
        axes.grid(axis="y", visible=False)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, fontsize=8)
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(content, format=kind, dpi=PIXELS_PER_INCH, metadata=metadata)
    return content.getvalue()
