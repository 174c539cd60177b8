import pytest

from schedule import Schedule
from tests.programs import elementwise, matmul
from tests.schedule.harness import Checked, check, refuse, same_numbers
from tir.ir import Var
from tir.traverse import path_to, replace_stmt


def test_two_loops():
    s = Checked(elementwise(7, 13))
    assert s.fuse("i0", "i1") == "i0_i1_fused"
    check(
        s,
        """
        for i0_i1_fused in range(91):
            with T.block("B"):
                v_i0 = T.axis.spatial(7, i0_i1_fused // 13)
                v_i1 = T.axis.spatial(13, i0_i1_fused % 13)
                B[v_i0, v_i1] = A[v_i0, v_i1] + T.float32(1.0)
        """,
    )


def test_spatial_and_reduction_loops():
    s = Checked(matmul())
    s.fuse("i", "j", "k")
    check(
        s,
        """
        for i_j_k_fused in range(455):
            with T.block("C"):
                v_i = T.axis.spatial(7, i_j_k_fused // 65)
                v_j = T.axis.spatial(13, i_j_k_fused // 5 % 13)
                v_k = T.axis.reduce(5, i_j_k_fused % 5)
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        """,
    )


def test_fuse_undoes_split():
    s = Checked(matmul(7, 5, 12))
    j0, j1 = s.split("j", [3, 4])
    s.fuse(j0, j1)
    check(
        s,
        """
        for i, j_0_j_1_fused, k in T.grid(7, 12, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j_0_j_1_fused, k])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        """,
    )


def test_split_that_does_not_divide_keeps_its_predicate():
    before = matmul()
    s = Schedule(before)
    j0, j1 = s.split("j", [None, 4])
    f = s.fuse("i", j0)
    s.fuse(f, j1)
    same_numbers(before, s.func)
    s = Schedule(before)
    s.fuse(*s.split("j", [None, 4]))
    assert "T.where(j_0_j_1_fused < 13)" in s.script
    same_numbers(before, s.func)


def test_one_loop_stays():
    s = Schedule(matmul())
    assert s.fuse("i") == "i"


@pytest.mark.parametrize("shape", [(1, 1), (1, 13), (7, 1), (109, 1)])
def test_extents_of_one(shape):
    before = elementwise(*shape)
    s = Schedule(before)
    s.fuse("i0", "i1")
    same_numbers(before, s.func)


def test_refusals():
    s = Schedule(matmul())
    refuse(s, "fuse(): at least one loop is needed\n  hint: fuse('i', 'j')")
    refuse(
        s,
        """
fuse('i', 'k'): `k` is not directly inside `i`
    8 |     for i, j, k in T.grid(7, 13, 5):
      |         ^ outer loop
      |            ^ in between
  hint: name the loops in between too, or reorder first: `j` comes next
""",
    )
    refuse(
        s,
        """
fuse('j', 'i'): `i` is outside `j`
    8 |     for i, j, k in T.grid(7, 13, 5):
      |         ^ outer
      |            ^ inner
  hint: give the loops outermost first
""",
    )
    s.unroll("j")
    refuse(
        s,
        """
fuse('i', 'j'): `j` is unrolled, and only serial loops can be fused
    9 |         for j in T.unroll(13):
      |         ^^^^^^^^^^^^^^^^^^^^^^ unrolled
  hint: loops are fused first and marked afterwards
""",
    )


def test_extent_that_depends_on_another():
    func = matmul()
    loop = path_to(func, "j")[-1]
    s = Schedule(func.with_(body=replace_stmt(func.body, loop, loop.with_(extent=Var("i") + 1))))
    refuse(
        s,
        """
fuse('i', 'j'): the extent of `j` depends on `i`
    8 |     for i in range(7):
      |     ^^^^^^^^^^^^^^^^^^ changes the extent
    9 |         for j, k in T.grid(i + 1, 5):
      |             ^ runs over i + 1
  hint: give the inner loop the largest extent, and its block a condition (T.where) for what is left out
""",
    )
