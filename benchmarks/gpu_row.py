"""One row of the benchmark of GPU kernels: a program scheduled, checked, and timed in turns with torch.

What depends on the device is behind `Device`; the tests have one that runs kernels on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import tir
from codegen.target import Target
from schedule.templates import gpu
from tir import te, workloads
from tir.ir import PrimFunc, const_shape

from .peers import torch_program

ROUNDS = 3  # of turns between ours and theirs
COPIED = 1 << 30  # bytes, to measure the bandwidth of a copy

PRODUCTS = {"float16": "float16", "bfloat16": "bfloat16", "tf32": "float32", "float32": "float32"}  # results, by name


@dataclass(frozen=True)
class Row:
    """A workload at a shape, or a product of matrices (M, N, K) whose `name` is the type of its factors.

    Scheduled by the library, or the best of so many `trials`. `moved` are the bytes of a row that memory limits. Hoped for:
    `goal` times torch's speed, `goal_copy` of the bandwidth of a copy.
    """

    name: str
    shape: tuple[int, ...]
    moved: int = 0
    trials: int = 0
    goal: float | None = None
    goal_copy: float | None = None

    @property
    def slug(self) -> str:
        """A name of files."""
        return "_".join(map(str, (self.name, *self.shape, *([self.trials] if self.trials else []))))

    @property
    def key(self) -> dict[str, Any]:
        return {"workload": self.name, "shape": list(self.shape), "trials": self.trials}


class Device(Protocol):
    """What rows are measured on. `torch` is the module, `tuning` what `tir.autotune` is told besides its budget."""

    target: Target
    torch: Any
    tuning: dict[str, Any]

    def put(self, tensor: Any) -> Any:
        """A tensor of the host, on the device."""

    def build(self, func: PrimFunc) -> Any:
        """A scheduled function as a kernel to call with tensors, that has `report()`."""

    def synchronize(self) -> None:
        """Wait for what runs, and raise what went wrong in it."""

    def ours(self, kernel: Any, tensors: Sequence[Any]) -> tuple[float, ...]:
        """Seconds of some calls of a kernel."""

    def theirs(self, call: Callable[[], Any]) -> tuple[float, ...]:
        """Seconds of some calls of a function of torch, timed in the same way."""


@dataclass
class Cuda:
    """The GPU here: times by CUDA events, with the second-level cache overwritten before each sample."""

    tuning: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import torch

        from codegen.cuda.driver import architecture

        self.torch, self.target = torch, Target("cuda", arch=architecture())

    def put(self, tensor: Any) -> Any:
        return tensor.cuda()

    def build(self, func: PrimFunc) -> Any:
        return tir.build(func, self.target)

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def ours(self, kernel: Any, tensors: Sequence[Any]) -> tuple[float, ...]:
        return kernel.time(*tensors, seconds=0.1, runs=10).samples

    def theirs(self, call: Callable[[], Any]) -> tuple[float, ...]:
        from codegen.cuda.driver import attribute

        scratch = self.torch.empty(2 * attribute("L2_CACHE_SIZE"), dtype=self.torch.uint8, device="cuda")
        for _ in range(3):
            call()
        samples: list[float] = []
        while len(samples) < 10 or (sum(samples) < 0.1 and len(samples) < 100):
            scratch.zero_()
            start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            samples.append(start.elapsed_time(end) * 1e-3)
        return tuple(samples)


def product(name: str, M: int, N: int, K: int) -> PrimFunc:
    """A product of matrices, summed in float32; that of tf32 says that its factors may be rounded to 10 bits of mantissa."""
    factor, result = ("float32" if name == "tf32" else name), PRODUCTS[name]
    A, B = te.placeholder((M, K), factor, name="A"), te.placeholder((K, N), factor, name="B")
    k = te.reduce_axis((0, K), name="k")
    if factor == "float32":
        attrs = {"tf32": True} if name == "tf32" else None
        C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C", attrs=attrs)
        return te.create_prim_func([A, B, C])
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k].astype("float32") * B[k, j].astype("float32"), axis=k), name="C")
    return te.create_prim_func([A, B, te.compute((M, N), lambda i, j: C[i, j].astype(result), name="D")])


def measure(
    row: Row, device: Device, records: Path | None = None, seconds: float | None = None, source: Path | None = None
) -> dict[str, Any]:
    """Whether the result of a row is right, and both times. A search takes at most `seconds`, and goes on from `records`; the
    CUDA C is written to `source` before it is compiled.

    torch computes as eager users have it, its convolutions by the fastest algorithm it finds (cudnn.benchmark), in the faster of
    two layouts where images have their channels last; TF32 is off but for the row called so.
    """
    torch = device.torch
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = row.name == "tf32"
    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)
    named = row.name not in PRODUCTS
    instance = workloads.make(row.name, row.shape) if named else None
    func = instance.func if instance is not None else product(row.name, *row.shape)
    scheduled, found = _scheduled(row, func, device, records, seconds)
    if source is not None:
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(tir.dump(scheduled, device.target))
    kernel = device.build(scheduled)

    rng = np.random.default_rng(0)
    if instance is not None:
        inputs = instance.inputs(rng)
        given = [device.put(torch.from_numpy(a)) for a in inputs]
    else:
        drawn = [torch.from_numpy(rng.standard_normal(const_shape(b), dtype=np.float32)) for b in func.buffers[:2]]
        given = [device.put(a.to(getattr(torch, b.dtype))) for a, b in zip(drawn, func.buffers, strict=False)]
    result = func.buffers[-1]
    out, other = (device.put(torch.full(const_shape(result), float("nan"), dtype=getattr(torch, result.dtype))) for _ in range(2))
    kernel(*given, out)
    device.synchronize()
    if instance is None or row.name == "gmm":
        ok = _product_right(torch, row.name, given, out)
    else:
        ok = bool(instance.check((out.cpu().numpy(),), inputs).ok)

    calls = _peers(torch, row, given, other)
    mine: list[float] = []
    theirs: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        mine += device.ours(kernel, [*given, out])
        for samples, call in zip(theirs, calls, strict=True):
            samples += device.theirs(call)
    ours, peer = float(np.median(mine)), min(float(np.median(samples)) for samples in theirs)
    flop = instance.flop if instance is not None else 2 * int(np.prod(row.shape))
    copied = _bandwidth(device) if row.moved else 0.0
    report = kernel.report()
    return {
        "ok": ok, "seconds": ours, "torch": peer, "of_torch": peer / ours, "tflops": flop / ours * 1e-12,
        "of_copy": row.moved / ours / copied if copied else None, "registers": max(k.registers for k in report.kernels),
        "spills": report.spills, **found,
    }  # fmt: skip


def _scheduled(
    row: Row, func: PrimFunc, device: Device, records: Path | None, seconds: float | None
) -> tuple[PrimFunc, dict[str, Any]]:
    """The scheduled function, and how it was found."""
    if not row.trials:
        tf32 = row.name == "tf32"
        return gpu.schedule(func, device.target.arch, tf32=tf32).func, {}
    from search.measure.reference import NamedWorkload

    workload = None if row.name in PRODUCTS else NamedWorkload(row.name, row.shape)
    result = tir.autotune(
        func, device.target, row.trials, seconds, records=records, workload=workload, **{"seed": 0, **device.tuning}
    )
    outcomes = {kind: n for kind, n in result.outcomes.items() if n}
    return result.schedule.func, {"outcomes": outcomes, "search": result.elapsed, "earlier": result.earlier}


def _peers(torch: Any, row: Row, given: list[Any], out: Any) -> list[Callable[[], Any]]:
    """What torch does for a row, in one or two ways."""
    if row.name in PRODUCTS:
        return [lambda: torch.matmul(*given, out=out)]
    call = torch_program(row.name, tuple(given), out, row.shape)
    assert call is not None, row.name
    if row.name != "conv_bn_relu":
        return [call]
    image, kernel, bias, scale, offset = given
    image, kernel = image.movedim(-1, 1).contiguous(), kernel.movedim((-1, -2), (0, 1)).contiguous()
    mean, variance = torch.zeros_like(bias), torch.ones_like(bias)
    stride, padding = row.shape[-2:]

    def channels_first() -> Any:
        convolved = torch.conv2d(image, kernel, bias, stride, padding)
        return torch.relu_(torch.nn.functional.batch_norm(convolved, mean, variance, scale, offset, eps=0.0))

    return [call, channels_first]


def _product_right(torch: Any, name: str, given: list[Any], out: Any) -> bool:
    """Whether each element is within its bound: the sum's K eps sum |a| |b|, the factors' rounding by tf32, and the result's."""
    a, b = (x.double() for x in given)
    scale, exact = a.abs() @ b.abs(), a @ b
    bound = a.shape[-1] * 2.0**-23 * scale + (2 * 2.0**-11 * scale if name == "tf32" else 0)
    bound += {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(out.dtype, 0.0) * exact.abs() + 1e-30
    return bool(((out.double() - exact).abs() <= bound).all())


def _bandwidth(device: Device) -> float:
    """Bytes a second, read and written, of a copy on the device."""
    a = device.put(device.torch.empty(COPIED, dtype=device.torch.uint8))
    b = device.torch.empty_like(a)
    return 2 * a.numel() / float(np.median(device.theirs(lambda: b.copy_(a))))
