"""Named computations to tune, each with its formula, inputs, a numpy implementation, a float64 reference and an error bound.

    instance = workloads.make("mlp", (7, 13, 109, 5))
    inputs, outputs = instance.inputs(rng), instance.outputs()
    kernel(*inputs, *outputs)
    error, tolerance, ok = instance.check(outputs, inputs)

Errors are measured in units of the data: each output element has a *scale*, the sum of the absolute values of its terms. Its
error is `|computed - reference| / scale`. The a-priori bound is that of Higham, Accuracy and Stability of Numerical Algorithms
(2nd ed., section 3.1). For `n` roundings it is `gamma(n) = n u / (1 - n u)`, where `u` is the unit roundoff. It holds for any
order of the sums, with or without fused multiply-adds. Each reference derives its `n`. Inputs are drawn so that a reduction that
misses one iteration exceeds the bound, at sizes up to some thousands.

Floating-point operations are counted as in the field. Each `+ - * / max` and each intrinsic (exp, rsqrt) of the formula counts
one for each element, also on padding. Comparisons, selections, conversions and index arithmetic count nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tir import dtypes
from tir.nearest import no_such

from . import attention, conv_transpose, convolutions, products, rows
from .workload import (
    CACHE_ELEMENTS,
    DTYPES,
    EPSILON,
    INTRINSIC_ROUNDINGS,
    Arrays,
    Bounded,
    Check,
    Instance,
    Parameter,
    Shape,
    Workload,
    gamma,
)

__all__ = [
    "CACHE_ELEMENTS", "EPSILON", "INTRINSIC_ROUNDINGS", "Arrays", "Bounded", "Check", "Instance", "Parameter", "Shape",
    "Workload", "gamma", "get", "make", "names",
]  # fmt: skip

_WORKLOADS = {
    w.name: w
    for w in (
        *products.WORKLOADS,
        *convolutions.WORKLOADS,
        *conv_transpose.WORKLOADS,
        convolutions.CAPSULE,
        *rows.WORKLOADS,
        *attention.WORKLOADS,
    )
}


def names() -> tuple[str, ...]:
    """The names of all workloads."""
    return tuple(_WORKLOADS)


def get(name: str) -> Workload:
    """The workload of that name. Raises ValueError with the list of all names."""
    if name not in _WORKLOADS:
        raise ValueError(no_such("workload", name, _WORKLOADS))
    return _WORKLOADS[name]


def make(name: str, shape: Sequence[int] | None = None, dtype: dtypes.DTypeLike = "float32") -> Instance:
    """The workload `name` at `shape` (sizes in the order of its parameters, None for its default) in float32 or float64."""
    workload = get(name)
    sizes, dtype = workload.sizes(shape), dtypes.check(dtype)
    if dtype not in DTYPES:
        raise ValueError(f"{name}: workloads compute in {' or '.join(DTYPES)}, got dtype {dtype!r}")
    return Instance(workload, sizes, dtype, workload.build(dtype, *sizes), workload.flop(*sizes), workload.numpy(dtype, *sizes))
