"""Curves of searches as pictures for notebooks and pages."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import numpy as np

from codegen.runtime.timing import duration

from .svg import COLOURS, Chart


def plot(curves: Mapping[str, np.ndarray]) -> str:
    """Curves over trials as SVG: medians over the rows, bands from the least to the greatest, times on a logarithmic scale."""
    finite = [c[np.isfinite(c)] for c in curves.values()]
    values = np.concatenate(finite) if finite else np.array([])
    if not values.size:
        return ""
    length = max(c.shape[1] for c in curves.values())
    chart = Chart(
        760, 320, "best so far by trial", (1, length), (0.95 * values.min(), 1.05 * values.max()), f"trial, of {length}", "",
        log_y=True, whole_x=True, y_text=duration,
    )  # fmt: skip
    for colour, (label, rows) in zip(cycle(COLOURS), curves.items(), strict=False):
        median, low, high = (
            [(float(n), float(v)) for n, v in enumerate(row, 1) if np.isfinite(v)]
            for row in (np.median(rows, 0), rows.min(0), rows.max(0))
        )
        chart.band(low, high, colour)
        chart.line(median, colour)
        chart.named(colour, label)
    return chart.svg()
