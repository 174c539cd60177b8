"""Recorded formulas: for each row the numbers that plain arithmetic gives."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.recording import BLOCK_ROWS, Recorder, and_not, ceil, logical_or, maximum, minimum, where
from tir.arith.symbolic import SymbolicInt

X, Y = SymbolicInt.column(3, 0), SymbolicInt.column(5, 1)

CASES = {
    "sum": lambda x, y: x + y + 2,
    "difference": lambda x, y: 7 - x - y,
    "product": lambda x, y: x * y * 1.5,
    "quotient": lambda x, y: x / y,
    "least": lambda x, y: minimum(x, y),
    "most": lambda x, y: maximum(x * 2, maximum(y, 13)),
    "ceil": lambda x, y: ceil(x / y),
    "less": lambda x, y: where(x < y, x, 109.0),
    "at most": lambda x, y: where(x <= y, 1.0, y),
    "more": lambda x, y: where(x > y, 1.0, where(x >= y, 2.0, 3.0)),
    "either": lambda x, y: where(logical_or(x < 4, y < 4), 1.0, 2.0),
    "and not": lambda x, y: where(and_not(x < 9, y < 4), 1.0, 2.0),
    "used again": lambda x, y: (x + y) * (x + y) - (x + y) / (y + 1),
    "the same in all rows": lambda x, y: 4.0,
    "a column": lambda x, y: x,
}


def evaluated(results, rows):
    recorder = Recorder()
    found = [make(recorder.number(X), recorder.number(Y)) for make in results]
    out = np.zeros((len(found), len(rows)), dtype=np.float32)
    recorder.compiled(dict(enumerate(found))).run(rows, out)
    return out


@pytest.mark.parametrize("n", [0, 1, 13, BLOCK_ROWS, 2 * BLOCK_ROWS + 7])
def test_rows_are_evaluated_as_plain_numbers(n):
    rows = np.random.default_rng(0).integers(1, 14, (n, 2))
    out = evaluated(CASES.values(), rows)
    expected = [[make(int(x), int(y)) for x, y in rows] for make in CASES.values()]
    assert (out == np.array(expected, dtype=np.float32).reshape(out.shape)).all()


def test_integers_follow_their_formulas():
    rows = np.random.default_rng(0).integers(1, 10**6, (200, 2))
    numbers = {"up": -(-109_000_000 // X), "rest": (X * 7 + 3) % Y, "product": X * Y - 2 * X}
    recorder = Recorder()
    recorded = {k: recorder.number(v) for k, v in enumerate(numbers.values())}
    out = np.zeros((3, 200), dtype=np.float32)
    recorder.compiled(recorded).run(rows, out)
    x, y = rows.T
    assert (out == np.array([-(-109_000_000 // x), (x * 7 + 3) % y, x * y - 2 * x]).astype(np.float32)).all()


def test_what_is_shared_is_computed_once_and_what_is_not_needed_never():
    recorder = Recorder()
    x = recorder.number(X)
    one, two = x * 3 + 1, x * 3 + 1
    _ = x * 5
    program = recorder.compiled({0: one, 1: two})
    assert len(program.code) == 5  # the column, the product, the sum, two results
    assert (x * 0, x * 1 is x, x < x, minimum(x, x) is x) == (0.0, True, 0.0, True)


def test_a_recorded_number_is_neither_true_nor_false():
    with pytest.raises(TypeError) as error:
        bool(Recorder().number(X) > 3)
    assert str(error.value) == "a recorded number differs from row to row, so it is neither true nor false; use `where`"


def test_an_unknown_operation_is_refused():
    with pytest.raises(ValueError, match=r"^operation 'xor' is not supported; expected one of column, store, \+, "):
        Recorder().operate("xor", 1, 2)
