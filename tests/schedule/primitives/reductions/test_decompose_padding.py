from tests.programs import chain, matmul, padded
from tests.schedule.harness import Checked
from tir import te
from tir.script import parse


def stencil(n: int = 13):
    """C = sums of three neighbours in the first five rows of A, -1 beyond."""
    A = te.placeholder((7, n), name="A")
    P = te.compute((7, n + 2), lambda i, j: te.if_then_else(te.all(j >= 1, n >= j, i < 5), A[i, j - 1], -1.0), name="P")
    C = te.compute((7, n), lambda i, j: P[i, j] + P[i, j + 1] + P[i, j + 2], name="C")
    return te.create_prim_func([A, C])


def diagonal(n: int = 7):
    """The lower triangle of A."""
    A = te.placeholder((n, n), name="A")
    B = te.compute((n, n), lambda i, j: te.if_then_else(te.all(i >= j, j < 6), A[i, j], 0.0), name="B")
    return te.create_prim_func([A, B])


def never(n: int = 7):
    """B = 0, in a roundabout way."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: te.if_then_else(te.all(i >= 5, i < 3), A[i], 0.0), name="B")
    return te.create_prim_func([A, B])


def read_before():
    """P, padded, is read in the loop that makes it, before it is made."""
    return parse(
        """
@T.prim_func
def main(A: T.Buffer((13,), "float32"), P: T.Buffer((15,), "float32"), Q: T.Buffer((15,), "float32")):
    for i in range(15):
        with T.block("Q"):
            v_i = T.axis.spatial(15, i)
            Q[v_i] = P[v_i]
        with T.block("P"):
            v_i = T.axis.spatial(15, i)
            P[v_i] = T.if_then_else(v_i >= 1 and v_i < 14, A[v_i - 1], T.float32(0.0))
"""
    )


def test_the_loop_is_cut():
    s = Checked(padded())
    assert s.decompose_padding("P", "i") == "P_pad_const"
    s.becomes("""
        for i_pad in range(15):
            with T.block("P_pad_const"):
                v_i = T.axis.spatial(15, i_pad)
                P[v_i] = T.float32(0.0)
        for i in range(13):
            with T.block("P"):
                v_i = T.axis.spatial(13, i)
                P[v_i + 1] = A[v_i]
    """)


def test_under_an_outer_loop():
    s = Checked(stencil())
    s.decompose_padding("P", "j")
    s.becomes("""
        P = T.alloc_buffer((7, 15))
        for i in range(7):
            for j_pad in range(15):
                with T.block("P_pad_const"):
                    v_i, v_j = T.axis.remap("SS", [i, j_pad])
                    P[v_i, v_j] = T.float32(-1.0)
            for j in range(13):
                with T.block("P"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    T.where(i < 5)
                    P[v_i, v_j + 1] = A[v_i, v_j]
        for i_1, j_1 in T.grid(7, 13):
            ...
    """)


def test_loops_of_a_split_axis_stay():
    s = Checked(stencil())
    s.split("j", [None, 4])
    s.decompose_padding("P", "i")
    s.becomes("""
        P = T.alloc_buffer((7, 15))
        for i_pad, j_0_pad, j_1_1_pad in T.grid(7, 4, 4):
            with T.block("P_pad_const"):
                v_i = T.axis.spatial(7, i_pad)
                v_j = T.axis.spatial(15, j_0_pad * 4 + j_1_1_pad)
                T.where(j_0_pad * 4 + j_1_1_pad < 15)
                P[v_i, v_j] = T.float32(-1.0)
        for i, j_0, j_1_1 in T.grid(5, 4, 4):
            with T.block("P"):
                v_i = T.axis.spatial(5, i)
                v_j = T.axis.spatial(15, j_0 * 4 + j_1_1)
                T.where(j_0 * 4 + j_1_1 < 15 and j_0 * 4 + j_1_1 >= 1 and j_0 * 4 + j_1_1 < 14)
                P[v_i, v_j] = A[v_i, v_j - 1]
        for i_1, j_1 in T.grid(7, 13):
            ...
    """)


def test_in_a_loop_with_its_consumer():
    s = Checked(stencil())
    s.compute_at("P", "i_1")
    s.decompose_padding("P", "ax0")
    s.becomes("""
        P = T.alloc_buffer((7, 15))
        for i_1 in range(7):
            for ax0_pad in range(15):
                with T.block("P_pad_const"):
                    v_i, v_j = T.axis.remap("SS", [i_1, ax0_pad])
                    P[v_i, v_j] = T.float32(-1.0)
            for ax0 in range(13):
                with T.block("P"):
                    v_i, v_j = T.axis.remap("SS", [i_1, ax0])
                    T.where(i_1 < 5)
                    P[v_i, v_j + 1] = A[v_i, v_j]
            for j_1 in range(13):
                ...
    """)


def test_a_condition_on_two_axes_becomes_the_predicate():
    s = Checked(diagonal())
    s.decompose_padding("B", "i")
    s.becomes("""
        for i_pad, j_pad in T.grid(7, 7):
            with T.block("B_pad_const"):
                v_i, v_j = T.axis.remap("SS", [i_pad, j_pad])
                B[v_i, v_j] = T.float32(0.0)
        for i, j in T.grid(7, 6):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                T.where(i >= j)
                B[v_i, v_j] = A[v_i, v_j]
    """)


def test_a_loop_that_is_not_around_is_refused():
    s = Checked(stencil())
    s.refuses("""
        decompose_padding('P', 'i_1'): `i_1` is not a loop around `P`; these are `i` and `j`
           10 |         with T.block("P"):
              |         ^^^^^^^^^^^^^^^^^^ the block
           11 |             v_i, v_j = T.axis.remap("SS", [i, j])
           12 |             P[v_i, v_j] = T.if_then_else(v_j >= 1 and v_j <= 13 and v_i < 5, A[v_i, v_j - 1], T.float32(-1.0))
           13 |     for i_1, j_1 in T.grid(7, 13):
              |         ^^^ the loop
    """)


def test_a_reduction_is_refused():
    s = Checked(matmul())
    s.refuses("""
        decompose_padding('C', 'i'): `C` is more than a single store
           12 |                 C[v_i, v_j] = T.float32(0.0)
              |                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ not the only statement
          hint: its formula is needed: it must be one store, without T.init()
    """)


def test_what_chooses_nothing_is_refused():
    s = Checked(chain())
    s.refuses("""
        decompose_padding('B', 'i'): `B` does not store a choice between a value and a padding that reads nothing, by a condition on its axes
           12 |             B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the store
          hint: its value must be T.if_then_else(condition on the axes, value, padding)
    """)


def test_a_condition_that_never_holds_is_refused():
    s = Checked(never())
    s.refuses("""
        decompose_padding('B', 'i'): the condition `v_i >= 5 and v_i < 3` never holds for `v_i`
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ only padding
          hint: it is padding everywhere: there is nothing to decompose
    """)


def test_a_reader_before_is_refused():
    s = Checked(read_before())
    s.refuses("""
        decompose_padding('P', 'i'): `Q` uses `P` under `i`, and could see that it is initialised earlier
            7 |     for i in range(15):
              |     ^^^^^^^^^^^^^^^^^^^ the loop
            8 |         with T.block("Q"):
              |         ^^^^^^^^^^^^^^^^^^ uses P
            9 |             v_i = T.axis.spatial(15, i)
           10 |             Q[v_i] = P[v_i]
           11 |         with T.block("P"):
              |         ^^^^^^^^^^^^^^^^^^ writes P
          hint: choose a loop that is not around `Q`
    """)
