"""A matrix product with a register tile, for tests of what is done with a kernel."""

from __future__ import annotations

import numpy as np

from schedule import Schedule
from tests.programs import matmul
from tir import te
from tir.ir import PrimFunc


def tiled(m: int, k: int, n: int, rows: int, columns: int, *, parallel: bool = False, dtype: str = "float32") -> PrimFunc:
    """The product in tiles of rows x columns that stay in registers while k runs."""
    s = Schedule(matmul(m, k, n, dtype))
    i, j, reduce = s.get_loops("C")
    io, ii = s.split(i, [None, rows])
    jo, ji = s.split(j, [None, columns])
    s.reorder(io, jo, reduce, ii, ji)
    s.decompose_reduction("C", reduce)
    s.unroll(ii)
    s.vectorize(ji)
    if parallel:
        s.parallel(io)
    return s.func


def packed_product() -> PrimFunc:
    """A product whose right operand is constant, and packed."""
    A, B = te.placeholder((13, 30), name="A"), te.placeholder((30, 70), name="B")
    k = te.reduce_axis((0, 30), name="k")
    C = te.compute((13, 70), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = Schedule(te.create_prim_func([A, B, C], name="product", constants=[B]))
    s.reorder("k", "j")
    s.split("j", [None, 16])
    s.pack("C", 1)
    return s.func


def operands(m: int, k: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B of small integers, so that products are exact, and an empty C."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-3, 4, shape).astype("float32") for shape in ((m, k), (k, n)))
    return a, b, np.empty((m, n), "float32")
