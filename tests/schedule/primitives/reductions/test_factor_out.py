import pytest

from schedule.primitives.reductions.factor_out import constant_factor
from tests.programs import chain, matmul
from tests.schedule.harness import Checked
from tir import te


def sums(term, dtype: str = "float32"):
    """The sums of the rows of what `term` makes of A and B."""
    A, B = te.placeholder((7, 13), dtype, name="A"), te.placeholder((13,), dtype, name="B")
    k = te.reduce_axis((0, 13), name="k")
    return te.create_prim_func([A, B, te.compute((7,), lambda i: te.sum(term(A[i, k], B[k]), axis=k), name="C")])


def test_a_factor():
    s = Checked(sums(lambda a, b: a * 2.0 * b))
    assert s.factor_out("C") == "C_global"
    s.becomes("""
        C_global = T.alloc_buffer((7,))
        for i, k in T.grid(7, 13):
            with T.block("C"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    C_global[v_i] = T.float32(0.0)
                C_global[v_i] = C_global[v_i] + A[v_i, v_k] * B[v_k]
        for ax0 in range(7):
            with T.block("C_global"):
                v0 = T.axis.spatial(7, ax0)
                C[v0] = C_global[v0] * T.float32(2.0)
    """)


@pytest.mark.parametrize(("term", "result"), [
    (lambda a, b: -(a * b), "-C_global[v0]"),
    (lambda a, b: a * -b * 3.0, "C_global[v0] * T.float32(-3.0)"),
    (lambda a, b: (a / 4.0) * (2.0 * b), "C_global[v0] * T.float32(2.0) / T.float32(4.0)"),
    (lambda a, b: -(a * -b), "C_global[v0]"),
])  # fmt: skip
def test_factors_anywhere(term, result):
    s = Checked(sums(term))
    s.factor_out("C")
    assert f"C[v0] = {result}\n" in s.script + "\n"
    assert "C_global[v_i] = C_global[v_i] + A[v_i, v_k]" in s.script


def test_integers_wrap_to_the_same():
    s = Checked(sums(lambda a, b: a * b * te.const(100, "int8"), "int8"))
    s.factor_out("C")
    s.becomes("""
        C_global = T.alloc_buffer((7,), "int8")
        for i, k in T.grid(7, 13):
            with T.block("C"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    C_global[v_i] = T.int8(0)
                C_global[v_i] = C_global[v_i] + A[v_i, v_k] * B[v_k]
        for ax0 in range(7):
            with T.block("C_global"):
                v0 = T.axis.spatial(7, ax0)
                C[v0] = C_global[v0] * T.int8(100)
    """)


def test_what_is_no_factor():
    x = te.placeholder((1,), name="x")[0]
    for e in (x + 2.0, x * 0.0, x * float("inf"), x / 0.0, 2.0 / x, te.exp(x * 2.0), x.astype("int32")):
        e = e.op if hasattr(e, "op") and not isinstance(e.op, str) else e
        assert constant_factor(e) == (None, e)


def test_refuses_what_is_no_sum():
    Checked(chain()).refuses("""
        factor_out('B'): `B` is no sum from 0
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: it must be C[...] = C[...] + f, with T.init() storing 0; do this before decompose_reduction
    """)


def test_refuses_a_sum_without_a_factor():
    Checked(matmul()).refuses("""
        factor_out('C'): `A[v_i, v_k] * B[v_k, v_j]`, which `C` adds up, has no constant factor to take out
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: a factor is a number other than 0 in a product, a quotient or a negative
    """)
