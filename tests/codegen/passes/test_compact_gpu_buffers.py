"""How far threads of a block reach into a tile, by enumeration."""

from __future__ import annotations

import numpy as np

from codegen.passes.compact_gpu_buffers import _max_index
from codegen.passes.thread_storage_sync import Footprint
from tir.arith.enumeration import evaluate, grid
from tir.ir import Const, Var


def test_the_last_element_that_guards_leave():
    """Of tiles that threads copy in order; it is exact in each dimension, and never too small for other indices."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        y, x, lanes = int(rng.choice([1, 2, 7, 8])), int(rng.choice([3, 8, 13, 32])), int(rng.choice([1, 2, 4]))
        n, row, rows = int(rng.integers(1, 400)), int(rng.choice([1, 2, 3, 5, 8, 12, 16, 24, 33])), int(rng.choice([1, 3, 4]))
        turns, wanted = -(-n // (y * x)), row * lanes - int(rng.integers(lanes))
        copied = Var("k") * (y * x) + Var("ty") * x + Var("tx")
        column = copied % row * lanes + Var("lane")
        guards = (copied < Const(n), column < Const(wanted))
        counts = {"k": turns, "ty": y, "tx": x, "lane": lanes}
        values = grid(counts)
        there = evaluate(guards[0], values) & evaluate(guards[1], values)
        dims = [copied // row, copied // (row * rows), copied // row % rows, column]
        others = [copied // row * 2 + 3, 5 - copied // row, copied // row + copied // rows, column + copied]
        for index in (*dims, *others):
            ranges = {"k": (0, turns - 1), "ty": (0, y - 1), "tx": (0, x - 1)}
            found = _max_index(Footprint((index,), counts, guards, set(), ranges, ["tx", "ty", "tz"], (x, y, 1)), index)
            last = int(np.broadcast_to(evaluate(index, values), there.shape)[there].max())
            assert found is not None and found >= last, (str(index), guards)
            exact = index is dims[0] or index is dims[1] or (index is column and n >= row)
            assert not exact or found == last, (str(index), guards, found, last)
