"""The kernels of the suite on a real GPU: `python -m tests.codegen.cuda.on_device [--seconds 180]`. Needs no pytest.

Products by warpgroups in all layouts; the library's schedules of all workloads at odd sizes, against the float64 references; tensor
cores, pipelines and split sums; attention, convolutions, open sizes, permutations, long sums, large arrays; random rows of the search's sketches; random programs under random schedules, against the interpreter. Each has a process of
its own, some at a time: what poisons its context, or hangs, is wrong by itself. The tensors of torch come first, where it is there.

What is wrong is a line; its CUDA C, with the schedule and the whole message, is a file of the folder `--sources`, where
`checks.txt` has all lines again. The names of right cases are appended to `right.txt` there as they come; with `--resume` these are
not tried again.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from itertools import product as pairs
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any
from zlib import crc32

import numpy as np

import tir
from codegen.cuda import GPUError
from codegen.target import Target
from schedule import replay
from schedule.templates import gpu
from search.population.sample import sample
from search.space import generate
from tests.arrays import copies, integers
from tests.codegen.cuda.device_programs import (
    ATTENTION,
    CONVOLUTIONS,
    OPEN,
    ORDERS,
    draw,
    einsum,
    is_attention,
    permute,
    tolerance,
)
from tests.codegen.cuda.isolated import Attempt, apart, attempt
from tests.codegen.cuda.random_schedules import cases
from tests.programs import product as matrices
from tests.search.gpu.candidates import PRODUCTS
from tests.search.gpu.candidates import SHAPES as SMALL
from tests.search.gpu.candidates import case as candidate
from tir import workloads
from tir.interpreter import run
from tir.ir import PrimFunc
from tir.specialize import specialize

SHAPES = {
    "gmm": [(64, 32, 64), (37, 29, 41), (20, 12, 40, 3), (100, 72, 200), (1, 13, 7), (1000, 1000, 1000)],
    "mlp": [(7, 13, 109, 5), (128, 64, 96, 32)],
    "conv2d": [(1, 13, 9, 5, 7, 3, 3, 2, 1), (2, 9, 9, 8, 16, 3, 3, 1, 1), (1, 56, 56, 64, 64, 3, 3, 1, 1)],
    "depthwise": [(1, 13, 9, 5, 3, 3, 2, 1)],
    "softmax": [(7, 109), (4096, 1024)],
    "layernorm": [(7, 109), (3, 1000)],
}


@dataclass(frozen=True)
class Case:
    """A scheduled function with its arguments, and what says whether the arrays are right after a call ("" if so)."""

    name: str
    func: PrimFunc
    arguments: Sequence[Any]
    problem: Callable[[Sequence[Any]], str]


def exact(name: str, func: PrimFunc, scheduled: PrimFunc, seed: int, sizes: Mapping[str, int] | None = None) -> Case:
    """A case whose arguments are integers, which nothing rounds but a softmax or a norm, held against the interpreter. A function of open
    sizes is called at `sizes`."""
    known = specialize(func, sizes) if sizes else func
    given = integers(known, seed)
    expected = copies(given)
    run(known, *expected)

    def problem(got: Sequence[Any]) -> str:
        arrays = [np.asarray(a) for a in got[len(sizes or ()) :]]
        both = zip(arrays, expected, strict=True)
        same = all(np.allclose(a, b, rtol=0, atol=tolerance(name, known, b), equal_nan=True) for a, b in both)
        return "" if same else "other numbers"

    return Case(name, scheduled, [*(sizes or {}).values(), *given], problem)


def of_library(target: Target, funcs: Iterable[tuple[str, PrimFunc]]) -> Iterator[Case]:
    """The library's schedules of named functions whose results are exact."""
    for name, func in funcs:
        yield exact(name, func, gpu.schedule(func, target.arch).func, 0)


def library(target: Target) -> Iterator[Case]:
    """The library's schedules of workloads."""
    for name, shapes in SHAPES.items():
        for shape in shapes:
            tried = candidate(name, shape)
            yield Case(f"{name} {shape}", gpu.schedule(tried.func, target.arch).func, tried.arguments, tried.problem)
    for name in set(workloads.names()) - set(SHAPES):
        tried = candidate(name, SMALL[name][0])
        yield Case(f"{name} {SMALL[name][0]}", gpu.schedule(tried.func, target.arch).func, tried.arguments, tried.problem)


def products(target: Target) -> Iterator[Case]:
    """The library's schedules on tensor cores, of pipelines and of split sums."""
    from benchmarks.gpu_row import product

    for name, shape in (
        ("float16", (128, 256, 64)), ("float16", (33, 65, 47)), ("bfloat16", (130, 72, 200)), ("tf32", (100, 200, 136)),
        ("float16", (33, 17, 1536)), ("float32", (40, 24, 1024)), ("float32", (131, 259, 136)),
    ):  # fmt: skip
        func = product(name, *shape)
        yield exact(f"{name} {shape}", func, gpu.schedule(func, target.arch, tf32=name == "tf32").func, 0)


def layouts(target: Target) -> Iterator[Case]:
    """The library's schedules of products of all types and layouts, transposes, and a reduction to indices."""
    from benchmarks.gpu_static import SUMS, argmax, product, transpose

    yield from of_library(target, ((f"{dtype} {a}{b} 131", product(dtype, a, b, 131)) for dtype in SUMS for a, b in ("nt", "tn")))
    others = (("transpose 131", transpose(131)), ("transpose 1024", transpose(1024)), ("argmax", argmax(7, 109)))
    yield from of_library(target, others)


def warpgroups(target: Target) -> Iterator[Case]:
    """Products of halves in all layouts, of whole and partial tiles: by warpgroups from sm_90 on."""
    for shape in ((64, 64, 64), (130, 264, 192), (70, 133, 200)):
        for left, right in pairs("nt", "nt"):
            for dtype, total in (("float16", "float32"), ("bfloat16", "float32"), ("float16", "float16")):
                lie = "ik" if left == "n" else "ki", "kj" if right == "n" else "jk"
                func = matrices(*shape, *lie, (dtype, dtype), total)
                name = f"{dtype} to {total} {left}{right} {shape}"
                yield from of_library(target, [(name, func)])


def attention_case(case: tuple, arch: str) -> Case:
    """Attention in one kernel, one of ATTENTION."""
    from benchmarks.gpu_static import attention

    *shape, causal = case
    func = attention(*shape, causal=causal)

    def problem(got: Sequence[Any]) -> str:
        return "" if is_attention(func, [np.asarray(a) for a in got], causal) else "other numbers"

    return Case(f"attention {case}", gpu.schedule(func, arch).func, draw(func, 0), problem)


def convolutions(target: Target) -> Iterator[Case]:
    """Convolutions of narrow types with channels first: windows of any size, stride and padding, channels that fill no copy."""
    from benchmarks.gpu_static import convolution

    made = pairs(CONVOLUTIONS, ("float16", "bfloat16", "int8"))
    yield from of_library(target, ((f"convolution {case} {dtype}", convolution(*case, dtype)) for case, dtype in made))


def open_case(name: str, n: int, arch: str) -> Case:
    """A function of OPEN at a size; others are two larger each."""
    func = OPEN[name]
    at = {v.name: n + 2 * i for i, v in enumerate(func.sizes)}
    return exact(f"{name} {at}", func, tir.default_schedule(func, f"cuda -arch {arch}").func, n, at)


def permutations(target: Target) -> Iterator[Case]:
    """Arrays in another order of dimensions."""
    made = pairs(ORDERS, ("float32", "float16", "int8", "float64"))
    named = ((f"permutation {shape} {order} {dtype}", permute(shape, order, dtype)) for (shape, order), dtype in made)
    yield from of_library(target, named)


def long_sums(target: Target, steps: int = 1 << 20) -> Iterator[Case]:
    """Sums of many steps with few results: of rows, of columns, of all, and of products."""
    for text in ("ik->i", "ki->i", "k->", "ik,kj->ij", "ik,jk->ij"):
        func = einsum(text, {"i": 7, "j": 5, "k": steps})
        *given, result = integers(func, 0)
        wanted = np.einsum(text, *given)
        problem = lambda got, wanted=wanted: "" if np.array_equal(got[-1], wanted) else "other numbers"  # noqa: E731
        yield Case(f"{text} of {steps} steps", gpu.schedule(func, target.arch).func, [*given, result], problem)


def large(target: Target, count: int = 2**31 + 16) -> Iterator[Case]:
    """Arrays of more than 2^31 elements, copied and transposed."""
    for shape, order in (((count,), (0,)), ((4, count // 4), (1, 0))):
        func = permute(shape, order, "int8")
        given = np.resize(np.arange(101, dtype="int8"), shape)
        problem = lambda got, order=order: "" if np.array_equal(got[1], got[0].transpose(order)) else "other numbers"  # noqa: E731
        result = np.zeros(given.transpose(order).shape, "int8")
        yield Case(f"{count} elements, {order}", gpu.schedule(func, target.arch).func, [given, result], problem)


def candidates(target: Target, rows: int = 2) -> Iterator[Case]:
    """Random rows of the search's sketches, at small odd shapes."""
    rng = np.random.default_rng(0)
    for name, shapes in (SMALL | PRODUCTS).items():
        tried = candidate(name, shapes[0])
        for sketch in generate(tried.func, target):
            for row in sample(sketch, target, rows, rng).tolist():
                func = replay(tried.func, sketch.trace(row)).func
                yield Case(f"{name} {shapes[0]} {sketch} {row}", func, tried.arguments, tried.problem)


def programs(count: int = 60) -> Iterator[Case]:
    """Random programs under random schedules."""
    for seed, func, after, program in cases(range(count)):
        if not isinstance(program, str):
            yield exact(f"random program {seed}", func, after, seed)


def check(
    groups: dict[str, Iterator[Case]], tries: Callable[[Case], Attempt], workers: int, end: float, sources: Path, target: Target,
    resume: bool = False,
) -> Iterator[tuple[str, int]]:  # fmt: skip
    """What there is to say of each group, line by line, with the number of wrong cases that a line tells of. The cases that are
    not reached before `end` (of `time.monotonic`) are counted apart. With `resume` those that were right before are not tried."""
    path, lock = sources / "right.txt", Lock()
    known = set(path.read_text().splitlines()) if resume and path.exists() else set()
    sources.mkdir(parents=True, exist_ok=True)
    if not resume:
        path.unlink(missing_ok=True)

    def tried(one: Case) -> tuple[Case, str | None]:
        if one.name in known:
            return one, ""
        if time.monotonic() > end:
            return one, None
        found = tries(one)
        problem = one.problem(found.outputs) if found.kind == "ok" else f"{found.kind}: {found.message}"
        if not problem:
            with lock, path.open("a") as file:
                file.write(f"{one.name}\n")
        return one, problem

    with ThreadPoolExecutor(workers) as pool:
        for group, made in groups.items():
            results = [future.result() for future in [pool.submit(tried, one) for one in made if time.monotonic() < end]]
            bad = [(one, problem) for one, problem in results if problem]
            late = sum(problem is None for _, problem in results)
            for one, problem in bad:
                first = problem.strip().splitlines()[0][:200]
                yield f"WRONG {one.name[:160]}: {first}; {keep(one, problem, sources, target)}", 1
            more = ", not all reached" if late or time.monotonic() > end else ""
            yield f"{group}: {len(results) - late - len(bad)} right, {len(bad)} wrong{more}", 0


def keep(one: Case, problem: str, sources: Path, target: Target) -> Path:
    """Write what is known of a case that is wrong to a file."""
    slug = re.sub(r"[^A-Za-z0-9]+", "_", one.name)[:60].strip("_")
    path = sources / f"{slug}_{crc32(one.name.encode()):08x}.cu"
    sources.mkdir(parents=True, exist_ok=True)
    try:
        code = tir.dump(one.func, target)
    except GPUError as error:
        code = f"// {error}\n"
    said = "\n".join(f"// {line}" for line in f"{one.name}\n{problem}\n\n{one.func.script()}".splitlines())
    path.write_text(f"{said}\n\n{code}")
    return path


def tensors(target: str, timeout: float = 120.0) -> str:
    """What is wrong with tensors of torch as arguments, tried in a process of its own; empty if nothing."""
    return apart(_tensors, (target,), timeout).message


def _tensors(pipe: Connection, target: str) -> None:
    import torch

    from codegen.runtime.arguments import ArgumentError
    from tir import te

    stream, problems = torch.cuda.Stream(), []
    for dtype in ("float32", "float16", "bfloat16", "float64", "int32", "int8", "uint8"):
        try:
            A = te.placeholder((7, 109), dtype, name="A")
            func = te.create_prim_func([A, te.compute((7, 109), lambda i, j, A=A: A[i, j] + A[i, j], name="B")])
            kernel = tir.build(tir.default_schedule(func, target).func, target)
            a = torch.arange(7 * 109, device="cuda").remainder(50).to(getattr(torch, dtype)).reshape(7, 109)
            for handle in (0, stream.cuda_stream):
                out = torch.zeros_like(a)
                torch.cuda.synchronize()
                kernel(a, out, stream=handle)
                torch.cuda.synchronize()
                if not torch.equal(out, a + a):
                    problems.append(f"{dtype}: other numbers on stream {handle}")
            try:
                kernel(a, a.cpu())
                problems.append(f"{dtype}: a tensor of the host was taken")
            except ArgumentError:
                pass
        except Exception as error:  # the outermost frame of a child
            problems.append(f"{dtype}: {type(error).__name__}: {error}")
    pipe.send(Attempt("ok", message="; ".join(problems)))


def circumstances() -> str:
    """The versions of what there is."""
    from codegen.cuda.driver import call

    found = []
    for name in ("cuda-bindings", "nvidia-cuda-nvrtc", "torch", "triton", "numpy"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return f"driver for CUDA {call('cuDriverGetVersion') / 1000:.1f}, {', '.join(found)}"


def main() -> int:
    from codegen.cuda.compile import available
    from codegen.cuda.driver import architecture, attribute, devices

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0, help="after which no case is started")
    parser.add_argument("--resume", action="store_true", help="leave out what was right in that folder")
    parser.add_argument("--sources", type=Path, default=Path("build/gpu"), help="the folder of what is wrong")
    options = parser.parse_args()
    if not devices():
        print("there is no GPU here", file=sys.stderr)
        return 2
    end = time.monotonic() + options.seconds
    target = Target("cuda", arch=architecture())
    workers = max(1, min(8, (os.cpu_count() or 1) - 2))
    options.sources.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with (options.sources / "checks.txt").open("w") as file:

        def say(line: str) -> None:
            print(line, flush=True)
            print(line, file=file, flush=True)

        say(f"{target}, {attribute('MULTIPROCESSOR_COUNT')} multiprocessors, {circumstances()}; {workers} processes at a time")
        if missing := available():
            say(f"WRONG NVRTC: {missing}")
            return 1
        if find_spec("torch") is not None:
            problem = tensors(str(target))
            wrong += bool(problem)
            say(f"tensors of torch: {f'WRONG {problem}' if problem else 'right'}")
        groups = {
            "products by warpgroups": warpgroups(target), "schedules of the library": library(target), "tensor cores, pipelines, split sums": products(target),
            "types and layouts": layouts(target), "attention": (attention_case(x, target.arch) for x in ATTENTION),
            "convolutions": convolutions(target), "open sizes": (open_case(name, n, target.arch) for name in OPEN for n in (13, 1, 50, 1025)), "permutations": permutations(target),
            "long sums": long_sums(target), "large arrays": large(target),
            "random rows of sketches": candidates(target), "random programs": programs(),
        }  # fmt: skip
        tries = lambda one: attempt(one.func, str(target), one.arguments, 60.0)  # noqa: E731
        for line, bad in check(groups, tries, workers, end, options.sources, target, options.resume):
            wrong += bad
            say(line)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
