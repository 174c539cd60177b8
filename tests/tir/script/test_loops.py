"""Loops of scripts, and thread axes."""

from __future__ import annotations

from tests.tir.script.parsing import Body


def test_loops_of_every_kind():
    Body("""
        for i in T.serial(7, annotations={"pragma_unroll": 16, "none": None}):
            for j in T.parallel(0, 3):
                for k in T.vectorized(T.int64(2)):
                    for l in T.unroll(2, annotations=None):
                        A[i, j * 4 + T.Cast("int32", k) * 2 + l] = 0
        for bx in T.thread_binding(7, thread="blockIdx.x"):
            for tx in T.thread_binding(0, 13, "threadIdx.x", annotations={"a": [1, "b"]}):
                for ty in T.thread_binding(1, "threadIdx.y"):
                    B[bx, tx] = ty
    """).becomes("""
        for i in T.serial(7, annotations={"none": None, "pragma_unroll": 16}):
            for j in T.parallel(3):
                for k in T.vectorized(T.int64(2)):
                    for l in T.unroll(2):
                        A[i, j * 4 + T.Cast("int32", k) * 2 + l] = T.float32(0.0)
        for bx in T.thread_binding(7, thread="blockIdx.x"):
            for tx in T.thread_binding(13, thread="threadIdx.x", annotations={"a": [1, "b"]}):
                for ty in T.thread_binding(1, thread="threadIdx.y"):
                    B[bx, tx] = T.Cast("float32", ty)
    """)


def test_loops_that_start_elsewhere_or_step():
    Body("""
        n = A.shape[0]
        for i in range(2, n):
            for j in range(1, 13, 4):
                for k in T.serial(i, n):
                    B[i, j] = A[k, j - 1]
    """).becomes("""
        for i, j in T.grid(5, 3):
            for k in range(5 - i):
                B[i + 2, j * 4 + 1] = A[k + (i + 2), j * 4 + 1 - 1]
    """)


def test_threads_of_lowered_programs():
    expected = """
        for bx in T.thread_binding(7, thread="blockIdx.x"):
            for tx in T.thread_binding(13, thread="threadIdx.x"):
                B[bx, tx] = A[bx, tx]
        """
    Body("""
        bx = T.launch_thread("blockIdx.x", 7)
        with T.launch_thread("threadIdx.x", 13) as tx:
            B[bx, tx] = A[bx, tx]
    """).becomes(expected)
    Body("""
        bx = T.env_thread("blockIdx.x")
        tx = T.env_thread("threadIdx.x")
        T.launch_thread(bx, 7)
        with T.launch_thread(tx, 13):
            B[bx, tx] = A[bx, tx]
    """).becomes(expected)
