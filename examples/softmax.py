"""Softmax over rows, scheduled by hand; `python -m examples.softmax [ROWS COLUMNS]` times it beside numpy, on one thread."""

from __future__ import annotations

import sys
import timeit

import numpy as np

import tir
from schedule import Schedule
from tir import te, workloads
from tir.ir import PrimFunc

LANES = 16


def softmax(rows: int, columns: int) -> PrimFunc:
    """Y[i, c] = exp(X[i, c] - top[i]) / total[i] for X [rows, columns] in float32, top the largest of a row."""
    X = te.placeholder((rows, columns), name="X")
    j, k = te.reduce_axis((0, columns), name="j"), te.reduce_axis((0, columns), name="k")
    top = te.compute((rows,), lambda i: te.max(X[i, j], axis=j), name="top")
    power = te.compute((rows, columns), lambda i, c: te.exp(X[i, c] - top[i]), name="power")
    total = te.compute((rows,), lambda i: te.sum(power[i, k], axis=k), name="total")
    Y = te.compute((rows, columns), lambda i, c: power[i, c] / total[i], name="Y")
    return te.create_prim_func([X, Y], name="softmax")


def scheduled(func: PrimFunc) -> Schedule:
    """One loop over rows, so that a row stays in the cache; all loops over columns are vectors."""
    s = Schedule(func)
    row, column = s.get_loops("Y")
    s.vectorize(column)
    for stage in ("total", "power", "top"):  # consumers first
        s.compute_at(stage, row, preserve_unit_loops=True)
    s.vectorize(s.get_loops("power")[-1])
    for reduction in ("total", "top"):  # a reduction has an order; LANES partial ones have none among them
        _, lane = s.split(s.get_loops(reduction)[-1], [None, LANES])
        partial = s.rfactor(lane)
        s.vectorize(s.get_loops(partial)[-1])
    return s


def main(rows: int = 1024, columns: int = 1000) -> None:
    """Print the program, check it against the float64 reference, and time it."""
    s = scheduled(softmax(rows, columns))
    s.show()
    instance = workloads.make("softmax", (rows, columns))
    inputs, outputs = instance.inputs(np.random.default_rng(0)), instance.outputs()
    kernel = tir.build(s.func, "llvm -num-cores 1")
    kernel(*inputs, *outputs)
    error, tolerance, ok = instance.check(outputs, inputs)
    assert ok, f"the largest error is {error:.2g}, the bound {tolerance:.2g}"
    print("scheduled  ", kernel.time(*inputs, *outputs))
    print("unscheduled", tir.build(softmax(rows, columns), "llvm -num-cores 1").time(*inputs, *outputs))
    samples = timeit.repeat(lambda: instance.numpy(inputs, outputs), number=1, repeat=50)
    print(f"numpy       {np.median(samples) * 1e3:.3g} ms (median of {len(samples)} runs)")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
