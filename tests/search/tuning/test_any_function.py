"""`autotune` on functions that are no named workload: the program as written is the reference, and a valid schedule is found."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from schedule import Trace
from search.measure import Limits
from search.measure.reference import random_inputs
from search.measure.rounding import Reference, to_float
from tests import programs
from tests.sweeps import quick
from tir import te
from tir.ir import Buffer, Const, Evaluate, PrimFunc

QUICK = Limits(min_seconds=0.0, min_runs=1, run_floor=10.0, race=0.05)

FUNCTIONS = {
    "batched matmul": programs.batched_matmul,
    "transposed matmul": programs.transposed_matmul,
    "int8 matmul": lambda: programs.widening_matmul("int8", "int32"),
    "float16 matmul": lambda: programs.widening_matmul("float16", "float32"),
    "squared distances": programs.squared_distances,
    "float64 matmul": lambda: programs.matmul(7, 13, 109, dtype="float64"),
    "dilated convolution": programs.dilated_conv,
    "argmax": programs.argmax,
    "own reducer": programs.largest_magnitude,
    "three axes": programs.sum_of_three_axes,
    "rank 0": programs.total,
    "operand of rank 0": programs.scaled_matmul,
    "chain": programs.elementwise_chain,
    "two outputs": programs.two_outputs,
    "no blocks": programs.without_blocks,
    "no statements": lambda: PrimFunc("main", (Buffer("A", (Const(4),)),), Evaluate(Const(0))),
    "no iterations": lambda: programs.copied(0),
}
# Of dtypes, orders of axes and operators that others have, too.
SIMILAR = ("batched matmul", "transposed matmul", "float16 matmul", "float64 matmul", "dilated convolution", "rank 0", "chain")


@quick(lambda name: name not in SIMILAR)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_schedule_is_found(name):
    func = FUNCTIONS[name]()
    result = tir.autotune(func, "llvm -num-cores 2", trials=4, limits=QUICK, workers=1)
    assert result.outcomes["ok"] == result.trials, [m.message for m in result.measurements]
    assert 0 < result.seconds < float("inf")  # there are no trials where all candidates are the program as written
    assert result.trace is None or Trace.from_json(result.trace) == result.schedule.trace
    # The interpreter runs other code than the reference that the run had.
    results = [random_inputs(func, np.random.default_rng(1)) for _ in range(2)]
    expected = Reference(func)(results[0])
    tir.run(func, *results[0])
    result.kernel(*results[1])
    for i, wanted in expected.items():
        assert not wanted.loose
        assert not any(wanted.wrong(to_float(found[i], func.params[i].dtype)).any() for found in results)


def test_a_function_that_nothing_improves_is_its_own_best():
    """All its candidates are the program as written."""
    X = te.placeholder((), name="X")
    func = te.create_prim_func([X, te.compute((), lambda: X() + 1, name="Y")])
    result = tir.autotune(func, "llvm -num-cores 1", trials=8, limits=QUICK, workers=1)
    assert result.trace is None and result.seconds == result.baseline and result.trials == 0


def gather():
    """Row I[i] of A, doubled: of a row that is not there, a call reads who knows what."""
    A, rows = te.placeholder((50, 16), name="A"), te.placeholder((7,), "int32", name="I")
    return te.create_prim_func([A, rows, te.compute((7, 16), lambda i, j: A[rows[i], j] * 2.0, name="C")])


def test_candidates_run_on_the_arrays_that_are_given():
    rows = np.array([49, 0, 7, 7, 13, 1, 2], "int32")
    result = tir.autotune(gather(), "llvm -num-cores 1", trials=1, limits=QUICK, inputs={"I": rows}, workers=1)
    assert result.outcomes["ok"] == 1


@pytest.mark.parametrize(("inputs", "message"), [
    ({"i": np.zeros(7, "int32")}, "inputs: no input is named 'i'; did you mean I? there are: A, I"),
    ({"C": np.zeros((7, 16), "float32")}, "inputs: no input is named 'C'"),
    ({"I": np.zeros(7)}, "inputs: `I` must have dtype int32, got float64"),
    ({"I": np.arange(44, 51, dtype="int32")}, "inputs: the elements of `I` are indices from 0 to 49, got some from 44 to 50"),
    ([1], "inputs takes arrays by the names of parameters, got [1]"),
])  # fmt: skip
def test_arrays_that_cannot_be_inputs(inputs, message):
    with pytest.raises(ValueError) as raised:
        tir.autotune(gather(), trials=1, inputs=inputs)
    assert str(raised.value).startswith(message)
