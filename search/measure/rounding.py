"""Bounds of rounding errors: a function, run in float64, that carries an error bound beside each number.

A bound holds for each order of a sum, with products fused or not, and with intermediate results of any wider type. A rounding is
counted once, by the type of the operation, and propagates through the uses of the number:

- An operation rounds to u = eps / 2 of its result (intrinsics to their ulps). Errors of its operands grow by its derivatives;
  those of the arguments of a function by its values at both ends of the interval.
- A sum of n terms errs by n u times the sum of their magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, section
  4.2). A term below u of that sum errs by at most itself. Exact integers err by nothing if the type holds the sum of their
  magnitudes.
- A comparison of operands within their errors may have either result; an element at an uncertain index has no bound (infinity).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from codegen.build import build
from codegen.processor import compiles
from schedule import Schedule, ScheduleError
from tir import dtypes
from tir.arrays import to_float
from tir.interpreter import run
from tir.ir import Axis, PrimFunc, as_int
from tir.traverse import blocks, loads, loops_to, variables
from workloads.workload import MAX_BOUND, MAX_LOOSE

from .error_analysis import WIDE, ErrorAnalysis

SLACK = 2.0  # factor for roundings of the reference itself, and of rewrites that round once more, as products of constants
HALF_SLACK = 1.25  # the same for halves, whose roundings are much larger than these
LANES = 8
MIN_ITERATIONS_TO_SCHEDULE = 10_000_000  # of a nest; below, its run takes less than a longer compilation
ONE_THREAD = "llvm -num-cores 1"


@dataclass(frozen=True)
class Expected:
    """The values of an output, float64 or integers, and the largest distance of a right result from each. The bound is 0 for an
    infinity or NaN, which a result must equal, and infinite if any result may be right."""

    value: np.ndarray
    bound: np.ndarray

    def wrong(self, found: np.ndarray) -> np.ndarray:
        """A mask of the wrong elements of a result, float64 or integers."""
        with np.errstate(invalid="ignore"):
            off = np.abs(found.astype(WIDE) - self.value.astype(WIDE))
        same = (found == self.value) | ((found != found) & (self.value != self.value))
        return ~(same | (off <= self.bound) | (self.bound == math.inf))

    @property
    def relative(self) -> np.ndarray:
        """The bounds relative to the scales of their elements; 0 for an output of zeros, which has no scale."""
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = scale_of(self.value.astype(WIDE))
            return np.where((self.bound == 0) | (scale == 0), 0.0, self.bound / scale)

    @property
    def loose(self) -> bool:
        """True if too many elements have a bound too large for a useful comparison."""
        return bool(self.bound.size) and bool(np.mean(self.relative > MAX_BOUND) > MAX_LOOSE)

    @property
    def tolerance(self) -> float:
        """The largest useful bound, relative to the scale of its element."""
        return float(np.max(self.relative, where=self.relative <= MAX_BOUND, initial=0.0))


class Reference:
    """A function in float64 that gives the expected values of each written parameter, with bounds of rounding errors.

    Raises NoBound for an unsupported program, as one with threads of a GPU.
    """

    def __init__(self, func: PrimFunc):
        self._func, self._analysis = func, ErrorAnalysis(func)
        fast = work(func) > MIN_ITERATIONS_TO_SCHEDULE
        wide = self._analysis.func
        self._kernel = runnable(summed_row_by_row(wide, LANES), "llvm") if fast else runnable(wide, ONE_THREAD)

    def __call__(self, arrays: Sequence) -> dict[int, Expected]:
        """The results, by position, of a call with these arguments, which stay unchanged."""
        found: dict[int, tuple[np.ndarray, ...]] = {}
        given: list = []
        for i, (p, array) in enumerate(zip(self._func.params, arrays, strict=True)):
            if p.name not in self._analysis.stored:
                given.append(array)
                continue
            kept = self._analysis.buffers.get(p.name, (p,))
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


def runnable(func: PrimFunc, target: str) -> Callable[..., Any]:
    """The compiled function, or the interpreted one where no compiler is installed, as in a browser."""
    return build(func, target) if compiles() else partial(run, func)


def work(func: PrimFunc) -> int:
    """The number of iterations of the largest loop nest."""
    points = [math.prod(as_int(loop.extent) for loop in loops_to(func.body, b.name)) for b in blocks(func.body) if b.iters]
    return max(points, default=0)


def summed_row_by_row(func: PrimFunc, lanes: int = 0) -> PrimFunc:
    """The function with reductions outside of the last spatial loop, if that runs along the last dimension of an operand. Each
    sum keeps its order, but many elements are summed at once. With `lanes`, that loop is vectorised by so many, and the outermost
    is parallel."""
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


def scale_of(expected: np.ndarray) -> np.ndarray:
    """The default scale of errors: max(|expected|, rms(expected)), float64."""
    finite = expected[np.isfinite(expected)]
    rms = math.sqrt(float(np.mean(np.square(finite)))) if finite.size else 0.0
    return np.maximum(np.abs(expected), rms)
