"""Code generation: targets, lowering passes, backends (`llvm` for CPUs, `cuda` for NVIDIA GPUs), and the `runtime` of kernels.

Names are imported when first used, so that the runtime alone is loaded in milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tir.lazy_names import lazy_names

if TYPE_CHECKING:
    from .backend import BACKENDS, Backend, backend
    from .build import build, dump, lower, pass_names, stage_names
    from .cache import ObjectCache
    from .export import ExportError
    from .processor import UnsupportedProcessor
    from .report import Report
    from .runtime.arguments import ArgumentError
    from .runtime.kernel import Kernel
    from .runtime.openmp import NoOpenMP
    from .runtime.timing import Timing
    from .target import Target

__all__ = [
    "BACKENDS", "ArgumentError", "Backend", "ExportError", "Kernel", "NoOpenMP", "ObjectCache", "Report", "Target", "Timing",
    "UnsupportedProcessor", "backend", "build", "dump", "lower", "pass_names", "stage_names",
]  # fmt: skip

__getattr__ = lazy_names(__name__)
