"""Virtual threads are written out inside of barriers, and thread loops distributed over the steps of a block."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest

from schedule import Schedule, ScheduleError
from tests.codegen.cuda.kernels import check, no_compiler
from tests.codegen.passes.test_thread_binding import after, program
from tests.programs import matmul
from tir.script import parse


def test_virtual_threads_share_what_does_not_depend_on_them():
    """The tile is loaded once, and each statement has its own loop over virtual threads."""
    func = program("""
        for b in T.thread_binding(7, thread="blockIdx.x"):
            tile = T.decl_buffer((13,), scope="shared")
            for v in T.thread_binding(2, thread="vthread.x"):
                for k in range(3):
                    for t in T.thread_binding(6, thread="threadIdx.x"):
                        tile[t] = A[b, k + t]
                    for t_1 in T.thread_binding(6, thread="threadIdx.x"):
                        C[b, v * 6 + t_1] = C[b, v * 6 + t_1] + tile[t_1]
    """)
    assert after("inject_virtual_thread", func) == dedent("""
        for bx in T.thread_binding(7, thread="blockIdx.x"):
            tile = T.decl_buffer((13,), scope="shared")
            for k in range(3):
                for tx in T.thread_binding(6, thread="threadIdx.x"):
                    tile[tx] = A[bx, k + tx]
                for tx in T.thread_binding(6, thread="threadIdx.x"):
                    for v in T.unroll(2):
                        C[bx, v * 6 + tx] = C[bx, v * 6 + tx] + tile[tx]
    """).strip("\n")


def test_virtual_threads_go_into_allocations_and_conditions():
    """Which do not depend on them."""
    func = program("""
        for b in T.thread_binding(7, thread="blockIdx.x"):
            for v in T.thread_binding(2, thread="vthread.x"):
                tile = T.decl_buffer((12,), scope="shared")
                for t in T.thread_binding(6, thread="threadIdx.x"):
                    tile[v * 6 + t] = A[b, v * 6 + t]
                if b < 3:
                    D[b] = A[b, 0]
                    for t_1 in T.thread_binding(6, thread="threadIdx.x"):
                        C[b, v * 6 + t_1] = tile[v * 6 + t_1]
                else:
                    for t_2 in T.thread_binding(6, thread="threadIdx.x"):
                        C[b, v * 6 + t_2] = tile[v * 6 + 5 - t_2]
    """)
    text = after("inject_virtual_thread", func)
    assert text.index("tile = ") < text.index("T.unroll(2)") and text.count("if bx < 3:") == 1 and text.count("T.unroll(2)") == 3


def test_steps_that_are_the_same_for_all_threads_run_once():
    func = program("""
        for b in T.thread_binding(7, thread="blockIdx.x"):
            tile = T.decl_buffer((1,), scope="shared")
            for t in T.thread_binding(13, thread="threadIdx.x"):
                tile[0] = A[b, 0]
                C[b, t] = tile[0]
    """)
    assert after("distribute_threads", func) == dedent("""
        for bx in T.thread_binding(7, thread="blockIdx.x"):
            tile = T.decl_buffer((1,), scope="shared")
            tile[0] = A[bx, 0]
            for tx in T.thread_binding(13, thread="threadIdx.x"):
                C[bx, tx] = tile[0]
    """).strip("\n")


def test_virtual_threads_that_would_overwrite_each_other_stay_around():
    """Each keeps another value in the only element of `own`, by way of `step`."""
    func = program("""
        for b in T.thread_binding(7, thread="blockIdx.x"):
            own = T.decl_buffer((1,), scope="local")
            step = T.decl_buffer((1,), scope="local")
            for v in T.thread_binding(2, thread="vthread.x"):
                step[0] = A[b, v]
                own[0] = step[0] + T.float32(1)
                C[b, v] = own[0]
    """)
    assert after("inject_virtual_thread", func) == dedent("""
        for bx in T.thread_binding(7, thread="blockIdx.x"):
            own = T.decl_buffer((1,), scope="local")
            step = T.decl_buffer((1,), scope="local")
            for v in T.unroll(2):
                step[0] = A[bx, v]
                own[0] = step[0] + T.float32(1.0)
                C[bx, v] = own[0]
    """).strip("\n")


def test_a_thread_loop_is_distributed_over_the_steps_of_its_block():
    """The tile is loaded by all threads, in a loop of the same axis, which stands inside of another."""
    func = program("""
        for b in T.thread_binding(7, thread="blockIdx.x"):
            tile = T.decl_buffer((13,), scope="shared")
            for t in T.thread_binding(13, thread="threadIdx.x"):
                for k in range(2):
                    for u in T.thread_binding(13, thread="threadIdx.x"):
                        tile[u] = A[b, u] * T.Cast("float32", k)
                    C[b, t] = C[b, t] + tile[12 - t]
    """)
    assert after("distribute_threads", func) == dedent("""
        for bx in T.thread_binding(7, thread="blockIdx.x"):
            tile = T.decl_buffer((13,), scope="shared")
            for k in range(2):
                for tx in T.thread_binding(13, thread="threadIdx.x"):
                    tile[tx] = A[bx, tx] * T.Cast("float32", k)
                for tx in T.thread_binding(13, thread="threadIdx.x"):
                    C[bx, tx] = C[bx, tx] + tile[12 - tx]
    """).strip("\n")


PUBLISHED = """
@T.prim_func
def main(A: T.Buffer((64, 40), "float32"), B: T.Buffer((40, 32), "float32"), C: T.Buffer((64, 32), "float32")):
    A_shared = T.alloc_buffer((64, 40), scope="shared")
    C_local = T.alloc_buffer((64, 32), scope="local")
    for by in T.thread_binding(4, thread="blockIdx.y"):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for ty in T.thread_binding(8, thread="threadIdx.y"):
                for tx in range(8):
                    for i in range(2):
                        with T.block("init"):
                            vi = T.axis.spatial(64, by * 16 + ty * 2 + i)
                            vj = T.axis.spatial(32, bx * 8 + tx)
                            C_local[vi, vj] = T.float32(0)
                    for ko in range(5):
                        for a0, a1, a2 in T.grid(2, 8, 8):
                            with T.block("load"):
                                v0 = T.axis.spatial(64, by * 16 + a0 * 8 + a1)
                                v1 = T.axis.spatial(40, ko * 8 + a2)
                                A_shared[v0, v1] = A[v0, v1]
                        for ki, i in T.grid(8, 2):
                            with T.block("update"):
                                vi = T.axis.spatial(64, by * 16 + ty * 2 + i)
                                vj = T.axis.spatial(32, bx * 8 + tx)
                                vk = T.axis.reduce(40, ko * 8 + ki)
                                C_local[vi, vj] = C_local[vi, vj] + A_shared[vi, vk] * B[vk, vj]
                    for i in range(2):
                        with T.block("store"):
                            vi = T.axis.spatial(64, by * 16 + ty * 2 + i)
                            vj = T.axis.spatial(32, bx * 8 + tx)
                            C[vi, vj] = C_local[vi, vj]
"""


@no_compiler
def test_virtual_threads_share_barriers_and_loads() -> None:
    func = matmul(48, 48, 48)
    s = Schedule(func)
    copy = s.cache_read("C", 0, "shared")
    i, j, k = s.get_loops("C")
    bi, vi, ti = s.split(i, [None, 2, 8])
    ko, ki = s.split(k, [None, 8])
    bj, tj = s.split(j, [None, 8])
    s.reorder(bi, bj, ko, vi, ti, tj, ki)
    s.compute_at(copy, ko)
    s.bind(bi, "blockIdx.y")
    s.bind(bj, "blockIdx.x")
    s.decompose_reduction("C", ko)
    s.bind(vi, "vthread.y")
    s.bind(ti, "threadIdx.y")
    s.bind(tj, "threadIdx.x")
    a, b = s.get_loops(copy)[-2:]
    _, ty, tx = s.split(s.fuse(a, b), [None, 8, 8])
    s.bind(ty, "threadIdx.y")
    s.bind(tx, "threadIdx.x")
    text = check(s.func, func, barriers=2)
    assert re.search(r"for \(int i_1(_init)? = 0; i_1(_init)? < 2", text)


@no_compiler
def test_threads_may_stand_outside_of_the_loads_that_they_share() -> None:
    """The published style: thread loops outermost, and loads inside of them bound to the same axes again."""
    func = parse(PUBLISHED)
    s = Schedule(func)
    for loop, axis in (("tx", "threadIdx.x"), ("a1", "threadIdx.y"), ("a2", "threadIdx.x")):
        s.bind(loop, axis)
    text = check(s.func, func, barriers=2)
    assert "A_shared[128]" in text and "A_shared[a0 * 64 + ty" in text
    with pytest.raises(ScheduleError, match=r"`ty` is bound to threadIdx\.y already"):  # what it fills, ty reads
        s.bind("ki", "threadIdx.y")
