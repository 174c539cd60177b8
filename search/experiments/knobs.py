"""Knobs: the single decisions of a row, for policies that decide one at a time (AutoTVM's word, NeurIPS 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen.target import Target

from ..population.mutate import canonical, sampled_again
from ..population.sample import sample
from ..space.sketch import Sketch


@dataclass(frozen=True, slots=True)
class Knob:
    """A decision of a sketch: the sizes of all levels of an axis, or a choice; it sets the `columns` of a row."""

    name: str
    columns: tuple[int, ...]


def knobs(sketch: Sketch) -> list[Knob]:
    """The knobs of a sketch: branches first, as they decide the other numbers in use, then axes, then other choices."""
    first = {b.column for b in sketch.branches}
    choices = sorted((c for c in sketch.choices if len(c.options) > 1), key=lambda c: c.column not in first)
    tiles = [Knob(f"{t.block}.{t.axis}", t.columns) for t in sketch.tiles if t.columns]
    branching = [Knob(c.name, (c.column,)) for c in choices if c.column in first]
    others = [Knob(c.name, (c.column,)) for c in choices if c.column not in first]
    return list({k.columns: k for k in (*branching, *tiles, *others)}.values())


def settings(sketch: Sketch, target: Target, knob: Knob, count: int, rng: np.random.Generator) -> np.ndarray:
    """At most `count` different settings of a knob: an (n, columns of the knob) matrix."""
    sampled = np.unique(sample(sketch, target, 4 * count, rng)[:, knob.columns], axis=0)
    return sampled[rng.permutation(len(sampled))[:count]]


@canonical
def with_knob_resampled(sketch: Sketch, target: Target, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The rows, each with one random knob sampled again."""
    return sampled_again(sketch, target, rows, [knob.columns for knob in knobs(sketch)], rng)
