"""Kernels for a GPU, built in a worker, and run on arrays of the host.

NVRTC compiles in the worker processes, in parallel. Arrays are copied to the device at a call, and stay there for its timing.
Times are those of CUDA events; the second-level cache is overwritten before each call. An error that poisons the CUDA context
ends the worker (`search.measure.worker`).
"""

from __future__ import annotations

import numpy as np

from codegen.build import build
from codegen.cuda import CudaKernel
from codegen.cuda.compile import available
from codegen.cuda.driver import DeviceArray, architecture, attribute, synchronize
from codegen.runtime.timing import Timing
from codegen.target import Target
from schedule.machine import GPU
from tir.ir import PrimFunc

from .builder import schedule

__all__ = ["DeviceKernel", "compile", "peak", "schedule", "warm_up"]


class DeviceKernel:
    """A CUDA kernel that takes numpy arrays; results are copied back."""

    def __init__(self, kernel: CudaKernel):
        self._kernel = kernel
        self._device: list[DeviceArray] = []
        self._held: list[np.ndarray] = []

    def __call__(self, *arrays: np.ndarray) -> None:
        given = self._given(arrays, fresh=True)
        self._kernel(*given)
        synchronize()
        for array, copy in zip(arrays, given, strict=True):
            np.copyto(array, copy.numpy())

    def clock(self, *arrays: np.ndarray) -> float:
        """Seconds of one call on the device, without copies."""
        return self._kernel.time(*self._given(arrays), seconds=0.0, runs=1, max_runs=1).median

    def time(self, *arrays: np.ndarray, seconds: float = 0.1, runs: int = 5, max_runs: int = 100) -> Timing:
        """Time calls on the device, as `CudaKernel.time` does."""
        return self._kernel.time(*self._given(arrays), seconds=seconds, runs=runs, max_runs=max_runs)

    def _given(self, arrays: tuple[np.ndarray, ...], fresh: bool = False) -> list[DeviceArray]:
        """The arrays on the device: copied now, or the copies of the last call of the same arrays."""
        same = len(self._held) == len(arrays) and all(a is b for a, b in zip(self._held, arrays, strict=True))
        if fresh or not same:
            self._device, self._held = [], list(arrays)
            self._device = [DeviceArray.of(a) for a in arrays]
        return self._device


def compile(func: PrimFunc, target: str) -> DeviceKernel:
    """The program as CUDA kernels for the target's architecture."""
    return DeviceKernel(build(func, Target(target)))  # type: ignore[arg-type]


def peak(dtype: str) -> float | None:
    """Floating-point operations a second of the device, a multiply-add a clock on each float32 core; None for other types."""
    if dtype != "float32":
        return None
    cores = attribute("MULTIPROCESSOR_COUNT") * GPU.of(architecture()).lanes
    return 2.0 * cores * attribute("CLOCK_RATE") * 1e3


def warm_up(target: str) -> None:
    """Load the compiler, so that the first candidate's build time excludes it."""
    if missing := available():
        raise ImportError(missing)
    Target(target)
