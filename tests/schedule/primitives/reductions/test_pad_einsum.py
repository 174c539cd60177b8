from tests.programs import matmul
from tests.schedule.harness import Checked
from tir import te
from tir.script import tir as T


def weighted():
    """D = row sums of A, each row weighted by W, both temporaries."""
    A = te.placeholder((7, 5), name="A")
    W = te.placeholder((7,), name="W")
    r = te.reduce_axis((0, 5), name="r")
    B = te.compute((7, 5), lambda i, j: A[i, j] + 1.0, name="B")
    V = te.compute((7,), lambda i: W[i] + 1.0, name="V")
    C = te.compute((7,), lambda i: te.sum(B[i, r] * V[i], axis=r), name="C")
    D = te.compute((7,), lambda i: C[i], name="D")
    return te.create_prim_func([A, W, D])


def shifted():
    """A product with a shifted element."""
    A = te.placeholder((8, 5), name="A")
    r = te.reduce_axis((0, 5), name="r")
    B = te.compute((8, 5), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((7,), lambda i: te.sum(B[i + 1, r], axis=r), name="C")
    return te.create_prim_func([A, C])


def largest():
    """The largest element of each row."""
    A = te.placeholder((7, 5), name="A")
    r = te.reduce_axis((0, 5), name="r")
    C = te.compute((7,), lambda i: te.max(A[i, r], axis=r), name="C")
    return te.create_prim_func([A, C])


def wide():
    """Row sums over some of the columns."""
    A = te.placeholder((7, 13), name="A")
    r = te.reduce_axis((0, 5), name="r")
    B = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((7,), lambda i: te.sum(B[i, r], axis=r), name="C")
    return te.create_prim_func([A, C])


def test_all_axes():
    s = Checked(matmul())
    s.cache_read("C", 0, "global")
    s.cache_read("C", 1, "global")
    s.cache_write("C", 0, "global")
    s.pad_einsum("C", [4, 8, 4])
    s.becomes("""
        A_global = T.alloc_buffer((8, 8))
        B_global = T.alloc_buffer((8, 16))
        C_global = T.alloc_buffer((8, 16))
        for ax0, ax1 in T.grid(8, 16):
            with T.block("B_global"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B_global[v0, v1] = T.if_then_else(v0 < 5 and v1 < 13, B[v0, v1], T.float32(0.0))
        for ax0_3, ax1_3 in T.grid(8, 8):
            with T.block("A_global"):
                v0, v1 = T.axis.remap("SS", [ax0_3, ax1_3])
                A_global[v0, v1] = T.if_then_else(v0 < 7 and v1 < 5, A[v0, v1], T.float32(0.0))
        for i, j, k in T.grid(8, 16, 8):
            with T.block("C"):
        ...
    """)


def test_one_axis():
    s = Checked(matmul())
    s.cache_read("C", 0, "global")
    s.cache_write("C", 0, "global")
    s.pad_einsum("C", [4, 1, 1])
    s.becomes("""
        A_global = T.alloc_buffer((8, 5))
        C_global = T.alloc_buffer((8, 13))
        for ax0_2, ax1_2 in T.grid(8, 5):
            with T.block("A_global"):
                v0, v1 = T.axis.remap("SS", [ax0_2, ax1_2])
                A_global[v0, v1] = T.if_then_else(v0 < 7, A[v0, v1], T.float32(0.0))
        for i, j, k in T.grid(8, 13, 5):
            with T.block("C"):
        ...
    """)


def test_nothing_to_pad():
    s = Checked(matmul())
    s.pad_einsum("C", [7, 1, 5])
    s.becomes("""
        ...
    """)


def test_a_producer_that_computes():
    s = Checked(weighted())
    s.pad_einsum("C", [2, 1])
    s.becomes("""
        B = T.alloc_buffer((8, 5))
        V = T.alloc_buffer((8,))
        C = T.alloc_buffer((8,))
        for ax0, ax1 in T.grid(8, 5):
            with T.block("B"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B[v0, v1] = T.if_then_else(v0 < 7, A[v0, v1] + T.float32(1.0), T.float32(0.0))
        for ax0_1 in range(8):
            with T.block("V"):
                v0 = T.axis.spatial(8, ax0_1)
                V[v0] = T.if_then_else(v0 < 7, W[v0] + T.float32(1.0), T.float32(0.0))
        for i_2, r in T.grid(8, 5):
            with T.block("C"):
        ...
    """)


def test_parameters_are_padded_in_copies():
    s = Checked(matmul())
    s.pad_einsum("C", [4, 1, 4])
    s.becomes("""
        A_global = T.alloc_buffer((8, 8))
        B_global = T.alloc_buffer((8, 13))
        C_global = T.alloc_buffer((8, 13))
        for ax0, ax1 in T.grid(8, 13):
            with T.block("B_global"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B_global[v0, v1] = T.if_then_else(v0 < 5, B[v0, v1], T.float32(0.0))
        for ax0_3, ax1_3 in T.grid(8, 8):
            with T.block("A_global"):
                v0, v1 = T.axis.remap("SS", [ax0_3, ax1_3])
                A_global[v0, v1] = T.if_then_else(v0 < 7 and v1 < 5, A[v0, v1], T.float32(0.0))
        for i, j, k in T.grid(8, 13, 8):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_global[v_i, v_j] = T.float32(0.0)
                C_global[v_i, v_j] = C_global[v_i, v_j] + A_global[v_i, v_k] * B_global[v_k, v_j]
        for ax0_2, ax1_2 in T.grid(7, 13):
            with T.block("C_global"):
                v0, v1 = T.axis.remap("SS", [ax0_2, ax1_2])
                C[v0, v1] = C_global[v0, v1]
    """)


def test_a_factor_without_the_axis_is_refused():
    s = Checked(weighted())
    s.refuses("""
        pad_einsum('C', [1, 2]): `V[v_i]` does not depend on `v_r`, so products may not be 0 where that is padded
           20 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: 1 in `padding` leaves `v_r` as it is
    """)


def test_the_wrong_number_is_refused():
    s = Checked(matmul())
    s.refuses("""
        pad_einsum('C', [4, 8]): `padding` must be 3 positive integers, one for each axis, got [4, 8]
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
    """)


def test_zero_is_refused():
    s = Checked(matmul())
    s.refuses("""
        pad_einsum('C', [4, 0, 1]): `padding` must be 3 positive integers, one for each axis, got [4, 0, 1]
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
    """)


def test_another_reduction_is_refused():
    s = Checked(largest())
    s.refuses("""
        pad_einsum('C', [4, 1]): `C` does not add a product of elements to what was 0
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: it must be C[...] = C[...] + A[...] * B[...], from T.init() with 0
    """)


def test_a_shifted_index_is_refused():
    s = Checked(shifted())
    s.refuses("""
        pad_einsum('C', [4, 1]): `C` accesses `B` at `v_i + 1`, which is no axis of its own
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ accesses B
          hint: reindex('C', 'B') makes a copy indexed by the axes
    """)


def test_a_part_of_a_dimension_is_refused():
    s = Checked(wide())
    s.refuses("""
        pad_einsum('C', [1, 4]): `B` has 13 elements along `v_r`, which has 5 values
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ accesses B
          hint: reindex('C', 'B') makes a copy of the shape of the axes
    """)


def test_split_loops_are_refused():
    s = Checked(matmul())
    s.split("i", [None, 4])
    s.refuses("""
        pad_einsum('C', [4, 1, 1]): `i_0` is not the loop of one iteration variable of `C` over its whole extent
            8 |     for i_0, i_1, j, k in T.grid(2, 4, 13, 5):
              |         ^^^ the loop
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: do this before split, fuse and tile
    """)


def test_an_axis_that_what_is_written_lacks_is_refused():
    @T.prim_func
    def one(A: T.Buffer((1, 5), "float32"), C: T.Buffer((1,), "float32")):
        B = T.alloc_buffer((1, 5))
        for ax0, ax1 in T.grid(1, 5):
            with T.block("B"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B[v0, v1] = A[v0, v1]
        for i, k in T.grid(1, 5):
            with T.block("C"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    C[0] = T.float32(0)
                C[0] = C[0] + B[v_i, v_k]

    s = Checked(one)
    s.refuses("""
        pad_einsum('C', [4, 1]): `C[0]`, which it writes, does not depend on `v_i`, which would be padded
           13 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: 1 in `padding` leaves `v_i` as it is
    """)


def test_a_shifted_index_without_padded_axes_stays():
    s = Checked(shifted())
    s.pad_einsum("C", [1, 1])
    assert s.func == shifted()
