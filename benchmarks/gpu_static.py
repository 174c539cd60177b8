"""Signs of speed in the machine code of GPU kernels, without a GPU: `python -m benchmarks.gpu --static [--arch sm_90]`.

Each kernel of the library's schedules at performance sizes: registers, bytes that a thread spills, its stack, shared memory of a
block, blocks, waves of blocks on the SMs, the most threads of a warp that wait for one bank of shared memory, the sectors that a
request of global memory takes beyond its bytes, and the instruction by which tensor cores multiply. Registers and
spills are those of NVRTC's assembler. Waves follow from the occupancy by the CUDA C++ programming guide (hardware
multithreading). No time is estimated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import tir
from codegen.cuda import CudaKernel
from codegen.cuda.launch import launches
from schedule.machine import GPU
from schedule.templates import gpu
from tir import te, workloads
from tir.ir import PrimFunc
from tir.memory import WARP

SIZE = 4096  # rows, columns and steps of products
REGISTER_UNIT = 8  # registers of a thread come in so many
RESERVED_BYTES = 1024  # of shared memory, by the system, for each block
SCALE = 0.125  # of the scores of attention
SUMS = {
    "float16": "float32",
    "bfloat16": "float32",
    "tf32": "float32",
    "float32": "float32",
    "float64": "float64",
    "int8": "int32",
}


@dataclass(frozen=True)
class KernelSigns:
    """The signs of one kernel of a program. `waves` are its blocks by those that all SMs hold at once, `product` its first
    instruction of tensor cores."""

    program: str
    kernel: str
    threads: int
    registers: int
    spills: int
    stack: int
    shared: int
    blocks: int
    waves: float
    ways: int
    sectors: int
    product: str = ""


def product(dtype: str, a: str, b: str, size: int = SIZE) -> PrimFunc:
    """A product of square matrices, each as it is ("n") or transposed ("t")."""
    factor, total = ("float32" if dtype == "tf32" else dtype), SUMS[dtype]
    A, B = (te.placeholder((size, size), factor, name=name) for name in "AB")
    k = te.reduce_axis((0, size), name="k")

    def element(i, j):
        left, right = A[i, k] if a == "n" else A[k, i], B[k, j] if b == "n" else B[j, k]
        return te.sum(left * right if factor == total else left.astype(total) * right.astype(total), axis=k)

    attrs = {"tf32": True} if dtype == "tf32" else None
    return te.create_prim_func([A, B, te.compute((size, size), element, name="C", attrs=attrs)])


def transpose(size: int) -> PrimFunc:
    A = te.placeholder((size, size), name="A")
    return te.create_prim_func([A, te.compute((size, size), lambda i, j: A[j, i], name="B")])


def argmax(rows: int, columns: int) -> PrimFunc:
    X, k = te.placeholder((rows, columns), name="X"), te.reduce_axis((0, columns), name="k")

    def larger(a, b):
        return te.select(a[1] >= b[1], a[0], b[0]), te.select(a[1] >= b[1], a[1], b[1])

    reducer = te.comm_reducer(larger, lambda i, v: (te.const(-1, i), te.const(-1e30, v)), name="argmax")
    return te.create_prim_func([X, *te.compute((rows,), lambda i: reducer((k, X[i, k]), axis=k), name="M")])


def attention(
    dtype: str, queries: int, keys: int, width: int, heads: tuple[int, int] = (2, 2), causal: bool = False, batch: int = 1
) -> PrimFunc:
    """softmax(Q Kᵀ) V for heads of queries that share those of keys, in the type of sums in between; rounded to `dtype`."""
    many, few = heads
    Q = te.placeholder((batch, many, queries, width), dtype, name="Q")
    K, V = (te.placeholder((batch, few, keys, width), dtype, name=name) for name in "KV")
    k, r, t, j = te.reduce_axis((0, width), "k"), *(te.reduce_axis((0, keys), name) for name in "rtj")
    shape = (batch, many, queries, keys)

    def own(h):
        return h if many == few else h // (many // few)

    def wide(x):
        return x.astype(SUMS[dtype]) if dtype != SUMS[dtype] else x

    def score(b, h, i, n):
        return te.sum(wide(Q[b, h, i, k]) * wide(K[b, own(h), n, k]), axis=k)

    S = te.compute(shape, score, name="S")

    def masked(b, h, i, n):
        x = S[b, h, i, n] * SCALE
        return te.if_then_else(n <= i + (keys - queries), x, float("-inf")) if causal else x

    X = te.compute(shape, masked, name="X")
    top = te.compute(shape[:3], lambda b, h, i: te.max(X[b, h, i, r], axis=r), name="top")
    power = te.compute(shape, lambda b, h, i, n: te.exp(X[b, h, i, n] - top[b, h, i]), name="power")
    total = te.compute(shape[:3], lambda b, h, i: te.sum(power[b, h, i, t], axis=t), name="total")
    weights = te.compute(shape, lambda b, h, i, n: (power[b, h, i, n] / total[b, h, i]).astype(dtype), name="weights")

    def value(b, h, i, e):
        return te.sum(wide(weights[b, h, i, j]) * wide(V[b, own(h), j, e]), axis=j)

    Y = te.compute((batch, many, queries, width), value, name="Y")
    return te.create_prim_func([Q, K, V, te.compute((batch, many, queries, width), lambda *i: Y[i].astype(dtype), name="Z")])


def convolution(
    image: tuple[int, int, int, int],
    channels: int,
    window: int,
    stride: int,
    padding: int,
    dtype: str = "float16",
    rounded: bool = False,
) -> PrimFunc:
    """A convolution of an image (number, channels, height, width) to so many channels, channels first; `rounded` to their
    type."""
    N, C, H, W = image
    total = SUMS[dtype]
    X, F = te.placeholder(image, dtype, name="X"), te.placeholder((channels, C, window, window), dtype, name="F")

    def padded(n, c, h, w):
        inside = te.all(h >= padding, h < H + padding, w >= padding, w < W + padding)
        return te.if_then_else(inside, X[n, c, h - padding, w - padding], te.const(0, dtype))

    P = te.compute((N, C, H + 2 * padding, W + 2 * padding), padded, name="P") if padding else X
    c, r, q = (te.reduce_axis((0, n), name) for n, name in ((C, "c"), (window, "r"), (window, "q")))
    height, width = ((n + 2 * padding - window) // stride + 1 for n in (H, W))

    def element(n, o, h, w):
        pixel = P[n, c, h * stride + r, w * stride + q]
        return te.sum(pixel.astype(total) * F[o, c, r, q].astype(total), axis=[c, r, q])

    Y = te.compute((N, channels, height, width), element, name="Y")
    return te.create_prim_func([X, F, te.compute(Y.shape, lambda *at: Y[at].astype(dtype), name="Z") if rounded else Y])


def programs() -> Iterator[tuple[str, Callable[[], PrimFunc]]]:
    """The programs by name: products of all types and layouts, convolutions, rows, and moves."""
    for dtype in SUMS:
        for layout in ("nn", "nt", "tn", "tt"):
            yield f"{dtype} {layout} {SIZE}", lambda dtype=dtype, layout=layout: product(dtype, *layout)  # type: ignore[misc]
    for name, shape in (
        ("conv2d", (16, 56, 56, 64, 64, 3, 3, 1, 1)), ("conv2d_nhwc", (16, 56, 56, 64, 64, 3, 1, 1)),
        ("depthwise", (1, 112, 112, 32, 3, 3, 1, 1)), ("softmax", (4096, 1024)), ("softmax", (4096, 50257)),
        ("layernorm", (4096, 1024)), ("attention_weights", (1, 128, 12, 64)),
    ):  # fmt: skip
        text = f"{name} {'x'.join(map(str, shape))}"
        yield text, lambda name=name, shape=shape: workloads.make(name, shape).func  # type: ignore[misc]
    for dtype, width, causal in (("float16", 64, False), ("bfloat16", 128, True), ("float32", 64, True), ("float64", 64, False)):
        text = f"attention {dtype} 16x1024x{width}{' causal' if causal else ''}"
        yield text, lambda d=dtype, w=width, c=causal: attention(d, 1024, 1024, w, (16, 8), c)  # type: ignore[misc]
    yield "transpose 8192", lambda: transpose(8192)
    yield "argmax 4096x1024", lambda: argmax(4096, 1024)


def signs(name: str, func: PrimFunc, target: tir.Target) -> list[KernelSigns]:
    """The signs of the kernels of a function in the library's schedule."""
    machine = target.machine_as(GPU)
    kernel = tir.build(gpu.schedule(func, machine).func, target)
    assert isinstance(kernel, CudaKernel)
    report, found = kernel.report(), []
    texts = kernel.source.split("__global__")[1:]
    grids = {number: prod(grid) for number, grid, _ in launches(kernel.program, {})}
    for n, (k, threads, dynamic, ways, sectors) in enumerate(
        zip(report.kernels, report.threads, report.dynamic, report.ways, report.sectors, strict=True)
    ):
        shared = k.shared + dynamic
        resident = resident_blocks(machine, threads, k.registers, shared)
        spills = k.spill_stores + k.spill_loads
        waves = grids[n] / (resident * machine.sms)
        (core, *_) = [*re.findall(r"\b((?:wg)?mma_m\w+)[<(]", texts[n]), ""]
        found.append(
            KernelSigns(name, k.name, threads, k.registers, spills, k.stack, shared, grids[n], waves, ways, sectors, core)
        )
    return found


def resident_blocks(machine: GPU, threads: int, registers: int, shared: int) -> int:
    """The blocks that an SM holds at once."""
    warps = -(-threads // WARP)
    of_registers = machine.register_file // (-(-registers // REGISTER_UNIT) * REGISTER_UNIT * warps * WARP)
    of_shared = (machine.shared + RESERVED_BYTES) // (shared + RESERVED_BYTES)
    return max(1, min(machine.blocks, machine.warps // warps, of_registers, of_shared))


def table(rows: list[KernelSigns]) -> str:
    """The rows as a table of Markdown."""
    names = ("program", "threads", "registers", "spilled", "stack", "shared", "blocks", "waves", "ways", "sectors", "product")
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for r in rows:
        numbers = (r.threads, r.registers, r.spills, r.stack, r.shared, r.blocks, f"{r.waves:.2f}", r.ways, r.sectors)
        cells = (r.program, *numbers, r.product)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def print_signs(arch: str, only: str | None = None) -> int:
    """Print the table for an architecture; status 1 where a kernel spills."""
    rows: list[KernelSigns] = []
    for name, make in programs():
        if only is None or only in name:
            rows += signs(name, make(), tir.Target("cuda", arch=arch))
    print(table(rows))
    return 1 if any(r.spills for r in rows) else 0
