"""From a graph to a model: passes, groups, schedules, kernels, places in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import tir
from codegen import Kernel, ObjectCache, Target, backend
from codegen.cache import users_cache
from search.records import opened
from tir.ir import PrimFunc

from .fusion import fuse
from .ir import Graph
from .kernels import compiled, looked_up, scheduled
from .memory import plan
from .model import Model
from .passes import optimize
from .passes.winograd import fastest, filter_minimally
from .prepare import filled, prepared

if TYPE_CHECKING:
    from codegen.cuda import CudaKernel
    from search import Records

Cache = ObjectCache | Literal["user"] | None


@overload
def compile(
    graph: Graph,
    target: str | Target = "llvm",
    *,
    records: str | Path | Records | None = None,
    cache: Cache = "user",
    winograd: bool = True,
) -> Model: ...
@overload
def compile(
    graph: PrimFunc, target: str | Target = "llvm", *, records: str | Path | Records | None = None, cache: Cache = "user"
) -> Kernel | CudaKernel: ...


def compile(graph, target="llvm", *, records=None, cache="user", winograd=True):
    """A network as one native function for `target`, a processor; or a function, not yet scheduled, as a kernel for any target.

    Each kernel has the fastest schedule that `records` (see `tir.autotune`) hold for it, and `tir.default_schedule` where they
    hold none; where they are of another target or processor, the warning NearHit says so. Kernels of networks that were compiled
    before are taken from `cache`: that of the user, another one, or None for none. Without `winograd`, all convolutions of a
    network are computed directly (see `passes.winograd`). Raises TypeError for what is no Graph or PrimFunc, GraphError for a
    malformed graph, RecordsError for a file that cannot be used, and what `tir.build` raises.
    """
    target = Target(target)
    objects = users_cache() if cache == "user" else cache
    with opened(records) as known:
        match graph:
            case PrimFunc():
                return tir.build(scheduled(graph, target, looked_up(graph, target, known)).func, target, cache=objects)
            case Graph():
                if backend(target).device is not None:
                    raise ValueError(f"networks are compiled for processors, target llvm, got {target.kind}")
                graph = optimize(graph)
                return assembled(filter_minimally(graph, fastest(target)) if winograd else graph, target, known, objects)
    raise TypeError(f"compile takes a Graph, such as tir.load_onnx gives, or a PrimFunc, got {type(graph).__name__}")


def assembled(graph: Graph, target: Target, records: Records | None, cache: ObjectCache | None) -> Model:
    """A graph as it is, after all passes, as one native function."""
    groups = fuse(graph)
    found = compiled((g.func for g in groups), target, records, cache)
    kernels = [found[g.func] for g in groups]
    groups, preparations = prepared(graph, groups, kernels)
    layout = plan(graph, groups)
    graph, weights = filled(graph, layout, preparations)
    return Model(graph, groups, kernels, layout, weights, target)
