"""A builder whose CUDA kernels run on this processor: all of the search on a GPU but the device. Times are made of the grid alone."""

from __future__ import annotations

import statistics
from math import prod

from codegen.cuda import lower_cuda
from codegen.cuda.launch import launches
from codegen.runtime.timing import Timing
from codegen.target import Target
from search.measure.gpu_builder import schedule
from tests.codegen.cuda.emulation import emulate

__all__ = ["compile", "schedule"]

PROCESSORS = 132


class EmulatedKernel:
    """A kernel that is right as the emulation is, and takes as long as its waves of blocks, of which small ones are slow."""

    def __init__(self, program):
        (self._emulated,) = emulate(program)
        grids = [(prod(grid), prod(program.kernels[n].block)) for n, grid, _ in launches(program, {})]
        self._seconds = sum(1e-6 * -(-blocks // PROCESSORS) * (1 + 256 / threads) for blocks, threads in grids)

    def __call__(self, *arrays):
        self._emulated(*arrays)

    def clock(self, *arrays):
        return self._seconds

    def time(self, *arrays, seconds=0.1, runs=5, max_runs=100):
        samples = (self._seconds,) * max(1, runs)
        return Timing(statistics.median(samples), (self._seconds, self._seconds), len(samples), 1, samples)


def compile(func, target):
    return EmulatedKernel(lower_cuda(func, Target(target)))
