"""From a graph to a model: passes, groups, schedules, kernels, places in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import tir
from codegen import Target, backend
from search.keys import key
from tir.ir import PrimFunc

from .fusion import fuse
from .ir import Graph
from .memory import plan
from .model import Model
from .passes import optimize

NAME_DIGITS = 8  # of the hash that tells apart the kernels of one name in a network

if TYPE_CHECKING:
    from schedule import Schedule
    from search import Records


def compile(graph: Graph, target: str | Target = "llvm", *, records: str | Path | Records | None = None) -> Model:
    """The graph as kernels for `target`, a processor, that run one after the other.

    Each kernel has the fastest schedule that `records` (see `tir.autotune`) hold for it, and `tir.default_schedule` where they
    hold none. Raises TypeError for what is no Graph, GraphError for a malformed one, and what `tir.build` raises.
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"compile takes a Graph, such as tir.load_onnx gives, got {type(graph).__name__}")
    target = Target(target)
    if backend(target).device is not None:
        raise ValueError(f"networks are compiled for processors, target llvm, got {target.kind}")
    graph = optimize(graph)
    groups = fuse(graph)
    built: dict[PrimFunc, Any] = {}  # Kernels, as the target is a processor
    for func in dict.fromkeys(g.func for g in groups):
        scheduled = _schedule(func, target, records).func
        built[func] = tir.build(scheduled.with_(name=f"{func.name}_{key(func)[:NAME_DIGITS]}"), target)
    return Model(graph, groups, [built[g.func] for g in groups], plan(graph, groups), target)


def _schedule(func: PrimFunc, target: Target, records: str | Path | Records | None) -> Schedule:
    """The recorded schedule of a function, if there is one, else the default one."""
    from search import NoRecord

    if records is not None:
        try:
            return tir.best_schedule(func, target, records=records)
        except NoRecord:
            pass
    return tir.default_schedule(func, target)
