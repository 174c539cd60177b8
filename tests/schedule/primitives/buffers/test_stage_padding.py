from tests.programs import matmul
from tests.schedule.harness import Checked
from tir import te


def convolution(pad, stride: int = 1):
    """C = a convolution of A by B that pads A by itself, as `pad` says of an element."""
    A, B = te.placeholder((2, 7, 9), name="A"), te.placeholder((2, 3, 3), name="B")
    c, r, q = (te.reduce_axis((0, n), name=name) for n, name in ((2, "c"), (3, "r"), (3, "q")))
    C = te.compute(
        (7 // stride, 9), lambda h, w: te.sum(pad(A, c, h * stride + r - 1, w + q - 1) * B[c, r, q], axis=[c, r, q]), name="C"
    )
    return te.create_prim_func([A, B, C])


def zeros(A, c, h, w):
    return te.if_then_else(te.all(h >= 0, h < 7, w >= 0, 9 > w), A[c, h, w], 0.0)


def test_a_convolution():
    s = Checked(convolution(zeros))
    assert s.stage_padding("C", "A") == "A_padded"
    s.becomes("""
        A_padded = T.alloc_buffer((2, 9, 11))
        for ax0, ax1, ax2 in T.grid(2, 9, 11):
            with T.block("A_padded"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                A_padded[v0, v1, v2] = T.if_then_else(v1 >= 1 and v1 < 8 and v2 >= 1 and v2 < 10, A[v0, v1 - 1, v2 - 1], T.float32(0.0))
        for h, w, c, r, q in T.grid(7, 9, 2, 3, 3):
            with T.block("C"):
                v_h, v_w, v_c, v_r, v_q = T.axis.remap("SSRRR", [h, w, c, r, q])
                with T.init():
                    C[v_h, v_w] = T.float32(0.0)
                C[v_h, v_w] = C[v_h, v_w] + A_padded[v_c, v_h + v_r, v_w + v_q] * B[v_c, v_r, v_q]
    """)


def test_steps_of_two_and_another_constant():
    def pad(A, c, h, w):
        return te.if_then_else(te.all(1 <= h + 1, h - 7 < 0, w >= 0, w < 9), A[c, h, w], 2.5)

    s = Checked(convolution(pad, stride=2))
    s.stage_padding("C", ("read", 0))
    s.becomes("""
        A_padded = T.alloc_buffer((2, 7, 11))
        for ax0, ax1, ax2 in T.grid(2, 7, 11):
            with T.block("A_padded"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                A_padded[v0, v1, v2] = T.if_then_else(v1 >= 1 and v2 >= 1 and v2 < 10, A[v0, v1 - 1, v2 - 1], T.float32(2.5))
        for h, w, c, r, q in T.grid(3, 9, 2, 3, 3):
            with T.block("C"):
                v_h, v_w, v_c, v_r, v_q = T.axis.remap("SSRRR", [h, w, c, r, q])
                with T.init():
                    C[v_h, v_w] = T.float32(0.0)
                C[v_h, v_w] = C[v_h, v_w] + A_padded[v_c, v_h * 2 + v_r, v_w + v_q] * B[v_c, v_r, v_q]
    """)


PADDED = """
    A_padded = T.alloc_buffer((9,), "int8")
    for ax0 in range(9):
        with T.block("A_padded"):
            v0 = T.axis.spatial(9, ax0)
            A_padded[v0] = T.if_then_else(v0 >= 1 and v0 < 8, A[v0 - 1], T.int8(0))
    for i, k in T.grid(7, 3):
        with T.block("C"):
            v_i, v_k = T.axis.remap("SR", [i, k])
            with T.init():
                C[v_i] = 0
            C[v_i] = C[v_i] + T.Cast("int32", A_padded[v_i + v_k]) * T.Cast("int32", B[v_k])
"""


def row(shape: int = 3, where: bool = False):
    """A row of integers times a kernel, without what lies outside; B has `shape` elements."""
    A, B, k = te.placeholder((7,), "int8", name="A"), te.placeholder((shape,), "int8", name="B"), te.reduce_axis((0, 3), name="k")

    def value(i):
        x = i + k - 1
        inside, product = te.all(x >= 0, x < 7), A[x].astype("int32") * B[k].astype("int32")
        inside = te.all(inside, k < shape) if shape < 3 else inside
        return te.sum(product, axis=k, where=inside) if where else te.sum(te.if_then_else(inside, product, 0), axis=k)

    return te.create_prim_func([A, B, te.compute((7,), value, name="C")])


def test_the_padding_of_a_product_is_that_of_its_factor():
    s = Checked(row())
    s.stage_padding("C", "A")
    s.becomes(PADDED)


def test_what_a_sum_leaves_out_is_padded():
    s = Checked(row(where=True))
    s.stage_padding("C", "A")
    s.becomes(PADDED)


def test_refuses_other_factors_that_are_not_there():
    """Of two elements of the kernel the third one is never asked for, as the condition says, but would be."""
    Checked(row(2)).refuses("""
        stage_padding('C', 'A'): `C` does not read `A` under one condition, and a constant elsewhere
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads A
          hint: it must read it in T.if_then_else(condition, A[...], constant) alone
    """)


def test_refuses_what_is_not_padded():
    Checked(matmul()).refuses("""
        stage_padding('C', 'A'): `C` does not read `A` under one condition, and a constant elsewhere
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads A
          hint: it must read it in T.if_then_else(condition, A[...], constant) alone
    """)


def test_refuses_a_condition_on_something_else():
    def pad(A, c, h, w):
        return te.if_then_else(h + w < 9, A[c, h, w], 0.0)

    Checked(convolution(pad)).refuses("""
        stage_padding('C', 'A'): `v_h * 1 + v_r - 1 + (v_w + v_q - 1) < 9` is no condition on an index of `A` in `C`
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads A
          hint: a condition compares an index with a number
    """)


def test_refuses_places_without_bounds():
    A, X = te.placeholder((7,), "int32", name="A"), te.placeholder((9,), name="X")
    B = te.compute((7,), lambda i: te.if_then_else(A[i] >= 0, X[A[i]], 0.0), name="B")
    Checked(te.create_prim_func([A, X, B])).refuses("""
        stage_padding('B', 'X'): `B` asks for places `A[v_i]` of `X`, of which the first and the last are not known
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ reads X
          hint: an index is made of axes of constant extents
    """)


def test_refuses_dimensions_that_share_an_axis():
    """Of the places between the first and the last, some are not asked for, and may lie outside of the buffer."""
    A = te.placeholder((2, 2), name="A")
    B = te.compute((2,), lambda i: te.if_then_else(i - 1 >= 0, A[i, i - 1], 0.0), name="B")
    Checked(te.create_prim_func([A, B])).refuses("""
        stage_padding('B', 'A'): not all places of `A` between the first and the last that `B` asks for are inside of it
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ reads A
          hint: let conditions bound each index by itself
    """)
