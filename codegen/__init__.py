"""Code generation: targets, lowering passes, the LLVM backend and the kernels it makes."""

from .build import build, dump
from .kernel import ArgumentError, Kernel, Timing
from .passes import lower, pass_names
from .target import Target

__all__ = ["ArgumentError", "Kernel", "Target", "Timing", "build", "dump", "lower", "pass_names"]
