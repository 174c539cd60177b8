"""Short kernels beside numpy, torch and numba, called as a user calls them: with arrays, which are checked at each call.

The row `empty` is what a call takes by itself: a function of three arrays that stores one element. Peers write where they can to
arrays that are there; numba's functions are loops, compiled with `fastmath` where they compute sums. Results are compared with
those of numpy in float64 before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import tir
from tir import te
from tir.ir import PrimFunc

from . import pages, peers
from .options import Options
from .runner import Effort, circumstances, race, ratios

TOLERANCE = 1e-5  # of the largest element

Shape = tuple[int, ...]
Arrays = tuple[np.ndarray, ...]


class Call(NamedTuple):
    """A function of arrays of these shapes and what gives its results; `torch` and `numba` make a call of inputs and outputs."""

    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    build: Callable[..., tuple[te.Tensor, ...]]
    numpy: Callable[..., tuple[np.ndarray, ...]]
    torch: Callable[[Any, Any], Callable[[], Any]] | None = None
    numba: Callable[[], Callable[..., None]] | None = None
    numpy_call: Callable[..., None] | None = None


# --- the functions -------------------------------------------------------------------------------------------------------


def _empty() -> Call:
    def build(A: te.Tensor, B: te.Tensor) -> tuple[te.Tensor, ...]:
        return (te.compute((1,), lambda i: A[0, 0] + B[0, 0], name="C"),)

    def numba() -> Callable[..., None]:
        from numba import njit

        @njit
        def first(a: Any, b: Any, c: Any) -> None:
            c[0] = a[0, 0] + b[0, 0]

        return first

    return Call(((33, 129), (129, 65)), ((1,),), build, lambda a, b: ((a[:1, 0] + b[:1, 0]),), numba=numba)


def _product(M: int, N: int, K: int) -> Call:
    def build(A: te.Tensor, B: te.Tensor) -> tuple[te.Tensor, ...]:
        k = te.reduce_axis((0, K), name="k")
        return (te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C"),)

    def numba() -> Callable[..., None]:
        from numba import njit

        @njit(fastmath=True)
        def product(a: Any, b: Any, c: Any) -> None:
            for i in range(a.shape[0]):
                c[i, :] = 0
                for k in range(a.shape[1]):
                    for j in range(b.shape[1]):
                        c[i, j] += a[i, k] * b[k, j]

        return product

    def torch(inputs: Any, outputs: Any) -> Callable[[], Any]:
        import torch

        (a, b), (c,) = inputs, outputs
        return lambda: torch.mm(a, b, out=c)

    return Call(((M, K), (K, N)), ((M, N),), build, lambda a, b: (a @ b,), torch, numba, lambda a, b, c: np.matmul(a, b, out=c))


def _softmax(rows: int, columns: int) -> Call:
    def build(X: te.Tensor) -> tuple[te.Tensor, ...]:
        j, k = te.reduce_axis((0, columns), name="j"), te.reduce_axis((0, columns), name="k")
        most = te.compute((rows,), lambda i: te.max(X[i, j], axis=j), name="most")
        raised = te.compute((rows, columns), lambda i, j: te.exp(X[i, j] - most[i]), name="raised")
        total = te.compute((rows,), lambda i: te.sum(raised[i, k], axis=k), name="total")
        return (te.compute((rows, columns), lambda i, j: raised[i, j] / total[i], name="Y"),)

    def numpy(x: np.ndarray) -> tuple[np.ndarray, ...]:
        raised = np.exp(x - x.max(1, keepdims=True))
        return (raised / raised.sum(1, keepdims=True),)

    def numpy_call(x: np.ndarray, y: np.ndarray) -> None:
        np.subtract(x, x.max(1, keepdims=True), out=y)
        np.exp(y, out=y)
        np.divide(y, y.sum(1, keepdims=True), out=y)

    def torch(inputs: Any, outputs: Any) -> Callable[[], Any]:
        import torch

        (x,), (y,) = inputs, outputs
        return lambda: torch.softmax(x, 1, out=y)

    return Call(((rows, columns),), ((rows, columns),), build, numpy, torch, numpy_call=numpy_call)


def _lstm_cell(batch: int, width: int) -> Call:
    """One step: gates x W^T + h U^T + b for input, forget, cell and output, in this order, as torch has them."""

    def build(*given: te.Tensor) -> tuple[te.Tensor, ...]:
        X, H, C, W, U, b = given
        k, m = te.reduce_axis((0, width), name="k"), te.reduce_axis((0, width), name="m")
        of_x = te.compute((batch, 4 * width), lambda i, j: te.sum(X[i, k] * W[j, k], axis=k), name="of_x")
        of_h = te.compute((batch, 4 * width), lambda i, j: te.sum(H[i, m] * U[j, m], axis=m), name="of_h")
        gates = te.compute((batch, 4 * width), lambda i, j: of_x[i, j] + of_h[i, j] + b[j], name="gates")

        def cell(i: Any, j: Any) -> Any:
            kept = te.sigmoid(gates[i, j + width]) * C[i, j]
            return kept + te.sigmoid(gates[i, j]) * te.tanh(gates[i, j + 2 * width])

        c = te.compute((batch, width), cell, name="c")
        h = te.compute((batch, width), lambda i, j: te.sigmoid(gates[i, j + 3 * width]) * te.tanh(c[i, j]), name="h")
        return c, h

    def numpy(x: np.ndarray, h: np.ndarray, c: np.ndarray, w: np.ndarray, u: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        i, f, g, o = np.split(x @ w.T + h @ u.T + b, 4, axis=1)
        new = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        return new, np.tanh(new) / (1 + np.exp(-o))

    def torch(inputs: Any, outputs: Any) -> Callable[[], Any]:
        import torch

        x, h, c, w, u, b = inputs
        return lambda: torch.lstm_cell(x, (h, c), w, u, b)

    state = (batch, width)
    return Call((state, state, state, (4 * width, width), (4 * width, width), (4 * width,)), (state, state), build, numpy, torch)


CALLS: dict[str, Call] = {
    "empty": _empty(),
    "product-33x65x129": _product(33, 65, 129),
    "product-64": _product(64, 64, 64),
    "softmax-8x128": _softmax(8, 128),
    "lstm-cell-1x64": _lstm_cell(1, 64),
    "lstm-cell-8x128": _lstm_cell(8, 128),
}

ROWS = DEFAULT = tuple(CALLS)

INTRODUCTION = """\
# Small kernels, called as a user calls them

Made by `python -m benchmarks calls --rows all --threads 1 --save DIR`: `kernel(a, b, c)` with all its checks, in turns with the
functions of numpy, torch and numba that do the same, into arrays that are there (torch's LSTM cell makes new ones).
Microseconds are medians.
"""


# --- measuring -----------------------------------------------------------------------------------------------------------


def function(row: str) -> PrimFunc:
    """What a row computes."""
    call = CALLS[row]
    placeholders = [te.placeholder(s, "float32", name=f"X{n}") for n, s in enumerate(call.inputs)]
    return te.create_prim_func([*placeholders, *call.build(*placeholders)], name="f")


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: microseconds of a call of each contender, and how many times as fast as the best of its peers ours is."""
    call, rng = CALLS[row], np.random.default_rng(options.seed)
    inputs = tuple(rng.uniform(-1, 1, s).astype("float32") for s in call.inputs)
    rivals = _rivals(call, inputs, options.threads)
    target = tir.Target("llvm", num_cores=options.threads)
    kernel = tir.build(tir.default_schedule(function(row), target).func, target)
    outputs = tuple(np.empty(s, "float32") for s in call.outputs)
    kernel(*inputs, *outputs)
    result: dict[str, Any] = {"threads": options.threads, **circumstances()}
    for found, wanted in zip(outputs, call.numpy(*(a.astype("float64") for a in inputs)), strict=True):
        off = float(np.max(np.abs(found - wanted)) / np.max(np.abs(wanted)))
        if not off <= TOLERANCE:
            yield {**result, "error": f"wrong result: off by {off:.3g} of the largest element"}
            return
    contenders: dict[str, Callable[[], object]] = {"tir": lambda: kernel(*inputs, *outputs), **rivals}
    timings = race(contenders, Effort(seconds=options.seconds, sample=1e-3))
    result |= {f"{name}_us": timing.median * 1e6 for name, timing in timings.items()}
    if rivals:
        best = min(rivals, key=lambda name: timings[name].median)
        result |= {"best": best, "of_best": ratios(timings["tir"], timings[best])[0]}
    result["timings"] = {name: timing.as_json() for name, timing in timings.items()}
    pages.keep(options.save, "calls", row, result, write)
    yield result


def lines(results: Sequence[dict[str, Any]]) -> pages.Lines:
    """A line a result: microseconds of a call of each contender, and how many times as fast as the best other one ours is."""
    names = list(dict.fromkeys(name for r in results for name in r.get("timings", ())))
    found = []
    for r in results:
        if "timings" not in r:
            found.append(pages.failed(r))
            continue
        cells = (f"{r[key]:.3g}" if (key := f"{name}_us") in r else "-" for name in names)
        found.append([r["row"], str(r["threads"]), *cells, f"{r['of_best']:.2f} ({r['best']})" if "best" in r else "-"])
    return ["row", "threads", *(f"{name} us" for name in names), "x best"], found


table, write = pages.both("calls", "us; x: of the best other one's speed", INTRODUCTION, ROWS, lines)


def _rivals(call: Call, inputs: Arrays, threads: int) -> dict[str, Callable[[], object]]:
    """The calls of the peers that have the function, by name; to be made before any kernel of ours is built (`peers.rivals`)."""
    outputs = tuple(np.empty(s, "float32") for s in call.outputs)
    found: dict[str, Callable[[], object]] = {}
    if (numpy_call := call.numpy_call) is not None:
        found["numpy"] = lambda: numpy_call(*inputs, *outputs)
    if call.torch is not None and peers.installed():
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        found["torch"] = call.torch([torch.from_numpy(a) for a in inputs], [torch.from_numpy(a) for a in outputs])
    if call.numba is not None and find_spec("numba"):
        compiled = call.numba()
        found["numba"] = lambda: compiled(*inputs, *outputs)
    return found
