"""Temporaries that each iteration of a parallel loop has to itself."""

from schedule import Schedule
from schedule.legality.privatisation import private_buffers
from schedule.primitive import loop_at
from tests.programs import relu_of_matmul, stencil
from tests.schedule.harness import Checked, same_numbers, well_formed
from tir.ir import Axis, Block, Buffer, Const, Expr, For, Iter, PrimFunc, Store, Var, seq


def private(s: Schedule, loop: str) -> set[str]:
    return private_buffers(s.func, loop_at(s.func, loop)[1])


def test_windows_that_overlap():
    before = stencil(13)
    s = Schedule(before)
    io, _ = s.split(s.get_loops("C")[0], [None, 4])
    s.compute_at("P", io)
    s.compute_at("B", io)
    assert private(s, io) == {"B", "P"}
    s.parallel(io)
    same_numbers(before, s.func)
    well_formed(s.func)


def test_tiles_that_all_threads_copy():
    before = relu_of_matmul()
    s = Schedule(before)
    i, j, k = s.get_loops("C")
    io, ii = s.split(i, [None, 4])
    s.reorder(io, k, ii, j)
    s.reverse_compute_at("D", io)
    s.cache_read("C", "B", "local")
    s.compute_at("B_local", k)
    s.decompose_reduction("C", k)
    assert private(s, io) == {"C", "B_local"}
    assert private(s, k) == {"B_local"}
    s.parallel(io)
    same_numbers(before, s.func)
    well_formed(s.func)


def shifted(read: Expr, written: Expr = Var("v"), extent: int = 7) -> PrimFunc:  # noqa: B008
    """for i: for j in range(extent): B[written] = A[v], v = j; C[v] = B[read], v = i."""
    A, B, C = (Buffer(x, (Const(7),)) for x in "ABC")
    i, j, v = Var("i"), Var("j"), Var("v")
    whole = Block("B", (Iter(v, Const(7), Axis.SPATIAL, j),), Store(B, (written,), A[v]))
    use = Block("C", (Iter(v, Const(7), Axis.SPATIAL, i),), Store(C, (v,), B[read]))
    return PrimFunc("main", (A, C), For(i, Const(7), seq(For(j, Const(extent), whole), use)), (B,))


def test_what_was_written_in_the_same_iteration():
    v = Var("v")
    assert private(Schedule(shifted(v)), "i") == {"B"}
    assert private(Schedule(shifted(6 - v)), "i") == {"B"}
    assert private(Schedule(shifted(Const(4), extent=5)), "i") == {"B"}
    # Not all of B is written, or not where it is read.
    assert private(Schedule(shifted(Const(5), extent=5)), "i") == set()
    assert private(Schedule(shifted(v, extent=5)), "i") == set()
    assert private(Schedule(shifted(v, written=v * 2 % 7)), "i") == set()


def carried() -> PrimFunc:
    """for i: B[i - i % 2] = A[i]; C[i] = B[i]: an odd i reads what is never written, or was by another iteration."""
    A, B, C = (Buffer(x, (Const(7),)) for x in "ABC")
    i, v = Var("i"), Var("v")
    it = (Iter(v, Const(7), Axis.SPATIAL, i),)
    use = Block("C", it, Store(C, (v,), B[v]))
    make = Block("B", it, Store(B, (v - v % 2,), A[v]))
    return PrimFunc("main", (A, C), For(i, Const(7), seq(make, use)), (B,))


def test_what_was_written_in_another_iteration():
    s = Checked(carried())
    assert private(s, "i") == set()
    s.refuses("""
        parallel('i'): cannot prove that different iterations of `i` touch different elements of `B`
            8 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ cannot be parallel
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes `B`
           10 |             v = T.axis.spatial(7, i)
           11 |             B[v - v % 2] = A[v]
           12 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads `B`
          witness: i = 0 and i = 1 both write B[0]
          hint: choose another loop, or put the two into loops of their own
    """)


def test_what_is_used_elsewhere():
    s = Schedule(relu_of_matmul())
    assert private(s, "i") == set()
    s.reverse_compute_at("D", "i")
    assert private(s, "i") == {"C"}
