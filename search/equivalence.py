"""Whether two functions compute the same numbers, and where they first differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen import build
from schedule import Schedule
from tir.dtypes import is_float
from tir.ir import Buffer, PrimFunc, const_shape, need_func

from .measure.exact import largest_integers
from .measure.reference import outputs, random_inputs, scale_of, to_float, tolerance

ONE_THREAD = "llvm -num-cores 1"


@dataclass(frozen=True)
class Equivalence:
    """Whether the results of two functions agree, on random inputs of so many `seeds`: the truth value of this object.

    Where no result can be rounded on integers, they are compared bit by bit, else within `tolerance` of the scale of each output.
    `difference` says where they first differ; it is empty where they do not.
    """

    seeds: int
    tolerance: float
    difference: str = ""

    def __bool__(self) -> bool:
        return not self.difference

    def __str__(self) -> str:
        if self.difference:
            return f"different: {self.difference}"
        how = f"within {self.tolerance:.3g} of the scale of each output" if self.tolerance else "bit by bit"
        return f"equal on {self.seeds} random inputs, {how}"


def equivalent(f: PrimFunc | Schedule, g: PrimFunc | Schedule, *, seeds: int = 3, target: str = ONE_THREAD) -> Equivalence:
    """Run two functions, or what schedules have made of them, on the same random inputs, and compare what they write.

    TypeError or ValueError where their parameters differ in shape or dtype, or a size is open; and what `tir.build` raises.
    """
    one, other = (x.func if isinstance(x, Schedule) else need_func(x, "equivalent") for x in (f, g))
    mine, its = ([(p.dtype, const_shape(p)) if isinstance(p, Buffer) else p for p in x.params] for x in (one, other))
    if mine != its:
        raise ValueError(
            f"{one.name} and {other.name} take different parameters: {_parameters(one)} against {_parameters(other)}"
        )
    kernels = [build(x, target) for x in (one, other)]
    integers = largest_integers(one)
    bound = 0.0 if integers is not None else tolerance(one)
    for seed in range(seeds):
        inputs = random_inputs(one, np.random.default_rng(seed), 0, integers)
        results = [[a.copy() for a in inputs] for _ in kernels]
        for kernel, arrays in zip(kernels, results, strict=True):
            kernel(*arrays)
        for n in sorted({*outputs(one), *outputs(other)}):
            found = _difference(one.params[n], results[0][n], results[1][n], bound)
            if found:
                return Equivalence(seeds, bound, f"{found}, on the inputs of seed {seed}")
    return Equivalence(seeds, bound)


def _parameters(func: PrimFunc) -> str:
    return ", ".join(f"{p.name}: {p.dtype}{list(const_shape(p)) if isinstance(p, Buffer) else ''}" for p in func.params)


def _difference(p: Any, a: np.ndarray, b: np.ndarray, bound: float) -> str:
    """Where two arrays first differ by more than the bound times the scale of the first."""
    if is_float(p.dtype):
        x, y = to_float(a, p.dtype), to_float(b, p.dtype)
        with np.errstate(invalid="ignore"):
            wrong = ~((np.abs(x - y) <= bound * scale_of(x)) | (x == y) | (np.isnan(x) & np.isnan(y)))
    else:
        x, y, wrong = a, b, a != b
    places = np.argwhere(wrong)
    if not len(places):
        return ""
    place = tuple(int(i) for i in places[0])
    where = f"{p.name}[{', '.join(map(str, place))}]"
    return f"{where} is {x[place]:.9g} and {y[place]:.9g} ({len(places)} of {wrong.size} elements differ)"
