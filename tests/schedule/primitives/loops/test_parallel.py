import pytest

from schedule import Schedule, ScheduleError
from tests.programs import chain, elementwise, matmul, vector
from tests.schedule.harness import Checked, same_numbers, well_formed
from tests.tir.script.parsing import parsed
from tir import te
from tir.ir import Allocate, Axis, Block, Buffer, Const, For, Iter, PrimFunc, Store, Var, nest, seq
from tir.script import parse
from tir.traverse import path_to, replace_stmt


def test_spatial_loop():
    s = Checked(matmul())
    s.parallel("i")
    s.becomes("""
        for i in T.parallel(7):
            for j, k in T.grid(13, 5):
                with T.block("C"):
                    ...
    """)


@pytest.mark.parametrize("loop", [0, 1, 2, 3])
def test_every_loop_of_a_tiling(loop):
    """The inner loops too, whose iterations are strided."""
    before = matmul()
    s = Schedule(before)
    loops = [*s.split("i", [None, 2]), *s.split("j", [None, 4])]
    s.reorder(loops[3], loops[1], "k", loops[0], loops[2])
    s.parallel(loops[loop])
    same_numbers(before, s.func)


@pytest.mark.parametrize("inner", [1, 2, 3, 4, 5])
def test_the_tiles_of_a_tile_may_end_beyond_it(inner):
    """Tiles of 3 in parts of 2 have a part of which half is left out by a predicate, without which they would overlap."""
    before = matmul()
    s = Schedule(before)
    i0, i1 = s.split("i", [None, 3])
    s.split(i1, [None, inner])
    s.parallel(i0)
    same_numbers(before, s.func)


@pytest.mark.parametrize("part", ["(0 - j) // 2", "T.min(j - 6, 0)"])
def test_a_limited_sum_that_may_be_negative_is_no_digit(part):
    """`part` is as low as -4 or -6, so that tiles of 4 overlap though the sum is below 4."""
    func = parsed(
        f"""
        for o, j, k in T.grid(4, 8, 8):
            with T.block("C"):
                v = T.axis.spatial(64, o * 4 + {part} + k + 8)
                T.where({part} + k < 4)
                C[v] = C[v] * 3 + 1
        """,
        'C: T.Buffer((64,), "int32")',
    )
    with pytest.raises(ScheduleError) as refused:
        Schedule(func).parallel("o")
    assert refused.value.reason == "cannot prove that different iterations of `o` touch different elements of `C`"


def test_fused_and_split_again():
    before = matmul()
    s = Schedule(before)
    i0, i1 = s.split("i", [None, 2])
    j0, j1 = s.split("j", [None, 4])
    s.reorder(i0, j0, i1, j1, "k")
    a, b = s.split(s.fuse(i0, j0), [None, 3])
    s.parallel(a)
    s.parallel(b)
    same_numbers(before, s.func)


@pytest.mark.parametrize(("step", "how"), [("parallel", "parallel"), ("vectorize", "vectorized")])
def test_refuses_a_spatial_axis_on_which_what_is_written_does_not_depend(step, how):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,), "float32"), C: T.Buffer((1,), "float32")):
    for i in range(7):
        with T.block("C"):
            v = T.axis.spatial(7, i)
            C[0] = A[v]
""")
    Checked(func).refuses(f"""
        {step}('i'): every iteration of `i` writes the same elements of `C`
            7 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ cannot be {how}
            8 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ its spatial axes do, what it writes does not depend on `i`
          hint: make a block that verifies, or compute the block outside this loop
    """)


def test_two_blocks_that_meet_within_an_iteration():
    """C reads what B writes, in the same iteration of i."""
    before = together(0)
    s = Schedule(before)
    s.parallel("i")
    same_numbers(before, s.func)


def together(offset: int) -> PrimFunc:
    """for i: B[i] = A[i] + 1; C[i] = B[i + offset] * 3."""
    A, B, C = (Buffer(n, (Const(8),)) for n in "ABC")
    i = Var("i")
    vi = Var("vi")
    iters = (Iter(vi, Const(7), Axis.SPATIAL, i),)
    body = seq(Block("B", iters, Store(B, (vi,), A[vi] + 1.0)), Block("C", iters, Store(C, (vi,), B[vi + offset] * 3.0)))
    return PrimFunc("main", (A, B, C), nest([(i, 7)], body))


def test_two_blocks_that_meet_across_iterations():
    s = Checked(together(1))
    s.refuses("""
        parallel('i'): cannot prove that different iterations of `i` touch different elements of `B`
            7 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ cannot be parallel
            8 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes `B`
            9 |             vi = T.axis.spatial(7, i)
           10 |             B[vi] = A[vi] + T.float32(1.0)
           11 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads `B`
          witness: i = 0 reads B[1], i = 1 writes it
          hint: choose another loop, or put the two into loops of their own
    """)


def test_reduction():
    s = Checked(matmul())
    s.refuses("""
        parallel('k'): `k` drives the reduction axis `v_k` of `C`, so its iterations depend on each other
            8 |     for i, j, k in T.grid(7, 13, 5):
              |               ^ cannot be parallel
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ accumulates over it
          hint: rfactor('k', 0) gives each iteration its own partial result
    """)


def test_a_condition_is_read():
    """What a block's condition reads of a buffer must not be written by other iterations."""
    s = Checked("""
        from tir.script import tir as T

        @T.prim_func
        def main(A: T.Buffer((7,), "float32"), B: T.Buffer((7,), "float32"), C: T.Buffer((7,), "float32")):
            for i in range(7):
                with T.block("B"):
                    vi = T.axis.spatial(7, i)
                    B[vi] = A[vi]
                with T.block("C"):
                    vi = T.axis.spatial(7, i)
                    T.where(B[6 - i] > T.float32(0))
                    C[vi] = A[vi]
    """)
    s.refuses("""
        parallel('i'): cannot prove that different iterations of `i` touch different elements of `B`
            7 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ cannot be parallel
            8 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes `B`
            9 |             vi = T.axis.spatial(7, i)
           10 |             B[vi] = A[vi]
           11 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads `B`
          witness: i = 2 writes B[2], i = 4 reads it
          hint: choose another loop, or put the two into loops of their own
    """)


def test_ordered_axis():
    func = matmul()
    block = path_to(func, "C")[-1]
    iters = (block.iters[0].with_(axis=Axis.OPAQUE), *block.iters[1:])
    s = Checked(func.with_(body=replace_stmt(func.body, block, block.with_(iters=iters))))
    s.refuses("""
        parallel('i'): `i` drives the opaque axis `v_i` of `C`, so its iterations depend on each other
            8 |     for i, j, k in T.grid(7, 13, 5):
              |         ^ cannot be parallel
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ needs the order of its iterations
          hint: if the order does not matter, declare `v_i` as T.axis.spatial, or T.axis.reduce if it adds up
    """)


def test_every_iteration_does_the_same():
    func = vector(7)
    s = Checked(func.with_(body=For(Var("r"), Const(3), func.body)))
    s.refuses("""
        parallel('r'): every iteration of `r` writes the same elements of `B`
            8 |     for r, i in T.grid(3, 7):
              |         ^ cannot be parallel
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ does not depend on `r`
          hint: choose a loop that drives a spatial axis of `B`, or compute the block outside this loop
    """)
    s.parallel("i")


def test_overlapping_iterations():
    """Tiles of 4 at a distance of 3."""
    A, B = (Buffer(n, (Const(13),)) for n in "AB")
    a, b, vi = Var("a"), Var("b"), Var("vi")
    block = Block("B", (Iter(vi, Const(13), Axis.SPATIAL, a * 3 + b),), Store(B, (vi,), A[vi]))
    s = Checked(PrimFunc("main", (A, B), nest([(a, 4), (b, 4)], block)))
    s.refuses("""
        parallel('a'): cannot prove that different iterations of `a` touch different elements of `B`
            7 |     for a, b in T.grid(4, 4):
              |         ^ cannot be parallel
            8 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes `B`
          witness: a = 0 and a = 1 both write B[3]
          hint: choose another loop, or put the two into loops of their own
    """)


def test_statements_in_no_block():
    A, B = Buffer("A", (Const(7), Const(13))), Buffer("B", (Const(7),))
    i, j = Var("i"), Var("j")
    before = PrimFunc("main", (A, B), nest([(i, 7), (j, 13)], Store(B, (i,), B[i] + A[i, j])))
    s = Checked(before)
    s.parallel("i")
    same_numbers(before, s.func)
    s = Checked(before)
    s.refuses("""
        parallel('j'): cannot prove that different iterations of `j` touch different elements of `B`
            6 |     for i, j in T.grid(7, 13):
              |            ^ cannot be parallel
            7 |         B[i] = B[i] + A[i, j]
              |         ^^^^^^^^^^^^^^^^^^^^^ reads and writes `B`
          witness: j = 0 and j = 1 both write B[0]
          hint: choose another loop, or put the two into loops of their own
    """)


def test_scatter_is_not_proved():
    """B[I[i]] = A[i]: nothing is known of the values in I."""
    A, B, indices = Buffer("A", (Const(7),)), Buffer("B", (Const(7),)), Buffer("I", (Const(7),), "int32")
    i = Var("i")
    s = Checked(PrimFunc("main", (A, B, indices), nest([(i, 7)], Store(B, (indices[i],), A[i]))))
    s.refuses("""
        parallel('i'): cannot prove that different iterations of `i` touch different elements of `B`
            6 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ cannot be parallel
            7 |         B[I[i]] = A[i]
              |         ^^^^^^^^^^^^^^ writes `B`
          hint: choose another loop, or put the two into loops of their own
    """)


def test_buffers_of_the_iteration():
    """A buffer allocated inside the loop is each iteration's own, though all write the same places of it."""
    A, B, T = Buffer("A", (Const(7), Const(5))), Buffer("B", (Const(7), Const(5))), Buffer("T", (Const(5),))
    i, j, k = Var("i"), Var("j"), Var("k")
    body = seq(For(j, Const(5), Store(T, (j,), A[i, j])), For(k, Const(5), Store(B, (i, k), T[Const(4) - k])))
    before = PrimFunc("main", (A, B), For(i, Const(7), Allocate(T, body)))
    s = Schedule(before)
    s.parallel("i")
    same_numbers(before, s.func)
    s = Schedule(PrimFunc("main", (A, B), For(i, Const(7), body), (T,)))  # so is a temporary that each iteration writes itself
    s.parallel("i")
    well_formed(s.func)
    same_numbers(before, s.func)
    part = seq(For(j, Const(4), Store(T, (j,), A[i, j])), For(k, Const(5), Store(B, (i, k), T[Const(4) - k])))
    with pytest.raises(Exception, match="touch different elements of `T`"):
        Schedule(PrimFunc("main", (A, B), For(i, Const(7), part), (T,))).parallel("i")


def test_extent_of_one_is_always_independent():
    before = matmul(1, 1, 13)
    s = Schedule(before)
    s.parallel("i")
    s.parallel("k")
    same_numbers(before, s.func)


def test_symbolic_sizes():
    n = te.var("n")
    A = te.placeholder((n, 13), name="A")
    B = te.compute((n, 13), lambda i, j: A[i, j] + 1.0, name="B")
    before = te.create_prim_func([A, B, n])
    s = Schedule(before)
    a, b = s.split("i", [None, 4])
    s.reorder(b, "j", a)
    s.parallel(b)
    same_numbers(before, s.func, {"n": 11})
    s = Schedule(before)
    s.parallel(s.fuse("i", "j"))
    same_numbers(before, s.func, {"n": 11})


def test_marked_loops():
    s = Checked(elementwise(7, 12))
    s.vectorize("i0")
    s.refuses("""
        parallel('i0'): `i0` is already vectorized
            8 |     for i0 in T.vectorized(7):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^ vectorized
          hint: serial('i0') takes the mark away
    """)
    s.refuses("""
        parallel('i1'): `i1` is inside the vectorized loop `i0`
            8 |     for i0 in T.vectorized(7):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^ vectorized
            9 |         for i1 in range(12):
              |         ^^^^^^^^^^^^^^^^^^^^ inside it
          hint: lanes of a vector cannot start threads; make an outer loop parallel
    """)


def test_parallel_twice_is_once():
    s = Schedule(chain())
    s.parallel("i")
    s.parallel("i")
    assert "for i in T.parallel(7):" in s.script
