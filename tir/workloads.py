"""Named computations to tune, each with its formula, inputs, a numpy implementation, a float64 reference and an error bound.

    instance = workloads.make("mlp", (7, 13, 109, 5))
    inputs, outputs = instance.inputs(rng), instance.outputs()
    kernel(*inputs, *outputs)
    error, tolerance, ok = instance.check(outputs, inputs)

Errors are measured in units of the data: each output element has a *scale*, the sum of the absolute values of the terms that
make it up, and its error is `|computed - reference| / scale`. Against it stands the a-priori bound of Higham, Accuracy and
Stability of Numerical Algorithms (2nd ed., section 3.1): where rounding errors accumulate over `n` operations, the result is off
by at most `gamma(n) = n u / (1 - n u)` in that measure, whatever the order of the sums and whether or not multiplications and
additions are fused; `u` is the unit roundoff. Each reference below derives its `n`. The inputs are drawn such that one iteration
missing from a reduction exceeds the bound at sizes up to some thousands.

Floating-point operations are counted as in the field: each `+ - * / max` and each intrinsic (exp, rsqrt) on elements is one,
where the formula says it, including those on padding; comparisons, selections, conversions and index arithmetic count nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from . import te
from .ir import Const, PrimFunc

__all__ = ["Bounded", "Check", "Instance", "Parameter", "Workload", "gamma", "get", "make", "names"]

Arrays = tuple[np.ndarray, ...]
Shape = tuple[int, ...]

DTYPES = ("float32", "float64")

INTRINSIC = 8  # roundings allowed to an intrinsic: 4 ulp are 8 unit roundoffs

EPSILON = 1e-5  # added to the variance by layernorm

BLOCK = 2**16  # elements that numpy works on at a time where it makes several passes, so that they stay in the cache


class Check(NamedTuple):
    """The largest error over all output elements in units of their scale, the bound for it, and whether it holds."""

    max_error: float
    tolerance: float
    ok: bool


class Bounded(NamedTuple):
    """A float64 reference: an output, the scale of each element, and how many roundings its error may accumulate."""

    value: np.ndarray
    scale: np.ndarray
    roundings: float


class Parameter(NamedTuple):
    """One size of a workload. Optional ones come last and may be left out of a shape."""

    name: str
    default: int
    meaning: str
    least: int = 1
    optional: bool = False


@dataclass(frozen=True)
class Workload:
    """A family of computations, one a shape. The functions take the sizes in the order of `parameters`.

    `build(dtype, *sizes)` is the function in the IR, its inputs before its output; `draw(rng, *sizes)` gives float64 inputs;
    `numpy(dtype, *sizes)` a function of (inputs, outputs) that fills the outputs as fast as numpy can, its workspace allocated
    beforehand; `reference(inputs, *sizes)` the outputs in float64 with their scales, from float64 inputs; `flop(*sizes)` the
    number of floating-point operations; `conflict(*sizes)` why sizes that are each in range do not go together, or nothing.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    build: Callable[..., PrimFunc]
    draw: Callable[..., Arrays]
    numpy: Callable[..., Callable[[Arrays, Arrays], None]]
    reference: Callable[..., tuple[Bounded, ...]]
    flop: Callable[..., int]
    conflict: Callable[..., str] = lambda *sizes: ""

    @property
    def default(self) -> Shape:
        """The sizes used where none are given, without the optional ones."""
        return tuple(p.default for p in self.parameters if not p.optional)

    @property
    def usage(self) -> str:
        """The names of the sizes in order, as in `M,K,N[,batch]`."""
        required = ",".join(p.name for p in self.parameters if not p.optional)
        return required + "".join(f"[,{p.name}]" for p in self.parameters if p.optional)

    def sizes(self, shape: Sequence[int] | None = None) -> Shape:
        """`shape` checked, or the default. Raises ValueError that says what was expected."""
        if shape is None:
            return self.default
        given = tuple(shape)
        text = ",".join(map(str, given)) or "none"
        least, most = len(self.default), len(self.parameters)
        if not least <= len(given) <= most:
            count = f"{least}" if least == most else f"{least} or {most}"
            raise ValueError(f"{self.name} takes {count} sizes {self.usage} (got {len(given)}: {text})")
        for p, size in zip(self.parameters, given, strict=False):
            if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < p.least:
                kind = "a positive integer" if p.least == 1 else f"an integer of at least {p.least}"
                got = f"got {size!r} in {self.usage} = {text}"
                raise ValueError(f"{self.name}: {p.name}, the {p.meaning}, must be {kind} ({got})")
        sizes = tuple(int(s) for s in given)
        if reason := self.conflict(*sizes):
            raise ValueError(f"{self.name}: {reason} (got {self.usage} = {text})")
        return sizes


@dataclass(frozen=True)
class Instance:
    """A workload at one shape and dtype: `func` is its function in the IR, `flop` counts its floating-point operations.

    `numpy(inputs, outputs)` fills the outputs as fast as numpy can. It keeps a workspace: one thread at a time may call it.
    """

    workload: Workload
    shape: Shape
    dtype: str
    func: PrimFunc
    flop: int
    numpy: Callable[[Arrays, Arrays], None]

    @property
    def name(self) -> str:
        return self.workload.name

    def inputs(self, rng: np.random.Generator) -> Arrays:
        """Random inputs in call order, C-contiguous and of this dtype."""
        return tuple(np.ascontiguousarray(a, dtype=self.dtype) for a in self.workload.draw(rng, *self.shape))

    def outputs(self) -> Arrays:
        """A new output, full of NaN, so that an element which is never written is seen."""
        shape = [int(n.value) for n in self.func.buffers[-1].shape if isinstance(n, Const)]
        return (np.full(shape, np.nan, self.dtype),)

    def reference(self, inputs: Arrays) -> tuple[Bounded, ...]:
        """The outputs in float64, with the scale of each element."""
        return self.workload.reference(tuple(a.astype(np.float64) for a in inputs), *self.shape)

    def checker(self, inputs: Arrays) -> Callable[[Arrays], Check]:
        """A function from outputs to their Check, for many outputs of the same inputs: the reference is computed once."""
        expected = self.reference(inputs)

        def check(outputs: Arrays) -> Check:
            found = [_compare(o, e, self.dtype) for o, e in zip(outputs, expected, strict=True)]
            return max(found, key=lambda c: c.max_error / c.tolerance)

        return check

    def check(self, outputs: Arrays, inputs: Arrays) -> Check:
        """The outputs against the float64 reference of `inputs`."""
        return self.checker(inputs)(outputs)


def names() -> tuple[str, ...]:
    """The names of all workloads."""
    return tuple(_WORKLOADS)


def get(name: str) -> Workload:
    """The workload of that name. Raises ValueError with the list of those there are."""
    if name not in _WORKLOADS:
        near = difflib.get_close_matches(name.lower(), _WORKLOADS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"no workload is named {name!r}; {hint}there are: {', '.join(_WORKLOADS)}")
    return _WORKLOADS[name]


def make(name: str, shape: Sequence[int] | None = None, dtype: str = "float32") -> Instance:
    """The workload `name` at `shape` (sizes in the order of its parameters, None for its default) in float32 or float64."""
    workload = get(name)
    sizes = workload.sizes(shape)
    if dtype not in DTYPES:
        raise ValueError(f"{name}: workloads compute in {' or '.join(DTYPES)}, got dtype {dtype!r}")
    return Instance(workload, sizes, dtype, workload.build(dtype, *sizes), workload.flop(*sizes), workload.numpy(dtype, *sizes))


def gamma(roundings: float, dtype: str) -> float:
    """Higham's `n u / (1 - n u)`: how far n roundings in `dtype` may take a result from the exact one, relative to its scale."""
    product = roundings * float(np.finfo(dtype).eps) / 2
    if product >= 1:
        raise ValueError(
            f"{roundings:.3g} roundings in {dtype} leave no correct digit: there is no error bound; use a wider dtype"
        )
    return product / (1 - product)


def _compare(output: np.ndarray, expected: Bounded, dtype: str) -> Check:
    if output.shape != expected.value.shape:
        raise ValueError(f"the output has shape {output.shape}, but the reference has {expected.value.shape}")
    # The reference was rounded as often, in float64.
    tolerance = gamma(expected.roundings, dtype) + gamma(expected.roundings, "float64")
    error = np.abs(output - expected.value)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0, 0.0, error / expected.scale)
    worst = float(np.max(np.where(np.isnan(ratio), np.inf, ratio)))
    return Check(worst, tolerance, worst <= tolerance)


def _rows(rows: int, columns: int) -> Iterator[slice]:
    """The rows in groups of about BLOCK elements."""
    step = max(1, BLOCK // columns)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


# --- mlp: F = exp(A·B)·E -----------------------------------------------------------------------------------------------


def _mlp_build(dtype: str, M: int, K: int, L: int, N: int) -> PrimFunc:
    A = te.placeholder((M, K), dtype, name="A")
    B = te.placeholder((K, L), dtype, name="B")
    E = te.placeholder((L, N), dtype, name="E")
    rk = te.reduce_axis((0, K), name="rk")
    rl = te.reduce_axis((0, L), name="rl")
    C = te.compute((M, L), lambda m, l: te.sum(A[m, rk] * B[rk, l], axis=rk), name="C")
    D = te.compute((M, L), lambda m, l: te.exp(C[m, l]), name="D")
    F = te.compute((M, N), lambda m, n: te.sum(D[m, rl] * E[rl, n], axis=rl), name="F")
    return te.create_prim_func([A, B, E, F], name="mlp")


def _mlp_draw(rng: np.random.Generator, M: int, K: int, L: int, N: int) -> Arrays:
    """Nonnegative, so that errors do not cancel out of sight; each row of A and column of B has its own magnitude, such that the
    elements of A·B lie around 0.25 to 2.25 at any K."""
    top = 2 / sqrt(K)
    A = rng.uniform(0, top, (M, K)) * rng.uniform(0.5, 1.5, (M, 1))
    B = rng.uniform(0, top, (K, L)) * rng.uniform(0.5, 1.5, (1, L))
    return A, B, rng.uniform(0, 1, (L, N))


def _mlp_numpy(dtype: str, M: int, K: int, L: int, N: int) -> Callable[[Arrays, Arrays], None]:
    D = np.empty((M, L), dtype)

    def run(inputs: Arrays, outputs: Arrays) -> None:
        A, B, E = inputs
        np.matmul(A, B, out=D)
        np.exp(D, out=D)
        np.matmul(D, E, out=outputs[0])

    return run


def _mlp_reference(inputs: Arrays, M: int, K: int, L: int, N: int) -> tuple[Bounded, ...]:
    """C is off by at most gamma(K) |A||B|, which exp makes a relative error of D; exp itself and the sum over L add theirs."""
    A, B, E = inputs
    D = np.exp(A @ B)
    magnitude = float(np.max(np.abs(A) @ np.abs(B)))
    return (Bounded(D @ E, D @ np.abs(E), K * magnitude + INTRINSIC + L),)


# --- gmm: C = A·B ------------------------------------------------------------------------------------------------------


def _gmm_build(dtype: str, M: int, K: int, N: int, batch: int | None = None) -> PrimFunc:
    k = te.reduce_axis((0, K), name="k")
    if batch is None:
        A = te.placeholder((M, K), dtype, name="A")
        B = te.placeholder((K, N), dtype, name="B")
        C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    else:
        A = te.placeholder((batch, M, K), dtype, name="A")
        B = te.placeholder((batch, K, N), dtype, name="B")
        C = te.compute((batch, M, N), lambda b, i, j: te.sum(A[b, i, k] * B[b, k, j], axis=k), name="C")
    return te.create_prim_func([A, B, C], name="gmm")


def _gmm_draw(rng: np.random.Generator, M: int, K: int, N: int, batch: int | None = None) -> Arrays:
    lead = () if batch is None else (batch,)
    return rng.uniform(-1, 1, (*lead, M, K)), rng.uniform(-1, 1, (*lead, K, N))


def _gmm_numpy(dtype: str, *sizes: int) -> Callable[[Arrays, Arrays], None]:
    def run(inputs: Arrays, outputs: Arrays) -> None:
        np.matmul(inputs[0], inputs[1], out=outputs[0])

    return run


def _gmm_reference(inputs: Arrays, M: int, K: int, N: int, batch: int | None = None) -> tuple[Bounded, ...]:
    """An inner product of length K: gamma(K) |A||B|."""
    A, B = inputs
    return (Bounded(A @ B, np.abs(A) @ np.abs(B), K),)


# --- conv2d and depthwise ----------------------------------------------------------------------------------------------


def _extent(size: int, kernel: int, stride: int, padding: int) -> int:
    return (size + 2 * padding - kernel) // stride + 1


def _fit(H: int, W: int, KH: int, KW: int, padding: int) -> str:
    if KH > H + 2 * padding or KW > W + 2 * padding:
        return f"a kernel of {KH}x{KW} does not fit the padded image of {H + 2 * padding}x{W + 2 * padding}"
    return ""


def _padded(X: te.Tensor, padding: int, dtype: str) -> te.Tensor:
    if padding == 0:
        return X
    N, C, H, W = X.shape

    def value(n, c, h, w):
        inside = te.all(h >= padding, h < H + padding, w >= padding, w < W + padding)
        return te.if_then_else(inside, X[n, c, h - padding, w - padding], te.const(0, dtype))

    return te.compute((N, C, H + 2 * padding, W + 2 * padding), value, name="pad")


def _pad(x: np.ndarray, padding: int) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))


def _windows(x: np.ndarray, KH: int, KW: int, stride: int) -> np.ndarray:
    """A view (..., OH, OW, KH, KW) of what each output of a convolution over the last two axes sees."""
    return sliding_window_view(x, (KH, KW), axis=(-2, -1))[..., ::stride, ::stride, :, :]


def _conv2d_build(dtype: str, N: int, H: int, W: int, CI: int, CO: int, KH: int, KW: int, stride: int, padding: int) -> PrimFunc:
    X = te.placeholder((N, CI, H, W), dtype, name="X")
    K = te.placeholder((CO, CI, KH, KW), dtype, name="K")
    pad = _padded(X, padding, dtype)
    rc, rh, rw = te.reduce_axis((0, CI), "rc"), te.reduce_axis((0, KH), "rh"), te.reduce_axis((0, KW), "rw")
    shape = (N, CO, _extent(H, KH, stride, padding), _extent(W, KW, stride, padding))

    def value(n, co, oh, ow):
        return te.sum(pad[n, rc, oh * stride + rh, ow * stride + rw] * K[co, rc, rh, rw], axis=[rc, rh, rw])

    conv = te.compute(shape, value, name="conv")
    Y = te.compute(shape, lambda n, co, oh, ow: te.maximum(conv[n, co, oh, ow], te.const(0, dtype)), name="Y")
    return te.create_prim_func([X, K, Y], name="conv2d")


def _conv2d_draw(rng: np.random.Generator, N: int, H: int, W: int, CI: int, CO: int, KH: int, KW: int, *_: int) -> Arrays:
    return rng.uniform(-1, 1, (N, CI, H, W)), rng.uniform(-1, 1, (CO, CI, KH, KW))


def _conv2d_numpy(
    dtype: str, N: int, H: int, W: int, CI: int, CO: int, KH: int, KW: int, stride: int, padding: int
) -> Callable[[Arrays, Arrays], None]:
    """Image to columns and one matrix product an image; a pointwise convolution needs no columns."""
    OH, OW = _extent(H, KH, stride, padding), _extent(W, KW, stride, padding)
    padded = np.zeros((CI, H + 2 * padding, W + 2 * padding), dtype)
    interior = padded[:, padding : padding + H, padding : padding + W]
    columns = np.empty((CI, KH, KW, OH, OW), dtype)
    pointwise = KH == KW == stride == 1

    def run(inputs: Arrays, outputs: Arrays) -> None:
        X, K = inputs
        kernel = K.reshape(CO, CI * KH * KW)
        for image, out in zip(X, outputs[0], strict=True):
            source = image
            if padding:
                interior[...] = image
                source = padded
            if pointwise:
                matrix = source.reshape(CI, OH * OW)
            else:
                columns[...] = np.moveaxis(_windows(source, KH, KW, stride), (3, 4), (1, 2))
                matrix = columns.reshape(CI * KH * KW, OH * OW)
            np.matmul(kernel, matrix, out=out.reshape(CO, OH * OW))
            np.maximum(out, 0, out=out)

    return run


def _conv2d_reference(
    inputs: Arrays, N: int, H: int, W: int, CI: int, CO: int, KH: int, KW: int, stride: int, padding: int
) -> tuple[Bounded, ...]:
    """An inner product of length CI·KH·KW; relu enlarges no error."""

    def convolve(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        windows = _windows(_pad(x, padding), KH, KW, stride)
        return np.moveaxis(np.tensordot(windows, kernel, ([1, 4, 5], [1, 2, 3])), 3, 1)

    X, K = inputs
    return (Bounded(np.maximum(convolve(X, K), 0), convolve(np.abs(X), np.abs(K)), CI * KH * KW),)


def _conv2d_flop(N: int, H: int, W: int, CI: int, CO: int, KH: int, KW: int, stride: int, padding: int) -> int:
    return N * CO * _extent(H, KH, stride, padding) * _extent(W, KW, stride, padding) * (2 * CI * KH * KW + 1)


def _depthwise_build(dtype: str, N: int, H: int, W: int, C: int, KH: int, KW: int, stride: int, padding: int) -> PrimFunc:
    X = te.placeholder((N, C, H, W), dtype, name="X")
    K = te.placeholder((C, KH, KW), dtype, name="K")
    pad = _padded(X, padding, dtype)
    rh, rw = te.reduce_axis((0, KH), "rh"), te.reduce_axis((0, KW), "rw")
    shape = (N, C, _extent(H, KH, stride, padding), _extent(W, KW, stride, padding))

    def value(n, c, oh, ow):
        return te.sum(pad[n, c, oh * stride + rh, ow * stride + rw] * K[c, rh, rw], axis=[rh, rw])

    conv = te.compute(shape, value, name="conv")
    Y = te.compute(shape, lambda n, c, oh, ow: te.maximum(conv[n, c, oh, ow], te.const(0, dtype)), name="Y")
    return te.create_prim_func([X, K, Y], name="depthwise")


def _depthwise_draw(rng: np.random.Generator, N: int, H: int, W: int, C: int, KH: int, KW: int, *_: int) -> Arrays:
    return rng.uniform(-1, 1, (N, C, H, W)), rng.uniform(-1, 1, (C, KH, KW))


def _depthwise_numpy(
    dtype: str, N: int, H: int, W: int, C: int, KH: int, KW: int, stride: int, padding: int
) -> Callable[[Arrays, Arrays], None]:
    """One multiplication and addition of whole planes for each kernel element, some channels at a time."""
    OH, OW = _extent(H, KH, stride, padding), _extent(W, KW, stride, padding)
    groups = list(_rows(C, OH * OW))
    largest = groups[0].stop
    padded = np.zeros((largest, H + 2 * padding, W + 2 * padding), dtype)
    product = np.empty((largest, OH, OW), dtype)

    def run(inputs: Arrays, outputs: Arrays) -> None:
        X, K = inputs
        for n in range(N):
            for group in groups:
                out, kernel, source = outputs[0][n, group], K[group], X[n, group]
                if padding:
                    padded[: len(source), padding : padding + H, padding : padding + W] = source
                    source = padded[: len(source)]
                windows = _windows(source, KH, KW, stride)
                term = product[: len(out)]
                np.multiply(windows[..., 0, 0], kernel[:, 0, 0, None, None], out=out)
                for i, j in list(np.ndindex(KH, KW))[1:]:
                    np.multiply(windows[..., i, j], kernel[:, i, j, None, None], out=term)
                    np.add(out, term, out=out)
                np.maximum(out, 0, out=out)

    return run


def _depthwise_reference(
    inputs: Arrays, N: int, H: int, W: int, C: int, KH: int, KW: int, stride: int, padding: int
) -> tuple[Bounded, ...]:
    """An inner product of length KH·KW; relu enlarges no error."""

    def convolve(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        return np.einsum("nchwij,cij->nchw", _windows(_pad(x, padding), KH, KW, stride), kernel)

    X, K = inputs
    return (Bounded(np.maximum(convolve(X, K), 0), convolve(np.abs(X), np.abs(K)), KH * KW),)


def _depthwise_flop(N: int, H: int, W: int, C: int, KH: int, KW: int, stride: int, padding: int) -> int:
    return N * C * _extent(H, KH, stride, padding) * _extent(W, KW, stride, padding) * (2 * KH * KW + 1)


# --- softmax -----------------------------------------------------------------------------------------------------------


def _softmax_build(dtype: str, rows: int, columns: int) -> PrimFunc:
    X = te.placeholder((rows, columns), dtype, name="X")
    k = te.reduce_axis((0, columns), name="k")
    top = te.compute((rows,), lambda i: te.max(X[i, k], axis=k), name="top")
    power = te.compute((rows, columns), lambda i, j: te.exp(X[i, j] - top[i]), name="power")
    total = te.compute((rows,), lambda i: te.sum(power[i, k], axis=k), name="total")
    Y = te.compute((rows, columns), lambda i, j: power[i, j] / total[i], name="Y")
    return te.create_prim_func([X, Y], name="softmax")


def _softmax_draw(rng: np.random.Generator, rows: int, columns: int) -> Arrays:
    """Rows with magnitudes of their own, up to where exp would overflow in float32 if the largest element were not subtracted."""
    return (rng.uniform(-4, 4, (rows, columns)) + rng.uniform(-200, 200, (rows, 1)),)


def _softmax_numpy(dtype: str, rows: int, columns: int) -> Callable[[Arrays, Arrays], None]:
    def run(inputs: Arrays, outputs: Arrays) -> None:
        for group in _rows(rows, columns):
            x, y = inputs[0][group], outputs[0][group]
            np.subtract(x, np.max(x, axis=1, keepdims=True), out=y)
            np.exp(y, out=y)
            np.divide(y, np.sum(y, axis=1, keepdims=True), out=y)

    return run


def _softmax_reference(inputs: Arrays, rows: int, columns: int) -> tuple[Bounded, ...]:
    """The difference is rounded once, which exp makes a relative error of up to its magnitude, and exp adds its own; both occur
    in the numerator and in the sum of positive terms, which adds gamma(columns); the division is one rounding."""
    difference = inputs[0] - np.max(inputs[0], axis=1, keepdims=True)
    power = np.exp(difference)
    value = power / np.sum(power, axis=1, keepdims=True)
    return (Bounded(value, value, 2 * (float(-difference.min()) + INTRINSIC) + columns + 1),)


# --- layernorm ---------------------------------------------------------------------------------------------------------


def _layernorm_build(dtype: str, rows: int, columns: int) -> PrimFunc:
    X = te.placeholder((rows, columns), dtype, name="X")
    weight = te.placeholder((columns,), dtype, name="weight")
    bias = te.placeholder((columns,), dtype, name="bias")
    k = te.reduce_axis((0, columns), name="k")
    size, epsilon = te.const(columns, dtype), te.const(EPSILON, dtype)
    total = te.compute((rows,), lambda i: te.sum(X[i, k], axis=k), name="total")
    mean = te.compute((rows,), lambda i: total[i] / size, name="mean")
    centred = te.compute((rows, columns), lambda i, j: X[i, j] - mean[i], name="centred")
    squares = te.compute((rows,), lambda i: te.sum(centred[i, k] * centred[i, k], axis=k), name="squares")
    factor = te.compute((rows,), lambda i: te.rsqrt(squares[i] / size + epsilon), name="factor")
    Y = te.compute((rows, columns), lambda i, j: centred[i, j] * factor[i] * weight[j] + bias[j], name="Y")
    return te.create_prim_func([X, weight, bias, Y], name="layernorm")


def _layernorm_draw(rng: np.random.Generator, rows: int, columns: int) -> Arrays:
    """Of both signs, with a mean that is not zero."""
    return rng.uniform(-1, 2, (rows, columns)), rng.uniform(0.5, 1.5, columns), rng.uniform(-1, 1, columns)


def _layernorm_numpy(dtype: str, rows: int, columns: int) -> Callable[[Arrays, Arrays], None]:
    def run(inputs: Arrays, outputs: Arrays) -> None:
        X, weight, bias = inputs
        for group in _rows(rows, columns):
            x, y = X[group], outputs[0][group]
            np.subtract(x, np.mean(x, axis=1, keepdims=True), out=y)
            squares = np.einsum("ij,ij->i", y, y)
            np.multiply(y, (1 / np.sqrt(squares / columns + EPSILON)).astype(dtype)[:, None], out=y)
            np.multiply(y, weight, out=y)
            np.add(y, bias, out=y)

    return run


def _layernorm_reference(inputs: Arrays, rows: int, columns: int) -> tuple[Bounded, ...]:
    """With a = mean |x|, d = x - mean, f = 1/sqrt(variance + epsilon) and t = d f weight, to first order in u, for c columns:

    mean       off by (c + 1) a u, so d by (c + 1) a u + |d| u;
    variance   off, relative to variance + epsilon, by (c + 6) u of its own roundings and by 2 (c + 1) a f u from the mean;
    f          relatively off by half of that and an intrinsic's error;
    t + bias   |weight| f (c + 1) a u + |t| (1 + (c + 6)/2 + (c + 1) a f + INTRINSIC + 2) u + |t + bias| u.

    The coefficients of |t|, |bias| and |weight| f a are each at most the n returned.
    """
    X, weight, bias = inputs
    centred = X - X.mean(axis=1, keepdims=True)
    factor = 1 / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + EPSILON)
    spread = factor * np.mean(np.abs(X), axis=1, keepdims=True)
    term = centred * factor * weight
    scale = np.abs(term) + np.abs(bias) + np.abs(weight) * spread
    roundings = (columns + 6) * (0.5 + float(np.max(spread))) + columns / 2 + INTRINSIC + 4
    return (Bounded(term + bias, scale, roundings),)


# --- the registry ------------------------------------------------------------------------------------------------------


def _convolution(*channels: Parameter, size: int) -> tuple[Parameter, ...]:
    return (
        Parameter("N", 1, "number of images"),
        Parameter("H", size, "height of an image"),
        Parameter("W", size, "width of an image"),
        *channels,
        Parameter("KH", 3, "height of the kernel"),
        Parameter("KW", 3, "width of the kernel"),
        Parameter("stride", 1, "stride"),
        Parameter("padding", 1, "padding on each side", least=0),
    )


_MATRIX = (Parameter("rows", 1024, "number of rows"), Parameter("columns", 1024, "number of columns"))

_WORKLOADS = {
    w.name: w
    for w in (
        Workload(
            name="mlp",
            summary="F = exp(A·B)·E: two matrix products with an exponential between them",
            parameters=(
                Parameter("M", 1024, "number of rows of A and F"),
                Parameter("K", 2048, "number of columns of A"),
                Parameter("L", 1024, "number of columns of B"),
                Parameter("N", 3072, "number of columns of E and F"),
            ),
            build=_mlp_build,
            draw=_mlp_draw,
            numpy=_mlp_numpy,
            reference=_mlp_reference,
            flop=lambda M, K, L, N: 2 * M * K * L + M * L + 2 * M * L * N,
        ),
        Workload(
            name="gmm",
            summary="C = A·B: a matrix product, or a batch of them",
            parameters=(
                Parameter("M", 1024, "number of rows of A and C"),
                Parameter("K", 1024, "number of columns of A"),
                Parameter("N", 1024, "number of columns of B and C"),
                Parameter("batch", 1, "number of matrix products", optional=True),
            ),
            build=_gmm_build,
            draw=_gmm_draw,
            numpy=_gmm_numpy,
            reference=_gmm_reference,
            flop=lambda M, K, N, batch=1: 2 * M * K * N * batch,
        ),
        Workload(
            name="conv2d",
            summary="a convolution of NCHW images with zero padding, then relu",
            parameters=_convolution(
                Parameter("CI", 64, "number of input channels"), Parameter("CO", 64, "number of output channels"), size=56
            ),
            build=_conv2d_build,
            draw=_conv2d_draw,
            numpy=_conv2d_numpy,
            reference=_conv2d_reference,
            flop=_conv2d_flop,
            conflict=lambda N, H, W, CI, CO, KH, KW, stride, padding: _fit(H, W, KH, KW, padding),
        ),
        Workload(
            name="depthwise",
            summary="a convolution of each channel with a kernel of its own, with zero padding, then relu",
            parameters=_convolution(Parameter("C", 32, "number of channels"), size=112),
            build=_depthwise_build,
            draw=_depthwise_draw,
            numpy=_depthwise_numpy,
            reference=_depthwise_reference,
            flop=_depthwise_flop,
            conflict=lambda N, H, W, C, KH, KW, stride, padding: _fit(H, W, KH, KW, padding),
        ),
        Workload(
            name="softmax",
            summary="softmax of each row, numerically stable: largest element, exponentials, their sum, quotient",
            parameters=_MATRIX,
            build=_softmax_build,
            draw=_softmax_draw,
            numpy=_softmax_numpy,
            reference=_softmax_reference,
            flop=lambda rows, columns: 5 * rows * columns,
        ),
        Workload(
            name="layernorm",
            summary="each row minus its mean, over its standard deviation, times a weight, plus a bias",
            parameters=_MATRIX,
            build=_layernorm_build,
            draw=_layernorm_draw,
            numpy=_layernorm_numpy,
            reference=_layernorm_reference,
            flop=lambda rows, columns: rows * (7 * columns + 4),
        ),
    )
}
