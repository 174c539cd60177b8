"""Samples of a sketch, and the canonical form of rows; the `SearchBackend` of a target samples and legalizes tiles."""

from __future__ import annotations

import numpy as np

from codegen.target import Target

from ..backends import search_backend
from ..space.sketch import Sketch


def sample(sketch: Sketch, target: Target, n: int, rng: np.random.Generator) -> np.ndarray:
    """`n` random rows of a sketch, an (n, columns) int64 matrix: legal candidates in canonical form (`legalize`)."""
    rows = np.ones((n, sketch.columns), dtype=np.int64)
    for choice in sketch.choices:
        rows[:, choice.column] = rng.choice(choice.options, size=n, p=choice.weights or None)
    search_backend(target).sample_tiles(sketch, target, rows, rng)
    return legalize(sketch, target, rows)


def legalize(sketch: Sketch, target: Target, rows: np.ndarray) -> np.ndarray:
    """The rows in canonical form, a new matrix: rows of the same program, or of one that differs only in guards, become equal.
    Columns of branches that a row did not pick get their first value. The operation is idempotent."""
    rows = rows.copy()
    search_backend(target).legalize(sketch, target, rows)
    return rows
