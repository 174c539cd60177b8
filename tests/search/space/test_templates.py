"""Sketches of templates that finish the loops of what they schedule: which blocks they take, their seeds, and rows at random."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tir
from codegen import lower
from schedule import replay
from search.policy.default_schedule import default_schedule
from search.population.sample import legalize, sample
from search.space import generate
from tests.programs import product
from tests.schedule.harness import well_formed
from tests.sweeps import quick
from tir import te, workloads
from tir.constants import with_constants
from tir.ir import PrimFunc, const_shape

ROWS = 6  # drawn of each sketch


def reduced(shape: tuple[int, ...], *axes: int, dtype: str = "float32") -> PrimFunc:
    X = te.placeholder(shape, dtype, name="X")
    sums = {a: te.reduce_axis((0, shape[a]), name=f"k{a}") for a in axes}

    def term(*i):
        left = iter(i)
        return te.max(X[tuple(sums[a] if a in sums else next(left) for a in range(len(shape)))], axis=list(sums.values()))

    return te.create_prim_func([X, te.compute(tuple(n for a, n in enumerate(shape) if a not in sums), term, name="Y")])


def permuted(shape: tuple[int, ...], *order: int) -> PrimFunc:
    X = te.placeholder(shape, name="X")
    B = te.compute(tuple(shape[n] for n in order), lambda *i: X[tuple(i[order.index(n)] for n in range(len(shape)))], name="B")
    return te.create_prim_func([X, te.compute(B.shape, lambda *i: te.exp(B[i]), name="Y")])


def log_sum_exp(rows: int, columns: int) -> PrimFunc:
    X = te.placeholder((rows, columns), name="X")
    k, m = (te.reduce_axis((0, columns), name=n) for n in "km")
    top = te.compute((rows,), lambda i: te.max(X[i, k], axis=k), name="top")
    total = te.compute((rows,), lambda i: te.sum(te.exp(X[i, m] - top[i]), axis=m), name="total")
    return te.create_prim_func([X, te.compute((rows,), lambda i: te.log(total[i]) + top[i], name="Y")])


CASES = {
    "softmax": (workloads.make("softmax", (7, 109)).func, "Y: rows"),
    "many rows": (workloads.make("softmax", (511, 127)).func, "Y: rows"),
    "layernorm": (workloads.make("layernorm", (301, 129)).func, "Y: rows"),
    "norm": (workloads.make("norm", (3, 77, 130)).func, "Y: elementwise; squares: reduction"),
    "log-sum-exp": (log_sum_exp(37, 109), "Y: elementwise; total: reduction; top: reduction"),
    "rows": (reduced((509, 301), 1), "Y: reduction"),
    "float64 rows": (reduced((30, 111), 1, dtype="float64"), "Y: reduction"),
    "few long rows": (reduced((3, 32000), 1), "Y: reduction"),
    "short rows": (reduced((20000, 7), 1), "Y: reduction"),
    "columns": (reduced((509, 701), 0), "Y: reduction"),
    "few columns": (reduced((109, 37), 0), "Y: reduction"),
    "between": (reduced((17, 109, 177), 1), "Y: reduction"),
    "two axes": (reduced((170, 31, 143), 0, 2), "Y: reduction"),
    "all": (reduced((97, 501), 0, 1), "Y: reduction"),
    "chain": (permuted((70001,), 0), "Y: elementwise"),
    "matrix": (permuted((301, 307), 0, 1), "Y: elementwise"),
    "transposition": (permuted((301, 405), 1, 0), "Y: elementwise"),
    "one row": (product(1, 1201, 310, right="jk"), "C: matrix and vector"),
    "one short row": (product(1, 36, 109, right="jk"), "C: matrix and vector"),
    "one row, across": (product(1, 1201, 310), "C: matrix and vector"),
    "one row, across a constant": (with_constants(product(1, 201, 310), ["B"]), "C: matrix and vector"),
    "few rows": (product(5, 1111, 250, right="jk"), "C: dot products"),
    "few columns of a product": (product(1111, 7, 300), "C: packing"),
}


# Of lengths and dtypes whose choices others have, too.
SIMILAR = (
    "many rows", "float64 rows", "few columns", "between", "matrix", "one row, across a constant", "few columns of a product",
)  # fmt: skip


@quick(lambda name, cores: name not in SIMILAR and cores == 1 + [*CASES].index(name) % 2)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_sketches(name: str, cores: int) -> None:
    """The first is the template, its seed the default schedule; rows at random compute the same numbers."""
    func, rules = CASES[name]
    target, rng = tir.Target("llvm", num_cores=cores), np.random.default_rng(cores)
    sketch, *_ = generate(func, target, max_sketches=1)
    assert set(sketch.rules) == set(rules.split("; "))
    assert sketch.seed is not None and legalize(sketch, target, np.array([sketch.seed])).tolist() == [list(sketch.seed)]
    assert program(replay(func, sketch.trace(sketch.seed)).func, target) == program(default_schedule(func, target).func, target)

    arrays = [rng.integers(-4, 5, const_shape(b)).astype(str(b.dtype)) for b in func.buffers]
    expected = [x.copy() for x in arrays]
    tir.build(func, target)(*expected)
    for row in np.unique(sample(sketch, target, ROWS, rng), axis=0).tolist():
        made = replay(func, sketch.trace(row)).func
        well_formed(made)
        found = [*arrays[:-1], np.full_like(arrays[-1], 77)]
        tir.build(made, target)(*found)
        # Sums of small integers are exact; exponentials and means are rounded, and rows of 130 are summed up in another order.
        bound = 130 * np.finfo("float32").eps * np.abs(expected[-1]).max()
        assert np.abs(found[-1] - expected[-1]).max() <= bound, row


def program(func: PrimFunc, target: tir.Target) -> str:
    """The lowered program, without annotations: those of a row may say what is so without them, too."""
    return re.sub(r"T.serial\((\w+)\)", r"range(\1)", re.sub(r", annotations=\{[^}]*\}", "", lower(func, target).script()))


def test_a_reduction_that_cannot_be_taken_apart_is_left_as_it_is() -> None:
    X, k = te.placeholder((7, 109), name="X"), te.reduce_axis((0, 109), name="k")
    reducer = te.comm_reducer(lambda a, b: a - b, lambda t: te.const(0, t), name="difference")
    func = te.create_prim_func([X, te.compute((7,), lambda i: reducer(X[i, k], axis=k), name="Y")])
    (sketch,) = generate(func, tir.Target("llvm", num_cores=2))
    assert sketch.rules == ("Y: skip",)
