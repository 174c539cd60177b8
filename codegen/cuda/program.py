"""Functions lowered to GPU kernels and the statements of the host that launch them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tir.ir import Buffer, Call, Const, Evaluate, PrimFunc, Stmt, Var
from tir.traverse import stores

from ..build import lower
from ..passes.compact_gpu_buffers import hoist_shared
from ..passes.free_variables import free_names
from ..passes.gpu_kernels import GPUKernel, map_kernels

LAUNCH = "launch"  # a call of the host: its argument is the number of the kernel


@dataclass(frozen=True)
class DeviceFunction(GPUKernel):
    """A kernel: global buffers, then scalars, on which `grid` may depend, and its buffers in `shared` memory."""

    params: tuple[Buffer | Var, ...]
    shared: tuple[Buffer, ...]

    @property
    def written(self) -> frozenset[str]:
        """The names of the buffers that the kernel writes."""
        return frozenset(s.buffer.name for s in stores(self.body))


@dataclass(frozen=True)
class Program:
    """A function for the GPU: statements of the host, in which `launch(n)` stands for kernel n, and the temporaries in global
    memory that live across kernels."""

    func: PrimFunc
    host: Stmt
    kernels: tuple[DeviceFunction, ...]
    temporaries: tuple[Buffer, ...]


def lower_cuda(func: PrimFunc, target) -> Program:
    """The kernels of a scheduled function. Raises GPUError for a schedule that a GPU does not support."""
    return replace(split_host_device(lower(func, target)), func=func)


def split_host_device(func: PrimFunc) -> Program:
    """The host's part and the kernels of a function after all passes."""
    kernels: list[DeviceFunction] = []
    known = [*(p for p in func.params if isinstance(p, Buffer)), *func.allocs]

    def launch(kernel: GPUKernel) -> Stmt:
        shared, body = hoist_shared(kernel.body)
        scalars, buffers = free_names(body)
        bound = {v.name for v in kernel.indices.values()}
        arrays = [b for b in known if b.name in buffers]
        free = [v for name, v in scalars.items() if name not in bound]
        params: tuple[Buffer | Var, ...] = (*arrays, *free)
        ranges = {name: kernel.ranges[name] for name in bound}
        kernels.append(DeviceFunction(**vars(kernel) | {"ranges": ranges, "body": body}, params=params, shared=shared))
        return Evaluate(Call(LAUNCH, (Const(len(kernels) - 1),), "int32"))

    host = map_kernels(func, launch, whole=True).body
    needed = {p.name for k in kernels for p in k.params}
    return Program(func, host, tuple(kernels), tuple(b for b in func.allocs if b.name in needed))
