from schedule import Schedule
from tests.programs import elementwise, matmul, symbolic
from tests.schedule.harness import Checked, same_numbers
from tir.ir import Var
from tir.traverse import path_to, replace_stmt


def test_inner_loop():
    s = Checked(matmul())
    _, j1 = s.split("j", [None, 4])
    s.reorder("k", j1)
    s.vectorize(j1)
    s.becomes("""
        for i, j_0, k in T.grid(7, 4, 5):
            for j_1 in T.vectorized(4):
                with T.block("C"):
                    ...
    """)


def test_strided_lanes():
    before = elementwise(7, 13)
    s = Schedule(before)
    s.reorder("i1", "i0")
    s.vectorize("i0")
    same_numbers(before, s.func)


def test_serial_loop_inside():
    before = matmul()
    s = Schedule(before)
    s.vectorize("j")
    same_numbers(before, s.func)


def test_refusals():
    s = Checked(matmul())
    s.refuses("""
        vectorize('k'): `k` drives the reduction axis `v_k` of `C`, so its iterations depend on each other
            8 |     for i, j, k in T.grid(7, 13, 5):
              |               ^ cannot be vectorized
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ accumulates over it
          hint: reorder a spatial loop to the inside and vectorize that, or rfactor this one
    """)
    s = Checked(symbolic())
    s.refuses("""
        vectorize('i'): the extent of `i` is not a constant
            8 |     for i in range(n):
              |     ^^^^^^^^^^^^^^^^^^ runs over n
          hint: split('i', [None, 4]) makes an inner loop whose extent is one
    """)


def test_loops_that_cannot_be_inside():
    s = Checked(elementwise(7, 12))
    s.vectorize("i1")
    s.refuses("""
        vectorize('i0'): `i1` inside it is vectorized
            8 |     for i0 in range(7):
              |     ^^^^^^^^^^^^^^^^^^^ cannot be vectorized
            9 |         for i1 in T.vectorized(12):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^ vectorized
          hint: vectorize the innermost loop alone, or fuse(..., 'i1') before either is marked
    """)
    s = Checked(elementwise(7, 12))
    s.vectorize("i0")
    s.refuses("""
        vectorize('i1'): `i1` is inside the vectorized loop `i0`
            8 |     for i0 in T.vectorized(7):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^ vectorized
            9 |         for i1 in range(12):
              |         ^^^^^^^^^^^^^^^^^^^^ inside it
          hint: fuse the two loops before marking
    """)
    func = matmul()
    loop = path_to(func, "j")[-1]
    s = Checked(func.with_(body=replace_stmt(func.body, loop, loop.with_(extent=Var("i") + 1))))
    s.refuses("""
        vectorize('i'): the extent of `j` depends on `i`, so its lanes would run different numbers of iterations
            8 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ cannot be vectorized
            9 |         for j, k in T.grid(i + 1, 5):
              |             ^ runs over i + 1
          hint: give the inner loop the largest extent, and its block a condition (T.where) for what is left out
    """)
