"""Curves of searches as pictures for notebooks and pages."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import log

import numpy as np

from codegen.timing import duration

COLOURS = ("#2563a8", "#d9822b", "#3a8f4d", "#b8362f", "#7a4fa3", "#8a8a8a")
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 320, 80, 40  # pixels of a plot, and of its margins


def plot(curves: Mapping[str, np.ndarray]) -> str:
    """Curves over trials as SVG: medians over the rows, bands from the least to the greatest, times on a logarithmic scale."""
    finite = [c[np.isfinite(c)] for c in curves.values()]
    values = np.concatenate(finite) if finite else np.array([])
    if not values.size:
        return ""
    low, high = log(values.min()) - 0.05, log(values.max()) + 0.05
    length = max(c.shape[1] for c in curves.values())

    def points(row: np.ndarray) -> list[str]:
        x = LEFT + (WIDTH - LEFT - 10) * np.arange(len(row)) / max(1, length - 1)
        return [
            f"{a:.1f},{10 + (HEIGHT - BOTTOM - 10) * (high - log(v)) / (high - low):.1f}"
            for a, v in zip(x, row, strict=True)
            if np.isfinite(v)
        ]

    parts = []
    for n, (label, rows) in enumerate(curves.items()):
        colour = COLOURS[n % len(COLOURS)]
        band = points(rows.min(0)) + points(rows.max(0))[::-1]
        parts.append(f'<polygon points="{" ".join(band)}" fill="{colour}" fill-opacity="0.15"/>')
        parts.append(
            f'<polyline points="{" ".join(points(np.median(rows, 0)))}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(
            f'<text x="{WIDTH - 10}" y="{22 + 15 * n}" text-anchor="end" font-size="12" fill="{colour}">{escape(label)}</text>'
        )
    for share in (0.0, 0.5, 1.0):
        y = 10 + (HEIGHT - BOTTOM - 10) * (1 - share)
        text = duration(float(np.exp(low + share * (high - low))), 3)
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.0f}" text-anchor="end" font-size="11" fill="#555">{text}</text>')
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
    parts.append(
        f'<text x="{WIDTH // 2}" y="{HEIGHT - 12}" text-anchor="middle" font-size="12" fill="#555">trial, of {length}</text>'
    )
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="best so far by trial">{"".join(parts)}</svg>'
