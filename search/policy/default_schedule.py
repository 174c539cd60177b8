"""The default schedule of a function: templates at their seeds, else the best sketch by the analytic model."""

from __future__ import annotations

import numpy as np

from codegen.target import Target
from schedule import Schedule, ScheduleError, replay
from tir.empty import has_empty, without_empty
from tir.ir import PrimFunc, need_func
from tir.notices import degraded
from tir.specialize import specialize
from tir.traverse import blocks

from ..backends import search_backend
from ..population.programs import sketch_programs
from ..population.sample import sample
from ..sizes import Sizes, combinations
from ..space import annotation
from ..space.derivation import MAX_LISTED_BLOCKS, Space
from ..space.generation import generate
from ..space.rules import DEFAULT
from ..space.sketch import Sketch

SCORE_TIE = 0.1  # difference of scores, logarithms of times, that the model cannot resolve
SAMPLED_ROWS = 2048  # of each sketch, among which the model chooses
FEW_CHOICES = Space("few", DEFAULT, annotation.annotate_in_place)


def default_schedule(func: PrimFunc, target: str | Target = "llvm", *, sizes: Sizes | None = None) -> Schedule:
    """The schedule of the template library for `func` if it knows its patterns, else the best by the analytic cost model.

    The model compares all sketches at sampled tile sizes. Marks and annotations of loops are removed first, which the trace
    shows. A function of open sizes (`te.var`) takes the steps for the largest of `sizes`, as `{"n": 512}`, as far as they are
    legal for all sizes (`search.sizes`).

    Nothing is measured and nothing is random: the same function and target give the same schedule. Raises ValueError for a
    symbolic extent that no parameter defines.
    """
    func, target = need_func(func, "default_schedule"), Target(target)
    if sizes is not None or func.sizes:
        row = max(combinations(func, sizes), key=lambda row: sum(row.values()))
        return search_backend(target).adapted(func, target, default_schedule(specialize(func, row), target).trace, row)
    if has_empty(func) and not blocks(without_empty(func)):
        nothing = Schedule(func)
        nothing.drop_empty()
        return nothing
    known = search_backend(target).library(func, target)
    return known if known is not None else constructed(func, target)


def constructed(func: PrimFunc, target: Target) -> Schedule:
    """The best sketch of `func` and its best tile sizes, by the analytic model. For a large function only the first sketches
    count, with stages where the rules put them and operands read in place."""
    model = search_backend(target).prior(target)
    choices: list[tuple[float, Sketch, list[int]]] = []
    stages = len(blocks(func))
    sketches = (
        generate(func, target)
        if stages <= MAX_LISTED_BLOCKS
        else generate(func, target, space=FEW_CHOICES, max_sketches=max(1, 1000 // stages**2))
    )
    for sketch in sketches:
        rows = sample(sketch, target, SAMPLED_ROWS if sketch.columns else 1, np.random.default_rng(0))
        scores = model.score(sketch_programs(sketch), rows)
        top = int(np.argmax(scores))
        choices.append((float(scores[top]), sketch, rows[top].tolist()))
    # The model sees tiles, not the savings of fusion: of sketches within SCORE_TIE, the first fuses most.
    best = max(score for score, _, _ in choices)
    choices.sort(key=lambda choice: (choice[0] < best - SCORE_TIE, -choice[0] if choice[0] < best - SCORE_TIE else 0.0))
    for _, sketch, row in choices:
        try:
            return replay(func, sketch.trace(row))
        except ScheduleError:  # a step can be refused with these numbers, as where a tile does not divide
            continue
    degraded(f"default_schedule({func.name}): no sketch of it is legal at the numbers that were tried; it runs as it is written")
    return Schedule(func)
