"""Properties of each kind of target for the search: one `SearchBackend` a kind, as `codegen.backend.Backend` for code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.target import Target
from costmodel import CostModel, GPUModel, TileModel
from schedule import OpenSchedule, Schedule, templates
from schedule.machine import CPU, GPU
from schedule.templates.gpu import schedule as gpu_schedule
from tir.ir import PrimFunc

from .population import cpu as cpu_population
from .population import gpu as gpu_population
from .space.derivation import GPU_SPACES, SPACES, Space
from .space.sketch import Sketch


@dataclass(frozen=True)
class SearchBackend:
    """One kind of target.

    `spaces` are its search spaces by name, "full" among them. `sample_tiles` samples the tile sizes of rows, and `legalize`
    brings rows within the limits of the target and into canonical form, both in place. `prior` is the analytic cost model of a
    target, and `library` gives the schedule of a function by a template, or None; `decided`, with some decisions of its own.
    """

    kind: str
    spaces: Mapping[str, Space]
    sample_tiles: Callable[[Sketch, Target, np.ndarray, np.random.Generator], None]
    legalize: Callable[[Sketch, Target, np.ndarray], None]
    prior: Callable[[Target], CostModel]
    library: Callable[[PrimFunc, Target], Schedule | None] = lambda func, target: None
    decided: Callable[[PrimFunc, Target, Mapping[str, Any]], OpenSchedule | None] = lambda func, target, decisions: None


def search_backend(target: str | Target) -> SearchBackend:
    """The record of a target's kind. ValueError for a kind without a search."""
    kind = (target if isinstance(target, Target) else Target(target)).kind
    if kind not in SEARCH_BACKENDS:
        raise ValueError(f"search is not supported for the target kind {kind}; expected one of {', '.join(SEARCH_BACKENDS)}")
    return SEARCH_BACKENDS[kind]


SEARCH_BACKENDS: dict[str, SearchBackend] = {
    b.kind: b
    for b in (
        SearchBackend(
            "llvm",
            spaces=SPACES,
            sample_tiles=cpu_population.sample_tiles,
            legalize=cpu_population.legalize,
            prior=lambda target: TileModel(target.machine_as(CPU)),
            library=templates.schedule,
            decided=templates.decided,
        ),
        SearchBackend(
            "cuda",
            spaces=GPU_SPACES,
            sample_tiles=gpu_population.sample_tiles,
            legalize=gpu_population.legalize,
            prior=lambda target: GPUModel(target.machine_as(GPU)),
            library=lambda func, target: gpu_schedule(func, target.arch),
        ),
    )
}
