"""Code generation: targets, lowering passes, and the kernels that the backends make: `llvm` for CPUs, `cuda` for NVIDIA GPUs."""

from .backend import BACKENDS, Backend, backend
from .build import build, dump, lower, pass_names, stage_names
from .cache import ObjectCache
from .export import ExportError
from .kernel import ArgumentError, Kernel
from .openmp import NoOpenMP
from .processor import UnsupportedProcessor
from .report import Report
from .target import Target
from .timing import Timing

__all__ = [
    "BACKENDS", "ArgumentError", "Backend", "ExportError", "Kernel", "NoOpenMP", "ObjectCache", "Report", "Target", "Timing",
    "UnsupportedProcessor", "backend", "build", "dump", "lower", "pass_names", "stage_names",
]  # fmt: skip
