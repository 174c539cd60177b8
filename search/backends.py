"""Properties of each kind of target for the search: one `SearchBackend` a kind, as `codegen.backend.Backend` for code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from codegen.passes.gpu_kernels import GPUError
from codegen.target import Target
from costmodel import CostModel, GPUModel, TileModel
from schedule import OpenSchedule, Schedule, Trace, templates
from schedule.machine import CPU, GPU
from schedule.templates.gpu import schedule as gpu_schedule
from tir.ir import PrimFunc
from tir.specialize import specialize

from .population import cpu as cpu_population
from .population import gpu as gpu_population
from .sizes import adapted
from .space.derivation import GPU_SPACES, SPACES, Space
from .space.sketch import Sketch


@dataclass(frozen=True)
class SearchBackend:
    """One kind of target.

    `spaces` are its search spaces by name, "full" among them. `sample_tiles` samples the tile sizes of rows, and `legalize`
    brings rows within the limits of the target and into canonical form, both in place. `prior` is the analytic cost model of a
    target, and `library` gives the schedule of a function by a template, or None; `decided`, with some decisions of its own.
    `adapted` gives the schedule of a function of open sizes by a trace for known sizes, which can be lowered for the target.
    """

    kind: str
    spaces: Mapping[str, Space]
    sample_tiles: Callable[[Sketch, Target, np.ndarray, np.random.Generator], None]
    legalize: Callable[[Sketch, Target, np.ndarray], None]
    prior: Callable[[Target], CostModel]
    library: Callable[[PrimFunc, Target], Schedule | None] = lambda func, target: None
    decided: Callable[[PrimFunc, Target, Mapping[str, Any]], OpenSchedule | None] = lambda func, target, decisions: None
    adapted: Callable[[PrimFunc, Target, Trace, Mapping[str, int]], Schedule] = lambda func, _, *known: adapted(func, *known)


def search_backend(target: str | Target) -> SearchBackend:
    """The record of a target's kind. ValueError for a kind without a search."""
    kind = (target if isinstance(target, Target) else Target(target)).kind
    if kind not in SEARCH_BACKENDS:
        raise ValueError(f"search is not supported for the target kind {kind}; expected one of {', '.join(SEARCH_BACKENDS)}")
    return SEARCH_BACKENDS[kind]


def _adapted_for_gpu(func: PrimFunc, target: Target, trace: Trace, sizes: Mapping[str, int]) -> Schedule:
    """The first that lowers with all loops bound: the steps of `trace`, or templates without tensor cores or shared sums."""
    from codegen.cuda import lower_cuda

    gpu = target.machine_as(GPU)
    for made in (lambda: trace, lambda: gpu_schedule(specialize(func, sizes), replace(gpu, modern=False)).trace):
        known = made()
        s = adapted(func, known, sizes)
        with suppress(GPUError):
            lower_cuda(s.func, target)
            if _binds(s.trace) == _binds(known):
                return s
    return gpu_schedule(func, gpu)


def _binds(trace: Trace) -> int:
    return sum(step.name == "bind" for step in trace)


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
            library=lambda func, target: gpu_schedule(func, target.machine_as(GPU)),
            adapted=_adapted_for_gpu,
        ),
    )
}
