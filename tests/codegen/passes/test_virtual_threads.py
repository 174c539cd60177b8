"""Virtual threads are written out inside of barriers, and thread loops distributed over the steps of a block."""

from __future__ import annotations

from textwrap import dedent

from tests.codegen.passes.test_thread_binding import after, program


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
