"""`generate`, once in a process for the tests that look at the same space of the same function."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from codegen.target import Target
from search.space import derivation, generation
from search.space.rules import Rule
from search.space.sketch import Sketch
from tir.ir import PrimFunc


@functools.cache
def generate(
    func: PrimFunc,
    target: Target,
    rules: Sequence[Rule] | None = None,
    space: str = "full",
    max_sketches: int = derivation.MAX_SKETCHES,
) -> tuple[Sketch, ...]:
    return tuple(generation.generate(func, target, rules, space, max_sketches))
