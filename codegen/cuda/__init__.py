"""The GPU backend: CUDA C from scheduled functions, compiled by NVRTC, launched through the CUDA driver."""

from __future__ import annotations

from typing import Any

from tir.ir import PrimFunc

from ..passes.gpu_kernels import GPUError
from .compile import CompileError
from .driver import DeviceArray, DeviceError
from .emit import cuda_source, emit
from .kernel import CudaKernel
from .kernel import build as _build
from .program import DeviceFunction, Program, lower_cuda


def build(func: PrimFunc, target: Any) -> CudaKernel:
    """Compile a scheduled function. Raises GPUError for a schedule without a meaning on a GPU, CompileError, ImportError."""
    program = lower_cuda(func, target)
    return _build(program, emit(program), target)


__all__ = [
    "CompileError", "CudaKernel", "DeviceArray", "DeviceError", "DeviceFunction", "GPUError", "Program", "build", "cuda_source",
    "emit", "lower_cuda",
]  # fmt: skip
