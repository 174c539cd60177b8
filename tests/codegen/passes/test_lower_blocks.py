"""Blocks become loops, guards and stores; inits stand in front of the reductions."""

import re

import numpy as np
import pytest

import tir
from codegen import Target, lower
from codegen.llvm.values import CodegenError
from codegen.passes.lower_blocks import ALIGNED
from schedule import Schedule
from tests.codegen.harness import ONE, TWO, after, same
from tests.programs import matmul
from tests.sweeps import one_in
from tir import te
from tir.ir import Axis, Block, Buffer, Const, For, Iter, Load, PrimFunc, Store, Var, seq
from tir.script import parse
from tir.traverse import blocks, replace_stmt


def test_the_init_stands_before_the_loop_that_reduces():
    after(matmul(), "lower_blocks").becomes("""
        for i, j in T.grid(7, 13):
            C[i, j] = T.float32(0.0)
            for k in range(5):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
    """)


def test_spatial_loops_inside_the_reduction_are_repeated_for_the_init():
    s = Schedule(matmul())
    s.reorder("k", "i", "j")
    after(s.func, "lower_blocks").becomes("""
        for i_init, j_init in T.grid(7, 13):
            C[i_init, j_init] = T.float32(0.0)
        for k, i, j in T.grid(5, 7, 13):
            C[i, j] = C[i, j] + A[i, k] * B[k, j]
    """)


def test_a_predicate_guards_init_and_body_each_with_what_concerns_it():
    s = Schedule(matmul())
    s.split("k", [None, 2])
    s.split("j", [None, 4])
    s.reorder("k_0", "i", "k_1", "j_0", "j_1")
    after(s.func, "lower_blocks").becomes("""
        for i_init, j_0_init, j_1_init in T.grid(7, 4, 4):
            if j_0_init * 4 + j_1_init < 13:
                C[i_init, j_0_init * 4 + j_1_init] = T.float32(0.0)
        for k_0, i, k_1, j_0, j_1 in T.grid(3, 7, 2, 4, 4):
            if k_0 * 2 + k_1 < 5 and j_0 * 4 + j_1 < 13:
                C[i, j_0 * 4 + j_1] = C[i, j_0 * 4 + j_1] + A[i, k_0 * 2 + k_1] * B[k_0 * 2 + k_1, j_0 * 4 + j_1]
    """)


def test_an_unrolled_or_vectorised_spatial_loop_keeps_the_lanes_of_its_init():
    s = Schedule(matmul())
    s.reorder("k", "i", "j")
    s.unroll("i")
    s.vectorize("j")
    after(s.func, "lower_blocks").becomes("""
        for i_init in range(7):
            for j_init in T.vectorized(13):
                C[i_init, j_init] = T.float32(0.0)
        for k in range(5):
            for i in T.unroll(7):
                for j in T.vectorized(13):
                    C[i, j] = C[i, j] + A[i, k] * B[k, j]
    """)


def test_an_init_with_something_beside_its_block_is_conditional():
    """The reducing loop holds another block too: only its first iteration initialises."""
    func = PrimFunc(
        "main",
        (a := Buffer("A", (Const(7), Const(13))), c := Buffer("C", (Const(7),)), d := Buffer("D", (Const(13),))),
        For(
            k := Var("k"),
            Const(13),
            seq(
                Block("D", (Iter(v := Var("v"), Const(13), Axis.SPATIAL, k),), Store(d, (v,), Load(a, (Const(0), v)))),
                For(
                    i := Var("i"),
                    Const(7),
                    Block(
                        "C",
                        (Iter(vi := Var("vi"), Const(7), Axis.SPATIAL, i), Iter(vk := Var("vk"), Const(13), Axis.REDUCE, k)),
                        Store(c, (vi,), Load(c, (vi,)) + Load(a, (vi, vk))),
                        Store(c, (vi,), Const(0.0, "float32")),
                    ),
                ),
            ),
        ),
    )
    after(func, "lower_blocks").becomes("""
        for k in range(13):
            D[k] = A[0, k]
            for i in range(7):
                if k == 0:
                    C[i] = T.float32(0.0)
                C[i] = C[i] + A[i, k]
    """)


def test_a_reducer_of_two_values():
    a = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    pair = te.comm_reducer(lambda x, y: (x[0] + y[0], te.maximum(x[1], y[1])), lambda p, q: (te.const(0, p), te.const(-9, q)))
    func = te.create_prim_func([a, *te.compute((7,), lambda i: pair((a[i, k], a[i, k] * 2.0), axis=k), name="C")])
    after(func, "lower_blocks").becomes("""
        for i in range(7):
            C_v0[i] = T.float32(0.0)
            C_v1[i] = T.float32(-9.0)
            for k in range(13):
                v_C_v0: T.float32 = C_v0[i] + A[i, k]
                v_C_v1: T.float32 = T.max(C_v1[i], A[i, k] * T.float32(2.0))
                C_v0[i] = v_C_v0
                C_v1[i] = v_C_v1
    """)


def test_rank_0_and_a_reduction_without_spatial_axes():
    a = te.placeholder((13,), name="A")
    k = te.reduce_axis((0, 13), name="k")
    after(te.create_prim_func([a, te.compute((), lambda: te.sum(a[k], axis=k), name="C")]), "lower_blocks").becomes("""
        C[()] = T.float32(0.0)
        for k in range(13):
            C[()] = C[()] + A[k]
    """)


def test_a_predicate_of_space_and_reduction_together_holds_for_the_init_where_it_holds_first():
    """Where the first iteration is left out, so is the init, as in the interpreter."""
    func = matmul(4, 5, 3)
    (block,) = blocks(func.body)
    guarded = block.with_(predicate=Var("i") + Var("k") < 6)
    after(func.with_(body=replace_stmt(func.body, block, guarded)), "lower_blocks").becomes("""
        for i, j in T.grid(4, 3):
            if i < 6:
                C[i, j] = T.float32(0.0)
            for k in range(5):
                if i + k < 6:
                    C[i, j] = C[i, j] + A[i, k] * B[k, j]
    """)


def test_fused_axes_of_space_and_reduction():
    """The loop drives both: the init stays inside, under a condition."""
    func = matmul(3, 5, 2)
    s = Schedule(func)
    s.reorder("i", "k", "j")
    s.fuse("i", "k")
    same(s.func, reference=func)
    text = lower(s.func, Target("llvm"), after="lower_blocks").script()
    assert "if i_k_fused % 5 == 0:" in text


@pytest.mark.parametrize("index", ["again_i % 3", "again_i // 4"])
def test_a_place_that_spatial_loops_come_back_to_is_started_again(index):
    func = parse(
        f"""
from tir.script import tir as T

@T.prim_func
def main(A: T.Buffer((3, 1), "float32"), C: T.Buffer((3,), "float32")):
    for k, again_i in T.grid(1, 12):
        with T.block("C"):
            v_i = T.axis.spatial(3, {index})
            v_k = T.axis.reduce(1, k)
            with T.init():
                C[v_i] = T.float32(0.0)
            C[v_i] = C[v_i] + A[v_i, v_k]
        """
    )
    same(func)
    assert "if k == 0:" in lower(func, Target("llvm"), after="lower_blocks").script()


@pytest.mark.parametrize("order", [("i", "j", "k"), ("k", "j", "i"), ("j", "k", "i"), ("i", "k", "j")])
def test_every_order_computes_the_same(order):
    func = matmul()
    s = Schedule(func)
    s.reorder(*order)
    same(s.func, reference=func)


# --- a block's own temporaries ----------------------------------------------------------------------------------------


def turned_rows(shape: str = "9,", write: str = "t[va] = A[vi, vj, va]") -> PrimFunc:
    """Each row the other way round, through a temporary of the block."""
    return parse(
        f"""
@T.prim_func
def main(A: T.Buffer((4, 8, 9), "float32"), S: T.Buffer((4, 8, 9), "float32")):
    for i, j in T.grid(4, 8):
        with T.block("row"):
            vi, vj = T.axis.remap("SS", [i, j])
            t = T.alloc_buffer(({shape}), "float32")
            for a in range(9):
                with T.block("x"):
                    va = T.axis.spatial(9, a)
                    {write}
            for b in range(9):
                with T.block("S"):
                    vb = T.axis.spatial(9, b)
                    S[vi, vj, vb] = t[8 - vb]
        """
    )


KINDS = ("serial", "unroll", "vectorize", "parallel")


@one_in(2)
@pytest.mark.parametrize("shape", ["9,", "9 + vj,"])
@pytest.mark.parametrize("write", ["t[va] = A[vi, vj, va]", "if A[vi, vj, va] < T.float32(9): t[va] = A[vi, vj, va]"])
@pytest.mark.parametrize("outer", KINDS)
def test_each_run_of_a_block_has_its_own_temporary(outer, write, shape):
    func = turned_rows(shape, write)
    for inner in KINDS[:2] if outer == "vectorize" else KINDS[:3] if outer == "parallel" else KINDS:
        s = Schedule(func)
        for loop, kind in zip(s.get_loops("row"), (outer, inner), strict=True):
            if kind != "serial":
                getattr(s, kind)(loop)
        same(s.func, reference=func, targets=[TWO if "parallel" in (outer, inner) else ONE])


def test_temporaries_of_lanes_lie_side_by_side():
    s = Schedule(turned_rows())
    s.unroll("i")
    s.vectorize("j")
    after(s.func, "lower_blocks").becomes("""
        for i in T.unroll(4):
            t = T.decl_buffer((9, 8))
            for j in T.vectorized(8):
                for a in range(9):
                    t[a, j] = A[i, j, a]
                for b in range(9):
                    S[i, j, b] = t[8 - b, j]
    """)


def test_temporaries_of_nested_blocks():
    """One in the init of a reduction, one in its update, one around it; each is there where it is used."""
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((6, 4, 5), "float32"), C: T.Buffer((6, 4), "float32")):
    for i in range(6):
        with T.block("rows"):
            vi = T.axis.spatial(6, i)
            sums = T.alloc_buffer((4,), "float32")
            for j, k in T.grid(4, 5):
                with T.block("sum"):
                    vj, vk = T.axis.remap("SR", [j, k])
                    first = T.alloc_buffer((1,), "float32")
                    term = T.alloc_buffer((2,), "float32")
                    with T.init():
                        first[0] = T.float32(2)
                        sums[vj] = first[0]
                    term[vk % 2] = A[vi, vj, vk]
                    sums[vj] = sums[vj] + term[vk % 2]
            for j in range(4):
                with T.block("out"):
                    vj = T.axis.spatial(4, j)
                    C[vi, vj] = sums[3 - vj]
        """
    )
    for kind in KINDS:
        for order in (("j", "k"), ("k", "j")):
            s = Schedule(func)
            s.reorder(*order)
            if kind != "serial":
                getattr(s, kind)("i")
            same(s.func, reference=func, targets=[TWO if kind == "parallel" else ONE])


OWN = """
@T.prim_func
def main(A: T.Buffer((64,), "int32"), C: T.Buffer(({lanes},), "int32"), n: T.int32):
    for i in {loop}({lanes}):
        with T.block("C"):
            v = T.axis.spatial({lanes}, i)
            X = T.alloc_buffer(({shape},), "int32")
            for j in range({shape}):
                X[j] = A[j] + v
            C[v] = X[{shape} - 1]
"""


@pytest.mark.parametrize("shape", ["v + 1", "n", "v * n + 1", "v + n", "n - v", "n // (v + 1)", "T.min(v + 1, n)", "n * n - v"])
def test_temporaries_of_lanes_have_room_for_the_longest(shape):
    for loop in ("T.vectorized", "T.unroll"):
        func = parse(OWN.format(loop=loop, lanes=4, shape=shape))
        for n in (4, 7):
            same(func, [np.arange(64, dtype="int32"), np.zeros(4, "int32"), n], targets=[ONE])


@pytest.mark.parametrize("loop", ["range", "T.parallel"])
def test_temporaries_of_iterations(loop):
    """One of a constant bound is as large as that; another differs between them, and is refused."""
    same(
        parse(OWN.format(loop=loop, lanes=4, shape="v + 1")),
        [np.arange(64, dtype="int32"), np.zeros(4, "int32"), 4],
        targets=[TWO],
    )
    message = (
        "`X` has an extent of i + n, which differs between iterations of the loops around, and has no constant bound; "
        "give `X` a shape that does not depend on them"
    )
    with pytest.raises(CodegenError, match=f"^{re.escape(message)}$"):
        tir.build(parse(OWN.format(loop=loop, lanes=4, shape="v + n")), TWO)


@pytest.mark.parametrize(("lanes", "shape"), [(4, "A[v] + 1"), (128, "v * n + 1")])
def test_temporaries_of_lanes_whose_room_is_not_known(lanes, shape):
    extent = shape.replace("v", "i")
    message = (
        f"`X` has an extent of {extent} in loop `i`, whose iterations run at once: it is not known how much memory they need "
        "together; give `X` a shape that does not depend on the loop"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        tir.build(parse(OWN.format(loop="T.vectorized", lanes=lanes, shape=shape)), ONE)


def open_sums():
    """C[i] = the sum over r < k of A[i, r] + 1, of open sizes, by way of a temporary."""
    n, k = te.var("n"), te.var("k")
    A, r = te.placeholder((n, k), name="A"), te.reduce_axis((0, k), name="r")
    B = te.compute((n, k), lambda i, j: A[i, j] + 1.0, name="B")
    return te.create_prim_func([A, te.compute((n,), lambda i: te.sum(B[i, r], axis=r), name="C")])


@pytest.mark.parametrize("step", [
    lambda s, i, r: s.split(r, [None, 4]),
    lambda s, i, r: s.compute_at("B", r),
    lambda s, i, r: s.add_guard("C", f"{i} == 1"),
    lambda s, i, r: s.read_at(r, "C", 0, "local"),
    lambda s, i, r: s.reorder(r, i),
])  # fmt: skip
def test_a_reduction_over_nothing_of_open_extent_has_its_init(step):
    s = Schedule(open_sums())
    step(s, *s.get_loops("C"))
    for k in (0, 3):
        a, c = np.ones((5, k), "float32"), np.full(5, 7, "float32")
        tir.build(s.func, ONE)(a, c, 5, k)
        assert (c == 2 * k).all()


@pytest.mark.parametrize(("number", "strides"), [(0, True), (1, False), (-1, False)])
def test_alignments_of_buffers_that_a_block_does_not_write_are_left_out(number, strides):
    """As a foreign script may have them: a block writes one buffer, which has number 0."""
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((7, 13), "float32"), C: T.Buffer((7, 13), "float32")):
    B = T.alloc_buffer((7, 13), "float32")
    for i, j in T.grid(7, 13):
        with T.block("B"):
            x, y = T.axis.remap("SS", [i, j])
            T.block_attr({{"buffer_dim_align": [[{number}, 0, 16, 8]]}})
            B[x, y] = A[x, y] + T.float32(1)
    for i, j in T.grid(7, 13):
        with T.block("C"):
            x, y = T.axis.remap("SS", [i, j])
            C[x, y] = B[x, y] * T.float32(2)
""")
    assert (ALIGNED in dict(lower(func, Target(ONE), after="lower_blocks").attrs)) == strides
    same(func)
