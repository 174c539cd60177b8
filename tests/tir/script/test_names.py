"""Names of scripts are made unique."""

from __future__ import annotations

from tests.tir.script.parsing import Body


def test_names_are_made_unique():
    """Loops and blocks are handles; iteration variables keep their names, and loops make way for them."""
    Body("""
        for i, j in T.grid(7, 13):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
        for i in range(7):
            for i_1 in range(13):
                with T.block("B"):
                    vi, j = T.axis.remap("SS", [i, i_1])
                    B[vi, j] = B[vi, j] * 2.0
        for i in range(7):
            for B_1 in range(13):
                with T.block():
                    v, w = T.axis.remap("SS", [i, B_1])
                    B[v, w] = B[v, w] * 3.0
    """).becomes("""
        # with T.block("root"):
        for i, j_1 in T.grid(7, 13):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j_1])
                B[vi, vj] = A[vi, vj]
        for i_2, i_1 in T.grid(7, 13):
            with T.block("B_2"):
                vi, j = T.axis.remap("SS", [i_2, i_1])
                B[vi, j] = B[vi, j] * T.float32(2.0)
        for i_3, B_1 in T.grid(7, 13):
            with T.block("block"):
                v, w = T.axis.remap("SS", [i_3, B_1])
                B[v, w] = B[v, w] * T.float32(3.0)
    """)


def test_a_buffer_called_like_the_namespace():
    Body("for i in range(7):\n    T[i] = T.exp(T[i]) + S[i]", 'T: T.Buffer((7,), "float32"), S: T.Buffer((7,), "float32")').becomes("""
        for i in range(7):
            T[i] = T.exp(T[i]) + S[i]
    """)  # fmt: skip
