"""Programs as NVRTC compiles them to PTX, run by the simulator as `emulation.py` runs their CUDA C."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen.cuda.emit import emit
from codegen.cuda.program import DeviceFunction, Program
from tests.codegen.cuda.emulation import Runnable
from tir import dtypes
from tir.ir import Buffer

from . import arithmetic
from .machine import SPACE_BITS, Machine, smallest_access
from .memory import Memory
from .text import parse

LANES = 4096  # that run at once, of one block or several


class Simulated(Runnable):
    """A program by its PTX, or another, to see that mistakes are caught."""

    def __init__(self, program: Program, ptx: str):
        super().__init__(program, emit(program))
        self.module = parse(ptx)

    def launch(self, kernel: DeviceFunction, grid, arrays, scalars, seed: int, blocks: Sequence[int]) -> None:
        arithmetic.RANDOM = np.random.default_rng(seed)
        cell = smallest_access(self.module)
        buffers: list[Memory] = []
        params: list[np.ndarray] = []
        for p in kernel.params:
            if isinstance(p, Buffer):
                buffers.append(Memory(p.name, arrays[p.name].nbytes, cell, data=arrays[p.name]))
                value = np.array(len(buffers) << SPACE_BITS, np.uint64)
            else:
                value = np.array(scalars[p.name], dtypes.storage(p.dtype))
            params.append(value.reshape(1).view(np.uint8).reshape(1, -1))
        dynamic = self.source.shared_bytes[self.program.kernels.index(kernel)]
        numbers = np.asarray(blocks if len(blocks) else range(int(np.prod(grid))))
        together = max(1, LANES // int(np.prod(kernel.block)))
        with np.errstate(all="ignore"):
            for first in range(0, len(numbers), together):
                some = numbers[first : first + together]
                Machine(self.module, buffers[:], grid, kernel.block, some, dynamic, cell).launch(kernel.name, params)
        for b, p in zip(buffers, (p for p in kernel.params if isinstance(p, Buffer)), strict=True):
            arrays[p.name].reshape(-1).view(np.uint8)[...] = b.data[: b.size]
