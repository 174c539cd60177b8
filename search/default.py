"""A good schedule without measuring anything."""

from __future__ import annotations

import numpy as np

from codegen.target import Target
from costmodel import TileModel
from schedule import Schedule, replay
from tir.ir import PrimFunc

from .geometry import machine, nests
from .sample import sample
from .sketch import Sketch
from .space import generate

TIE = 0.1  # of a score, the logarithm of a time
ROWS = 2048  # candidates that the formula chooses from, a sketch


def default_schedule(func: PrimFunc, target: str | Target = "llvm") -> Schedule:
    """The schedule of `func` that the tile model takes for the fastest: of all sketches, tile sizes included.

    Nothing is measured and nothing is random: the same function and target give the same schedule. Raises ValueError if an extent
    is symbolic.
    """
    target = Target(target)
    model = TileModel(machine(target))
    choices: list[tuple[float, Sketch, list[int]]] = []
    for sketch in generate(func, target):
        rows = sample(sketch, target, ROWS if sketch.columns else 1, np.random.default_rng(0))
        scores = model.score(nests(sketch), rows)
        top = int(np.argmax(scores))
        choices.append((float(scores[top]), sketch, rows[top].tolist()))
    # The model knows tiles, not what fusion saves: of sketches that it cannot tell apart, the first fuses most.
    best = max(score for score, _, _ in choices)
    sketch, row = next((sketch, row) for score, sketch, row in choices if score >= best - TIE)
    return replay(func, sketch.trace(row))
