"""Products whose results go on block of rows by block of rows: which are, what becomes of them, and that they compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.target import Target
from schedule import replay
from schedule.open_schedule import OpenSchedule
from search.population.sample import sample
from search.space.rules import CHAINS, Verdict
from tests.programs import chained_matmuls, matmul
from tests.schedule.harness import same_numbers, well_formed
from tests.search.once import generate
from tests.sweeps import one_in
from tir import te, workloads
from tir.ir import Const, PrimFunc
from tir.traverse import blocks, loops_to

TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4")
MLP = workloads.make("mlp", (7, 13, 109, 5)).func


def state(func: PrimFunc) -> OpenSchedule:
    return OpenSchedule(func, TWO, [b.name for b in blocks(func)])


def read_by_columns() -> PrimFunc:
    """F = (A · B)ᵀ · E: all rows of the first product are needed for a row of the second."""
    A, B, E = (te.placeholder(s, name=x) for s, x in (((7, 13), "A"), ((13, 109), "B"), ((7, 5), "E")))
    rk, rl = te.reduce_axis((0, 13), name="rk"), te.reduce_axis((0, 7), name="rl")
    C = te.compute((7, 109), lambda i, j: te.sum(A[i, rk] * B[rk, j], axis=rk), name="C")
    return te.create_prim_func([A, B, E, te.compute((109, 5), lambda i, j: te.sum(C[rl, i] * E[rl, j], axis=rl), name="F")])


def as_right_operand() -> PrimFunc:
    """F = E · (A · B)."""
    A, B, E = (te.placeholder(s, name=x) for s, x in (((7, 13), "A"), ((13, 109), "B"), ((5, 7), "E")))
    rk, rl = te.reduce_axis((0, 13), name="rk"), te.reduce_axis((0, 7), name="rl")
    C = te.compute((7, 109), lambda i, j: te.sum(A[i, rk] * B[rk, j], axis=rk), name="C")
    return te.create_prim_func([A, B, E, te.compute((5, 109), lambda i, j: te.sum(E[i, rl] * C[rl, j], axis=rl), name="F")])


def test_what_goes_on_by_rows():
    for func in (chained_matmuls(), MLP):
        assert CHAINS.applies(state(func), "F") is Verdict.APPLY and CHAINS.applies(state(func), "C") is Verdict.SKIP
    for func in (read_by_columns(), as_right_operand()):
        assert CHAINS.applies(state(func), "F") is Verdict.SKIP
    assert CHAINS.applies(state(matmul(7, 13, 109)), "C") is Verdict.SKIP  # it is alone


def test_two_products_share_the_loop_over_blocks_of_rows():
    (new,) = CHAINS.apply(state(MLP), "F")
    first, exponential, second = (loops_to(new.func.body, b) for b in "CDF")
    assert first[0] is exponential[0] is second[0] and first[1] is not second[1]
    assert new.tiled("C").levels[0] == new.tiled("F").levels[0] == (first[0].name,)
    rows = {t.columns for t in new.tiles if t.axis == "v_m"}
    assert len(rows) == 1 and len(new.tiles) == 4  # of both, the rows have the same tiles
    well_formed(new.func)
    same_numbers(MLP, new.func, seeds=(0,), llvm=False)  # `exp` in vectors rounds otherwise


@one_in(2)
@pytest.mark.parametrize("func", [MLP, chained_matmuls(), workloads.make("mlp", (33, 5, 7, 40)).func])
def test_random_rows(func):
    """Whatever the tiles, the loops of both products over the rows are one."""
    (sketch,) = [s for s in generate(func, TWO) if "F: fuse products" in s.rules]
    for row in sample(sketch, TWO, 3, np.random.default_rng(0)).tolist():
        scheduled = replay(func, sketch.trace(row))
        first, second = (loops_to(scheduled.func.body, b)[0] for b in "CF")
        assert first is second and isinstance(first.extent, Const)
        same_numbers(func, scheduled.func, seeds=(0,), llvm=False)
