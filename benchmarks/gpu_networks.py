"""Networks on a GPU by a model, without a GPU: `python -m benchmarks.gpu_networks NET.onnx ... [--precision float16]`.

A row is a network at the sizes of its file: calls of fused functions on a processor and on the GPU, functions that differ,
launches a call, the bytes that all kernels touch at least, and an estimate of the time. The estimate is a roofline (Williams,
Waterman and Patterson, CACM 2009): a kernel takes the longer of its bytes at the bandwidth of memory and of its operations on
the SMs that its blocks occupy, after a launch. Nothing is measured.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from math import ceil, prod
from pathlib import Path

import tir
from costmodel.gpu_model import LAUNCH_CLOCKS, MMA_CLOCKS
from costmodel.loopnest import Statement, program
from graph import compilation, device
from graph.fusion import fuse
from graph.ir import Graph
from schedule.machine import GPU, WARP_SCHEDULERS_PER_SM, product
from search.compilation import scheduled
from tir.ir import PrimFunc
from tir.ir.nodes import annotation
from tir.memory import SCOPES
from tir.traverse import blocks, loops

# Clocks of a tensor core for 16 rows, 8 columns and 16 steps of a product of a warpgroup: H100's data sheet.
WARPGROUP_CLOCKS = 4.0


@dataclass(frozen=True)
class KernelEstimate:
    """The bytes that a kernel touches, and its clocks without a launch."""

    nbytes: float
    clocks: float


@dataclass(frozen=True)
class NetworkEstimate:
    """Counts of a network on a GPU, `nbytes` and `seconds` of a call, and the part of these that launches take."""

    name: str
    processor: int
    calls: int
    kernels: int
    launches: int
    nbytes: float
    seconds: float
    launching: float

    def row(self) -> str:
        counts = (self.name, self.processor, self.calls, self.kernels, self.launches)
        times = (f"{self.nbytes / 1e6:.1f}", f"{1e3 * self.seconds:.2f}", f"{1e3 * self.launching:.2f}")
        return f"| {' | '.join(map(str, (*counts, *times)))} |"


HEAD = (
    "| network | calls on a processor | calls | kernels | launches a call | MB | estimated ms | of these launches |\n"
    + "|---" * 8
    + "|"
)


def core_rates(func: PrimFunc) -> dict[str, float]:
    """Multiply-adds a clock of an SM, of the blocks that tensor cores compute."""
    found = {}
    for loop in loops(func):
        name = annotation(loop.annotations, "instruction", "")
        if m := re.match(r"(wg)?mma_m\d+n8k(\d+)_(?!f32_f32|f64)", name):
            clocks = WARPGROUP_CLOCKS if m[1] else MMA_CLOCKS
            found |= {b.name: 16 * 8 * int(m[2]) * WARP_SCHEDULERS_PER_SM / clocks for b in blocks(loop)}
    return found


def kernels(func: PrimFunc, gpu: GPU) -> Iterator[KernelEstimate]:
    """The kernels of a scheduled function: each is the statements in one outermost loop."""
    rates, globals_ = core_rates(func), {b.name for b in (*func.buffers, *func.allocs) if b.scope == SCOPES[0]}

    def kernel(s: Statement) -> str:
        return s.loops[0].name if s.loops else s.block

    for _, group in groupby(program(func).statements, kernel):
        statements, touched, clocks, lanes = [*group], dict[str, float](), 0.0, 1.0
        grid = max(prod(x.extent for x in s.loops if x.thread.startswith("blockIdx")) for s in statements)
        for s in statements:
            touched |= {a.buffer: float(prod(a.shape) * a.nbytes) for a in s.accesses if a.buffer in globals_}
            count = float(prod(x.extent for x in s.loops))
            own = prod(x.extent for x in s.loops if x.thread.startswith("threadIdx"))
            lanes = max(lanes, min(1.0, own / gpu.lanes))
            if s.block in rates:
                clocks += count / rates[s.block]
            else:
                clocks += max(count * sum(s.operations.values()) / 2, count / 4) / gpu.lanes / min(1.0, own / gpu.lanes)
        nbytes = sum(touched.values())
        yield KernelEstimate(nbytes, max(nbytes / gpu.memory, clocks / grid * ceil(grid / gpu.sms)))


def estimate(name: str, graph: Graph, target: tir.Target, precision: compilation.Precision | None = None) -> NetworkEstimate:
    gpu, clock = target.machine_as(GPU), 1e6 * product(target.arch).clock

    @cache
    def estimates(func: PrimFunc) -> tuple[KernelEstimate, ...]:
        return tuple(kernels(scheduled(func, target, None).func, gpu))

    groups = fuse(device.final(graph, target, precision=precision), halves=True)
    processor = len(fuse(compilation.final(graph, tir.Target("llvm"), precision=None if precision == "tf32" else precision)))
    found = [k for g in groups for k in estimates(g.func)]
    launching = LAUNCH_CLOCKS * len(found) / clock
    seconds = sum(k.clocks for k in found) / clock + launching
    counts = processor, len(groups), len({g.func for g in groups}), len(found)
    return NetworkEstimate(name, *counts, sum(k.nbytes for k in found), seconds, launching)


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("networks", nargs="+", type=Path, metavar="NET.onnx")
    p.add_argument("--arch", default="sm_90")
    p.add_argument("--precision", default=None)
    args = p.parse_args(argv)
    print(HEAD)
    for path in args.networks:
        print(estimate(path.stem, tir.load_onnx(path), tir.Target("cuda", arch=args.arch), args.precision).row(), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
