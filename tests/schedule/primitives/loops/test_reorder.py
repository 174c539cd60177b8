import pytest

from schedule import Schedule
from tests.programs import chain, matmul
from tests.schedule.harness import Checked, same_numbers
from tir.ir import Buffer, Const, For, Load, PrimFunc, Store, Var, nest, seq
from tir.traverse import path_to, replace_stmt


def test_reduction_outside():
    s = Checked(matmul())
    s.reorder("k", "i")
    s.becomes("""
        for k, j, i in T.grid(5, 13, 7):
            with T.block("C"):
                ...
    """)


def test_tiles_that_do_not_divide():
    before = matmul()
    s = Schedule(before)
    i0, i1 = s.split("i", [None, 2])
    j0, j1 = s.split("j", [None, 4])
    k0, k1 = s.split("k", [None, 3])
    s.reorder(k1, j1, i0, k0, j0, i1)
    assert s.get_loops("C") == [k1, j1, i0, k0, j0, i1]
    same_numbers(before, s.func)


def test_fused_spatial_loops_move_over_the_reduction():
    before = matmul()
    s = Schedule(before)
    f = s.fuse("i", "j")
    a, b = s.split(f, [None, 4])
    s.reorder("k", b, a)
    same_numbers(before, s.func)


def test_same_order_changes_nothing():
    s = Schedule(matmul())
    func = s.func
    s.reorder("i", "k")
    assert s.func is func


def two_statements(offset: int) -> PrimFunc:
    """T = A; B[i, j] = T[i, j - offset] (mod 13), in one nest without blocks."""
    shape = (Const(7), Const(13))
    A, T, B = (Buffer(n, shape) for n in "ATB")
    i, j = Var("i"), Var("j")
    body = seq(Store(T, (i, j), Load(A, (i, j))), Store(B, (i, j), Load(T, (i, (j + (13 - offset)) % 13 if offset else j))))
    return PrimFunc("main", (A, T, B), nest([(i, 7), (j, 13)], body))


def test_statements_in_no_block():
    before = two_statements(0)
    s = Schedule(before)
    s.reorder("j", "i")
    assert [loop.name for loop in (s.func.body, s.func.body.body)] == ["j", "i"]
    same_numbers(before, s.func)


def skewed() -> PrimFunc:
    """A[i + 1, j] = A[i, j + 1]: the distance is (1, -1)."""
    A = Buffer("A", (Const(8), Const(14)))
    i, j = Var("i"), Var("j")
    return PrimFunc("main", (A,), nest([(i, 7), (j, 13)], Store(A, (i + 1, j), Load(A, (i, j + 1)))))


def test_dependence_against_the_new_order():
    s = Checked(skewed())
    s.refuses("""
        reorder('j', 'i'): cannot prove that no dependence through `A` runs against the new order of `i` and `j`
            6 |     for i, j in T.grid(7, 13):
              |         ^ outer loop now
              |            ^ would come outside it
            7 |         A[i + 1, j] = A[i, j + 1]
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^ reads and writes `A`
          hint: leave `j` inside `i`
    """)


def test_dependence_along_the_new_order():
    A = Buffer("A", (Const(8), Const(14)))
    i, j = Var("i"), Var("j")
    before = PrimFunc("main", (A,), nest([(i, 7), (j, 13)], Store(A, (i + 1, j + 1), Load(A, (i, j)))))
    s = Schedule(before)
    s.reorder("j", "i")
    same_numbers(before, s.func)


def test_accumulation_in_no_block():
    """The order of k for each (i, j) stays, so j may move inside k."""
    A, B, C = Buffer("A", (Const(7), Const(5))), Buffer("B", (Const(5), Const(13))), Buffer("C", (Const(7), Const(13)))
    i, j, k = Var("i"), Var("j"), Var("k")
    before = PrimFunc("main", (A, B, C), nest([(i, 7), (j, 13), (k, 5)], Store(C, (i, j), C[i, j] + A[i, k] * B[k, j])))
    s = Schedule(before)
    s.reorder("k", "j")
    s.reorder("j", "i")
    same_numbers(before, s.func)


def test_loops_that_are_not_one_nest():
    s = Checked(chain())
    s.refuses("""
        reorder('i_1', 'i'): `i` is not inside `i_1`
            9 |     for i, j in T.grid(7, 13):
              |         ^ another
           10 |         with T.block("B"):
           11 |             v_i, v_j = T.axis.remap("SS", [i, j])
           12 |             B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
           13 |     for i_1, j_1 in T.grid(7, 13):
              |         ^^^ one nest
          hint: loops of one nest are needed; merge joins two nests
    """)
    func = two_statements(0)
    inner = func.body.body
    k = For(Var("k"), Const(4), inner.body.stmts[1])
    s = Checked(func.with_(body=replace_stmt(func.body, inner.body, seq(inner.body.stmts[0], k))))
    s.refuses("""
        reorder('k', 'j'): `k` is not the only statement of `j`
            6 |     for i, j in T.grid(7, 13):
              |            ^ outer loop
            7 |         T[i, j] = A[i, j]
            8 |         for k in range(4):
              |         ^^^^^^^^^^^^^^^^^^ must be its whole body
          hint: move what else it holds out of it: decompose_reduction for an init, compute_at another loop for a producer
    """)


def test_loops_that_are_marked_are_so_in_their_new_places():
    s = Checked(chain())
    s.bind("i", "blockIdx.x")
    s.parallel("j_1")
    s.reorder("j", "i")
    s.reorder("j_1", "i_1")
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for j in range(13):
            ...
        for j_1 in T.parallel(13):
            for i_1 in range(7):
                with T.block("C"):
                    ...
    """)
    s.reorder("i", "j")
    s.bind("j", "threadIdx.x")
    s.refuses("""
        reorder('j', 'i'): threads cannot start blocks: a loop bound to blockIdx must be outside of those bound to threadIdx
            9 |     for j in range(13):
              |     ^^^^^^^^^^^^^^^^^^^ would be threads
           10 |         for i in T.thread_binding(7, thread="blockIdx.x"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ would be blocks
          hint: reorder first
    """)


def test_other_refusals():
    s = Checked(matmul())
    s.refuses("reorder('j', 'j'): `j` is given twice")
    s.refuses("reorder('j', 'm'): `m` is no loop of this function; its loops are `i`, `j` and `k`")
    s.vectorize("j")
    s.refuses("""
        reorder('k', 'j'): `j` is vectorized, which was proved for its present place only
            9 |         for j in T.vectorized(13):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^ vectorized
          hint: reorder first and mark afterwards
    """)


def test_extent_that_depends_on_a_loop():
    func = matmul()
    loop = path_to(func, "j")[-1]
    before = func.with_(body=replace_stmt(func.body, loop, loop.with_(extent=Var("i") + 1)))
    s = Checked(before)
    s.refuses("""
        reorder('j', 'i'): the extent of `j` depends on `i`, which would come inside it
            8 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ must stay outside
            9 |         for j, k in T.grid(i + 1, 5):
              |             ^ runs over i + 1
          hint: give the inner loop the largest extent, and its block a condition (T.where) for what is left out
    """)
    s.reorder("k", "j")
    same_numbers(before, s.func)


def test_init_that_would_not_come_first():
    s = Checked(matmul())
    f = s.fuse("i", "j", "k")
    a, b = s.split(f, [None, 4])
    with s.refusal("""
        reorder('i_j_k_fused_1', 'i_j_k_fused_0'): cannot prove that reduction `C` still starts with its init once `i_j_k_fused_1` \
is outside `i_j_k_fused_0`
            8 |     for i_j_k_fused_0, i_j_k_fused_1 in T.grid(114, 4):
              |         ^^^^^^^^^^^^^ outer loop now
              |                        ^^^^^^^^^^^^^ would come outside it
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ runs its init where all reduce axes are 0
          hint: decompose_reduction first, or reorder before the loops are fused
    """):
        s.reorder(b, a)


def test_repeated_reduction():
    """A loop that drives no axis runs the whole reduction again: it must stay outside, or the sums would be doubled."""
    func = matmul()
    loop = path_to(func, "k")[-1]
    before = func.with_(body=replace_stmt(func.body, loop, For(Var("r"), Const(3), loop)))
    s = Checked(before)
    s.reorder("r", "j")
    same_numbers(before, s.func)
    s.refuses("""
        reorder('k', 'r'): cannot prove that reduction `C` still starts with its init once `k` is outside `r`
            8 |     for i, r, j, k in T.grid(7, 3, 13, 5):
              |            ^ outer loop now
              |                  ^ would come outside it
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ runs its init where all reduce axes are 0
          hint: decompose_reduction first, or reorder before the loops are fused
    """)


@pytest.mark.parametrize("order", ["ijk", "ikj", "jik", "jki", "kij", "kji"])
def test_every_order(order):
    before = matmul(3, 7, 5)
    s = Schedule(before)
    s.reorder(*order)
    assert s.get_loops("C") == list(order)
    same_numbers(before, s.func, seeds=(0,))


def test_a_list_of_loops():
    Checked(matmul()).refuses("""
        reorder(['j', 'i']): `ordered_loops` must be names, got [['j', 'i']]
          hint: give them one by one: 'j', 'i'
    """)
