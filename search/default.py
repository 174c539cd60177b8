"""A good schedule without measuring anything."""

from __future__ import annotations

import numpy as np

from codegen.target import Target
from costmodel import TileModel
from schedule import Schedule, replay
from tir.ir import PrimFunc

from .geometry import machine, nests
from .sample import sample
from .space import generate

ROWS = 2048  # candidates that the formula chooses from, a sketch


def default_schedule(func: PrimFunc, target: str | Target = "llvm") -> Schedule:
    """The schedule of `func` that the tile model takes for the fastest: of all sketches, tile sizes included.

    Nothing is measured and nothing is random: the same function and target give the same schedule. Raises ValueError if an extent
    is symbolic.
    """
    target = Target(target)
    model = TileModel(machine(target))
    best: tuple[float, object, np.ndarray] | None = None
    for sketch in generate(func, target):
        rows = sample(sketch, target, ROWS if sketch.columns else 1, np.random.default_rng(0))
        scores = model.score(nests(sketch), rows)
        top = int(np.argmax(scores))
        if best is None or scores[top] > best[0]:  # the first sketch fuses most, so it wins ties
            best = (float(scores[top]), sketch, rows[top])
    assert best is not None, "generate() always gives a sketch"
    _, sketch, row = best
    return replay(func, sketch.trace(row.tolist()))  # type: ignore[attr-defined]
