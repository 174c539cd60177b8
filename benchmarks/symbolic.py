"""What it costs that a size is not known: one kernel for all sizes beside kernels for constant ones.

It is timed at sizes that are named, where a variant of it runs, and at others; results are compared first. Rows `network-...` are
networks beside other libraries (`open_networks`), whose files are made where they are not in `--models DIR`; these need the extra
`networks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import tir
from tir import te
from tir.ir import PrimFunc, const_shape

from . import open_networks, pages
from .options import Options
from .runner import Effort, circumstances, race, ratios

NAMED = (1, 16, 128)
OTHERS = (3, 50, 200)
TOLERANCE = 1e-5  # of the largest element


def _dense() -> PrimFunc:
    n = te.var("n")
    X, W, b = te.placeholder((n, 512), name="X"), te.placeholder((512, 512), name="W"), te.placeholder((512,), name="b")
    k = te.reduce_axis((0, 512), name="k")
    Z = te.compute((n, 512), lambda i, j: te.sum(X[i, k] * W[k, j], axis=k), name="Z")
    return te.create_prim_func([n, X, W, b, te.compute((n, 512), lambda i, j: te.maximum(Z[i, j] + b[j], 0.0), name="Y")])


def _convolution() -> PrimFunc:
    n = te.var("n")
    X, W = te.placeholder((n, 14, 14, 32), name="X"), te.placeholder((3, 3, 32, 32), name="W")
    r, s, c = (te.reduce_axis((0, extent), name=name) for name, extent in (("r", 3), ("s", 3), ("c", 32)))

    def padded(b: Any, h: Any, w: Any, c: Any) -> Any:
        return te.if_then_else(te.all(h >= 1, h < 15, w >= 1, w < 15), X[b, h - 1, w - 1, c], 0.0)

    P = te.compute((n, 16, 16, 32), padded, name="P")
    Y = te.compute((n, 14, 14, 32), lambda b, h, w, f: te.sum(P[b, h + r, w + s, c] * W[r, s, c, f], axis=[r, s, c]), name="Y")
    return te.create_prim_func([n, X, W, Y])


def _softmax() -> PrimFunc:
    n = te.var("n")
    X = te.placeholder((n, 1024), name="X")
    j, k = te.reduce_axis((0, 1024), name="j"), te.reduce_axis((0, 1024), name="k")
    most = te.compute((n,), lambda i: te.max(X[i, j], axis=j), name="most")
    raised = te.compute((n, 1024), lambda i, j: te.exp(X[i, j] - most[i]), name="raised")
    total = te.compute((n,), lambda i: te.sum(raised[i, k], axis=k), name="total")
    return te.create_prim_func([n, X, te.compute((n, 1024), lambda i, j: raised[i, j] / total[i], name="Y")])


def _scores() -> PrimFunc:
    n = te.var("n")
    Q, K = te.placeholder((n, 64), name="Q"), te.placeholder((n, 64), name="K")
    d = te.reduce_axis((0, 64), name="d")
    return te.create_prim_func([n, Q, K, te.compute((n, n), lambda i, j: te.sum(Q[i, d] * K[j, d], axis=d), name="S")])


PROGRAMS: dict[str, Callable[[], PrimFunc]] = {
    "dense-512": _dense,
    "conv-14x14x32": _convolution,
    "softmax-1024": _softmax,
    "scores-64": _scores,
}

DEFAULT = tuple(PROGRAMS)
ROWS = (*DEFAULT, *open_networks.ROWS)


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """A result for each size: the times of both kernels, and the loss."""
    if row in open_networks.ROWS:
        yield from open_networks.measure(row, options, write)
        return
    func, target = PROGRAMS[row](), tir.Target("llvm", num_cores=options.threads)
    kernel = tir.compile(func, target, sizes={"n": NAMED}, cache=None)
    rng = np.random.default_rng(options.seed)
    for n in (*NAMED, *OTHERS):
        fixed = tir.specialize(func, {"n": n})
        known = tir.compile(fixed, target, cache=None)
        *inputs, output = (rng.uniform(-1, 1, const_shape(b)).astype("float32") for b in fixed.buffers)
        result: dict[str, Any] = {"size": n, "named": n in NAMED, "threads": options.threads, **circumstances()}
        wanted = known(*inputs)
        off = float(np.max(np.abs(kernel(*inputs) - wanted)) / np.max(np.abs(wanted)))
        if not off <= TOLERANCE:
            yield {**result, "error": f"wrong result: off by {off:.3g} of the largest element"}
            continue
        calls: dict[str, Callable[[], object]] = {
            "any": lambda inputs=inputs, output=output, n=n: kernel(n, *inputs, output),
            "constant": lambda known=known, inputs=inputs, output=output: known(*inputs, output),
        }
        timings = race(calls, Effort(seconds=options.seconds, sample=1e-3))
        result |= {f"{name}_us": t.median * 1e6 for name, t in timings.items()}
        result["loss"] = 1 / ratios(timings["any"], timings["constant"])[0] - 1
        pages.keep(options.save, "symbolic", f"{row}, n = {n}", result, write)
        yield result


INTRODUCTION = f"""\
# Sizes that are not known

Made by `python -m benchmarks symbolic --threads 1 --save DIR`. A program whose size n is open is compiled with sizes 1, 16, 128
named (`tir.compile(func, sizes={{"n": (1, 16, 128)}})`), and called in turns with the kernel of the same size as a constant. `us`
are medians of whole calls in microseconds; `loss` is how much longer the kernel for all sizes takes.

Networks (`--rows network --models DIR`) are compiled once with open sizes by each library, and called in turns, each in a process
of its own: `ms` are medians, `×` how many times faster ours is, `× best` than the faster of the others. `loss` is how much longer
ours takes at a named size than compiled for it alone. `off` is the largest difference from another library's outputs, as a part
of an output's root mean square, at most {open_networks.TOLERANCE:g}.
"""


def section(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What the page says of results on one number of threads."""
    programs, networks = ([r for r in results if ("network" in r) is kind] for kind in (False, True))
    rows = [
        (r["row"], "yes" if r["named"] else "no", f"{r['any_us']:.3g}", f"{r['constant_us']:.3g}", f"{r['loss']:.1%}")
        for r in programs
    ]
    if programs:
        yield pages.table(("row", "named", "us, any n", "us, constant n", "loss"), rows)
    if networks:
        yield pages.table(open_networks.COLUMNS, list(map(open_networks.cells, networks)))
        yield from open_networks.means(networks)


write = pages.writer("symbolic", INTRODUCTION, section)
