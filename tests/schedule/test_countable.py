"""Loops, axes and buffers with more steps than their dtype can count are refused, by whatever step would make them."""

from __future__ import annotations

import pytest

import tir
from schedule import ScheduleError
from tests.schedule.harness import Checked
from tir import te
from tir.script import parse


def largest(dtype: str) -> tir.PrimFunc:
    """The largest of A, looked at very often."""
    return parse(f"""
@T.prim_func
def main(A: T.Buffer((7,), "float32"), C: T.Buffer((7,), "float32")):
    B = T.alloc_buffer((T.{dtype}(65536), T.{dtype}(65537)), "float32")
    for i, j in T.grid(T.{dtype}(65536), T.{dtype}(65537)):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[(vi + vj) % 7]
    for i, j in T.grid(T.{dtype}(65536), T.{dtype}(65537)):
        with T.block("C"):
            vi, vj = T.axis.remap("RR", [i, j])
            with T.init():
                C[0] = T.float32(0)
            C[0] = T.max(C[0], B[vi, vj])
""")


STEPS = {
    "split": lambda s: s.split(s.get_loops("C")[0], [None, 2**32]),
    "tile": lambda s: s.tile(*s.get_loops("C"), 2**33, 1),
    "transform_layout": lambda s: s.transform_layout("B", ("write", 0), lambda i, j: (i * 65537 + j,)),
    "transform_block_layout": lambda s: s.transform_block_layout("B", lambda i, j: (i * 65537 + j,)),
}


@pytest.mark.parametrize("step", STEPS)
def test_refused_or_wide_enough(step):
    s = tir.Schedule(largest("int32"))
    with pytest.raises(ScheduleError, match=r"would count to [0-9]+, and int32 ends at 2147483647\n.*\n?.*sizes of int64"):
        STEPS[step](s)
    s = tir.Schedule(largest("int64"))
    STEPS[step](s)
    assert tir.verify(s.func).ok


def test_the_message():
    Checked(largest("int32")).refuses("""
        split('i', [None, 4294967296]): `i_1_1` would count to 4294967296, and int32 ends at 2147483647
          hint: make the function with sizes of int64, as te.const(7, 'int64') or T.int64(7)
    """)


def test_a_fused_loop_is_wide_enough():
    s = tir.Schedule(largest("int32"))
    s.fuse(*s.get_loops("C"))
    s.fuse(*s.get_loops("B"))
    assert s.func.script().count("in range(T.int64(4295032832))") == 2
    assert tir.verify(s.func).ok and parse(s.func.script()) == s.func


def test_formulas_take_the_dtype_that_their_sizes_need():
    k = te.reduce_axis((0, 2**31), name="k")
    A = te.placeholder((7,), name="A")
    func = te.create_prim_func([A, te.compute((2**31 + 5,), lambda i: te.max(A[(i + k) % 7], axis=k), name="B")])
    assert tir.verify(func).ok and "T.int64(2147483653)" in func.script()
