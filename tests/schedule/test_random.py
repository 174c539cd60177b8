"""Random programs, random traces: what is accepted computes the same numbers, what is refused changes nothing."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedule import Schedule, ScheduleError, Trace, replay
from tests.schedule.harness import same_numbers
from tir import te
from tir.ir import Axis, Block, Buffer, Const, For, Iter, PrimFunc, Store, Var, nest, seq
from tir.traverse import blocks, loops, replace_stmt

FACTORS = [[None, 2], [None, 3], [2, None], [None, 4, 2], [None, 1], [None, 16]]


def program(rng: np.random.Generator) -> PrimFunc:
    m, n, k = (int(x) for x in rng.choice([1, 2, 3, 4, 5, 7], 3))
    match rng.integers(0, 6):
        case 0:  # a reduction, done again in every iteration of a loop around or inside its spatial loops
            A = te.placeholder((m, k), name="A")
            r = te.reduce_axis((0, k), name="k")
            func = te.create_prim_func([A, te.compute((m,), lambda i: te.sum(A[i, r], axis=r), name="C")])
            target = loops(func)[int(rng.integers(0, 2))]
            return func.with_(body=replace_stmt(func.body, target, For(Var("again"), Const(n), target)))
        case 1:
            A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
            r = te.reduce_axis((0, k), name="k")
            C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
            D = te.compute((m, n), lambda i, j: C[i, j] + 1.0, name="D")
            return te.create_prim_func([A, B, D])
        case 2:
            A = te.placeholder((m + 2, n + 2), name="A")
            r, s = te.reduce_axis((0, 3), name="r"), te.reduce_axis((0, 3), name="s")
            C = te.compute((m, n), lambda i, j: te.max(A[i + r, j + s], axis=[r, s]), name="C")
            return te.create_prim_func([A, C])
        case 3:
            A = te.placeholder((m, n, k), name="A")
            B = te.compute((m, n, k), lambda i, j, l: A[i, j, l] * 2.0, name="B")
            C = te.compute((n, m), lambda j, i: B[i, j, 0] + A[i, j, k - 1], name="C")
            return te.create_prim_func([A, B, C])
        case 4:  # statements in no block, with dependences
            a, b = (int(x) for x in rng.integers(0, 3, 2))
            A, B = Buffer("A", (Const(m + 2), Const(n + 2))), Buffer("B", (Const(m + 2), Const(n + 2)))
            i, j = Var("i"), Var("j")
            first = Store(A, (i + 1, j + 1), A[i + a, j + b] + B[i, j])
            second = Store(B, (i, j + int(rng.integers(0, 2))), A[i + int(rng.integers(0, 2)), j])
            body = first if rng.random() < 0.5 else seq(first, second)
            return PrimFunc("main", (A, B), nest([(i, m), (j, n)], body))
        case _:  # two blocks in one nest
            A, B, C = (Buffer(x, (Const(m + 1), Const(n + 1))) for x in "ABC")
            i, j, vi, vj = Var("i"), Var("j"), Var("vi"), Var("vj")
            iters = (Iter(vi, Const(m), Axis.SPATIAL, i), Iter(vj, Const(n), Axis.SPATIAL, j))
            p, q = (int(x) for x in rng.integers(0, 2, 2))
            body = seq(
                Block("B", iters, Store(B, (vi, vj), A[vi, vj] + 1.0)),
                Block("C", iters, Store(C, (vi, vj), B[vi + p, vj + q] * 3.0)),
            )
            return PrimFunc("main", (A, B, C), nest([(i, m), (j, n)], body))


def attempt(s: Schedule, rng: np.random.Generator) -> bool:
    """One random step; whether it was accepted. A refused one must leave everything as it was."""
    names = [loop.name for loop in loops(s.func)]
    pick = lambda: names[int(rng.integers(len(names)))]  # noqa: E731
    of_block = [x.name for x in blocks(s.func)]
    func, trace = s.func, s.trace
    try:
        match rng.integers(0, 9):
            case 0 | 1:
                s.split(pick(), FACTORS[int(rng.integers(len(FACTORS)))], bool(rng.random() < 0.7))
            case 2:
                at = int(rng.integers(len(names)))
                s.fuse(*names[at : at + int(rng.integers(2, 5))])
            case 3 | 4 | 5:
                chosen = s.get_loops(of_block[int(rng.integers(len(of_block)))]) if of_block and rng.random() < 0.8 else names
                count = min(len(chosen), int(rng.integers(2, 5)))
                s.reorder(*rng.permutation(chosen)[:count].tolist())
            case 6:
                s.parallel(pick())
            case 7:
                s.vectorize(pick())
            case _:
                s.unroll(pick())
    except ScheduleError as error:
        assert s.func is func and s.trace == trace
        assert str(error).startswith(("split(", "fuse(", "reorder(", "parallel(", "vectorize(", "unroll("))
        return False
    return True


def one_case(seed: int, steps: int) -> tuple[int, int]:
    """A random program and trace; the steps accepted and tried."""
    rng = np.random.default_rng(seed)
    before = program(rng)
    s = Schedule(before)
    accepted = sum(attempt(s, rng) for _ in range(steps))
    same_numbers(before, s.func, seeds=(seed % 7,), llvm=False)
    assert replay(before, Trace.from_json(s.trace.to_json())).script == s.script
    return accepted, steps


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 12))
def test_accepted_means_equal_numbers(seed, steps):
    one_case(seed, steps)


def test_not_everything_is_refused():
    counts = [one_case(seed, 6) for seed in range(30)]
    accepted, tried = (sum(c) for c in zip(*counts, strict=True))
    assert accepted > tried // 2, f"{accepted} of {tried}"


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_through_llvm(seed):
    rng = np.random.default_rng(seed)
    before = program(rng)
    s = Schedule(before)
    for _ in range(8):
        attempt(s, rng)
    same_numbers(before, s.func, seeds=(0,))
