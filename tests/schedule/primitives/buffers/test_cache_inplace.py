"""cache_inplace, and cache_write of what foreign calls write."""

import pytest

from schedule import Schedule, ScheduleError
from tests.programs import matmul
from tests.schedule.harness import Checked
from tir.script import parse


def test_an_update():
    s = Checked(matmul(5, 7, 6))
    s.decompose_reduction("C", "k")
    assert s.cache_inplace("C_update", "C", "local") == ["C_local_start", "C_local"]
    s.becomes("""
        C_local = T.alloc_buffer((5, 6), scope="local")
        for i, j in T.grid(5, 6):
            with T.block("C_init"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                C[v_i, v_j] = T.float32(0.0)
            with T.block("C_local_start"):
                v0, v1 = T.axis.remap("SS", [i, j])
                C_local[v0, v1] = C[v0, v1]
            for k in range(7):
                with T.block("C_update"):
                    v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                    C_local[v_i, v_j] = C_local[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
            with T.block("C_local"):
                v0, v1 = T.axis.remap("SS", [i, j])
                C[v0, v1] = C_local[v0, v1]
    """)


def test_a_part_of_a_parameter_under_a_condition():
    """What the block leaves as it is comes back as it was."""
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((13,), "int32"), n: T.int32):
            for i in range(5):
                with T.block("A"):
                    v = T.axis.spatial(5, i)
                    if v * 2 < n:
                        A[v * 2 + 1] = A[v * 2 + 1] + v
    """)
    s.cache_inplace("A", 0, "global")
    s.becomes(
        """
        A_global = T.alloc_buffer((13,), "int32")
        for ax0 in range(9):
            with T.block("A_global_start"):
                v0 = T.axis.spatial(13, ax0 + 1)
                A_global[v0] = A[v0]
        for i in range(5):
            with T.block("A"):
                v = T.axis.spatial(5, i)
                if v * 2 < n:
                    A_global[v * 2 + 1] = A_global[v * 2 + 1] + v
        for ax0_1 in range(9):
            with T.block("A_global"):
                v0 = T.axis.spatial(13, ax0_1 + 1)
                A[v0] = A_global[v0]
        """,
        {"n": 5},
    )


def test_refusals():
    s = Checked(matmul(5, 7, 6))
    s.decompose_reduction("C", "k")
    s.refuses("""
        cache_inplace('C_update', 'A', 'local'): `C_update` does not write `A`
           13 |             with T.block("C_update"):
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^ reads A
          hint: cache_read copies what is only read
    """)
    s.parallel("i")
    s.refuses("""
        cache_inplace('C_update', 'C', 'local'): iterations of `i`, which is parallel, may copy back what others have updated
            8 |     for i in T.parallel(5):
              |     ^^^^^^^^^^^^^^^^^^^^^^^ around both copies
              ...
           14 |                 with T.block("C_update"):
              |                 ^^^^^^^^^^^^^^^^^^^^^^^^^ updates C
          hint: do this before loops are marked
    """)


ROWS_BESIDE = """
@T.prim_func
def main(A: T.Buffer((12,), "int32")):
    for i in range(3):
        with T.block("row"):
            v_i = T.axis.spatial(3, i)
            for k in range(4):
                with T.block("A"):
                    v_k = T.axis.spatial(4, k)
                    A[v_k * 3 + v_i] = A[v_k * 3 + v_i] + 1
"""


def test_inside_of_another_block():
    """What an instance copies back is exactly what it has written: the rest is that of others."""
    Checked(parse(ROWS_BESIDE)).refuses("""
        cache_inplace('A', 'A', 'local'): it cannot be shown which part of `A` is written by `A`: its axes are not those of the buffer
           11 |                 with T.block("A"):
              |                 ^^^^^^^^^^^^^^^^^^ writes A
          hint: each spatial axis must index one dimension of `A`
    """)
    tiles = ROWS_BESIDE.replace("v_k * 3 + v_i", "v_i * 4 + v_k")
    s = Checked(parse(tiles))
    s.cache_inplace("A", "A", "local")
    s.parallel("i")
    s.becomes("""
        for i in T.parallel(3):
            with T.block("row"):
                ...
    """)
    s = Checked(parse(tiles))
    s.parallel("i")
    s.refuses("""
        cache_inplace('A', 'A', 'local'): iterations of `i`, which is parallel, may copy back what others have updated
            7 |     for i in T.parallel(3):
              |     ^^^^^^^^^^^^^^^^^^^^^^^ around both copies
            8 |         with T.block("row"):
            9 |             v_i = T.axis.spatial(3, i)
           10 |             for k in range(4):
           11 |                 with T.block("A"):
              |                 ^^^^^^^^^^^^^^^^^^ updates A
          hint: do this before loops are marked
    """)


CALLS = """
@T.prim_func
def main(A: T.Buffer((6, 8), "float16"), B: T.Buffer((6, 8), "float16"), C: T.Buffer((6, 8), "float16")):
    for i, j in T.grid(6, 8):
        with T.block("C"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            C[v_i, v_j] = A[v_i, v_j]
    for i in range(3):
        with T.block("B"):
            v_i = T.axis.spatial(3, i)
            T.reads(A[v_i * 2:v_i * 2 + 2, 0:8])
            T.writes(B[v_i * 2:v_i * 2 + 2, 0:8])
            T.evaluate(T.call_extern("int32", "copy", B.data, v_i * 2, A.access_ptr("r", offset=v_i * 16, extent=16)))
"""


def test_foreign_calls_read_and_write_copies():
    """A copy of the same shape takes the place of what a call is given; as it may write a part, that is filled before."""
    s = Schedule(parse(CALLS))
    s.cache_read("C", 0, "global")
    assert "A_global.data, v_i * 16, 16, 1)))" in s.script and "A.data" not in s.script
    assert "T.reads(A_global[v_i * 2:v_i * 2 + 2, 0:8])" in s.script
    assert s.cache_write("B", 0, "local") == "B_local"
    assert s.get_child_blocks("root") == ["A_global", "C", "B_local_start", "B", "B_local"]
    assert '"copy", B_local.data, v_i * 2, T.tvm_access_ptr' in s.script
    assert parse(s.script) == s.func
    unstated = Checked(parse(CALLS.replace("            T.writes(B[v_i * 2:v_i * 2 + 2, 0:8])\n", "").replace('"r"', '"rw"')))
    unstated.refuses("""
        cache_read('C', 0, 'global'): `B` also writes `A`, so it cannot read a copy
           12 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ reads and writes A
          hint: cache_write gives the block that makes `A` a copy to read and to write
    """)
    assert unstated.cache_inplace("B", "A", "local") == ["A_local_start", "A_local"]


def test_what_nothing_else_writes_is_not_copied():
    func = parse("""
    @T.prim_func
    def main(B: T.Buffer((7,), "int32")):
        S = T.alloc_buffer((7,), "int32")
        for i in range(7):
            with T.block("S"):
                v_i = T.axis.spatial(7, i)
                S[v_i] = 3
        for i in range(7):
            with T.block("B"):
                v_i = T.axis.spatial(7, i)
                B[v_i] = S[v_i]
    """)
    s = Schedule(func)
    outer = s.blockize(["S", "B"])
    with pytest.raises(ScheduleError, match="nothing but `outer_S_B_` writes `S`, so there is nothing to copy"):
        s.cache_inplace(outer, "S", "local")
