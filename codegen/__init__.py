"""Code generation: targets, lowering passes, backends (`llvm` for CPUs, `cuda` for NVIDIA GPUs), and the `runtime` of kernels."""

from .backend import BACKENDS, Backend, backend
from .build import build, dump, lower, pass_names, stage_names
from .cache import ObjectCache
from .export import ExportError
from .processor import UnsupportedProcessor
from .report import Report
from .runtime.kernel import ArgumentError, Kernel
from .runtime.openmp import NoOpenMP
from .runtime.timing import Timing
from .target import Target

__all__ = [
    "BACKENDS", "ArgumentError", "Backend", "ExportError", "Kernel", "NoOpenMP", "ObjectCache", "Report", "Target", "Timing",
    "UnsupportedProcessor", "backend", "build", "dump", "lower", "pass_names", "stage_names",
]  # fmt: skip
