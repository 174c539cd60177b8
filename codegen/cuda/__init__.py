"""The GPU backend: CUDA C from scheduled functions, compiled by NVRTC, launched through the CUDA driver."""

from __future__ import annotations

from typing import Any

from tir.ir import PrimFunc

from ..passes.gpu_kernels import GPUError
from .compile import CompileError, compile_cubin
from .driver import DeviceArray, DeviceError
from .emit import cuda_source, emit
from .kernel import CudaKernel
from .program import DeviceFunction, Program, lower_cuda


def build(func: PrimFunc, target: Any, cache: Any = None) -> CudaKernel:
    """Compile a scheduled function. Raises GPUError for a schedule that a GPU does not support, CompileError, ImportError."""
    program = lower_cuda(func, target)
    source = emit(program)
    return CudaKernel(
        program, source, compile_cubin(source.text, target.arch, fast_math=target.fast_math, lines=source.lines), target
    )


__all__ = [
    "CompileError", "CudaKernel", "DeviceArray", "DeviceError", "DeviceFunction", "GPUError", "Program", "build", "cuda_source",
    "emit", "lower_cuda",
]  # fmt: skip
