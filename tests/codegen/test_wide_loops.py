"""Loops of 64 bits are compiled as those of 32 bits are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tir
import workloads
from tests import programs
from tests.codegen.harness import ONE, TWO, same
from tests.sweeps import one_in
from tir.ir import PrimFunc

MADE: dict[str, Callable[[], PrimFunc]] = {
    "gmm": lambda: workloads.make("gmm", (33, 40, 37)).func,
    "rows_times_one_column": lambda: programs.matmul(33, 40, 1),
    "one_row_times_columns": lambda: programs.matmul(1, 40, 33),
    "row_sums": lambda: programs.row_minimum(33, 40),
    "row_sums_of_chain": programs.sums_of_chain,
    "relu_of_matmul": programs.relu_of_matmul,
    "transposed_matmul": programs.transposed_matmul,
    "sum_of_three_axes": programs.sum_of_three_axes,
    "total": programs.total,
    "window_sums": programs.window_sums,
    "depthwise_nhwc": lambda: workloads.make("depthwise_nhwc", (1, 9, 9, 5, 3, 1, 1)).func,
    "norm": lambda: workloads.make("norm", (2, 13, 37)).func,
    "layernorm": lambda: workloads.make("layernorm", (7, 109)).func,
}


@one_in(2)
@pytest.mark.parametrize("target", [ONE, f"{TWO} -mcpu x86-64-v3"])
@pytest.mark.parametrize("name", MADE)
def test_default_schedules_are_the_same(name, target):
    narrow, wide = MADE[name](), programs.wide_loops(MADE[name]())
    found = [tir.dump(tir.default_schedule(f, target), target, after="llvm_ir") for f in (narrow, wide)]
    assert found[0] == found[1]


def test_numbers():
    same(tir.default_schedule(programs.wide_loops(programs.matmul(33, 40, 1)), ONE).func, targets=[ONE])
    same(tir.default_schedule(programs.wide_loops(programs.row_minimum(33, 40)), ONE).func, targets=[ONE])
