import pytest

from schedule import Schedule, ScheduleError
from tests.programs import elementwise, matmul
from tests.schedule.harness import Checked, same_numbers, well_formed
from tir import te
from tir.ir import Var
from tir.script import parse
from tir.traverse import path_to, replace_stmt


def test_two_loops():
    s = Checked(elementwise(7, 13))
    assert s.fuse("i0", "i1") == "i0_i1_fused"
    s.becomes("""
        for i0_i1_fused in range(91):
            with T.block("B"):
                v_i0 = T.axis.spatial(7, i0_i1_fused // 13)
                v_i1 = T.axis.spatial(13, i0_i1_fused % 13)
                B[v_i0, v_i1] = A[v_i0, v_i1] + T.float32(1.0)
    """)


def test_spatial_and_reduction_loops():
    s = Checked(matmul())
    s.fuse("i", "j", "k")
    s.becomes("""
        for i_j_k_fused in range(455):
            with T.block("C"):
                v_i = T.axis.spatial(7, i_j_k_fused // 65)
                v_j = T.axis.spatial(13, i_j_k_fused // 5 % 13)
                v_k = T.axis.reduce(5, i_j_k_fused % 5)
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_fuse_undoes_split():
    s = Checked(matmul(7, 5, 12))
    j0, j1 = s.split("j", [3, 4])
    s.fuse(j0, j1)
    s.becomes("""
        for i, j_0_j_1_fused, k in T.grid(7, 12, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j_0_j_1_fused, k])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


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
    s = Checked(matmul())
    s.refuses("fuse(): at least one loop is needed\n  hint: fuse('i', 'j')")
    s.refuses("""
        fuse('i', 'k'): `k` is not directly inside `i`
            8 |     for i, j, k in T.grid(7, 13, 5):
              |         ^ outer loop
              |            ^ in between
          hint: name the loops in between too, or reorder first: `j` comes next
    """)
    s.refuses("""
        fuse('j', 'i'): `i` is outside `j`
            8 |     for i, j, k in T.grid(7, 13, 5):
              |         ^ outer
              |            ^ inner
          hint: give the loops outermost first
    """)
    s.unroll("j")
    s.refuses("""
        fuse('i', 'j'): `j` is unrolled, and only serial loops can be fused
            9 |         for j in T.unroll(13):
              |         ^^^^^^^^^^^^^^^^^^^^^^ unrolled
          hint: loops are fused first and marked afterwards; serial('j') takes the mark away
    """)


def test_extent_that_depends_on_another():
    func = matmul()
    loop = path_to(func, "j")[-1]
    s = Checked(func.with_(body=replace_stmt(func.body, loop, loop.with_(extent=Var("i") + 1))))
    s.refuses("""
        fuse('i', 'j'): the extent of `j` depends on `i`
            8 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ changes the extent
            9 |         for j, k in T.grid(i + 1, 5):
              |             ^ runs over i + 1
          hint: give the inner loop the largest extent, and its block a condition (T.where) for what is left out
    """)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_loops_of_one_iteration_have_no_part_in_indices(dtype):
    """With sizes that are not known it could not be proved that iterations of the fused loop are independent."""
    n = te.var("n", dtype)
    A = te.placeholder((1, n, 24), name="A")
    B = te.compute((1, n, 24), lambda b, i, j: A[b, i, j] + 1.0, name="B")
    s = Schedule(te.create_prim_func([A, B]))
    b, i, j = s.get_loops("B")
    tiles = [*s.split(i, [None, 8]), *s.split(j, [None, 8])]
    s.reorder(*tiles[::2], *tiles[1::2])
    fused = s.fuse(b, *tiles[::2])
    s.parallel(fused)
    well_formed(s.func)
    same_numbers(te.create_prim_func([A, B]), s.func, {"n": 13})


def test_loops_of_two_dtypes():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7, 13)), B: T.Buffer((7, 13))):
    for i in T.serial(T.int64(7)):
        for j in range(13):
            with T.block("B"):
                v_i = T.axis.spatial(T.int64(7), i)
                v_j = T.axis.spatial(13, j)
                B[v_i, v_j] = A[v_i, v_j] + 1.0
""")
    for order in ("ij", "ji"):
        s = Schedule(func)
        s.reorder(*order)
        assert s.get(s.fuse(*order)).var.dtype == "int64"
        well_formed(s.func)
        same_numbers(func, s.func)


def sums(k) -> Checked:
    A, r = te.placeholder((7, k), name="A"), te.reduce_axis((0, k), name="k")
    return Checked(te.create_prim_func([A, te.compute((7,), lambda i: te.sum(A[i, r], axis=r), name="C")]))


def test_refuses_a_reduction_that_may_be_over_nothing_beside_what_places_its_init():
    expected = """
        fuse('i', 'k_1'): `k_1`, which drives the reduction of `C`, may have no iterations, and the init would not run then
            8 |     for i, k_1 in T.grid(7, k - 0):
              |            ^^^ runs over k - 0
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ a reduction
          hint: decompose_reduction('C', 'k_1') first
    """
    sums(te.var("k")).refuses(expected)
    with pytest.raises(ScheduleError, match="may have no iterations"):
        sums(0).fuse("i", "k")


def test_loops_without_iterations():
    A = te.placeholder((7, 0), name="A")
    s = Checked(te.create_prim_func([A, te.compute((7, 0), lambda i, j: A[i, j] * 2.0, name="B")]))
    s.fuse("i", "j")
    s.becomes("""
        for i_j_fused in range(0):
            with T.block("B"):
                v_i = T.axis.spatial(7, i_j_fused)
                v_j = T.axis.spatial(0, i_j_fused)
                B[v_i, v_j] = A[v_i, v_j] * T.float32(2.0)
    """)


def test_reductions_over_nothing_keep_their_init():
    A = te.placeholder((7, 0, 3), name="A")
    k, l = te.reduce_axis((0, 0), name="k"), te.reduce_axis((0, 3), name="l")
    s = Checked(te.create_prim_func([A, te.compute((7,), lambda i: te.sum(A[i, k, l], axis=[k, l]), name="B")]))
    s.fuse("k", "l")
    well_formed(s.func)
    same_numbers(s.before, s.func)
