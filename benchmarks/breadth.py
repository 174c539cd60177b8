"""The default schedule beside numpy and torch, on many small programs of all kinds: products of odd forms, reductions, copies.

It is there to find kinds of programs for which the default schedule is slow. Peers are given the same formula, `peer`, where they
compute it without large temporaries. Results are compared with the formula in float64, or int64, before anything is timed. The
shapes of the rows `drawn-...` are drawn with `--seed`, so that none of them was chosen.
On one thread, each program is also timed without a schedule: `of_written` says how many times faster than that the default
schedule is, which should never be less than 1; and in the equal ways to write it of `wordings`: `slower`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import tir
from tir import te
from tir.ir import PrimFunc, const_shape

from . import pages, peers, programs
from .options import Options
from .runner import Effort, circumstances, race, ratios, warm
from .wordings import wordings

THREADED = True

TOLERANCE = 1e-4  # of the largest element; sums of 100,000 terms of both signs are off by a tenth of that
BFLOAT16_TOLERANCE = 2.0**-8  # of the largest element, which is rounded to eight bits

Shape = tuple[int, ...]


class Program(NamedTuple):
    """A function of arrays of `shapes` and one dtype, whose result has that of `result`, if named: `build` makes its tensor
    expression, `peer` what numpy and torch do, or torch's function `torch`, of the second array transposed if `across`; those in
    `timed` are timed. `workload` has its name and sizes, if it is one."""

    shapes: tuple[Shape, ...]
    build: Callable[..., te.Tensor]
    peer: Callable[..., Any]
    dtype: str = "float32"
    timed: tuple[str, ...] = ("numpy", "torch")
    result: str = ""
    torch: str = ""
    across: bool = False
    workload: tuple[str, Shape] | None = None

    def func(self) -> PrimFunc:
        """The program in our IR."""
        if self.workload is not None:
            return tir.workloads.make(*self.workload, self.dtype).func
        placeholders = [te.placeholder(s, self.dtype, name=f"X{n}") for n, s in enumerate(self.shapes)]
        return te.create_prim_func([*placeholders, self.build(*placeholders)], name="f")


def _product(M: int, N: int, K: int, left: str = "ik", right: str = "kj", dtype: str = "float32") -> Program:
    """A matrix product; `left` and `right` name the dimensions of the operands in their order."""
    size = {"i": M, "j": N, "k": K}

    def build(A: te.Tensor, B: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, K), name="k")

        def term(i: Any, j: Any) -> Any:
            at = {"i": i, "j": j, "k": k}
            return A[tuple(at[c] for c in left)] * B[tuple(at[c] for c in right)]

        return te.compute((M, N), lambda i, j: te.sum(term(i, j), axis=k), name="C")

    def peer(a: Any, b: Any) -> Any:
        return (a if left == "ik" else a.T) @ (b if right == "kj" else b.T)

    shapes = tuple(tuple(size[c] for c in operand) for operand in (left, right))
    return Program(shapes, build, peer, dtype)


def _narrow_product(M: int, N: int, K: int, dtype: str, total: str, result: str, torch: str, right: str = "kj") -> Program:
    """A matrix product of narrow numbers, which are added up as `total`, and rounded to `result`."""

    def build(A: te.Tensor, B: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, K), name="k")

        def term(i: Any, j: Any) -> Any:
            return A[i, k].astype(total) * B[(k, j) if right == "kj" else (j, k)].astype(total)

        C = te.compute((M, N), lambda i, j: te.sum(term(i, j), axis=k), name="C")
        return C if result == total else te.compute((M, N), lambda i, j: C[i, j].astype(result), name="D")

    def peer(a: Any, b: Any) -> Any:
        return a @ (b if right == "kj" else b.T)

    across = right == "jk"
    return Program(((M, K), (N, K) if across else (K, N)), build, peer, dtype, ("torch",), result, torch, across)


def _batched_product(B: int, M: int, N: int, K: int, dtype: str) -> Program:
    """A matrix product for each of a batch; of bfloat16 it adds up as float32."""
    total = "float32" if dtype == "bfloat16" else dtype

    def build(X: te.Tensor, Y: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, K), name="k")

        def term(b: Any, i: Any, j: Any) -> Any:
            return X[b, i, k].astype(total) * Y[b, k, j].astype(total)

        C = te.compute((B, M, N), lambda b, i, j: te.sum(term(b, i, j), axis=k), name="C")
        return C if dtype == total else te.compute((B, M, N), lambda b, i, j: C[b, i, j].astype(dtype), name="D")

    timed = ("torch",) if dtype == "bfloat16" else ("numpy", "torch")
    return Program(((B, M, K), (B, K, N)), build, lambda x, y: x @ y, dtype, timed, "", "bmm" if dtype == "bfloat16" else "")


def _pairs(M: int, N: int, K: int, reduce: Callable[..., Any], pair: Callable[..., Any], peer: Callable[..., Any]) -> Program:
    """A reduction over k of what `pair` makes of A[i, k] and B[j, k]; `peer` has all pairs in memory, so that it is not timed."""

    def build(A: te.Tensor, B: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, K), name="k")
        return te.compute((M, N), lambda i, j: reduce(pair(A[i, k], B[j, k]), axis=k), name="C")

    return Program(((M, K), (N, K)), build, peer, timed=())


def _reduction(shape: Shape, axis: int, reduce: Callable[..., Any], name: str) -> Program:
    def build(X: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, shape[axis]), name="k")
        return te.compute(shape[:axis] + shape[axis + 1 :], lambda *i: reduce(X[(*i[:axis], k, *i[axis:])], axis=k), name="Y")

    return Program((shape,), build, lambda x: getattr(x, name)(axis))


def _permutation(shape: Shape, order: Shape, dtype: str = "float32") -> Program:
    def build(X: te.Tensor) -> te.Tensor:
        place = [order.index(n) for n in range(len(shape))]
        return te.compute(tuple(shape[n] for n in order), lambda *i: X[tuple(i[n] for n in place)], name="Y")

    return Program((shape,), build, lambda x: x.transpose(order) if isinstance(x, np.ndarray) else x.permute(order), dtype)


def _concatenation(A: te.Tensor, B: te.Tensor) -> te.Tensor:
    (rows, first), (_, second) = (A.shape, B.shape)
    return te.compute((rows, first + second), lambda i, j: te.if_then_else(j < first, A[i, j], B[i, j - first]), name="Y")


def _joined(a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray):
        return np.concatenate([a, b], 1)
    import torch

    return torch.cat([a, b], 1)


def _rows_product(B: int, M: int, K: int) -> Program:
    """A matrix times a vector, for each of a batch."""

    def build(X: te.Tensor, V: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, K), name="k")
        return te.compute((B, M), lambda b, i: te.sum(X[b, i, k] * V[b, k], axis=k), name="Y")

    return Program(((B, M, K), (B, K)), build, lambda x, v: (x @ v[:, :, None])[:, :, 0])


PROGRAMS: dict[str, Program] = {
    "product": _product(512, 512, 512),
    "product-across": _product(512, 512, 512, right="jk"),
    "product-float64": _product(512, 512, 512, dtype="float64"),
    "product-int32": _product(256, 256, 256, dtype="int32"),
    "product-int8": _narrow_product(1024, 1024, 1024, "int8", "int32", "int32", "_int_mm"),
    "product-bfloat16": _narrow_product(1024, 1024, 1024, "bfloat16", "float32", "bfloat16", "mm"),
    "tall": _product(50000, 32, 32),
    "outer": _product(1000, 1000, 4),
    "inner": _product(16, 16, 100000),
    "one-row": _product(1, 4096, 4096),
    "one-row-across": _product(1, 4096, 4096, right="jk"),
    "one-column": _product(4096, 1, 4096),
    "two-rows-across": _product(2, 4096, 1024, right="jk"),
    "four-rows-across": _product(4, 4096, 1024, right="jk"),
    "sixteen-rows-across": _product(16, 4096, 1024, right="jk"),
    "three-columns": _product(4096, 3, 1024),
    "batch-of-vectors": _rows_product(64, 256, 256),
    "distances": _pairs(1000, 1000, 32, te.sum, lambda a, b: (a - b) * (a - b), lambda a, b: ((a[:, None] - b) ** 2).sum(-1)),
    "least-sums": _pairs(256, 256, 256, te.min, lambda a, b: a + b, lambda a, b: (a[:, None] + b).min(-1)),
    "sum-of-rows": _reduction((4096, 1024), 1, te.sum, "sum"),
    "sum-of-columns": _reduction((4096, 1024), 0, te.sum, "sum"),
    "sum-of-few-columns": _reduction((100000, 32), 0, te.sum, "sum"),
    "sum-of-short-rows": _reduction((100000, 7), 1, te.sum, "sum"),
    "sum-between": _reduction((64, 512, 128), 1, te.sum, "sum"),
    "transposition": _permutation((2048, 2048), (1, 0)),
    "transposition-odd": _permutation((1999, 2003), (1, 0)),
    "transposition-int8": _permutation((2048, 2048), (1, 0), "int8"),
    "channels-last": _permutation((8, 64, 56, 56), (0, 2, 3, 1)),
    "channels-first": _permutation((8, 56, 56, 64), (0, 3, 1, 2)),
    "heads": _permutation((8, 128, 12, 64), (0, 2, 1, 3)),
    "concatenation": Program(((4096, 300), (4096, 724)), _concatenation, _joined),
}

# Classes of products: for each of batch, M, N and K the smallest and the largest that is drawn, or which other it equals.
CLASSES: dict[str, tuple[tuple[int, int] | str, ...]] = {
    "square": ((1, 1), (64, 1536), "M", "M"),
    "skinny": ((1, 1), (256, 4096), (2, 48), (256, 4096)),
    "tall": ((1, 1), (8192, 65536), (8, 128), (8, 128)),
    "linear": ((1, 1), (1, 256), (256, 4096), (256, 4096)),  # as torch.nn.Linear: the weights are (N, K)
    "batched": ((4, 64), (16, 256), (16, 256), (16, 256)),
    "any": ((1, 1), (33, 1025), (33, 1025), (33, 1025)),
}
DRAWN = {
    f"drawn-{name}-{dtype}-{number}": (name, dtype, number)
    for name in CLASSES
    for dtype in ("float32", "float64", "bfloat16", "int8")
    for number in range(2)
    if (name, dtype) != ("batched", "int8")  # neither numpy nor torch multiplies these
}


def drawn_shape(name: str, number: int, seed: int) -> tuple[int, int, int, int]:
    """Batch, M, N and K of product `number` of a class: their logarithms are uniform."""
    size = _sizes(name, number, seed, "BMNK", CLASSES[name])
    return size["B"], size["M"], size["N"], size["K"]


def _sizes(name: str, number: int, seed: int, axes: str, classes: Sequence[tuple[int, int] | str]) -> dict[str, int]:
    """The sizes of some axes: drawn between bounds, or those of another."""
    rng = np.random.default_rng((seed, number, *name.encode()))
    size: dict[str, int] = {}
    for axis, bounds in zip(axes, classes, strict=True):
        size[axis] = size[bounds] if isinstance(bounds, str) else round(float(np.exp(rng.uniform(*np.log(bounds)))))
    return size


def _convolution(name: str, number: int, seed: int) -> Program:
    bounds = CONVOLUTIONS[name]
    *sizes, kernel, stride = _sizes(name, number, seed, "012345678"[: len(bounds)], bounds).values()
    shape = (1, *sizes, kernel, stride, (kernel - 1) // 2)
    image, weights, result = (const_shape(b) for b in tir.workloads.make(name, shape).func.buffers)

    def peer(*arrays: np.ndarray) -> np.ndarray:
        wide = np.empty(result)
        tir.workloads.make(name, shape, "float64").numpy(arrays, (wide,))
        return wide

    return Program((image, weights), te.compute, peer, timed=("torch",), workload=(name, shape))


def _drawn(name: str, dtype: str, number: int, seed: int) -> Program:
    batch, M, N, K = drawn_shape(name, number, seed)
    if name == "batched":
        return _batched_product(batch, M, N, K, dtype)
    right = "jk" if name == "linear" else "kj"
    if dtype == "int8":
        return _narrow_product(M, N, K, "int8", "int32", "int32", "_int_mm", right)
    if dtype == "bfloat16":
        return _narrow_product(M, N, K, "bfloat16", "float32", "bfloat16", "mm", right)
    return _product(M, N, K, right=right, dtype=dtype)


# Workloads of one image, the smallest and the largest of their sizes that are drawn: sides, channels in and out, kernel, stride.
CONVOLUTIONS: dict[str, tuple[tuple[int, int] | str, ...]] = {
    "conv2d_transpose": ((4, 64), "0", (16, 512), (16, 512), (2, 5), (2, 2)),
    "conv3d": ((4, 16), (7, 56), "1", (16, 256), (16, 256), (3, 3), (1, 2)),
}
CONVOLVED = {f"drawn-{name}-{number}": (name, number) for name in CONVOLUTIONS for number in range(3)}

ROWS = (*PROGRAMS, *DRAWN, *CONVOLVED)

DEFAULT = ("one-row-across", "four-rows-across", "distances", "sum-of-columns", "transposition", "concatenation")


def problem(row: str, seed: int) -> tuple[PrimFunc, tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """The program of a row, its inputs, and an array for its result."""
    program = _program(row, seed)
    func = program.func()
    result = func.buffers[-1]
    kind = np.uint16 if result.dtype == "bfloat16" else np.dtype(result.dtype)
    return func, tuple(_operands(program, seed)), (programs.aligned(np.zeros(const_shape(result), kind)),)


def _program(row: str, seed: int) -> Program:
    if row in DRAWN:
        return _drawn(*DRAWN[row], seed)
    return _convolution(*CONVOLVED[row], seed) if row in CONVOLVED else PROGRAMS[row]


def _operands(program: Program, seed: int) -> list[np.ndarray]:
    """Random operands, small integers where their dtype is one."""
    rng = np.random.default_rng(seed)
    whole = program.dtype.startswith("int")
    drawn = (rng.integers(-4, 5, s) if whole else rng.uniform(-1, 1, s) for s in program.shapes)
    return [programs.aligned(stored(x, program.dtype)) for x in drawn]


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: milliseconds of each contender, and how many times as fast as its peers ours is."""
    program = _program(row, options.seed)
    arrays = _operands(program, options.seed)
    whole, func = program.dtype.startswith("int"), program.func()
    target = tir.Target("llvm", num_cores=options.threads)
    kernel = tir.build(tir.default_schedule(func, target).func, target)
    wide = program.peer(*(values(a, program.dtype).astype("int64" if whole else "float64") for a in arrays))
    kind = program.result or program.dtype
    out = programs.aligned(stored(np.zeros(wide.shape), kind))
    kernel(*arrays, out)
    off = float(np.max(np.abs(values(out, kind) - wide)) / max(1e-30, np.max(np.abs(wide))))
    result = {"threads": options.threads, "dtype": program.dtype, "shapes": program.shapes, "off": off}
    if not off <= (BFLOAT16_TOLERANCE if kind == "bfloat16" else TOLERANCE):
        yield {**result, "error": f"wrong result: off by {off:.3g} of the largest element"}
        return
    contenders: dict[str, Callable[[], object]] = {"tir": kernel.bind(*arrays, out)}
    if "numpy" in program.timed:
        contenders["numpy"] = _numpy_call(program, arrays, np.empty_like(out))
    if "torch" in program.timed and peers.installed():
        contenders["torch"] = _torch_call(program, arrays, np.empty_like(out), options.threads)
    result |= circumstances()
    timings = race(contenders, Effort(seconds=options.seconds, warm=warm(options.threads)))
    for name, timing in timings.items():
        result[f"{name}_ms"] = timing.median * 1e3
        if name != "tir":
            result[f"of_{name}"] = ratios(timings["tir"], timing)[0]
    if options.threads == 1:
        pair = {"tir": contenders["tir"], "written": tir.build(func, target).bind(*arrays, out)}
        result["of_written"] = ratios(*race(pair, Effort(seconds=options.seconds)).values())[0]
        result["slower"] = slower(func, [*arrays, out], target, options)
    pages.keep(options.save, "breadth", row, result, write)
    yield {**result, "timings": {name: timing.as_json() for name, timing in timings.items()}}


def stored(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers as an array that a kernel takes for `dtype`: those of bfloat16 cut off, as bits."""
    if dtype == "bfloat16":
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return numbers.astype(dtype)


def values(array: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers of an array that a kernel takes for `dtype`."""
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else array


def slower(func: PrimFunc, arrays: Sequence[np.ndarray], target: tir.Target, options: Options) -> dict[str, float]:
    """How many times as long as a program each of the other ways to write it takes."""
    contenders: dict[str, Callable[[], object]] = {}
    for name, other in {"": func, **wordings(func)}.items():
        shaped = [a.reshape(const_shape(b)) for a, b in zip(arrays, other.buffers, strict=True)]
        contenders[name] = tir.build(tir.default_schedule(other, target).func, target).bind(*shaped)
    if len(contenders) == 1:
        return {}
    timings = race(contenders, Effort(seconds=options.seconds, warm=warm(options.threads)))
    return {name: ratios(timings[""], timing)[0] for name, timing in timings.items() if name}


INTRODUCTION = """\
# The default schedule on other kinds of programs

Made by `python -m benchmarks breadth --rows all --threads 1,2 --save DIR`. Nothing is searched. Our kernel and its peers are
called in turns in one process, with the same number of threads: `ms` and the ratios are medians; `x NAME` says how many times
faster than it ours is, `x as written` the same of the program without a schedule; `slower` is how many times as long the slowest
of the equal ways to write the program takes. The worst of each column is in the last line: no default schedule is slower than its
program as written where that of `x as written` is 1 or more.
"""


def section(results: Sequence[dict[str, Any]]) -> list[str]:
    """What the page says of results on one number of threads."""
    others = [name for name in ("numpy", "torch") if any(f"of_{name}" in r for r in results)]
    compared = [f"of_{name}" for name in others]
    rows = []
    for r in results:
        ratios_of = (f"{r[of]:.2f}" if of in r else "-" for of in compared)
        slowest = f"{_slowest(r):.2f}" if "slower" in r else "-"
        shapes = " · ".join("×".join(map(str, shape)) for shape in r.get("shapes", ()))
        written = f"{r['of_written']:.3g}" if "of_written" in r else "-"
        rows.append([r["row"], r["dtype"], shapes, f"{r['tir_ms']:.3g}", *ratios_of, written, slowest])
    means = [pages.geometric_mean([r[of] for r in results if of in r]) for of in compared]
    rows.append(["geometric mean", "", "", "", *(f"{mean:.2f}" for mean in means), "", ""])
    worst = [[min(found)] if (found := [r[of] for r in results if of in r]) else [] for of in (*compared, "of_written")]
    worst.append([max(found)] if (found := [_slowest(r) for r in results if "slower" in r]) else [])
    rows.append(["worst", "", "", "", *("".join(f"{ratio:.2f}" for ratio in found) or "-" for found in worst)])
    return [pages.table(("row", "dtype", "shapes", "ms", *(f"x {name}" for name in others), "x as written", "slower"), rows)]


def _slowest(result: dict[str, Any]) -> float:
    """How many times as long the slowest of the equal ways to write a program takes."""
    return max(result["slower"].values(), default=1.0)


write = pages.writer("breadth", INTRODUCTION, section, ROWS)


def _numpy_call(program: Program, arrays: list[np.ndarray], out: np.ndarray) -> Callable[[], object]:
    if any(np.shares_memory(program.peer(*arrays), a) for a in arrays):
        return lambda: np.copyto(out, program.peer(*arrays))
    return lambda: program.peer(*arrays)


def _torch_call(program: Program, arrays: list[np.ndarray], out: np.ndarray, threads: int) -> Callable[[], object]:
    import torch

    torch.set_num_threads(threads)
    if program.torch:
        given = [
            torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) if a.dtype == np.uint16 else torch.from_numpy(a)
            for a in arrays
        ]
        if program.across:
            given[1] = given[1].T
        return lambda: getattr(torch, program.torch)(*given)
    tensors, result = [torch.from_numpy(a) for a in arrays], torch.from_numpy(out)
    if program.workload is not None:
        name, shape = program.workload
        call = peers.torch_program(name, tuple(tensors), result, shape)
        assert call is not None, "torch has each of `CONVOLUTIONS`"
        return call
    if any(np.shares_memory(program.peer(*tensors).numpy(), a) for a in arrays):
        return lambda: result.copy_(program.peer(*tensors))
    return lambda: program.peer(*tensors)
