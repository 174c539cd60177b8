"""What the ways to call a kernel cost: by place, by name, with outputs that are made, with arrays of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import tir
from tir import te

from . import pages
from .options import Options
from .runner import Effort, circumstances, race

ROWS = DEFAULT = ("add-5x7",)


class _DLPack:
    """An array with DLPack alone."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: microseconds of each way to call, and of numpy's own addition."""
    A, B = te.placeholder((5, 7), name="A"), te.placeholder((5, 7), name="B")
    n = te.var("n")
    X = te.placeholder((n, 7), name="X")
    target = tir.Target("llvm", num_cores=1)
    add = tir.build(te.create_prim_func([A, B, te.compute((5, 7), lambda i, j: A[i, j] + B[i, j], name="C")]), target)
    sized = tir.build(te.create_prim_func([n, X, te.compute((n, 7), lambda i, j: X[i, j] + 1.0, name="Y")]), target)

    @tir.jit(target=target)
    def jitted(A: te.Tensor, B: te.Tensor) -> te.Tensor:
        return te.compute(A.shape, lambda i, j: A[i, j] + B[i, j], name="C")

    a, b, c = (np.ones((5, 7), "float32") for _ in range(3))
    ways: dict[str, Callable[[], object]] = {
        "place": lambda: add(a, b, c),
        "made": lambda: add(a, b),
        "out": lambda: add(a, b, out=c),
        "name": lambda: add(A=a, B=b, C=c),
        "bound": add.bind(a, b, c),
        "size": lambda: sized(5, a, c),
        "size_found": lambda: sized(a, c),
        "jit": lambda: jitted(a, b),
        "numpy": lambda: np.add(a, b, out=c),
    }
    x, y, z = map(_DLPack, (a, b, c))
    ways["dlpack"] = lambda: add(x, y, z)
    if find_spec("torch"):
        import torch

        s, t, u = map(torch.from_numpy, (a, b, c))
        ways["torch"] = lambda: add(s, t, u)
        ways["torch_itself"] = lambda: torch.add(s, t, out=u)
    if find_spec("jax"):
        import jax.numpy as jnp

        f, g = jnp.asarray(a), jnp.asarray(b)
        ways["jax"] = lambda: add(f, g, c)
    for way in ways.values():
        way()
    timings = race(ways, Effort(seconds=options.seconds, sample=1e-3))
    result = {"threads": 1, **circumstances(), **{f"{name}_us": t.median * 1e6 for name, t in timings.items()}}
    pages.keep(options.save, "interop", row, result, write)
    yield result


INTRODUCTION = """\
# What a call costs

Made by `python -m benchmarks interop --save DIR`: a kernel adds two arrays of 5 × 7 elements, called in several ways in turns;
medians in microseconds.
"""

WAYS = {
    "bound": "`kernel.bind(a, b, c)()`",
    "place": "`kernel(a, b, c)`",
    "size": "`kernel(5, a, c)`, a size that is open",
    "made": "`kernel(a, b)`, the output is made",
    "out": "`kernel(a, b, out=c)`",
    "name": "`kernel(A=a, B=b, C=c)`",
    "size_found": "`kernel(a, c)`, the size follows from the shapes",
    "jit": "a function with `@tir.jit`, the output is made",
    "dlpack": "`kernel(a, b, c)`, arrays that have DLPack alone",
    "torch": "`kernel(a, b, c)`, tensors of torch",
    "jax": "`kernel(a, b, c)`, arrays of jax and one of numpy",
    "numpy": "numpy itself: `np.add(a, b, out=c)`",
    "torch_itself": "torch itself: `torch.add(a, b, out=c)`",
}


def write(kept: pages.Kept, folder: Path) -> None:
    """The page of the ways that were measured."""
    (result,) = kept.values()
    rows = [(said, f"{result[f'{name}_us']:.3g}") for name, said in WAYS.items() if f"{name}_us" in result]
    text = f"{INTRODUCTION}\n{pages.circumstances([result])}\n\n{pages.table(('call', 'us'), rows)}\n"
    (folder / "interop.md").write_text(text)
