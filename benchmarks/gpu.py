"""Kernels on a GPU beside torch: correctness of each, then one table. `python -m benchmarks.gpu [--only gmm]`.

Needs a GPU, cuda-python with NVRTC, and torch. Rows of float32 run with TF32 off in torch; those called tf32 use it in both.
Times are medians by CUDA events with the second-level cache overwritten before each sample, ours before and after torch's, in the
same process. `of torch` is torch's time over ours: more than 1 is faster. `of copy` is the share of the bandwidth of a
device-to-device copy, where the row is bound by memory. Each row has a process of its own: one that fails, hangs or poisons its
context loses itself alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import tir
from codegen.cuda.driver import architecture, attribute, devices
from schedule import library_cuda
from tir import te, workloads
from tir.ir import PrimFunc

BUDGET = 540.0  # seconds for all rows
LONGEST = 90.0  # seconds of one row
COPIED = 1 << 30  # bytes, to measure the bandwidth of a copy
MATRIX = 4096 * 1024 * 4


@dataclass(frozen=True)
class Row:
    """A workload at a shape, or a product of matrices (M, N, K) whose `name` is the type of its factors; `moved` the bytes that
    must move where memory is the limit."""

    name: str
    shape: tuple[int, ...]
    moved: int = 0


PRODUCTS = {"float16": "float16", "bfloat16": "bfloat16", "tf32": "float32", "float32": "float32"}  # results, by name
ROWS = (
    Row("gmm", (1024, 1024, 1024)), Row("gmm", (4096, 4096, 4096)), Row("gmm", (1000, 1000, 1000)),
    Row("gmm", (128, 64, 128, 12)), Row("gmm", (109, 1013, 1007)), Row("float32", (256, 256, 32768)),
    Row("float16", (4096, 4096, 4096)),
    Row("float16", (1024, 1024, 1024)), Row("float16", (1000, 1000, 1000)), Row("float16", (256, 256, 32768)),
    Row("bfloat16", (4096, 4096, 4096)), Row("tf32", (4096, 4096, 4096)), Row("softmax", (4096, 1024), 2 * MATRIX),
    Row("softmax", (4095, 1009), 2 * 4095 * 1009 * 4), Row("layernorm", (4096, 1024), 2 * MATRIX),
    Row("conv2d", (1, 56, 56, 64, 64, 3, 3, 1, 1)), Row("conv2d", (16, 56, 56, 64, 64, 1, 1, 1, 0)),
    Row("conv2d", (16, 28, 28, 128, 256, 3, 3, 2, 1)), Row("depthwise", (1, 112, 112, 32, 3, 3, 1, 1)),
    Row("mlp", (1024, 2048, 1024, 3072)),
)  # fmt: skip


def product(name: str, M: int, N: int, K: int) -> PrimFunc:
    """A product of matrices, summed in float32."""
    factor, result = ("float32" if name == "tf32" else name), PRODUCTS[name]
    A, B = te.placeholder((M, K), factor, name="A"), te.placeholder((K, N), factor, name="B")
    k = te.reduce_axis((0, K), name="k")
    if factor == "float32":
        return te.create_prim_func([A, B, te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k].astype("float32") * B[k, j].astype("float32"), axis=k), name="C")
    return te.create_prim_func([A, B, te.compute((M, N), lambda i, j: C[i, j].astype(result), name="D")])


def peer(row: Row) -> Callable:
    """What torch does for a workload."""
    import torch
    import torch.nn.functional as F

    stride, padding = row.shape[-2:]
    return {
        "gmm": torch.matmul,
        "softmax": lambda x: torch.softmax(x, 1),
        "layernorm": lambda x, weight, bias: F.layer_norm(x, (x.shape[1],), weight, bias, 1e-5),
        "conv2d": lambda x, k: torch.relu(F.conv2d(x, k, stride=stride, padding=padding)),
        "depthwise": lambda x, k: torch.relu(F.conv2d(x, k[:, None], stride=stride, padding=padding, groups=k.shape[0])),
        "mlp": lambda a, b, e: torch.exp(a @ b) @ e,
    }.get(row.name, torch.matmul)


def measure(row: Row) -> dict:
    """One row: whether the result is right, and both times."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = row.name == "tf32"
    arch, call = architecture(), peer(row)
    if row.name in PRODUCTS:
        M, N, K = row.shape
        func, flop = product(row.name, M, N, K), 2 * M * N * K
        generator = torch.Generator("cuda").manual_seed(0)
        dtype = getattr(torch, func.buffers[0].dtype)
        given = [torch.randn(shape, generator=generator, device="cuda").to(dtype) for shape in ((M, K), (K, N))]
        out = torch.full((M, N), float("nan"), device="cuda", dtype=getattr(torch, func.buffers[-1].dtype))
        kernel = tir.build(library_cuda.schedule(func, arch, tf32=row.name == "tf32").func, f"cuda -arch {arch}")
    else:
        instance = workloads.make(row.name, row.shape)
        func, flop = instance.func, instance.flop
        inputs = instance.inputs(np.random.default_rng(0))
        given = [torch.from_numpy(a).cuda() for a in inputs]
        out = torch.full(tuple(int(d.value) for d in func.buffers[-1].shape), float("nan"), device="cuda")  # type: ignore[attr-defined]
        kernel = tir.build(tir.default_schedule(func, f"cuda -arch {arch}").func, f"cuda -arch {arch}")
    kernel(*given, out)
    torch.cuda.synchronize()
    if row.name in (*PRODUCTS, "gmm"):
        ok = product_right(row.name, given, out)
    else:
        ok = bool(instance.check((out.cpu().numpy(),), inputs).ok)
    first = kernel.time(*given, out).median
    theirs = torch_time(lambda: call(*given))
    seconds = min(first, kernel.time(*given, out).median)
    report = kernel.report()
    copied = bandwidth() if row.moved else 0.0
    return {
        "ok": ok, "seconds": seconds, "torch": theirs, "of_torch": theirs / seconds, "tflops": flop / seconds * 1e-12,
        "of_copy": row.moved / seconds / copied if copied else None, "registers": max(k.registers for k in report.kernels),
        "spills": report.spills,
    }  # fmt: skip


def product_right(name: str, given, out) -> bool:
    """Whether each element is within its bound: the sum's K eps sum |a| |b|, the factors' rounding by tf32, and the result's."""
    import torch

    a, b = (x.double() for x in given)
    scale, exact = a.abs() @ b.abs(), a @ b
    bound = a.shape[-1] * 2.0**-23 * scale + (2 * 2.0**-11 * scale if name == "tf32" else 0)
    bound += {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(out.dtype, 0.0) * exact.abs() + 1e-30
    return bool(((out.double() - exact).abs() <= bound).all())


def torch_time(call: Callable, runs: int = 20) -> float:
    """The median of a call of torch, the cache overwritten before each."""
    import torch

    scratch = torch.empty(2 * attribute("L2_CACHE_SIZE"), dtype=torch.uint8, device="cuda")
    for _ in range(3):
        call()
    samples = []
    for _ in range(runs):
        scratch.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e-3)
    return float(np.median(samples))


def bandwidth() -> float:
    """Bytes a second, read and written, of a copy on the device."""
    import torch

    a = torch.empty(COPIED, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / torch_time(lambda: b.copy_(a))


def attempt(number: int, seconds: float) -> dict:
    """A row in a process of its own: what it measured, or what went wrong."""
    row = ROWS[number]
    head = {"workload": row.name, "shape": list(row.shape)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.gpu", "--row", str(number)],
            capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return head | {"ok": False, "error": f"no result within {seconds:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return head | {"ok": False, "error": f"ended with code {done.returncode}: {last[:200]}"}
    return head | json.loads(lines[-1])


def table(results: list[dict]) -> str:
    head = f"{'workload':10} {'shape':34} {'ok':>3} {'us':>10} {'torch us':>10} {'of torch':>8} {'TFLOP/s':>8} {'of copy':>8}"
    lines = [f"{head} {'regs':>4} {'spills':>6}"]
    for r in results:
        start = f"{r['workload']:10} {','.join(map(str, r['shape'])):34} {'yes' if r['ok'] else 'NO':>3}"
        if "error" in r:
            lines.append(f"{start} {r['error']}")
            continue
        share = f"{r['of_copy']:8.2f}" if r["of_copy"] else " " * 8
        times = f"{r['seconds'] * 1e6:10.1f} {r['torch'] * 1e6:10.1f} {r['of_torch']:8.2f} {r['tflops']:8.2f}"
        lines.append(f"{start} {times} {share} {r['registers']:4} {r['spills']:6}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--only", help="rows of this name only")
    parser.add_argument("--row", type=int, help="one row, by number, in this process; the last line of output is JSON")
    options = parser.parse_args(argv)
    if not devices():
        print("there is no GPU here: nothing to measure (make test runs the kernels on the CPU)", file=sys.stderr)
        return 2
    if options.row is not None:
        print(json.dumps(measure(ROWS[options.row])))
        return 0
    import torch

    print(f"{torch.cuda.get_device_name()}, {architecture()}, torch {torch.__version__}; TF32 is off but in rows called tf32")
    end, results = time.monotonic() + BUDGET, []
    for number, row in enumerate(ROWS):
        if options.only in (None, row.name):
            left = end - time.monotonic()
            if left < 5:
                results.append({"workload": row.name, "shape": list(row.shape), "ok": False, "error": "no time was left"})
            else:
                results.append(attempt(number, min(LONGEST, left)))
            print(json.dumps(results[-1]), flush=True)
    print(f"\n{table(results)}")
    return 0 if all(r["ok"] for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
