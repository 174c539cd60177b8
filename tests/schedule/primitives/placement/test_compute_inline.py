import pytest

from schedule import Schedule, ScheduleError
from search.policy.default_schedule import default_schedule
from tests.programs import chain, matmul, relu_of_matmul, stencil
from tests.schedule.harness import Checked
from tir import te
from tir.ir import Axis, Block, Buffer, Const, For, Iter, PrimFunc, Store, Var, seq
from tir.traverse import blocks, replace_stmt


def test_chain():
    s = Checked(chain())
    assert s.compute_inline("B") is None
    s.becomes("""
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = (A[v_i, v_j] + T.float32(1.0)) * T.float32(3.0)
    """)


def test_several_loads_and_a_guard():
    s = Checked(stencil())
    s.compute_inline("B")
    s.compute_inline("P")
    s.becomes("""
        for i_2 in range(13):
            with T.block("C"):
                v_i = T.axis.spatial(13, i_2)
                C[v_i] = T.if_then_else(v_i >= 1, A[v_i - 1] * T.float32(2.0), T.float32(0.0)) + A[v_i] * T.float32(2.0) + T.if_then_else(v_i + 2 < 14, A[v_i + 1] * T.float32(2.0), T.float32(0.0))
    """)


def test_transposed_and_several_consumers():
    A = te.placeholder((7, 13), name="A")
    B = te.compute((13, 7), lambda i, j: A[j, i] + 1.0, name="B")
    C = te.compute((7, 13), lambda i, j: B[j, i] * 2.0, name="C")
    D = te.compute((13,), lambda i: B[i, 0] + B[12 - i, 6], name="D")
    s = Checked(te.create_prim_func([A, C, D]))
    s.compute_inline("B")
    s.becomes("""
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = (A[v_i, v_j] + T.float32(1.0)) * T.float32(2.0)
        for i_2 in range(13):
            with T.block("D"):
                v_i = T.axis.spatial(13, i_2)
                D[v_i] = A[0, v_i] + T.float32(1.0) + (A[6, 12 - v_i] + T.float32(1.0))
    """)


def test_scalar_into_a_reduction():
    A = te.placeholder((7,), name="A")
    S = te.compute((), lambda: te.const(2, "float32"), name="S")
    k = te.reduce_axis((0, 7), name="k")
    C = te.compute((1,), lambda i: te.sum(A[k] * S[()], axis=k), name="C")
    s = Checked(te.create_prim_func([A, C]))
    s.compute_inline("S")
    s.becomes("""
        for i, k in T.grid(1, 7):
            with T.block("C"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    C[v_i] = T.float32(0.0)
                C[v_i] = C[v_i] + A[v_k] * T.float32(2.0)
    """)


def test_split_loops_do_not_matter():
    s = Checked(chain())
    s.fuse(*s.split("i", [None, 4]))
    s.split("j", [None, 5])
    s.compute_inline("B")
    s.becomes("""
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = (A[v_i, v_j] + T.float32(1.0)) * T.float32(3.0)
    """)


def test_refuses_a_reduction():
    s = Checked(relu_of_matmul())
    s.refuses("""
        compute_inline('C'): `C` is a reduction, and has no single formula to put elsewhere
           10 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reduces
          hint: compute_at('C', ...) moves a reduction into the loops of its readers
    """)


def test_refuses_an_output():
    s = Checked(chain())
    s.refuses("""
        compute_inline('C'): `C` is a parameter of the function, so `C` cannot be inlined
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes C
          hint: cache_write('C', 'C', 'global') first: `C` then writes a temporary
    """)


def test_refuses_several_stores():
    A = te.placeholder((7,), name="A")
    X, Y = te.compute((7,), lambda i: (A[i] + 1.0, A[i] * 2.0), name="X")
    C = te.compute((7,), lambda i: X[i] + Y[i], name="C")
    s = Checked(te.create_prim_func([A, C]))
    s.refuses("""
        compute_inline('X'): `X` is more than a single store
           16 |             X_v1[v_i] = v_X_v1
              |             ^^^^^^^^^^^^^^^^^^ not the only statement
          hint: its formula is needed: it must be one store, without T.init()
    """)


def test_refuses_other_places_than_its_axes():
    func = chain()
    B = blocks(func)[0]
    v_i, v_j = (it.var for it in B.iters)
    moved = B.with_(body=B.body.with_(indices=(6 - v_i, v_j)))
    s = Checked(replace_stmt(func, B, moved))
    s.refuses("""
        compute_inline('B'): `B` writes `B` at `6 - v_i`, which is not an axis of its own
           12 |             B[6 - v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the store
          hint: it must write at X[i, j, ...], each index an axis of the block, or 0
    """)


def test_refuses_an_axis_that_does_not_index():
    func = chain()
    B = blocks(func)[0]
    _, v_j = (it.var for it in B.iters)
    moved = B.with_(body=B.body.with_(indices=(Const(0), v_j)))
    s = Checked(replace_stmt(func, B, moved))
    s.refuses("""
        compute_inline('B'): the axis `v_i` of `B` does not index `B`, so the last of its iterations counts
           12 |             B[0, v_j] = A[v_i, v_j] + T.float32(1.0)
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the store
          hint: leave out the axis `v_i`, or make it a dimension of `B`
    """)


def test_refuses_a_second_writer():
    func = chain()
    v = Var("v")
    B = next(b for b in func.allocs if b.name == "B")
    first = For(
        Var("x"),
        Const(7),
        Block("Z", (Iter(v, Const(7), Axis.SPATIAL, Var("x")),), Store(B, (v, Const(0)), Const(0.0, "float32"))),
    )
    s = Checked(func.with_(body=seq(first, func.body)))
    s.refuses("""
        compute_inline('B'): `Z` writes `B` too, so `B` cannot be inlined
           10 |         with T.block("Z"):
              |         ^^^^^^^^^^^^^^^^^^ writes B
           11 |             v = T.axis.spatial(7, x)
           12 |             B[v, 0] = T.float32(0.0)
           13 |     for i, j in T.grid(7, 13):
           14 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes B
          hint: let each of the two write a buffer of its own
    """)


def shifted_in_place() -> PrimFunc:
    """B[i] = A[i + 1]; A[i] = B[i]."""
    A, B = Buffer("A", (Const(8),)), Buffer("B", (Const(7),))
    v = Var("v")
    first = Block("B", (Iter(v, Const(7), Axis.SPATIAL, Var("i")),), Store(B, (v,), A[v + 1]))
    second = Block("A", (Iter(v, Const(7), Axis.SPATIAL, Var("j")),), Store(A, (v,), B[v]))
    return PrimFunc("main", (A,), seq(For(Var("i"), Const(7), first), For(Var("j"), Const(7), second)), (B,))


def test_refuses_a_consumer_that_overwrites_the_input():
    s = Checked(shifted_in_place())
    s.refuses("""
        compute_inline('B'): `A` writes `A`, which `B` reads, before the new place
            9 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ reads A
           10 |             v = T.axis.spatial(7, i)
           11 |             B[v] = A[v + 1]
           12 |     for j in range(7):
           13 |         with T.block("A"):
              |         ^^^^^^^^^^^^^^^^^^ writes A
          hint: let `A` come after all that reads what `B` writes, or write another buffer
    """)


def test_what_nothing_reads_is_removed():
    func = matmul()
    X = Buffer("X", (Const(7),))
    v = Var("v_x")
    unread = For(
        Var("x"), Const(7), Block("X", (Iter(v, Const(7), Axis.SPATIAL, Var("x")),), Store(X, (v,), Const(0.0, "float32")))
    )
    s = Checked(func.with_(body=seq(unread, func.body), allocs=(X,)))
    s.compute_inline("X")
    assert s.func == func
    s = Checked(func.with_(body=unread, allocs=(X,)))
    s.refuses("""
        compute_inline('X'): `X` is all there is, and cannot be removed
           10 |         with T.block("X"):
              |         ^^^^^^^^^^^^^^^^^^ never read
    """)


def test_axes_of_one_value_may_stay():
    A = te.placeholder((1, 12), name="A")
    B = te.compute((1, 12), lambda n, i: A[n, i] + 1.0, name="B")
    func = te.create_prim_func([A, te.compute((1, 12), lambda n, i: B[n, i] * 2.0, name="C")])
    for preserve, index in ((False, "0"), (True, "v_n")):
        s = Checked(func)
        s.compute_inline("B", preserve_unit_iters=preserve)
        s.becomes(f"""
            for n_1, i_1 in T.grid(1, 12):
                with T.block("C"):
                    v_n, v_i = T.axis.remap("SS", [n_1, i_1])
                    C[v_n, v_i] = (A[{index}, v_i] + T.float32(1.0)) * T.float32(2.0)
        """)


def test_refuses_what_would_grow_without_end():
    """Each stage reads the one before twice; the default schedule stops before that."""
    A = te.placeholder((7,), name="A")
    stages = [A]
    for n in range(40):
        stages.append(te.compute((7,), (lambda x: lambda i: x[i] * x[i])(stages[-1]), name=f"B{n}"))
    func = te.create_prim_func([A, stages[-1]])
    s = Schedule(func)
    with pytest.raises(
        ScheduleError, match=r"the reader of `B[0-9]+` would have [0-9]+ nodes, and at most 100000 can be compiled"
    ):
        for n in range(38, -1, -1):
            s.compute_inline(f"B{n}")
    assert len(default_schedule(func, "llvm -num-cores 1").func.script()) < 20_000
