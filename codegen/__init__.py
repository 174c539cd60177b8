"""Code generation: targets, lowering passes, the LLVM backend and the kernels it makes."""

from .build import build, dump, stage_names
from .cache import ObjectCache
from .export import ExportError
from .kernel import ArgumentError, Kernel, Timing
from .openmp import NoOpenMP
from .passes import lower, pass_names
from .report import Report
from .target import Target

__all__ = [
    "ArgumentError", "ExportError", "Kernel", "NoOpenMP", "ObjectCache", "Report", "Target", "Timing", "build", "dump", "lower",
    "pass_names", "stage_names",
]  # fmt: skip
