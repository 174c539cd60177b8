"""Temporaries that several loops use, each for itself: iterations that run at the same time never share one."""

import pytest

import tir
from codegen.passes.separate_lives import iterations_conflict
from schedule import Schedule
from tests.codegen.harness import TWO, after, same
from tests.sweeps import one_in
from tir.script import parse

HEAD = """
            @T.prim_func
            def main(A: T.Buffer((6, 40)), B: T.Buffer((6, 40))):
                t = T.alloc_buffer((16,))
"""
ROWS = """
                for k in range(6):
                    for i in T.{kind}(40):
                        for j in range(16):
                            t[j] = A[k, i] * T.float32(2)
                        B[k, i] = t[3] + T.float32(1)
"""
BRANCHES = """
                for k in range(6):
                    if k < 4:
                        for i in T.{kind}(40):
                            t[0] = A[k, i] * T.float32(2)
                            B[k, i] = t[0] + T.float32(1)
                    else:
                        for i in T.{kind}(40):
                            t[7] = A[k, i] * T.float32(3)
                            B[k, i] = t[7]
"""
PAIRS = """
                for k in range(6):
                    for i in T.{kind}(40):
                        t[i // 8] = A[k, i] * T.float32(2)
                        B[k, i] = t[i // 8] + T.float32(1)
"""
NEIGHBOURS = """
                for k in range(6):
                    for i in T.{kind}(8):
                        t[i] = A[k, i]
                        t[i + 1] = A[k, i] + T.float32(1)
                        B[k, i] = t[i]
"""
HALVES = """
                for k in range(6):
                    for i in T.{kind}(32):
                        if i < 16:
                            t[i] = A[k, i]
                            B[k, i] = t[i]
                        else:
                            t[i - 16] = A[k, i] * T.float32(3)
                            B[k, i] = t[i - 16]
"""
STEPS = {
    "none": lambda s: None,
    "unroll": lambda s: s.unroll("k"),
    "loop_partition": lambda s: s.loop_partition("k", [1, 4], False),
    "split": lambda s: s.split("k", [None, 4], tail="cut"),
}


@one_in(2)
@pytest.mark.parametrize("kind", ["parallel", "vectorized"])
@pytest.mark.parametrize(
    "text", [ROWS, BRANCHES, PAIRS, NEIGHBOURS, HALVES], ids=["rows", "branches", "pairs", "neighbours", "halves"]
)
@pytest.mark.parametrize("step", STEPS)
def test_each_iteration_has_its_own(step, text, kind):
    s = Schedule(parse(HEAD + text.format(kind=kind)))
    STEPS[step](s)
    assert not tir.verify(s.func).errors
    for _ in range(3):
        same(s.func, targets=[TWO])


def test_each_loop_has_one():
    s = Schedule(parse(HEAD + ROWS.format(kind="parallel")))
    s.loop_partition("k", [4], False)
    after(s.func, "separate_lives").becomes("""
        # with T.block("root"):
        t = T.alloc_buffer((16,))
        t_1 = T.alloc_buffer((16,))
        for k_0 in range(4):
            for i in T.parallel(40):
                for j in range(16):
                    t[j] = A[k_0, i] * T.float32(2.0)
                B[k_0, i] = t[3] + T.float32(1.0)
        for k_1 in range(2):
            for i_1 in T.parallel(40):
                for j_1 in range(16):
                    t_1[j_1] = A[k_1 + 4, i_1] * T.float32(2.0)
                B[k_1 + 4, i_1] = t_1[3] + T.float32(1.0)
    """)


def test_one_that_carries_what_another_loop_wrote_stays_one():
    func = parse(
        HEAD
        + """
                for i in T.parallel(16):
                    t[i] = A[0, i]
                for i in T.parallel(16):
                    B[0, i] = t[15 - i]
    """
    )
    after(func, "separate_lives").becomes("""
        # with T.block("root"):
        t = T.alloc_buffer((16,))
        for i in T.parallel(16):
            t[i] = A[0, i]
        for i_1 in T.parallel(16):
            B[0, i_1] = t[15 - i_1]
    """)


@pytest.mark.parametrize(("kind", "body", "conflict"), [
    ("parallel", "B[0, i] = t[0]", False),  # nothing is written
    ("parallel", "t[0] = A[0, i]", True),
    ("parallel", "t[i] = A[0, i]", False),
    ("serial", "t[0] = A[0, i]", False),
])  # fmt: skip
def test_iterations_conflict_where_one_writes(kind, body, conflict):
    func = parse(
        HEAD
        + f"""
                for i in T.{kind}(16):
                    {body}
    """
    )
    assert iterations_conflict(func.body, func.allocs[0], {}) == conflict


def test_what_is_carried_from_one_iteration_to_the_next_is_a_race():
    func = parse(
        HEAD
        + """
                t[0] = T.float32(0)
                for i in T.parallel(40):
                    t[0] = t[0] + A[0, i]
                    B[0, i] = t[0]
                for i in T.parallel(40):
                    t[0] = A[1, i]
                    B[1, i] = t[0]
    """
    )
    errors = tir.verify(func).errors
    assert all("is parallel, but i" in f.message and "writes t[0]" in f.message for f in errors) and len(errors) == 2


def test_what_a_part_may_read_unwritten_is_unproved():
    func = parse(
        HEAD
        + """
                for k in range(6):
                    for i in T.parallel(40):
                        if i < 16:
                            t[0] = A[k, i]
                        else:
                            t[0] = A[k, i] * T.float32(3)
                        B[k, i] = t[0]
    """
    )
    report = tir.verify(func)
    assert not report.errors and len(report.unproved) == 1
