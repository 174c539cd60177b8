"""The errors that rounding may make: a function, run in float64, that carries beside each number how far it may be off.

A bound holds for each order in which sums may be made, with products fused or not, and with numbers kept wider than they are
stored. Rounding is counted once where it happens, by the type that is computed, and goes on through what uses the number:

- an operation rounds to u = eps / 2 of its result (intrinsics to their ulps); errors of its operands grow by its derivatives,
  or, of functions, by their values at both ends of the interval;
- a sum of n terms errs by n u times the sum of their magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, section
  4.2), where a term that is less than u of that errs by itself at most; and by nothing where all are exact integers and the sum
  of their magnitudes is one that its type holds;
- what a comparison within its error decides may be either; a number to which an uncertain index leads is not bounded (infinity).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from codegen import build
from schedule import Schedule, ScheduleError
from tir import dtypes
from tir.arrays import to_float
from tir.ir import Axis, PrimFunc, as_int
from tir.traverse import blocks, loads, loops_to, variables

from .carried import WIDE, Carried

SLACK = 2.0  # for what the reference rounds itself, and for rewrites that round once more, as of constants that are multiplied
HALF_SLACK = 1.25  # the same where halves are stored: neither is much of their roundings
LANES = 8
MANY = 10_000_000  # points of loops from which on scheduling them pays
ONE_THREAD = "llvm -num-cores 1"
MAX_BOUND = 0.1  # of the scale of a result: one that is checked within more is not checked
MAX_LOOSE = 0.25  # of the elements of an output may have a larger bound, as indices of almost equal maxima


@dataclass(frozen=True)
class Expected:
    """The values of an output, float64 or integers, and the largest distance of a right result from each: 0 from one that is
    infinite or NaN, which must be met, and infinite where any result may be right."""

    value: np.ndarray
    bound: np.ndarray

    def wrong(self, found: np.ndarray) -> np.ndarray:
        """The elements of a result, float64 or integers, that are wrong."""
        with np.errstate(invalid="ignore"):
            off = np.abs(found.astype(WIDE) - self.value.astype(WIDE))
        same = (found == self.value) | ((found != found) & (self.value != self.value))
        return ~(same | (off <= self.bound) | (self.bound == math.inf))

    @property
    def relative(self) -> np.ndarray:
        """The bounds, as parts of the scale of their elements; 0 where all of an output is 0, which is compared with no scale."""
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = scale_of(self.value.astype(WIDE))
            return np.where((self.bound == 0) | (scale == 0), 0.0, self.bound / scale)

    @property
    def loose(self) -> bool:
        """True where too many results are accepted for a comparison to mean something."""
        return bool(self.bound.size) and bool(np.mean(self.relative > MAX_BOUND) > MAX_LOOSE)

    @property
    def tolerance(self) -> float:
        """The largest bound, relative to the scale of its element, of those that mean something."""
        return float(np.max(self.relative, where=self.relative <= MAX_BOUND, initial=0.0))


class Reference:
    """A function in float64 that gives, beside what each parameter that is written should hold, how far off that may be.

    Raises NoBound for a program that cannot be followed, as one of threads of a GPU.
    """

    def __init__(self, func: PrimFunc):
        self._func, self._carried = func, Carried(func)
        fast = work(func) > MANY
        self._kernel = build(by_rows(self._carried.func, LANES) if fast else self._carried.func, "llvm" if fast else ONE_THREAD)

    def __call__(self, arrays: Sequence) -> dict[int, Expected]:
        """The results, by position, of a call with these arguments, which are left as they are."""
        found: dict[int, tuple[np.ndarray, ...]] = {}
        given: list = []
        for i, (p, array) in enumerate(zip(self._func.params, arrays, strict=True)):
            if p.name not in self._carried.stored:
                given.append(array)
                continue
            kept = self._carried.buffers.get(p.name, (p,))
            value = to_float(array, p.dtype) if dtypes.is_float(p.dtype) else np.array(array)
            found[i] = (value, *(np.zeros(array.shape) for _ in kept[1:]))
            given += found[i]
        self._kernel(*given)
        return {i: self._expected(self._func.params[i].dtype, *kept) for i, kept in found.items()}

    def _expected(self, dtype: str, value: np.ndarray, *kept: np.ndarray) -> Expected:
        error = kept[0] if kept else np.zeros(value.shape)
        if len(kept) > 1:
            _, size, terms = kept
            rounded = (error != 0) | (size > dtypes.exact_integers(dtype))
            with np.errstate(invalid="ignore"):
                error = np.where(np.isfinite(value), error + rounded * dtypes.unit(dtype) * size * terms, 0.0)
        slack = HALF_SLACK if dtypes.is_half(dtype) else SLACK
        return Expected(value, slack * np.where(np.isnan(error), math.inf, error))


def work(func: PrimFunc) -> int:
    """The number of points of the largest nest of loops, as far as their extents are known."""
    points = [math.prod(as_int(loop.extent) for loop in loops_to(func.body, b.name)) for b in blocks(func.body) if b.iters]
    return max(points, default=0)


def by_rows(func: PrimFunc, lanes: int = 0) -> PrimFunc:
    """A function whose reductions lie outside of the last spatial loop, where that walks along rows of what is read: each sum is
    made in the order that it had, but of many elements at once. With `lanes`, of so many, and by all threads."""
    schedule = Schedule(func)
    for block in blocks(func.body):
        spatial, reduced = ([it for it in block.iters if it.axis is axis] for axis in (Axis.SPATIAL, Axis.REDUCE))
        rows = {name for load in loads(block.body) if load.indices for name in variables(load.indices[-1])}
        if spatial and reduced and spatial[-1].var.name in rows - {it.var.name for it in reduced}:
            with suppress(ScheduleError):
                schedule.reorder(*(str(it.binding) for it in (*spatial[:-1], *reduced, spatial[-1])))
        elif reduced:
            continue
        if lanes and spatial:
            with suppress(ScheduleError):
                schedule.vectorize(schedule.split(str(spatial[-1].binding), [None, lanes])[1])
            with suppress(ScheduleError):
                schedule.parallel(schedule.get_loops(block.name)[0])
    return schedule.func


def scale_of(expected: np.ndarray, least: float = 0.0) -> np.ndarray:
    """The size that errors are measured against where nothing better is known: max(|expected|, rms(expected), least), float64."""
    finite = expected[np.isfinite(expected)]
    rms = math.sqrt(float(np.mean(np.square(finite)))) if finite.size else 0.0
    return np.maximum(np.abs(expected), max(rms, least))
