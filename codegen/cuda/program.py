"""Functions lowered to GPU kernels and the statements of the host that launch them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tir.affine import Interval
from tir.analysis.regions import extent_range
from tir.ir import Buffer, Const, Expr, For, Let, PrimFunc, Stmt, Var
from tir.memory import SHARED
from tir.simplify import simplify, simplify_tree
from tir.traverse import stores, substitute, walk, walk_stmts

from ..passes import simplify_all
from ..passes.gpu_buffers import first_places, fold_gaps, hoist_shared, local_buffers, place_local, place_shared
from ..passes.gpu_fragments import fragments
from ..passes.gpu_kernels import AXES, GPUError, Nest, distribute, divide, interleave, strip, used
from ..passes.gpu_pipeline import pipeline, settle
from ..passes.gpu_reduce import cross_thread
from ..passes.gpu_sync import barriers
from ..passes.lower_blocks import lower_blocks
from ..passes.unroll import unroll


@dataclass(frozen=True)
class DeviceFunction:
    """One kernel: `params` are buffers in global memory and then scalars; `grid` may depend on the scalars.

    `indices` maps "blockIdx.x", ... to the variables of the body; `shared` lists its buffers in shared memory;
    `resident` blocks shall fit a multiprocessor at once.
    """

    name: str
    params: tuple[Buffer | Var, ...]
    grid: tuple[Expr, Expr, Expr]
    block: tuple[int, int, int]
    indices: dict[str, Var]
    shared: tuple[Buffer, ...]
    body: Stmt
    resident: int = 1

    @property
    def written(self) -> frozenset[str]:
        """The names of the buffers that the kernel writes."""
        return frozenset(s.buffer.name for s in stores(self.body))

    def ranges(self) -> dict[str, Interval]:
        """The ranges of the blocks' and threads' variables."""
        return _ranges(self.grid, self.block, self.indices)


@dataclass(frozen=True)
class Program:
    """A function for the GPU: statements of the host, in which `launch(n)` stands for kernel n, and the temporaries in global
    memory that live from one kernel to another."""

    func: PrimFunc
    host: Stmt
    kernels: tuple[DeviceFunction, ...]
    temporaries: tuple[Buffer, ...]


def lower_cuda(func: PrimFunc, target) -> Program:
    """The kernels of a scheduled function. Raises GPUError for a schedule that has no meaning on a GPU."""
    lowered = simplify_all(lower_blocks(cross_thread(func), target), target)
    host, nests = divide(lowered)
    known = [p for p in lowered.params if isinstance(p, Buffer)] + [b for b in lowered.allocs if b.scope == "global"]
    outer = {s.name: extent_range(s.extent) for s in walk_stmts(host) if isinstance(s, For)}
    kernels = tuple(_device(n, lowered, known, outer, target) for n in nests)
    seen: dict[str, str] = {}
    for n, k in zip(nests, kernels, strict=True):
        for b in used(n.body).values():
            if b.scope != "global" and seen.setdefault(b.name, k.name) != k.name:
                raise GPUError(f"`{b.name}` in {b.scope} memory is used by two kernels, {seen[b.name]} and {k.name}; keep it in "
                               "global memory, or move its producer into the loops of its consumer (compute_at)")  # fmt: skip
    needed = {p.name for k in kernels for p in k.params}
    temporaries = tuple(b for b in lowered.allocs if b.scope == "global" and b.name in needed)
    return Program(func, host, kernels, temporaries)


def _ranges(grid, block, indices) -> dict[str, Interval]:
    ranges: dict[str, Interval] = {}
    for a, blocks, threads in zip(AXES, grid, block, strict=True):
        ranges[indices[f"blockIdx.{a}"].name] = extent_range(blocks)
        ranges[indices[f"threadIdx.{a}"].name] = (0, threads - 1)
    return ranges


def _device(nest: Nest, func: PrimFunc, known: list[Buffer], outer: dict[str, Interval], target) -> DeviceFunction:
    ranges = {**outer, **_ranges(nest.grid, nest.block, nest.axes)}
    # An axis of one thread or block has no variable.
    single = {v.name: Const(0) for v in nest.axes.values() if ranges[v.name] == (0, 0)}
    body = first_places(distribute(interleave(nest.body)))
    body = place_shared(nest, body, func, ranges)
    threaded = body = pipeline(body)
    arch = int(re.findall(r"\d+", target.arch)[0])
    body = settle(barriers(nest, body, ranges), arch >= 80)
    body = strip(nest, body)
    body = place_local(nest, threaded, body, ranges)
    body = fragments(nest, body, ranges, arch)
    body = simplify_tree(substitute(body, single), ranges)  # type: ignore[assignment]
    body = fold_gaps(body, local_buffers(body), ranges)
    body = unroll(func.with_(body=body), target).body
    shared, body = hoist_shared(body)
    buffers = used(body)
    free = _free(body, set(ranges) - set(outer))
    params = tuple(b for b in known if b.name in buffers) + tuple(free)
    strange = [b for b in buffers.values() if b.scope not in (*SHARED, "local", "global")]
    if strange:
        raise GPUError(f"`{strange[0].name}` is in memory `{strange[0].scope}`, which a GPU has not; use shared or local")
    grid = tuple(simplify(g) for g in nest.grid)
    return DeviceFunction(nest.name, params, grid, nest.block, nest.axes, shared, body, nest.resident)  # type: ignore[arg-type]


def _free(body: Stmt, bound: set[str]) -> list[Var]:
    """The variables that a kernel takes as arguments: symbolic sizes and loops of the host."""
    inside = bound | {s.var.name for s in walk_stmts(body) if isinstance(s, (For, Let))}
    found = {n.name: n for n in walk(body) if type(n) is Var and n.name not in inside}
    return list(found.values())
