from schedule import Schedule
from tests.programs import chain, matmul
from tests.schedule.harness import Checked
from tir import te


def test_a_reduction_that_is_tiled():
    s = Checked(matmul())
    copy = s.reindex("C", ("write", 0))
    s.split("j", [None, 4])
    s.write_in_place(copy)
    s.becomes("""
        for i, j_0, j_1, k in T.grid(7, 4, 4, 5):
            with T.block("C"):
                ...
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def flat():
    """B = A + 1, in one dimension less."""
    A = te.placeholder((7, 13), name="A")
    X = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="X")
    return te.create_prim_func([A, te.compute((91,), lambda f: X[f // 13, f % 13], name="B")])


def test_a_place_that_is_a_sum():
    s = Checked(flat())
    s.transform_block_layout("B", lambda f: (f // 13, f % 13))
    s.write_in_place("B")
    s.becomes("""
        for i, j in T.grid(7, 13):
            with T.block("X"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[v_i * 13 + v_j] = A[v_i, v_j] + T.float32(1.0)
    """)


def test_readers_of_the_target_stay():
    A = te.placeholder((7,), name="A")
    X = te.compute((7,), lambda i: A[i] + 1.0, name="X")
    Y = te.compute((7,), lambda i: X[i], name="Y")
    Z = te.compute((7,), lambda i: Y[6 - i] * 2.0, name="Z")
    s = Checked(te.create_prim_func([A, Y, Z]))
    s.write_in_place("Y")
    s.becomes("""
        for i in range(7):
            with T.block("X"):
                v_i = T.axis.spatial(7, i)
                Y[v_i] = A[v_i] + T.float32(1.0)
        for i_2 in range(7):
            ...
    """)


def test_refuses_a_formula():
    Checked(chain()).refuses("""
        write_in_place('C'): `C` computes `B[v_i, v_j] * T.float32(3.0)`, and copies no temporary
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: reverse_compute_inline('C') puts its formula into the block before it
    """)


def test_refuses_a_copy_of_a_parameter():
    A = te.placeholder((7,), name="A")
    Checked(te.create_prim_func([A, te.compute((7,), lambda i: A[i], name="B")])).refuses("""
        write_in_place('B'): `A` is used outside, so it must stay
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ reads A
          hint: only what is a temporary of the function or block can go
    """)


def test_refuses_another_order_of_axes():
    Checked(flat()).refuses("""
        write_in_place('B'): the axes of `B` are not the dimensions of `X`, in their order
           14 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ reads X
          hint: transform_block_layout reorders the axes of a block
    """)


def test_refuses_a_temporary_that_is_used_later():
    A = te.placeholder((7,), name="A")
    X = te.compute((7,), lambda i: A[i] + 1.0, name="X")
    Y = te.compute((7,), lambda i: X[i], name="Y")
    Z = te.compute((7,), lambda i: X[i] * Y[i], name="Z")
    Checked(te.create_prim_func([A, Y, Z])).refuses("""
        write_in_place('Y'): `Z` uses `X` after `Y` copies
           14 |         with T.block("Y"):
              |         ^^^^^^^^^^^^^^^^^^ the block
           15 |             v_i = T.axis.spatial(7, i_1)
           16 |             Y[v_i] = X[v_i]
           17 |     for i_2 in range(7):
           18 |         with T.block("Z"):
              |         ^^^^^^^^^^^^^^^^^^ uses X
          hint: only what is read of `Y` later may stay
    """)


def test_both_in_reverse():
    A = te.placeholder((7,), name="A")
    X = te.compute((7,), lambda i: A[i] + 1.0, name="X")
    Y = te.compute((7,), lambda i: X[i], name="Y")
    s = Schedule(te.create_prim_func([A, Y]))
    s.transform_layout("X", ("write", 0), lambda i: (6 - i,))
    s.transform_block_layout("Y", lambda i: (6 - i,))
    s.write_in_place("Y")
    assert "Y[v_i] = A[v_i] + T.float32(1.0)" in s.script
