"""A tensor compiler: the loop-nest IR, tensor expressions, and the front door to scheduling, building and tuning.

Everything below is imported when first used, so that `import tir` is quick and loads neither a compiler nor a learner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy_names import lazy_names

if TYPE_CHECKING:
    from codegen import Kernel, Target
    from codegen.build import build, dump
    from explorer import explore
    from graph import Graph, GraphError, compile, load, load_onnx, quantise, tune_graph
    from graph.torch import from_torch, torch_backend
    from schedule import IndexMap, Schedule, ScheduleError, TensorIntrin, replay
    from search import NothingFound, Records, autotune, best_schedule, default_schedule, tune_tasks
    from search.equivalence import equivalent
    from search.experiments.comparison import compare
    from search.experiments.study import study
    from search.jit import jit

    from . import analysis, dtypes, interpreter, ir, puzzles, script, te, traverse, workloads
    from . import tune as tune
    from .arith.simplify import simplify
    from .interpreter import run
    from .ir import Axis, Block, Buffer, Const, Expr, For, Kind, Node, PrimFunc, Stmt, Var
    from .script.diff import diff
    from .specialize import specialize
    from .structural import structural_equal
    from .verify import verify

__version__ = "0.1.0"

__all__ = [
    "Axis", "Block", "Buffer", "Const", "Expr", "For", "Graph", "GraphError", "IndexMap", "Kernel", "Kind", "Node",
    "NothingFound", "PrimFunc", "Records", "Schedule", "ScheduleError", "Stmt", "Target", "TensorIntrin", "Var",
    "analysis", "autotune", "best_schedule", "build", "compare", "compile", "default_schedule", "diff", "dtypes", "dump",
    "equivalent", "explore", "from_torch", "interpreter", "ir", "jit", "load", "load_onnx", "puzzles", "quantise", "replay",
    "run", "script", "simplify", "specialize", "structural_equal", "study", "te", "torch_backend", "traverse", "tune_graph",
    "tune_tasks", "verify", "workloads",
]  # fmt: skip

__getattr__ = lazy_names(__name__)
