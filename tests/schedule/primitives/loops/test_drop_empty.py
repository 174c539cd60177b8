from tests.programs import elementwise
from tests.schedule.harness import Checked
from tir import te


def test_a_sum_over_nothing_leaves_its_init():
    A, B = te.placeholder((7, 0), name="A"), te.placeholder((0, 5), name="B")
    k = te.reduce_axis((0, 0), name="k")
    C = te.compute((7, 5), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((7, 5), lambda i, j: C[i, j] + 1.0, name="D")
    s = Checked(te.create_prim_func([A, B, D]))
    s.drop_empty()
    s.becomes("""
        C = T.alloc_buffer((7, 5))
        for i, j in T.grid(7, 5):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                C[v_i, v_j] = T.float32(0.0)
        for i_1, j_1 in T.grid(7, 5):
            ...
    """)


def test_where_nothing_is_left():
    s = Checked(elementwise(7, 0))
    s.drop_empty()
    assert s.func.script().endswith('T.func_attr({"tir.noalias": T.bool(True), "tir.written": ["B"]})\n    T.evaluate(0)\n')


def test_refusal():
    Checked(elementwise(7, 13)).refuses("drop_empty(): all loops have iterations")
