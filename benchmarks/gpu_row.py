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
from tir.empty import written_names
from tir.ir import Buffer, PrimFunc, const_shape

from . import gpu_static
from .peers import torch_program

ROUNDS = 3  # of turns between ours and theirs
COPIED = 1 << 30  # bytes, to measure the bandwidth of a copy

# Results of products by the types of factors; then what else is no workload: the first words of rows' names.
RESULTS = {
    **{dtype: dtype for dtype in ("float16", "bfloat16", "float32", "float64")},
    "tf32": "float32",
    "int8": "int32",
}
OTHERS = ("convolution", "attention", "transpose", "argmax")


@dataclass(frozen=True)
class Row:
    """A workload at a shape, or a product of matrices (M, N, K) whose `name` is the type of its factors, perhaps with their
    layout ("float16 nt"); or one of OTHERS, perhaps with a type, at the arguments of its
    function in `gpu_static` (attention: queries, keys, width and heads).

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
        return "_".join(map(str, (*self.name.split(), *self.shape, *([self.trials] if self.trials else []))))

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
    """A product of matrices, summed in float32 if they are narrower floats; that of tf32 says that its factors may be rounded
    to 10 bits of mantissa."""
    kind, layout = (*name.split(), "nn")[:2]
    factor, result = ("float32" if kind == "tf32" else kind), RESULTS[kind]
    total = "float32" if factor in ("float16", "bfloat16") else result
    A = te.placeholder((M, K) if layout[0] == "n" else (K, M), factor, name="A")
    B = te.placeholder((K, N) if layout[1] == "n" else (N, K), factor, name="B")
    k = te.reduce_axis((0, K), name="k")

    def element(i: Any, j: Any) -> Any:
        factors = A[i, k] if layout[0] == "n" else A[k, i], B[k, j] if layout[1] == "n" else B[j, k]
        left, right = factors if factor == total else (x.astype(total) for x in factors)
        return te.sum(left * right, axis=k)

    C = te.compute((M, N), element, name="C", attrs={"tf32": True} if kind == "tf32" else None)
    return te.create_prim_func(
        [A, B, C if total == result else te.compute((M, N), lambda i, j: C[i, j].astype(result), name="D")]
    )


def program(row: Row) -> PrimFunc:
    """The program of a row that is no workload."""
    kind, *dtype = row.name.split()
    match kind:
        case "convolution":
            return gpu_static.convolution(row.shape[:4], *row.shape[4:], *dtype, rounded=True)
        case "attention":
            return gpu_static.attention(*dtype, *row.shape[:3], heads=(row.shape[3], row.shape[3]))
        case "transpose" | "argmax":
            return getattr(gpu_static, kind)(*row.shape)
    return product(row.name, *row.shape)


def function(torch: Any, row: Row) -> Callable[..., Any]:
    """The function of torch for a row that is no workload."""
    kind, *layout = row.name.split()
    match kind:
        case "convolution":
            return lambda x, w: torch.conv2d(x, w, None, *row.shape[6:])
        case "attention":
            attend = torch.nn.functional.scaled_dot_product_attention
            return lambda q, k, v: attend(q, k, v, scale=gpu_static.SCALE)
        case "transpose":
            return lambda a: a.t().contiguous()
        case "argmax":
            return lambda x: torch.max(x, 1)
    left, right = (x == "t" for x in (*layout, "nn")[0])

    def multiply(a: Any, b: Any) -> Any:
        multiplied = torch._int_mm if a.dtype == torch.int8 else torch.matmul
        return multiplied(a.t() if left else a, b.t() if right else b)

    return multiply


def operations(row: Row, func: PrimFunc) -> int:
    """Multiplications and additions of a row that is no workload; none of what moves or compares."""
    kind, *_ = row.name.split()
    if kind in ("transpose", "argmax"):
        return 0
    if kind == "convolution":
        return 2 * int(np.prod([*const_shape(func.buffers[-1]), *const_shape(func.buffers[1])[1:]]))
    if kind == "attention":
        return 4 * int(np.prod(row.shape))
    return 2 * int(np.prod(row.shape))


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
    instance = workloads.make(row.name, row.shape) if is_workload(row) else None
    func = instance.func if instance is not None else program(row)
    scheduled, found = _scheduled(row, func, device, records, seconds)
    if source is not None:
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(tir.dump(scheduled, device.target))
    kernel = device.build(scheduled)

    rng = np.random.default_rng(0)
    outputs = [b for b in func.buffers if b.name in written_names(func)]
    if instance is not None:
        inputs = instance.inputs(rng)
        given = [device.put(torch.from_numpy(a)) for a in inputs]
    else:
        given = [device.put(drawn(torch, b, rng)) for b in func.buffers if b not in outputs]
    out, other = ([device.put(_undefined(torch, b)) for b in outputs] for _ in range(2))
    kernel(*given, *out)
    device.synchronize()
    if instance is None or row.name == "gmm":
        ok = _right(torch, row, given, out)
    else:
        ok = bool(instance.check((out[0].cpu().numpy(),), inputs).ok)

    calls = _peers(torch, row, given, other[0])
    mine: list[float] = []
    theirs: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        mine += device.ours(kernel, [*given, *out])
        for samples, call in zip(theirs, calls, strict=True):
            samples += device.theirs(call)
    ours, peer = float(np.median(mine)), min(float(np.median(samples)) for samples in theirs)
    flop = instance.flop if instance is not None else operations(row, func)
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

    workload = NamedWorkload(row.name, row.shape) if is_workload(row) else None
    result = tir.autotune(
        func, device.target, row.trials, seconds, records=records, workload=workload, **{"seed": 0, **device.tuning}
    )
    outcomes = {kind: n for kind, n in result.outcomes.items() if n}
    return result.schedule.func, {"outcomes": outcomes, "search": result.elapsed, "earlier": result.earlier}


def _peers(torch: Any, row: Row, given: list[Any], out: Any) -> list[Callable[[], Any]]:
    """What torch does for a row, in one or two ways."""
    if not is_workload(row):
        return [lambda: function(torch, row)(*given)]
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


def is_workload(row: Row) -> bool:
    """True for a row of `tir.workloads`, whose reference is that workload's."""
    return row.name.split()[0] not in (*RESULTS, *OTHERS)


def drawn(torch: Any, buffer: Buffer, rng: np.random.Generator) -> Any:
    """Normal numbers, or bytes of any value, for an input."""
    shape = const_shape(buffer)
    if buffer.dtype == "int8":
        return torch.from_numpy(rng.integers(-128, 128, shape, dtype="int8"))
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(getattr(torch, buffer.dtype))


def _undefined(torch: Any, buffer: Buffer) -> Any:
    """A result before it is written: no numbers, or the least integers."""
    dtype = getattr(torch, buffer.dtype)
    return torch.full(const_shape(buffer), float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min, dtype=dtype)


def _right(torch: Any, row: Row, given: list[Any], out: list[Any]) -> bool:
    """True where each element is within its bound: that of its sum, n eps sum |a| |b|, and of roundings: of the factors by
    tf32, of attention's weights, of the result. What only moves or compares is exact."""
    kind, *_ = row.name.split()
    exact, wide = function(torch, row), [x.double() for x in given]
    if kind == "transpose":
        return bool(torch.equal(out[0], exact(*given)))
    if kind == "argmax":
        index, most = (x.long() if x.dtype == torch.int32 else x for x in out)
        return bool(torch.equal(most, exact(*given).values) and torch.equal(given[0].gather(1, index[:, None])[:, 0], most))
    (out,), unit = out, {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(out[0].dtype, 0.0)
    wanted = exact(*wide)
    if kind == "attention":
        q, k, v = wide
        score = (q.abs() @ k.abs().mT).amax() * gpu_static.SCALE
        scale = exact(q, k, v.abs())
        total = 2 * (q.shape[-1] + 2) * score + 2 * k.shape[-2]
        bound = (2 * unit + total * 2.0**-24) * scale + k.shape[-2] * 2.0**-24 * v.abs().amax()
    else:
        scale = exact(*(x.abs() for x in wide))
        steps = given[1][0].numel() if kind == "convolution" else row.shape[2]
        eps = {torch.int32: 0.0, torch.float64: 2.0**-52}.get(out.dtype, 2.0**-23)
        bound = steps * eps * scale + (2 * 2.0**-11 * scale if kind == "tf32" else 0) + unit * wanted.abs()
    return bool(((out.double() - wanted).abs() <= bound + 1e-30).all())


def _bandwidth(device: Device) -> float:
    """Bytes a second, read and written, of a copy on the device."""
    a = device.put(device.torch.empty(COPIED, dtype=device.torch.uint8))
    b = device.torch.empty_like(a)
    return 2 * a.numel() / float(np.median(device.theirs(lambda: b.copy_(a))))
