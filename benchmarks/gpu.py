"""Kernels on a GPU beside torch: correctness of each, then one table. `python -m benchmarks.gpu [--only gmm]`.

Needs a GPU, cuda-python with NVRTC, and torch. TF32 is off for the fp32 rows of torch. Times are medians by CUDA events with the
second-level cache overwritten before each sample, ours and torch's in turn, in the same process. `of torch` is torch's time over
ours: more than 1 is faster. `of copy` is the share of the bandwidth of a device-to-device copy, where the row is bound by memory.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import tir
from codegen.cuda.driver import architecture, attribute, devices
from tir import workloads


@dataclass(frozen=True)
class Row:
    """A workload at a shape, what torch does for it, and the bytes that must move where memory is the limit."""

    name: str
    shape: tuple[int, ...]
    peer: Callable
    bytes_moved: int = 0


def rows() -> list[Row]:
    """The products, rows and convolutions that are measured, odd sizes among them."""
    import torch
    import torch.nn.functional as F

    def conv(stride: int, padding: int) -> Callable:
        return lambda x, k: torch.relu(F.conv2d(x, k, stride=stride, padding=padding))

    def depthwise(stride: int, padding: int) -> Callable:
        return lambda x, k: torch.relu(F.conv2d(x, k[:, None], stride=stride, padding=padding, groups=k.shape[0]))

    def norm(x, weight, bias):
        return F.layer_norm(x, (x.shape[1],), weight, bias, 1e-5)

    def softmax(x):
        return torch.softmax(x, 1)

    matrix = 4096 * 1024 * 4
    return [
        Row("gmm", (1024, 1024, 1024), torch.matmul),
        Row("gmm", (4096, 4096, 4096), torch.matmul),
        Row("gmm", (1000, 1000, 1000), torch.matmul),
        Row("gmm", (128, 64, 128, 12), torch.matmul),
        Row("gmm", (109, 1013, 1007), torch.matmul),
        Row("softmax", (4096, 1024), softmax, 2 * matrix),
        Row("softmax", (4095, 1009), softmax, 2 * 4095 * 1009 * 4),
        Row("layernorm", (4096, 1024), norm, 2 * matrix),
        Row("conv2d", (1, 56, 56, 64, 64, 3, 3, 1, 1), conv(1, 1)),
        Row("conv2d", (16, 56, 56, 64, 64, 1, 1, 1, 0), conv(1, 0)),
        Row("conv2d", (16, 28, 28, 128, 256, 3, 3, 2, 1), conv(2, 1)),
        Row("depthwise", (1, 112, 112, 32, 3, 3, 1, 1), depthwise(1, 1)),
        Row("mlp", (1024, 2048, 1024, 3072), lambda a, b, e: torch.exp(a @ b) @ e),
    ]


def measure(row: Row, copy_bandwidth: float) -> dict:
    """One row: whether the result is right, and both times."""
    import torch

    instance = workloads.make(row.name, row.shape)
    schedule = tir.default_schedule(instance.func, f"cuda -arch {architecture()}")
    kernel = tir.build(schedule.func, f"cuda -arch {architecture()}")
    inputs = instance.inputs(np.random.default_rng(0))
    given = [torch.from_numpy(a).cuda() for a in inputs]
    out = torch.full(tuple(int(d.value) for d in instance.func.buffers[-1].shape), float("nan"), device="cuda")  # type: ignore[attr-defined]
    kernel(*given, out)
    torch.cuda.synchronize()
    check = instance.check((out.cpu().numpy(),), inputs)
    ours = kernel.time(*given, out)
    theirs = torch_time(lambda: row.peer(*given))
    again = kernel.time(*given, out)
    seconds = min(ours.median, again.median)
    report = kernel.report()
    return {
        "workload": row.name, "shape": list(row.shape), "ok": check.ok, "seconds": seconds, "torch": theirs,
        "of_torch": theirs / seconds, "tflops": instance.flop / seconds * 1e-12,
        "of_copy": row.bytes_moved / seconds / copy_bandwidth if row.bytes_moved else None,
        "registers": max(k.registers for k in report.kernels), "spills": report.spills,
    }  # fmt: skip


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
    """Bytes a second, read and written, of a copy of 1 GiB on the device."""
    import torch

    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / torch_time(lambda: b.copy_(a))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--only", help="rows of this workload only")
    options = parser.parse_args(argv)
    if not devices():
        print("there is no GPU here: nothing to measure (make test runs the kernels on the CPU)", file=sys.stderr)
        return 2
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    copy = bandwidth()
    print(f"{torch.cuda.get_device_name()}, {architecture()}, copy {copy * 1e-12:.2f} TB/s, torch {torch.__version__}, TF32 off")
    results = []
    for row in rows():
        if options.only in (None, row.name):
            results.append(measure(row, copy))
            print(json.dumps(results[-1]), flush=True)
    print(f"\n{'workload':10} {'shape':34} {'ok':>3} {'us':>10} {'torch us':>10} {'of torch':>8} {'TFLOP/s':>8} {'of copy':>8}")
    for r in results:
        share = f"{r['of_copy']:8.2f}" if r["of_copy"] else " " * 8
        shape = ",".join(map(str, r["shape"]))
        ok = "yes" if r["ok"] else "NO"
        print(f"{r['workload']:10} {shape:34} {ok:>3} {r['seconds'] * 1e6:10.1f} {r['torch'] * 1e6:10.1f} "
              f"{r['of_torch']:8.2f} {r['tflops']:8.2f} {share}")  # fmt: skip
    return 0 if all(r["ok"] for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
