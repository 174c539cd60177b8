"""Comparison of two functions: equal numbers, or the first place where they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from schedule import Schedule
from tir.arrays import to_float
from tir.dtypes import is_float
from tir.ir import Buffer, PrimFunc, const_shape, need_func

from .measure.error_analysis import NoBound
from .measure.exact import largest_integers
from .measure.reference import DISTRIBUTIONS, outputs, random_inputs
from .measure.rounding import MAX_BOUND, ONE_THREAD, Expected, Reference, runnable


@dataclass(frozen=True)
class Equivalence:
    """The comparison of two functions on random inputs of so many `seeds`; true if their results agree.

    Results that are exact on integers are compared bit by bit. Others are compared with the first function in float64, within the
    bound of rounding errors. `tolerance` is the largest bound, relative to the scale of an element. `difference` is the first
    difference, empty if they agree.
    """

    seeds: int
    tolerance: float
    difference: str = ""

    def __bool__(self) -> bool:
        return not self.difference

    def __str__(self) -> str:
        if self.difference:
            return f"different: {self.difference}"
        how = f"within {self.tolerance:.3g} of the scale of each element" if self.tolerance else "bit by bit"
        return f"equal on {self.seeds} random inputs, {how}"


def equivalent(f: PrimFunc | Schedule, g: PrimFunc | Schedule, *, seeds: int = 3, target: str = ONE_THREAD) -> Equivalence:
    """Run two functions or schedules on the same random inputs, and compare their outputs.

    TypeError or ValueError for different shapes or dtypes of parameters, an open size, or rounding errors so large that they hide
    any fault; also the errors of `tir.build`. Without LLVM, the interpreter runs both.
    """
    one, other = (x.func if isinstance(x, Schedule) else need_func(x, "equivalent") for x in (f, g))
    mine, its = ([(p.dtype, const_shape(p)) if isinstance(p, Buffer) else p for p in x.params] for x in (one, other))
    if mine != its:
        raise ValueError(
            f"{one.name} and {other.name} take different parameters: {_parameters(one)} against {_parameters(other)}"
        )
    kernels = [runnable(x, target) for x in (one, other)]
    integers = largest_integers(one)
    reference = None if integers is not None else _reference(one, other)
    distribution, bound = 0, 0.0
    for seed in range(seeds):
        inputs = random_inputs(one, np.random.default_rng(seed), distribution, integers)
        expected = {} if reference is None else reference(inputs)
        while reference is not None and any(e.loose for e in expected.values()):
            distribution += 1
            if distribution == len(DISTRIBUTIONS):
                loose = next(one.params[n].name for n, e in expected.items() if e.loose)
                what = f"rounding may change `{loose}` by more than {MAX_BOUND} of its scale; sum up in a wider type"
                raise ValueError(f"{one.name}: results cannot be compared: {what}")
            inputs = random_inputs(one, np.random.default_rng(seed), distribution)
            expected = reference(inputs)
        bound = max([bound, *(e.tolerance for e in expected.values())])
        results = [[a.copy() for a in inputs] for _ in kernels]
        for kernel, arrays in zip(kernels, results, strict=True):
            kernel(*arrays)
        for n in sorted({*outputs(one), *outputs(other)}):
            found = _difference(one.params[n], results[0][n], results[1][n], expected.get(n))
            if found:
                return Equivalence(seeds, bound, f"{found}, on the inputs of seed {seed}")
    return Equivalence(seeds, bound)


def _reference(one: PrimFunc, other: PrimFunc) -> Reference:
    """The first function in float64; the second if the errors of the first cannot be bounded."""
    try:
        return Reference(one)
    except NoBound:
        return Reference(other)


def _parameters(func: PrimFunc) -> str:
    return ", ".join(f"{p.name}: {p.dtype}{list(const_shape(p)) if isinstance(p, Buffer) else ''}" for p in func.params)


def _difference(p: Any, a: np.ndarray, b: np.ndarray, expected: Expected | None) -> str:
    """The first difference of two arrays, or of one from the expected values, beyond rounding errors; empty if none."""
    x, y = (to_float(r, p.dtype) if is_float(p.dtype) else r for r in (a, b))
    with np.errstate(invalid="ignore"):
        wrong = ~((x == y) | (x != x) & (y != y)) if expected is None else expected.wrong(x) | expected.wrong(y)
    indices = np.argwhere(wrong)
    if not len(indices):
        return ""
    index = tuple(int(i) for i in indices[0])
    where = f"{p.name}[{', '.join(map(str, index))}]"
    means = f", and {expected.value[index]:.9g} in float64" if expected is not None and is_float(p.dtype) else ""
    return f"{where} is {x[index]:.9g} and {y[index]:.9g}{means} ({len(indices)} of {wrong.size} elements differ)"
