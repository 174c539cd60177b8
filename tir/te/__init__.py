"""Tensor expressions: computations written as index formulas, and their conversion to a function of the IR.

    A = te.placeholder((M, K), name="A")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    func = te.create_prim_func([A, B, C])

The vocabulary is that of Halide and TVM's `te`. Each `compute` becomes one block of spatial axes (and reduce axes, with the
reducer's identity as its init). A reduction inside a formula has a block of its own.
"""

from ..ir import const
from . import elementwise
from .elementwise import *  # noqa: F403
from .elementwise import floordiv, floormod, if_then_else, intrinsic, of_numpy
from .functions import create_prim_func
from .operations import compute, placeholder, scan, scatter
from .products import matmul
from .reductions import Reducer, argmax, argmin, comm_reducer, max, mean, min, prod, sum
from .tensors import Tensor
from .variables import ReduceAxis, reduce_axis, size_var, var

__all__ = [
    *elementwise.__all__, "Reducer", "ReduceAxis", "Tensor", "argmax", "argmin", "comm_reducer", "compute", "const",
    "create_prim_func", "indexdiv", "indexmod", "intrinsic", "matmul", "max", "mean", "min", "of_numpy", "placeholder", "prod",
    "reduce_axis", "scan", "scatter", "size_var", "sum", "var", "where",
]  # fmt: skip


indexdiv, indexmod = floordiv, floormod
where = if_then_else
