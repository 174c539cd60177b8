"""What compute_at refuses, and what it says."""

from tests.programs import chain, fork, relu_of_matmul
from tests.schedule.harness import Checked
from tests.schedule.primitives.placement.programs import PACKED_BESIDE_PADDING, SUM_OF_TERMS, differences_of_rows, partial_results
from tir import te
from tir.ir import Axis, Binary, Block, Buffer, Const, For, Iter, PrimFunc, Store, Var, seq
from tir.script import parse
from tir.traverse import loops, replace_stmt


def test_refuses_elements_that_another_block_writes_too():
    s = Checked(parse(PACKED_BESIDE_PADDING.format(first=6)))
    with s.refusal("""
        compute_at('pad', 'i_2'): `B` writes `B` too, so `pad` cannot be moved
            9 |         with T.block("pad"):
              |         ^^^^^^^^^^^^^^^^^^^^ writes B
              ...
           14 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes B
          hint: let each of the two write a buffer of its own
    """):
        s.compute_at("pad", s.get_loops("C")[0])


def test_refuses_a_parallel_loop_outside_of_which_another_block_writes():
    s = Checked(chain())
    s.split("i", [None, 2], tail="cut")
    s.parallel("i_1")
    with s.refusal("""
        compute_at('B_i_0', 'i_1'): `B_i_1_1` writes `B` too, so `B_i_0` cannot be moved under `i_1`, which is parallel
           10 |         with T.block("B_i_0"):
              |         ^^^^^^^^^^^^^^^^^^^^^^ writes B
              ...
           15 |         with T.block("B_i_1_1"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^ writes B
          hint: let each of the two write a buffer of its own
    """):
        s.compute_at("B_i_0", "i_1")


def test_refuses_unknown_names():
    s = Checked(chain())
    s.refuses("""
        compute_at('X', 'i'): `X` is no block of this function; its blocks are `B` and `C`
    """)
    s.refuses("""
        compute_at('B', 'B'): `B` is a block, not a loop; its loops are `i`, `j`, `i_1` and `j_1`
    """)


def test_refuses_an_output():
    s = Checked(chain())
    s.refuses("""
        compute_at('C', 'i'): `C` is a parameter of the function, so `C` cannot be moved
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes C
          hint: cache_write('C', 'C', 'global') first: `C` then writes a temporary
    """)


def test_refuses_a_loop_around_the_block():
    s = Checked(chain())
    s.refuses("""
        compute_at('B', 'i'): `B` is under `i` already
            9 |     for i, j in T.grid(7, 13):
              |         ^ the loop
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: blocks move into other nests; reorder changes the order of the loops around one
    """)


def test_refuses_a_consumer_elsewhere():
    s = Checked(fork())
    with s.refusal("""
        compute_at('B', 'i_2'): `C`, which reads what `B` writes, is not under `i_2`
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ a consumer outside of it
           15 |             v_i = T.axis.spatial(7, i_1)
           16 |             C[v_i] = B[v_i] * T.float32(3.0)
           17 |     for i_2 in range(7):
              |     ^^^^^^^^^^^^^^^^^^^^ the loop
          hint: its readers share no loop; merge their loops first
    """):
        s.compute_at("B", s.get_loops("D")[0])


def test_refuses_a_block_that_nothing_reads():
    func = chain()
    X = Buffer("X", (Const(7),))
    v = Var("v_x")
    unread = For(
        Var("x"), Const(7), Block("X", (Iter(v, Const(7), Axis.SPATIAL, Var("x")),), Store(X, (v,), Const(0.0, "float32")))
    )
    s = Checked(func.with_(body=seq(unread, func.body), allocs=(*func.allocs, X)))
    with s.refusal("""
        compute_at('X', 'i_1'): nothing reads what `X` writes, so it has no place to move to
           11 |         with T.block("X"):
              |         ^^^^^^^^^^^^^^^^^^ never read
          hint: reverse_compute_at moves `X` to what it reads
    """):
        s.compute_at("X", s.get_loops("C")[0])


def test_refuses_a_decomposed_reduction():
    s = Checked(relu_of_matmul())
    s.decompose_reduction("C", s.get_loops("C")[0])
    with s.refusal("""
        compute_at('C_update', 'i_1'): `C_update` updates `C` without an init, so it cannot be moved
           14 |         with T.block("C_update"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^ reads and writes C
          hint: do this before decompose_reduction
    """):
        s.compute_at("C_update", s.get_loops("D")[0])
    with s.refusal("""
        compute_at('C_init', 'i_1'): `C_update` writes `C` too, so `C_init` cannot be moved
           10 |         with T.block("C_init"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^ writes C
           11 |             v_i, v_j = T.axis.remap("SS", [i_init, j_init])
           12 |             C[v_i, v_j] = T.float32(0.0)
           13 |     for i, j, k in T.grid(7, 13, 5):
           14 |         with T.block("C_update"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^ writes C
          hint: do this before decompose_reduction
    """):
        s.compute_at("C_init", s.get_loops("D")[0])


def test_refuses_a_vectorized_loop():
    s = Checked(chain())
    _, j = s.get_loops("C")
    s.vectorize(j)
    with s.refusal("""
        compute_at('B', 'j_1'): `j_1` is vectorized, and nothing can be moved into its lanes
           14 |         for j_1 in T.vectorized(13):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ vectorized
          hint: vectorize afterwards
    """):
        s.compute_at("B", j)


def test_refuses_an_impossible_index():
    s = Checked(chain())
    i, _ = s.get_loops("C")
    with s.refusal("""
        compute_at('B', 'i_1', index=1): index 1 is not possible, only 0 (or -1 for the last, -2 for the first)
           13 |     for i_1, j_1 in T.grid(7, 13):
              |         ^^^ the loop
    """):
        s.compute_at("B", i, index=1)


def overwritten() -> PrimFunc:
    """B = A + 1; A = 0; C = 3 B, with A a parameter that is both read and written."""
    func = chain()
    A = func.buffers[0]
    v, w = Var("v_x"), Var("v_y")
    iters = (Iter(v, Const(7), Axis.SPATIAL, Var("x")), Iter(w, Const(13), Axis.SPATIAL, Var("y")))
    zero = For(Var("x"), Const(7), For(Var("y"), Const(13), Block("Z", iters, Store(A, (v, w), Const(0.0, "float32")))))
    first, second = func.body.stmts
    return func.with_(body=seq(first, zero, second))


def test_refuses_inputs_that_are_overwritten_in_between():
    s = Checked(overwritten())
    with s.refusal("""
        compute_at('B', 'i_1'): `Z` writes `A`, which `B` reads, before the new place
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ reads A
           11 |             v_i, v_j = T.axis.remap("SS", [i, j])
           12 |             B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
           13 |     for x, y in T.grid(7, 13):
           14 |         with T.block("Z"):
              |         ^^^^^^^^^^^^^^^^^^ writes A
          hint: let `Z` come after all that reads what `B` writes, or write another buffer
    """):
        s.compute_at("B", s.get_loops("C")[0])


def partial_sums(before: bool) -> PrimFunc:
    """for i: S += A[i]; B[i] = S; C[i] = 2 B[i], all under one loop: prefix sums; of the iteration `before`, but in the first."""
    A, S, B, C = (Buffer(n, (Const(e),)) for n, e in (("A", 7), ("S", 1), ("B", 7), ("C", 7)))
    i, v, w, zero = Var("i"), Var("v"), Var("w"), Const(0)
    add = Block("S", (Iter(w, Const(1), Axis.SPATIAL, zero), Iter(v, Const(7), Axis.REDUCE, i)), Store(S, (w,), S[w] + A[v]),
                Store(S, (w,), Const(0.0, "float32")))  # fmt: skip
    copy = Block("B", (Iter(v, Const(7), Axis.SPATIAL, i),), Store(B, (v,), S[0]))
    j = Var("j")
    last = Block(
        "C",
        (Iter(v, Const(7), Axis.SPATIAL, i), Iter(w, Const(1), Axis.SPATIAL, j)),
        Store(C, (v,), B[Binary("max", v - 1, Const(0)) if before else v] * 2.0),
    )
    return PrimFunc("main", (A, C), For(i, Const(7), seq(add, copy, For(j, Const(1), last))), (S, B))


def test_a_sum_that_grows_is_read_in_the_same_iteration():
    s = Checked(partial_sums(before=False))
    s.compute_at("B", "j")
    s.becomes("""
        S = T.alloc_buffer((1,))
        B = T.alloc_buffer((7,))
        for i in range(7):
            with T.block("S"):
                w = T.axis.spatial(1, 0)
                v = T.axis.reduce(7, i)
                with T.init():
                    S[w] = T.float32(0.0)
                S[w] = S[w] + A[v]
            for j in range(1):
                with T.block("B"):
                    v = T.axis.spatial(7, i)
                    B[v] = S[0]
                with T.block("C"):
                    v, w = T.axis.remap("SS", [i, j])
                    C[v] = B[v] * T.float32(2.0)
    """)


def test_refuses_to_read_before_a_reduction_around_is_complete():
    s = Checked(partial_sums(before=True))
    s.refuses("""
        compute_at('B', 'j'): `B` may read `S` before `S` has finished it
            9 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ the loop around both
           10 |         with T.block("S"):
              |         ^^^^^^^^^^^^^^^^^^ writes S
              ...
           16 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ reads S
          hint: compute `S` in loops of its own, before `B`
    """)


def test_refuses_a_reduction_that_a_common_loop_drives():
    A, S, C = (Buffer(n, (Const(7),)) for n in "ASC")
    i, v, w = Var("i"), Var("v"), Var("w")
    add = Block("S", (Iter(w, Const(1), Axis.SPATIAL, Const(0)), Iter(v, Const(7), Axis.REDUCE, i)), Store(S, (w,), S[w] + A[v]),
                Store(S, (w,), Const(0.0, "float32")))  # fmt: skip
    last = Block("C", (Iter(v, Const(7), Axis.SPATIAL, i),), Store(C, (v,), S[0] * 2.0))
    s = Checked(PrimFunc("main", (A, C), For(i, Const(7), seq(add, For(Var("j"), Const(1), last))), (S,)))
    s.refuses("""
        compute_at('S', 'j'): `i` is around `S` and `j` and drives the reduction `v`, which must be complete
            8 |     for i in range(7):
              |     ^^^^^^^^^^^^^^^^^^ a loop of the reduction
            9 |         with T.block("S"):
              |         ^^^^^^^^^^^^^^^^^^ is incomplete here
          hint: choose a loop outside of `i`
    """)


def test_refuses_an_ordered_axis():
    func = chain()
    blocks = [x for x in loops(func) if x.name == "j"]
    block = blocks[0].body
    ordered = block.with_(iters=tuple(it.with_(axis=Axis.OPAQUE) for it in block.iters))
    s = Checked(replace_stmt(func, block, ordered))
    with s.refusal("""
        compute_at('B', 'i_1'): `B` has the opaque axis `v_i`, so it cannot be moved
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ opaque axis
          hint: if the order does not matter, declare `v_i` as T.axis.spatial, or T.axis.reduce if it adds up
    """):
        s.compute_at("B", s.get_loops("C")[0])


def test_refuses_a_condition_on_loops_alone_that_keeps_accesses_inside():
    s = differences_of_rows()
    s.fuse(*s.get_loops("B"))
    with s.refusal("""
        compute_at('B', 'i_1'): `B` runs only where `i_j_fused < 30`; moved, it would run at all points of its axes, and could then access elements that do not exist
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ runs under a condition
          hint: give its axes extents that need no condition, or let its formula choose (T.if_then_else)
    """):
        s.compute_at("B", s.get_loops("C")[0])


def test_refuses_to_leave_a_parallel_loop_with_its_input_made_inside():
    A = te.placeholder((3, 5), name="A")
    B = te.compute((5,), lambda j: A[0, j] + 1.0, name="B")
    C = te.compute((3, 5), lambda i, j: A[i, j] + B[j], name="C")
    D = te.compute((3, 5), lambda i, j: C[i, j] * 2.0, name="D")
    s = Checked(te.create_prim_func([A, D]))
    i, _ = s.get_loops("C")
    s.compute_at("B", i)
    s.parallel(i)
    with s.refusal("""
        compute_at('C', 'i_1'): `C` cannot leave `i`, in which `B` makes what it reads
           10 |     for i in T.parallel(3):
              |     ^^^^^^^^^^^^^^^^^^^^^^^ parallel
           11 |         for ax0 in range(5):
           12 |             with T.block("B"):
              |             ^^^^^^^^^^^^^^^^^^ writes B
           13 |                 v_j = T.axis.spatial(5, ax0)
           14 |                 B[v_j] = A[0, v_j] + T.float32(1.0)
           15 |         for j_1 in range(5):
           16 |             with T.block("C"):
              |             ^^^^^^^^^^^^^^^^^^ the block
          hint: move blocks before loops are marked
    """):
        s.compute_at("C", s.get_loops("D")[0])


def test_refuses_partial_results_that_loops_alone_keep_to_their_terms():
    s = partial_results()
    s.fuse(*s.get_loops("C_rf")[1:])
    with s.refusal("""
        compute_at('C_rf', 'i_1'): `C_rf` runs only where `k_0_k_1_fused < 13`; moved, it would run at all points of its axes, and could then reduce over more than it does
           10 |         with T.block("C_rf"):
              |         ^^^^^^^^^^^^^^^^^^^^^ runs under a condition
          hint: give its axes extents that need no condition, or let its formula choose (T.if_then_else)
    """):
        s.compute_at("C_rf", s.get_loops("C")[0])


def test_refuses_to_write_what_other_instances_of_the_enclosing_block_do():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((5,), "float32"), C: T.Buffer((5,), "float32")):
    B = T.alloc_buffer((5,))
    for i in range(5):
        with T.block("rows"):
            v_i = T.axis.spatial(5, i)
            for j in range(1):
                with T.block("B"):
                    v_j = T.axis.spatial(5, v_i + j)
                    B[v_j] = A[v_j] + T.float32(1.0)
            for j in range(1):
                with T.block("C"):
                    v_j = T.axis.spatial(5, v_i + j)
                    C[v_j] = B[v_j] * T.float32(3.0)
""")
    s = Checked(func)
    _, inner = s.split(s.get_loops("C")[-1], [None, 2])
    with s.refusal("""
        compute_at('B', 'j_1_1'): `B` would write more of `B` in an iteration of `rows` than it does, perhaps what others write
            9 |         with T.block("rows"):
              |         ^^^^^^^^^^^^^^^^^^^^^ the enclosing block
           10 |             v_i = T.axis.spatial(5, i)
           11 |             for j in range(1):
           12 |                 with T.block("B"):
              |                 ^^^^^^^^^^^^^^^^^^ the producer
          hint: move it before blockize, or split by factors that divide the extents
    """):
        s.compute_at("B", inner)


def test_refuses_every_other_term_of_a_reduction():
    Checked(parse(SUM_OF_TERMS.format(terms="3", step="2 * "))).refuses("""
        compute_at('B', 'i_1'): `B` runs only where `v_k == 2 * k`; moved, it would run at all points of its axes, and could then reduce over more than it does
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ runs under a condition
          hint: give its axes extents that need no condition, or let its formula choose (T.if_then_else)
    """)


def test_refuses_more_than_was_computed_for_it_elsewhere():
    A = te.placeholder((8,), name="A")
    S = te.compute((8,), lambda i: A[i] + 1.0, name="S")
    P = te.compute((8,), lambda i: S[i] * S[i], name="P")
    Q = te.compute((4,), lambda i: P[i * 2], name="Q")
    s = Checked(te.create_prim_func([A, te.compute((3,), lambda i: Q[i] + Q[i + 1], name="C")]))
    (even,), (pairs,) = s.get_loops("Q"), s.get_loops("C")
    s.compute_at("P", even)
    s.compute_at("S", even)
    s.compute_at("Q", pairs)
    with s.refusal("""
        compute_at('P', 'i_3'): `P` would read more than `S` computes where it is now: `S[1]` is read, but never written
           12 |         with T.block("S"):
              |         ^^^^^^^^^^^^^^^^^^ computes a part of S
           13 |             v_i = T.axis.spatial(8, i_2 * 2)
           14 |             S[v_i] = A[v_i] + T.float32(1.0)
           15 |         with T.block("P"):
              |         ^^^^^^^^^^^^^^^^^^ the producer
          hint: move `P` first, then `S`
    """):
        s.compute_at("P", pairs)
