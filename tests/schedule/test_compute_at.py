import pytest

from schedule import Schedule, ScheduleError
from tests.schedule.harness import check, refuse, same_numbers, well_formed
from tests.schedule.programs import chain, matmul
from tir import te
from tir.ir import Axis, Block, Buffer, Const, For, Iter, PrimFunc, Store, Var, seq


def stencil(n: int = 13) -> PrimFunc:
    """C = three neighbours of B = 2 A, zero outside."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    P = te.compute((n + 2,), lambda i: te.if_then_else(te.all(i >= 1, i < n + 1), B[i - 1], 0.0), name="P")
    C = te.compute((n,), lambda i: P[i] + P[i + 1] + P[i + 2], name="C")
    return te.create_prim_func([A, C])


def relu_of_matmul(m: int = 7, n: int = 13, k: int = 5) -> PrimFunc:
    A = te.placeholder((m, k), name="A")
    B = te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    D = te.compute((m, n), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    return te.create_prim_func([A, B, D])


def two_consumers() -> PrimFunc:
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((7, 13), lambda i, j: B[i, j] * 3.0, name="C")
    D = te.compute((7, 13), lambda i, j: B[i, j] * C[i, j], name="D")
    return te.create_prim_func([A, C, D])


def test_elementwise_under_the_outer_loop():
    before = chain()
    s = Schedule(before)
    i, _ = s.get_loops("C")
    assert s.compute_at("B", i) is None
    check(s, before, "@")


def test_under_the_innermost_loop_no_loops_remain():
    before = chain()
    s = Schedule(before)
    _, j = s.get_loops("C")
    s.compute_at("B", j)
    check(s, before, "@")


def test_unit_loops_are_preserved_when_asked():
    before = chain()
    s = Schedule(before)
    _, j = s.get_loops("C")
    s.compute_at("B", j, preserve_unit_loops=True)
    check(s, before, "@")


def test_consumer_that_does_not_divide_gives_a_predicate():
    before = chain()
    s = Schedule(before)
    i, j = s.get_loops("C")
    io, _ = s.split(i, [None, 4])
    jo, _ = s.split(j, [None, 5])
    s.reorder(io, jo)
    s.compute_at("B", jo)
    check(s, before, "@")


def test_reduction_is_done_completely():
    before = relu_of_matmul()
    s = Schedule(before)
    i, j = s.get_loops("D")
    jo, _ = s.split(j, [None, 4])
    s.compute_at("C", jo)
    check(s, before, "@")


def test_overlapping_windows_and_both_ends_of_a_padding():
    before = stencil()
    s = Schedule(before)
    io, _ = s.split(s.get_loops("C")[0], [None, 4])
    s.compute_at("P", io)
    s.compute_at("B", io)
    check(s, before, "@")


def test_window_that_is_constant_is_cut():
    before = stencil()
    s = Schedule(before)
    io, _ = s.split(s.get_loops("C")[0], [1, 13])
    s.compute_at("P", io)
    s.compute_at("B", io)
    check(s, before, "@")


def test_index_chooses_the_place():
    before = two_consumers()
    for index, order in ((-1, ["C", "B", "E"]), (-2, ["B", "C", "E"]), (0, ["B", "C", "E"]), (1, ["C", "B", "E"])):
        A = te.placeholder((7,), name="A")
        B = te.compute((7,), lambda i, A=A: A[i] + 1.0, name="B")
        C = te.compute((7,), lambda i, A=A: A[i] * 3.0, name="C")
        E = te.compute((7,), lambda i, B=B, C=C: B[i] + C[i], name="E")
        before = te.create_prim_func([A, E])
        s = Schedule(before)
        (i,) = s.get_loops("E")
        s.compute_at("C", i)
        s.compute_at("B", i, index=index)
        assert s.get_child_blocks(i) == order
        same_numbers(before, s.func)


def test_several_consumers_under_one_loop():
    before = two_consumers()
    s = Schedule(before)
    i, _ = s.get_loops("D")
    s.compute_at("C", i) if False else None
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((7, 13), lambda i, j: B[i, j] * 3.0, name="C")
    D = te.compute((7, 13), lambda i, j: B[i, 12 - j] * C[i, j], name="D")
    before = te.create_prim_func([A, D])
    s = Schedule(before)
    i, _ = s.get_loops("D")
    s.compute_at("C", i)
    s.compute_at("B", i)
    check(s, before, "@")


def test_scalar():
    A = te.placeholder((), name="A")
    B = te.compute((), lambda: A[()] * 2.0, name="B")
    C = te.compute((7,), lambda i: B[()] + i.astype("float32"), name="C")
    before = te.create_prim_func([A, C])
    s = Schedule(before)
    s.compute_at("B", s.get_loops("C")[0])
    check(s, before, "@")


def test_transposed_and_strided_reads():
    A = te.placeholder((13, 7), name="A")
    B = te.compute((13, 7), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((7, 6), lambda i, j: B[2 * j + 1, i], name="C")
    before = te.create_prim_func([A, C])
    s = Schedule(before)
    i, j = s.get_loops("C")
    jo, _ = s.split(j, [None, 4])
    s.compute_at("B", jo)
    check(s, before, "@")


def test_packed_output_is_solved_for_the_quotient():
    A = te.placeholder((109,), name="A")
    B = te.compute((28, 4), lambda i, j: te.if_then_else(i * 4 + j < 109, A[i * 4 + j], 0.0), name="B")
    C = te.compute((109,), lambda i: B[i // 4, i % 4] + 1.0, name="C")
    before = te.create_prim_func([A, C])
    s = Schedule(before)
    io, _ = s.split(s.get_loops("C")[0], [None, 8])
    s.compute_at("B", io)
    same_numbers(before, s.func)
    well_formed(s.func)
    assert [loop.extent for loop in (x for x in _loops(s.func) if x.name.startswith("ax"))] == [Const(2), Const(4)]


def _loops(func: PrimFunc) -> list[For]:
    from tir.traverse import loops

    return loops(func)


@pytest.mark.parametrize("n", [1, 7, 13, 109])
@pytest.mark.parametrize("factor", [1, 3, 4, 16])
def test_any_split_of_a_stencil(n, factor):
    before = stencil(n)
    s = Schedule(before)
    io, ii = s.split(s.get_loops("C")[0], [None, factor])
    s.compute_at("P", ii if factor == 3 else io)
    s.compute_at("B", io)
    same_numbers(before, s.func)
    well_formed(s.func)


def test_moved_again_from_a_loop_to_an_inner_one():
    before = chain()
    s = Schedule(before)
    i, j = s.get_loops("C")
    io, ii = s.split(i, [None, 3])
    s.compute_at("B", io)
    s.compute_at("B", j)
    check(s, before, "@")


# --- refusals ------------------------------------------------------------------------------------------------------------


def test_refuses_unknown_names():
    s = Schedule(chain())
    refuse(s, lambda s: s.compute_at("X", "i"), "@")
    refuse(s, lambda s: s.compute_at("B", "B"), "@")


def test_refuses_an_output():
    s = Schedule(chain())
    refuse(s, lambda s: s.compute_at("C", "i"), "@")


def test_refuses_a_loop_around_the_block():
    s = Schedule(chain())
    refuse(s, lambda s: s.compute_at("B", "i"), "@")


def test_refuses_a_consumer_elsewhere():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7,), lambda i: B[i] * 3.0, name="C")
    D = te.compute((7,), lambda i: B[i] * 2.0, name="D")
    s = Schedule(te.create_prim_func([A, C, D]))
    refuse(s, lambda s: s.compute_at("B", s.get_loops("D")[0]), "@")


def test_refuses_a_block_that_nothing_reads():
    func = chain()
    X = Buffer("X", (Const(7),))
    v = Var("v_x")
    unread = For(Var("x"), Const(7), Block("X", (Iter(v, Const(7), Axis.SPATIAL, Var("x")),), Store(X, (v,), Const(0.0, "float32"))))
    s = Schedule(func.with_(body=seq(unread, func.body), allocs=(*func.allocs, X)))
    refuse(s, lambda s: s.compute_at("X", s.get_loops("C")[0]), "@")


def test_refuses_a_decomposed_reduction():
    s = Schedule(relu_of_matmul())
    s.decompose_reduction("C", s.get_loops("C")[0])
    refuse(s, lambda s: s.compute_at("C_update", s.get_loops("D")[0]), "@")
    refuse(s, lambda s: s.compute_at("C_init", s.get_loops("D")[0]), "@")


def test_refuses_a_vectorized_loop():
    s = Schedule(chain())
    _, j = s.get_loops("C")
    s.vectorize(j)
    refuse(s, lambda s: s.compute_at("B", j), "@")


def test_refuses_an_impossible_index():
    s = Schedule(chain())
    i, _ = s.get_loops("C")
    refuse(s, lambda s: s.compute_at("B", i, index=1), "@")


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
    s = Schedule(overwritten())
    refuse(s, lambda s: s.compute_at("B", s.get_loops("C")[0]), "@")


def partial_sums() -> PrimFunc:
    """for i: S += A[i]; B[i] = S; C[i] = 2 B[i], all under one loop: prefix sums."""
    A, S, B, C = (Buffer(n, (Const(e),)) for n, e in (("A", 7), ("S", 1), ("B", 7), ("C", 7)))
    i, v, w, zero = Var("i"), Var("v"), Var("w"), Const(0)
    add = Block("S", (Iter(w, Const(1), Axis.SPATIAL, zero), Iter(v, Const(7), Axis.REDUCE, i)), Store(S, (w,), S[w] + A[v]),
                Store(S, (w,), Const(0.0, "float32")))  # fmt: skip
    copy = Block("B", (Iter(v, Const(7), Axis.SPATIAL, i),), Store(B, (v,), S[0]))
    j = Var("j")
    last = Block("C", (Iter(v, Const(7), Axis.SPATIAL, i), Iter(w, Const(1), Axis.SPATIAL, j)), Store(C, (v,), B[v] * 2.0))
    return PrimFunc("main", (A, C), For(i, Const(7), seq(add, copy, For(j, Const(1), last))), (S, B))


def test_refuses_to_read_before_a_reduction_around_is_complete():
    s = Schedule(partial_sums())
    refuse(s, lambda s: s.compute_at("B", "j"), "@")


def test_refuses_a_reduction_that_a_common_loop_drives():
    A, S, C = (Buffer(n, (Const(7),)) for n in "ASC")
    i, v, w = Var("i"), Var("v"), Var("w")
    add = Block("S", (Iter(w, Const(1), Axis.SPATIAL, Const(0)), Iter(v, Const(7), Axis.REDUCE, i)), Store(S, (w,), S[w] + A[v]),
                Store(S, (w,), Const(0.0, "float32")))  # fmt: skip
    last = Block("C", (Iter(v, Const(7), Axis.SPATIAL, i),), Store(C, (v,), S[0] * 2.0))
    s = Schedule(PrimFunc("main", (A, C), For(i, Const(7), seq(add, For(Var("j"), Const(1), last))), (S,)))
    refuse(s, lambda s: s.compute_at("S", "j"), "@")


def test_refuses_an_ordered_axis():
    func = chain()
    blocks = [x for x in _loops(func) if x.name == "j"]
    block = blocks[0].body
    ordered = block.with_(iters=tuple(it.with_(axis=Axis.OPAQUE) for it in block.iters))
    from tir.traverse import replace_stmt

    s = Schedule(replace_stmt(func, block, ordered))
    refuse(s, lambda s: s.compute_at("B", s.get_loops("C")[0]), "@")


def test_refuses_a_guard_that_keeps_accesses_inside():
    func = chain()
    block = next(x for x in _loops(func) if x.name == "j").body
    A = func.buffers[0]
    v_i, v_j = (it.var for it in block.iters)
    shifted = block.with_(body=Store(block.body.buffer, (v_i, v_j), A[v_i + 1, v_j]), predicate=Var("i") < 6)
    from tir.traverse import replace_stmt

    s = Schedule(replace_stmt(func, block, shifted))
    refuse(s, lambda s: s.compute_at("B", s.get_loops("C")[0]), "@")


def test_accepted_moves_are_refused_unchanged_when_impossible():
    s = Schedule(chain())
    with pytest.raises(ScheduleError):
        s.compute_at("B", "i", index="first")
