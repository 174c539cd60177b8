import numpy as np
import pytest

from docs.generate import bytes_product
from schedule import Schedule
from tests.programs import matmul
from tests.schedule.harness import Checked
from tir import te
from tir.interpreter import run


def product(left="int8", right="int8", same=False, batch=(), units=()):
    """C = A · B, transposed, of a batch; or A · A. B has `units`, dimensions of one element, first."""
    A = te.placeholder((*batch, 7, 13), left, name="A")
    B = A if same else te.placeholder((*units, *batch, 5, 13), right, name="B")
    k = te.reduce_axis((0, 13), name="k")

    def term(*i):
        return A[(*i[:-1], k)].astype("int32") * B[(*(0 for _ in units), *i[:-2], i[-1], k)].astype("int32")

    C = te.compute((*batch, 7, 7 if same else 5), lambda *i: te.sum(term(*i), axis=k), name="C")
    return te.create_prim_func([A, C] if same else [A, B, C])


def test_the_left_factor():
    s = Checked(bytes_product())
    assert s.make_unsigned("C", "A") == ("A_global", "B_sum", "C_global")
    s.becomes("""
        A_global = T.alloc_buffer((7, 5), "uint8")
        C_global = T.alloc_buffer((7, 13), "int32")
        B_sum = T.alloc_buffer((13,), "int32")
        for ax0, ax1 in T.grid(7, 5):
            with T.block("A_global"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                A_global[v0, v1] = T.Cast("uint8", T.Cast("int32", A[v0, v1]) + 128)
        for ax0_2, ax1_2 in T.grid(5, 13):
            with T.block("B_sum"):
                v0, v1 = T.axis.remap("RS", [ax0_2, ax1_2])
                with T.init():
                    B_sum[v1] = 0
                B_sum[v1] = B_sum[v1] + T.Cast("int32", B[v0, v1])
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_global[v_i, v_j] = 0
                C_global[v_i, v_j] = C_global[v_i, v_j] + T.Cast("int32", A_global[v_i, v_k]) * T.Cast("int32", B[v_k, v_j])
        for ax0_1, ax1_1 in T.grid(7, 13):
            with T.block("C_global"):
                v0, v1 = T.axis.remap("SS", [ax0_1, ax1_1])
                C[v0, v1] = C_global[v0, v1] - B_sum[v1] * 128
    """)


@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize("factor", ["A", "B"])
@pytest.mark.parametrize(("batch", "units"), [((), ()), ((3,), ()), ((), (1, 1)), ((3,), (1,))])
def test_either_factor_of_all_bytes(right, factor, batch, units):
    func = product(right=right, batch=batch, units=units)
    s = Schedule(func)
    if (right, factor) == ("uint8", "B"):
        return
    s.make_unsigned("C", factor)
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(*(np.iinfo(b.dtype).min, np.iinfo(b.dtype).max), [d.value for d in b.shape], endpoint=True)
        for b in func.buffers
    ]
    arrays = [a.astype(b.dtype) for a, b in zip(arrays, func.buffers, strict=True)]
    others = [a.copy() for a in arrays]
    run(func, *arrays)
    run(s.func, *others)
    assert np.array_equal(arrays[-1], others[-1])


def test_refuses_what_is_no_such_sum():
    Checked(matmul()).refuses("""
        make_unsigned('C', 'A'): `C` is no sum of int8 elements of `A`, as int32, times elements of another buffer at its axes
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: it must be C[...] = C[...] + int32(A[...]) * int32(B[...]), with T.init() storing 0
    """)


@pytest.mark.parametrize("func", [product("uint8"), product(same=True)])
def test_refuses_other_bytes_and_one_buffer_twice(func):
    with pytest.raises(Exception, match="is no sum of int8 elements of `A`"):
        Schedule(func).make_unsigned("C", "A")


def test_refuses_a_part_of_a_nest():
    s = Checked(bytes_product())
    s.split("i", [None, 4])
    s.refuses("""
        make_unsigned('C', 'A'): `C` is not alone in its loops, over its whole domain
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: do this before its loops are merged, or split by what does not divide them
    """)
