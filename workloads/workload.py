"""Workloads, their instances at a shape, and the bound on the error of their results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tir.ir import Const, PrimFunc

Arrays = tuple[np.ndarray, ...]
Shape = tuple[int, ...]

DTYPES = ("float32", "float64")

INTRINSIC_ROUNDINGS = 8  # roundings allowed to an intrinsic: 4 ulp are 8 unit roundoffs

MAX_BOUND = 0.1  # largest useful bound, relative to the size of a result
MAX_LOOSE = 0.25  # share of the elements of an output that may have a larger bound, as indices of almost equal maxima
LONG_SUM = 4096  # most products of a sum with random factors; those of longer ones are integers: a lost one is seen in any order
EXACT_SUM = 2**24  # float32 holds all integers up to this one

EPSILON = 1e-5  # added to the variance by layernorm

CACHE_ELEMENTS = 2**16  # elements that numpy processes at a time in several passes, so that they stay in the cache


class Check(NamedTuple):
    """The largest error over all output elements in units of their scale, the bound for it, and whether it holds."""

    max_error: float
    tolerance: float
    ok: bool

    def __str__(self) -> str:
        return f"off by {self.max_error:.3g} of its scale; the tolerance is {self.tolerance:.3g}"


class Bounded(NamedTuple):
    """A float64 reference: an output, the scale of each element, and the number of roundings that its error may accumulate."""

    value: np.ndarray
    scale: np.ndarray
    roundings: float

    def tolerance(self, dtype: str) -> float:
        """The bound for errors, relative to the scale; the reference was rounded as often, in float64. Raises ValueError if more
        than MAX_LOOSE of the results have a bound above MAX_BOUND of their size."""
        bound = gamma(self.roundings, dtype) + gamma(self.roundings, "float64")
        size = np.maximum(np.abs(self.value), np.sqrt(np.mean(np.square(self.value)))) if self.value.size else self.value
        if size.any() and np.mean(bound * self.scale > MAX_BOUND * size) > MAX_LOOSE:
            raise ValueError(f"rounding may change results in {dtype} by more than {MAX_BOUND} of their scale; use a wider dtype")
        return bound


class Parameter(NamedTuple):
    """One size of a workload. Optional ones come last and may be left out of a shape."""

    name: str
    default: int
    meaning: str
    minimum: int = 1
    optional: bool = False


@dataclass(frozen=True)
class Workload:
    """A computation for every shape. The functions take the sizes in the order of `parameters`.

    `build(dtype, *sizes)` is the function in the IR, its inputs before its output; `draw(rng, *sizes)` gives float64 inputs;
    `numpy(dtype, *sizes)` a function of (inputs, outputs) that fills the outputs as fast as numpy can, its workspace allocated
    beforehand; `reference(inputs, *sizes)` the outputs in float64 with their scales, from float64 inputs; `flop(*sizes)` the
    number of floating-point operations; `conflict(*sizes)` the reason why sizes, each in range, exclude each other, or "".
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

    def __str__(self) -> str:
        lines = [f"{self.name} {self.usage}: {self.summary}"]
        lines += [f"  {p.name:8} {p.meaning}, {'may be left out' if p.optional else p.default}" for p in self.parameters]
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        return f"<Workload {self.name} {self.usage}>"

    @property
    def default(self) -> Shape:
        """The sizes used where none are given, without the optional ones."""
        return tuple(p.default for p in self.parameters if not p.optional)

    @property
    def usage(self) -> str:
        """The names of the sizes in order, optional ones in brackets, as in `M,K,N[,batch]`."""
        required = ",".join(p.name for p in self.parameters if not p.optional)
        optional = [p.name for p in self.parameters if p.optional]
        return required + "".join(f"[,{name}" for name in optional) + "]" * len(optional)

    def sizes(self, shape: Sequence[int] | None = None) -> Shape:
        """`shape` checked, or the default. Raises ValueError that names the expected sizes."""
        if shape is None:
            return self.default
        if isinstance(shape, str) or not isinstance(shape, Iterable):
            raise ValueError(f"{self.name}: a shape is a tuple of sizes {self.usage}, got {shape!r}")
        given = tuple(shape)
        text = ",".join(map(str, given)) or "none"
        low, high = len(self.default), len(self.parameters)
        if not low <= len(given) <= high:
            count = f"{low}" if low == high else f"{low} {'or' if high == low + 1 else 'to'} {high}"
            raise ValueError(f"{self.name} takes {count} sizes {self.usage} (got {len(given)}: {text})")
        for p, size in zip(self.parameters, given, strict=False):
            if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < p.minimum:
                kind = "a positive integer" if p.minimum == 1 else f"an integer of at least {p.minimum}"
                got = f"got {size!r} in {self.usage} = {text}"
                raise ValueError(f"{self.name}: {p.name}, the {p.meaning}, must be {kind} ({got})")
        sizes = tuple(int(s) for s in given)
        if reason := self.conflict(*sizes):
            raise ValueError(f"{self.name}: {reason} (got {self.usage} = {text})")
        return sizes


def sums_of_products(
    *,
    shapes: Callable[..., Sequence[Shape]],
    multiply: Callable[..., Callable[..., None]],
    terms: Callable[..., int],
    **fields: Any,
) -> Workload:
    """A workload of two inputs, whose output elements are sums of products of theirs, perhaps with relu.

    `shapes(*sizes)` are those of the inputs and of the output. `multiply(dtype, *sizes)` is a function of (input, input, output)
    that fills the output as fast as numpy can; in float64 it is the reference. `terms(*sizes)` is the number of products in an
    output element: its gamma bounds the error, which is 0 for integers of small sums. relu enlarges no error. `fields` are the
    other ones of the workload.
    """

    def numpy(dtype: str, *sizes: int) -> Callable[[Arrays, Arrays], None]:
        run = multiply(dtype, *sizes)
        return lambda inputs, outputs: run(*inputs, outputs[0])

    def reference(inputs: Arrays, *sizes: int) -> tuple[Bounded, ...]:
        run, output = multiply("float64", *sizes), shapes(*sizes)[-1]
        value, scale = np.empty(output), np.empty(output)
        run(*inputs, value)
        run(*map(np.abs, inputs), scale)
        exact = scale.max(initial=0.0) <= EXACT_SUM and all((a == np.rint(a)).all() for a in inputs)
        return (Bounded(value, scale, 0 if exact else terms(*sizes)),)

    def draw(rng: np.random.Generator, *sizes: int) -> Arrays:
        largest = min(8, math.isqrt(EXACT_SUM // max(1, terms(*sizes))))
        if terms(*sizes) > LONG_SUM and largest:
            return tuple(rng.integers(-largest, largest, shape, endpoint=True).astype(float) for shape in shapes(*sizes)[:-1])
        return tuple(rng.uniform(-1, 1, shape) for shape in shapes(*sizes)[:-1])

    return Workload(draw=draw, numpy=numpy, reference=reference, **fields)


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
        bounds = [e.tolerance(self.dtype) for e in expected]

        def check(outputs: Arrays) -> Check:
            found = [_compare(o, e, b) for o, e, b in zip(outputs, expected, bounds, strict=True)]
            return max(found, key=lambda c: c.max_error / max(c.tolerance, np.finfo(float).tiny))

        return check

    def check(self, outputs: Arrays, inputs: Arrays) -> Check:
        """The outputs against the float64 reference of `inputs`."""
        return self.checker(inputs)(outputs)


def gamma(roundings: float, dtype: str) -> float:
    """Higham's `n u / (1 - n u)`: the bound for the error of n roundings in `dtype`, relative to the scale of the result."""
    product = roundings * float(np.finfo(dtype).eps) / 2
    if product >= 1:
        raise ValueError(
            f"{roundings:.3g} roundings in {dtype} leave no correct digit: there is no error bound; use a wider dtype"
        )
    return product / (1 - product)


def max_error(got: np.ndarray, expected: np.ndarray, scale: np.ndarray) -> float:
    """The largest |got - expected| / scale, of one shape.

    Non-finite elements must be equal, and elements of scale 0 exact, or the error is infinite. At an infinite scale any result is
    right for a finite expected value.
    """
    if expected.size == 0:
        return 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.abs(got - expected) / scale
    error[(scale == math.inf) & np.isfinite(expected)] = 0.0
    if math.isfinite(largest := float(error.max())):
        return largest
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    error = np.where(same, 0.0, np.where(np.isfinite(error), error, math.inf))
    return float(error.max())


def _compare(output: np.ndarray, expected: Bounded, tolerance: float) -> Check:
    if output.shape != expected.value.shape:
        raise ValueError(f"the output has shape {output.shape}, but the reference has {expected.value.shape}")
    worst = max_error(output, expected.value, np.broadcast_to(expected.scale, output.shape))
    return Check(worst, tolerance, worst <= tolerance)


def rows_of(rows: int, columns: int) -> Iterator[slice]:
    """The rows in groups of about CACHE_ELEMENTS elements."""
    step = max(1, CACHE_ELEMENTS // columns)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
