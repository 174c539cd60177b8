"""Views of buffers and of memory in scripts, which become indices."""

from __future__ import annotations

import numpy as np

from tests.tir.script.parsing import Body, parsed
from tir.interpreter import run
from tir.verify import verify


def test_windows_of_buffers_are_put_in():
    Body("""
        for i in range(7):
            with T.block("B"):
                vi = T.axis.spatial(7, i)
                row = T.match_buffer(A[vi, 3:8], (5,))
                out = T.match_buffer(B[vi:vi + 1, 0:13], (1, 13), offset_factor=1)
                T.reads(row[0:5])
                T.writes(out[0, 2])
                for j in range(5):
                    out[0, 2] = row[j] + row[4 - j]
    """).becomes("""
        # with T.block("root"):
        for i in range(7):
            with T.block("B"):
                vi = T.axis.spatial(7, i)
                T.reads(A[vi, 3:8])
                T.writes(B[vi, 2])
                for j in range(5):
                    B[vi, 2] = A[vi, 3 + j] + A[vi, 3 + (4 - j)]
    """)


def test_flat_views_of_parameters_are_resolved():
    func = Body("""
        A_1 = T.Buffer((91,), data=A.data)
        for io, ii in T.grid(7, 13):
            cse: T.int32 = io * 13
            B_1 = T.Buffer((91,), data=B.data, align=64)
            B_1[cse + ii] = A_1[io * 13 + ii] + A_1[90 - (io * 13 + ii)]
    """).becomes("""
        for io, ii in T.grid(7, 13):
            cse: T.int32 = io * 13
            B[io, ii] = A[io, ii] + A[6 - io, 12 - ii]
    """)
    a, b = np.arange(91, dtype="float32").reshape(7, 13) ** 2, np.zeros((7, 13), "float32")
    run(func, a, b)
    assert np.array_equal(b, a + a[::-1, ::-1])


def test_views_that_do_not_divide_keep_their_remainders():
    """7 columns of 13 seen as 13 of 7: rows cross."""
    func = parsed(
        """
        A_1 = T.Buffer((13, 7), data=A.data)
        B_1 = T.Buffer((13, 7), data=B.data)
        for i, j in T.grid(13, 7):
            B_1[i, j] = A_1[i, j] * 2.0
        """
    )
    assert "//" in func.script()
    assert verify(func).ok
    a, b = np.arange(91, dtype="float32").reshape(7, 13), np.zeros((7, 13), "float32")
    run(func, a, b)
    assert np.array_equal(b, 2 * a)


def test_memory_takes_the_shape_of_its_views():
    Body("""
        with T.allocate([91], "float32", "global") as C:
            C_1 = T.Buffer((7, 13), data=C)
            for i, j in T.grid(7, 13):
                C_1[i, j] = A[i, j]
            C_2 = T.decl_buffer((7, 13), data=C)
            D = T.decl_buffer((7, 13), data=T.allocate([91]))
            for i, j in T.grid(7, 13):
                D[i, j] = C_2[i, j]
            for i, j in T.grid(7, 13):
                B[i, j] = D[i, j]
    """).becomes("""
        C = T.decl_buffer((7, 13))
        for i, j in T.grid(7, 13):
            C[i, j] = A[i, j]
        D = T.decl_buffer((7, 13))
        for i_1, j_1 in T.grid(7, 13):
            D[i_1, j_1] = C[i_1, j_1]
        for i_2, j_2 in T.grid(7, 13):
            B[i_2, j_2] = D[i_2, j_2]
    """)


def test_memory_with_views_of_several_shapes_is_flat():
    Body("""
        C = T.allocate([91], scope="local")
        C_1 = T.Buffer((7, 13), data=C, scope="local")
        for i, j in T.grid(7, 13):
            C_1[i, j] = A[i, j]
        C_2 = T.Buffer((13, 7), data=C, scope="local")
        C_3 = T.Buffer((13,), data=C, elem_offset=13, scope="local")
        for j, i in T.grid(13, 7):
            B[i, j] = C_2[j, i] + C_3[j] + C[i]
    """).becomes("""
        C = T.decl_buffer((91,), scope="local")
        for i, j in T.grid(7, 13):
            C[i * 13 + j] = A[i, j]
        for j_1, i_1 in T.grid(13, 7):
            B[i_1, j_1] = C[j_1 * 7 + i_1] + C[j_1 + 13] + C[i_1]
    """)


def test_a_handle_gets_its_shape_from_a_view():
    Body(
        """
        A = T.Buffer((7,), data=a)
        A_1 = T.decl_buffer((7,), data=a)
        A[0] = A_1[3]
    """,
        'a: T.handle("float32")',
    ).becomes("A[0] = A[3]")


def test_sizes_that_stand_for_strides_and_offsets():
    Body(
        """
        s0, s1, e = T.int32(), T.int32(), T.int32()
        X = T.match_buffer(x, (9, 5), "int32", strides=[s0, s1], elem_offset=e, offset_factor=1)
        for i in range(3):
            with T.block("X"):
                vi = T.axis.opaque(3, i)
                t, u, o = T.int32(), T.int32(), T.int32()
                W = T.match_buffer(X[vi * 3:vi * 3 + 3, 1:5], (3, 4), "int32", strides=[t, u], elem_offset=o)
                for y, z in T.grid(3, 4):
                    W[y, z] = t * 100 + u * 10 + o + s0 + s1 + e
    """,
        "x: T.handle",
        sound=False,
    ).becomes("""
        # with T.block("root"):
        for i in range(3):
            with T.block("X"):
                vi = T.axis.opaque(3, i)
                for y, z in T.grid(3, 4):
                    X[vi * 3 + y, 1 + z] = T.int32(5) * 100 + T.int32(1) * 10 + (vi * 15 + 1) + 5 + 1 + 0
    """)
