"""Statements of scripts: lets, conditions, remarks, augmented assignments."""

from __future__ import annotations

from tests.tir.script.parsing import Body


def test_lets():
    Body("""
        for i in range(7):
            x: T.int32 = i * 2
            y = x + 1
            scale, offset = 2.0, T.float32(1)
            B[i, 0] = A[i, x // 2] * scale + offset
            with T.let(z, y + x):
                B[i, 1] = A[i, z // 7]
            with T.LetStmt(A[i, 0]) as w:
                B[i, 2] = w
            x = A[i, y % 2]
            B[i, 3] = T.let(v, x + 1.0, v * v) + T.Let(u * u, where={u: x})
            last: T.let[T.float32] = x
        for i in range(7):
            x: T.int64 = 3
            B[i, 5] = T.Cast("float32", x)
    """).becomes("""
        for i in range(7):
            x: T.int32 = i * 2
            y: T.int32 = x + 1
            offset: T.float32 = T.float32(1.0)
            B[i, 0] = A[i, x // 2] * T.float32(2.0) + offset
            with T.LetStmt(y + x) as z:
                B[i, 1] = A[i, z // 7]
            with T.LetStmt(A[i, 0]) as w:
                B[i, 2] = w
            x_1: T.float32 = A[i, y % 2]
            B[i, 3] = (x_1 + T.float32(1.0)) * (x_1 + T.float32(1.0)) + x_1 * x_1
            last: T.float32 = x_1
            T.evaluate(0)
        for i_1 in range(7):
            x: T.int64 = T.int64(3)
            B[i_1, 5] = T.Cast("float32", x)
    """)


def test_conditions():
    flag = "captured"
    assert flag
    Body("""
        for i, j in T.grid(7, 13):
            if 1 <= i < 5 and not (j == 3 or j > 7):
                B[i, j] = A[i - 1, j]
            elif i != j:
                B[i, j] = A[i, j] if j < 5 else T.float32(0)
            else:
                B[i, j] = T.Select(T.And(i < 3, j < 3), 1.0, A[i, j])
        if 1 + 1 == 2:
            B[0, 0] = 1
        else:
            B[0, 0] = nothing
        if T.bool(True):
            pass
    """).becomes("""
        for i, j in T.grid(7, 13):
            if 1 <= i and i < 5 and not (j == 3 or j > 7):
                B[i, j] = A[i - 1, j]
            else:
                if i != j:
                    B[i, j] = T.if_then_else(j < 5, A[i, j], T.float32(0.0))
                else:
                    B[i, j] = T.Select(i < 3 and j < 3, T.float32(1.0), A[i, j])
        B[0, 0] = T.float32(1.0)
        if T.bool(True):
            T.evaluate(0)
    """)


def test_remarks_are_read_over():
    Body("""
        T.attr(A.data, "buffer_dim_align", 1)
        with T.attr(0, "pragma_scope", 1):
            for i in range(7):
                B[i, 0] = T.likely(A[i, 0])
        ...
    """).becomes("""
        for i in range(7):
            B[i, 0] = A[i, 0]
    """)


def test_augmented_assignment():
    Body("B[1, 2] += A[0, 0]\nB[1, 2] *= 2").becomes("""
        B[1, 2] = B[1, 2] + A[0, 0]
        B[1, 2] = B[1, 2] * T.float32(2.0)
    """)  # fmt: skip


def test_statements_on_vectors_are_loops():
    Body("""
        for i in range(7):
            B[i, 1:5] = A[i, 3:7] * T.Broadcast(T.float32(2), 4)
            B[i, T.ramp(5, 2, 3)] = A[0, T.ramp(i, 1, 3)] + A[i, 0]
    """).becomes("""
        for i in range(7):
            for lane in T.vectorized(4):
                B[i, lane + 1] = A[i, lane + 3] * T.float32(2.0)
            for lane_1 in T.vectorized(3):
                B[i, lane_1 * 2 + 5] = A[0, i + lane_1] + A[i, 0]
    """)


def test_several_sizes_at_once():
    func = Body(
        """
        n, m = T.int32(), T.int64()
        X = T.match_buffer(x, (n, 3), "int32")
        Y = T.match_buffer(y, (n, m), "int32")
        for i in range(n):
            Y[i, 0] = X[i, 2]
    """,
        "x: T.handle, y: T.handle",
        sound=False,
    ).becomes("""
        for i in range(n):
            Y[i, 0] = X[i, 2]
    """)
    assert [str(p.name) for p in func.params] == ["X", "Y", "n", "m"]


def test_constants_are_stored_once():
    Body("""
        W_data = T.allocate_const([1.0, 2.0, 0.5, -3.0], "float32", [2, 2])
        W = T.Buffer((2, 2), "float32", data=W_data)
        for i, j in T.grid(7, 13):
            B[i, j] = A[i, j] * W[i % 2, j % 2]
    """).becomes("""
        # with T.block("root"):
        W_data = T.alloc_buffer((2, 2))
        with T.block("W_data"):
            W_data[0, 0] = T.float32(1.0)
            W_data[0, 1] = T.float32(2.0)
            W_data[1, 0] = T.float32(0.5)
            W_data[1, 1] = T.float32(-3.0)
        for i, j in T.grid(7, 13):
            B[i, j] = A[i, j] * W_data[i % 2, j % 2]
    """)
