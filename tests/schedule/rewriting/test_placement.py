"""Random chains of stages under random placements, copies and factorisations: what is accepted computes the same numbers."""

from collections import Counter

import numpy as np
import pytest

from schedule import Schedule, ScheduleError, replay
from tests.arrays import integers
from tests.schedule.harness import same_numbers, well_formed
from tests.sweeps import one_in
from tir import te
from tir.interpreter import run
from tir.ir import PrimFunc
from tir.traverse import blocks, loops

FACTORS = [[None, 2], [None, 3], [2, None], [None, 4], [None, 2, 2]]

KINDS = (
    *("split", "reorder", "fuse", "mark", "decompose_reduction", "rfactor", "cache_read", "cache_write"),
    *("compute_at", "compute_at", "reverse_compute_at", "reverse_compute_at", "compute_inline", "reverse_compute_inline"),
)


def program(rng: np.random.Generator) -> PrimFunc:
    """Three to five stages: elementwise, padding, stencil, transposition, matmul, row sums; some read by several."""
    m, n = (int(x) for x in rng.choice([1, 3, 4, 5, 7], 2))
    A = te.placeholder((m, n), name="A")
    stages, outputs = [A], []
    for number in range(int(rng.integers(2, 5))):
        X = stages[-1] if rng.random() < 0.75 else stages[int(rng.integers(len(stages)))]
        name = f"S{number}"
        p, q = X.shape
        match int(rng.integers(0, 8)):
            case 0 | 1:
                Y = _map(X, name)
            case 2:
                Y = _pad(X, name)
            case 3 if p >= 3:
                Y = te.compute((p - 2, q), lambda i, j: X[i, j] + X[i + 1, j] + X[i + 2, j], name=name)  # noqa: B023
            case 4:
                Y = te.compute((q, p), lambda i, j: X[j, i] + 1.0, name=name)  # noqa: B023
            case 5:
                k = te.reduce_axis((0, q), name="k")
                Y = te.compute((p, p), lambda i, j: te.sum(X[i, k] * X[j, k], axis=k), name=name)  # noqa: B023
            case 6:
                k = te.reduce_axis((0, q), name="k")
                Y = te.compute((p, 1), lambda i, j: te.max(X[i, k], axis=k), name=name)  # noqa: B023
            case _:
                same = [s for s in stages if s.shape == X.shape]
                Z = same[int(rng.integers(len(same)))]
                Y = te.compute((p, q), lambda i, j: X[i, j] * 3.0 + Z[i, j], name=name)  # noqa: B023
        stages.append(Y)
        if rng.random() < 0.15:
            outputs.append(Y)
    if stages[-1] not in outputs:
        outputs.append(stages[-1])
    return te.create_prim_func([A, *outputs])


def _map(X, name: str):
    return te.compute(X.shape, lambda i, j: X[i, j] * 2.0 + 1.0, name=name)


def _pad(X, name: str):
    p, q = X.shape
    return te.compute((p + 2, q), lambda i, j: te.if_then_else(te.all(i >= 1, i < p + 1), X[i - 1, j], 0.0), name=name)


def attempt(s: Schedule, rng: np.random.Generator) -> tuple[str, bool]:
    """One random step: which primitive, and whether it was accepted."""
    names = [x.name for x in loops(s.func)]
    stages = [b.name for b in blocks(s.func)]
    loop = names[int(rng.integers(len(names)))] if names else "none"
    block = stages[int(rng.integers(len(stages)))]
    func, trace = s.func, s.trace
    kind = KINDS[int(rng.integers(len(KINDS)))]
    try:
        match kind:
            case "split":
                s.split(loop, FACTORS[int(rng.integers(len(FACTORS)))])
            case "reorder":
                own = s.get_loops(block)
                s.reorder(*rng.permutation(own)[: int(rng.integers(2, 4))].tolist())
            case "fuse":
                own = s.get_loops(block)
                at = int(rng.integers(max(1, len(own))))
                s.fuse(*own[at : at + 2])
            case "mark":
                [s.parallel, s.vectorize, s.unroll][int(rng.integers(3))](loop)
            case "compute_at" | "reverse_compute_at":
                related = s.get_consumers(block) if kind == "compute_at" else s.get_producers(block)
                around = s.get_loops(related[int(rng.integers(len(related)))]) if related else names
                loop = around[int(rng.integers(len(around)))] if around else loop
                index = int(rng.choice([-1, -1, -2, 0, 1]))
                getattr(s, kind)(block, loop, bool(rng.random() < 0.2), index)
            case "compute_inline" | "reverse_compute_inline":
                getattr(s, kind)(block)
            case "cache_read":
                s.cache_read(block, int(rng.integers(2)), "local", [block] if rng.random() < 0.5 else None)
            case "cache_write":
                consumers = s.get_consumers(block)
                s.cache_write(block, 0, "local", consumers[:1] if consumers and rng.random() < 0.4 else None)
            case "decompose_reduction":
                s.decompose_reduction(block, loop)
            case "rfactor":
                s.rfactor(loop, int(rng.integers(-1, 2)))
    except ScheduleError as error:
        assert s.func is func and s.trace == trace
        str(error)
        return kind, False
    return kind, True


def same(before: PrimFunc, s: Schedule, seed: int) -> None:
    old, new = integers(before, seed), integers(before, seed)
    run(before, *old, seed=seed)
    run(s.func, *new, seed=seed)
    for p, x, y in zip(before.params, old, new, strict=True):
        assert x.tobytes() == y.tobytes(), f"{p.name} differs after\n{s.trace}\n{before.script()}\n{s.script}"


def exercise(seed: int, steps: int = 10) -> Counter:
    """A random program and trace; the numbers are compared after the last step. Returns how often each kind was accepted."""
    rng = np.random.default_rng(seed)
    before = program(rng)
    s = Schedule(before)
    counts: Counter = Counter()
    for _ in range(steps):
        kind, accepted = attempt(s, rng)
        counts[kind, accepted] += 1
    same(before, s, seed)
    well_formed(s.func)
    assert replay(before, s.trace).script == s.script
    return counts


@one_in(3)
@pytest.mark.parametrize("first", range(0, 120, 20))
def test_accepted_steps_keep_the_numbers(first):
    total: Counter = Counter()
    for seed in range(first, first + 20):
        total += exercise(seed)
    assert sum(n for (_, accepted), n in total.items() if accepted) > 0.3 * sum(total.values())


def symbolic() -> PrimFunc:
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, m), name="k")
    C = te.compute((n,), lambda i: te.sum(B[i, k], axis=k), name="C")
    D = te.compute((n,), lambda i: C[i] * 2.0, name="D")
    return te.create_prim_func([A, D, n, m])


@pytest.mark.parametrize("steps", [
    [("compute_at", "B", "i_1")],
    [("compute_at", "C", "i_2"), ("compute_at", "B", "i_2")],
    [("compute_inline", "B")],
    [("cache_read", "C", 0, "local"), ("compute_at", "B_local", "i_1")],
    [("cache_write", "D", 0, "local"), ("cache_write", "C", 0, "local")],
    [("reverse_compute_at", "D", "i_1"), ("decompose_reduction", "C", "k")],
    [("decompose_reduction", "C", "i_1")],
    [("split", "i_1", [None, 4]), ("compute_at", "B", "i_1_0")],
    [("split", "k", [None, 4]), ("rfactor", "k_0")],
    [("rfactor", "k")],
    [("cache_read", "C", "B", "local"), ("reverse_compute_inline", "B_local")],
])  # fmt: skip
def test_symbolic_sizes(steps):
    before = symbolic()
    s = Schedule(before)
    for name, *args in steps:
        getattr(s, name)(*args)
    well_formed(s.func)
    for sizes in ({"n": 7, "m": 13}, {"n": 1, "m": 1}, {"n": 5, "m": 2}):
        same_numbers(before, s.func, sizes)
