"""What reverse_compute_at refuses, and what it says."""

from schedule import Schedule
from tests.programs import chain, matmul, stencil, sums_of_chain
from tests.schedule.harness import Checked
from tests.schedule.primitives.placement.programs import tiled_relu_of_matmul
from tir import te
from tir.ir import Const, For, PrimFunc, Var, seq
from tir.script import parse


def test_refuses_a_loop_of_the_reduction():
    tiled_relu_of_matmul().refuses("""
        reverse_compute_at('D', 'k_0'): it cannot be shown that `C` finishes a part of its own in each iteration of `k_0`: `k_0` is a loop of the reduction
            9 |     for i_0, j_0, k_0, i_1_1, k_1, j_1_1 in T.grid(2, 3, 3, 4, 2, 5):
              |                   ^^^ the loop
           10 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the producer
              ...
           19 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ the consumer
          hint: choose a place outside of `k_0`
    """)


def test_refuses_a_loop_without_producers():
    s = Checked(stencil())
    s.refuses("""
        reverse_compute_at('C', 'i'): no producer of `C` is under `i`
           10 |     for i in range(13):
              |     ^^^^^^^^^^^^^^^^^^^ the loop
              ...
           19 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: what it reads is written under `i_1`
    """)


def test_refuses_a_producer():
    s = Checked(chain())
    s.refuses("""
        reverse_compute_at('B', 'i_1'): no producer of `B` is under `i_1`
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ the block
           11 |             v_i, v_j = T.axis.remap("SS", [i, j])
           12 |             B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
           13 |     for i_1, j_1 in T.grid(7, 13):
              |         ^^^ the loop
          hint: nothing here writes what `B` reads
    """)


def test_refuses_neighbours():
    s = Checked(stencil())
    s.refuses("""
        reverse_compute_at('C', 'i_1'): the inputs of `C` are not finished in the same windows of `v_i`
           15 |         with T.block("P"):
              |         ^^^^^^^^^^^^^^^^^^ a producer
           16 |             v_i = T.axis.spatial(15, i_1)
           17 |             P[v_i] = T.if_then_else(v_i >= 1 and v_i < 14, B[v_i - 1], T.float32(0.0))
           18 |     for i_2 in range(13):
           19 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: choose a loop further outside, or compute_at one of its producers first
    """)


def test_refuses_what_is_read_along_two_axes():
    A = te.placeholder((7, 5), name="A")
    B = te.compute((7, 5), lambda i, j: A[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 5), name="k")
    C = te.compute((7, 7), lambda i, j: te.sum(B[i, k] * B[j, k], axis=k), name="C")
    s = Checked(te.create_prim_func([A, C]))
    s.refuses("""
        reverse_compute_at('C', 'i'): `C` is bound in `v_j` by what `B` finishes, but in other axes by other reads, so that some of its points would be left out
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ a producer
           11 |             v_i, v_j = T.axis.remap("SS", [i, j])
           12 |             B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
           13 |     for i_1, j_1, k in T.grid(7, 7, 5):
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: choose a loop in which all that it reads is finished for the same axes, further outside
    """)


def test_refuses_a_reduction_over_what_is_made_in_parts():
    s = Checked(sums_of_chain())
    s.refuses("""
        reverse_compute_at('C', 'j'): `C` reads dimension 1 of `B` at `v_k`, which is not one of its spatial axes, but only a part of it is finished in an iteration
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes B
           11 |             v_i, v_j = T.axis.remap("SS", [i, j])
           12 |             B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
           13 |     for i_1, k in T.grid(7, 13):
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads B
          hint: choose a loop further outside, in which all of that dimension is finished
    """)


def test_refuses_windows_that_are_not_contiguous():
    s = Checked(chain())
    io, ii = s.split("i", [None, 4])
    s.reorder(ii, io)
    with s.refusal("""
        reverse_compute_at('C', 'i_1_1'): it cannot be shown that `B` finishes a part of its own in each iteration of `i_1_1`: `v_i` = `i_0 * 4 + i_1_1` takes values that are not contiguous in an iteration of the loop
            9 |     for i_1_1, i_0, j in T.grid(4, 2, 13):
              |         ^^^^^ the loop
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ the producer
              ...
           16 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the consumer
          hint: reorder first, so that the inner ones of the loops of `v_i` have the smallest steps
    """):
        s.reverse_compute_at("C", ii)


def test_refuses_a_producer_that_is_repeated():
    func = chain()
    first, second = func.body.stmts
    s = Checked(func.with_(body=seq(For(Var("again"), Const(3), first), second)))
    s.refuses("""
        reverse_compute_at('C', 'i'): it cannot be shown that `B` finishes a part of its own in each iteration of `i`: `again` repeats `B`
            9 |     for again, i, j in T.grid(3, 7, 13):
              |                ^ the loop
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ the producer
           11 |             v_i, v_j = T.axis.remap("SS", [i, j])
           12 |             B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
           13 |     for i_1, j_1 in T.grid(7, 13):
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the consumer
          hint: do this before `B` is moved under `again`, or choose a loop inside `again`
    """)


def in_between() -> PrimFunc:
    """B = A + 1; D = E; C = B + D; so that D is made after B."""
    A, E = te.placeholder((7,), name="A"), te.placeholder((7,), name="E")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    D = te.compute((7,), lambda i: E[i] * 2.0, name="D")
    C = te.compute((7,), lambda i: B[i] + D[i], name="C")
    return te.create_prim_func([A, E, C])


def test_refuses_an_input_that_is_made_later():
    s = Checked(in_between())
    s.refuses("""
        reverse_compute_at('C', 'i'): `D` writes `D`, which `C` reads, after the new place
           15 |         with T.block("D"):
              |         ^^^^^^^^^^^^^^^^^^ writes D
           16 |             v_i = T.axis.spatial(7, i_1)
           17 |             D[v_i] = E[v_i] * T.float32(2.0)
           18 |     for i_2 in range(7):
           19 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads D
          hint: move `D` before it first
    """)


def test_refuses_more_than_is_produced():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((9,), lambda i: te.if_then_else(te.all(i >= 1, i < 8), B[i - 1], 0.0), name="C")
    s = Checked(te.create_prim_func([A, C]))
    s.refuses("""
        reverse_compute_at('C', 'i'): `C` reads more of dimension 0 of `B` than `B` writes
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads B
          hint: choose a loop outside of all that writes the rest
    """)


def test_refuses_an_impossible_index():
    s = Checked(matmul_copy())
    s.refuses("""
        reverse_compute_at('C_local', 'i', index=0): index 0 is not possible, only 1 (or -1 for the last, -2 for the first)
            9 |     for i, j, k in T.grid(7, 13, 5):
              |         ^ the loop
    """)


def matmul_copy() -> PrimFunc:
    s = Schedule(matmul())
    s.cache_write("C", 0, "local")
    return s.func


def test_a_tile_that_is_not_written_as_a_whole_is_refused():
    before = parse("""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,))
    for i in range(2):
        with T.block("B"):
            v = T.axis.spatial(2, i)
            for j in range(3):
                B[v * 4 + j] = A[v * 4 + j]
    for i in range(8):
        with T.block("D"):
            v = T.axis.spatial(8, i)
            D[v] = B[v] + T.float32(1)
""")
    Checked(before).refuses("""
        reverse_compute_at('D', 'i'): dimension 0 of `B` is not indexed by an axis of `B`, so what is finished is unknown
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes B
          hint: let 'B' write dimension 0 at one of its axes, or choose a loop outside of its loops
    """)
