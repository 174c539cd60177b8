"""The axes of blocks are what they are called, and reductions begin with their init."""

from __future__ import annotations

import pytest

from tests.programs import matmul
from tests.tir.verify.functions import buffer, func, i, j, k, messages, spatial, vi, vj
from tir.ir import Axis, Binary, Block, For, If, Iter, PrimFunc, Select, Store, Var, cast, const, nest, seq
from tir.script import parse
from tir.traverse import rewrite
from tir.verify import verify


def test_a_reduction_called_spatial():
    f = rewrite(
        matmul(),
        lambda n: n.with_(axis=Axis.SPATIAL) if isinstance(n, Iter) else n.with_(init=None) if isinstance(n, Block) else None,
    )
    (message,) = messages(f)
    assert message == (
        "error: the spatial axes of block `C` are not: v_i=0, v_j=0, v_k=0 writes C[0, 0], and v_i=0, v_j=0, v_k=1 writes it too"
    )


@pytest.mark.parametrize("n", [13, 10**6])
def test_an_iteration_that_reads_what_another_writes(n):
    X = buffer("X", n)
    block = Block("X", (spatial(vi, n - 1, i),), Store(X, (vi + 1,), X[vi] + 1.0))
    (message,) = messages(func(For(i, const(n - 1), block), X))
    assert message == "error: the spatial axes of block `X` are not: v_i=0 writes X[1], and v_i=1 reads it too"


def test_writes_that_do_not_collide():
    X = buffer("X", 91)
    iters = (spatial(vi, 7, i), spatial(vj, 13, j))
    for index in (vi * 13 + vj, vi + vj * 7, const(90) - vi * 13 - vj, (vi * 13 + vj + 5) % 91):
        block = Block("X", iters, Store(X, (index,), const(1.0)))
        assert messages(func(nest([(i, 7), (j, 13)], block), X)) == [], index
    for index in (vi * 12 + vj, vi + vj, (vi * 13 + vj) // 2, vi * 13):
        block = Block("X", iters, Store(X, (index,), const(1.0)))
        (message,) = messages(func(nest([(i, 7), (j, 13)], block), X))
        assert message.startswith("error: the spatial axes of block `X` are not"), index


def test_a_block_with_a_loop_inside():
    """Each iteration owns a row, or a tile, which it writes and reads at will."""
    X, Y = buffer("X", 7, 13), buffer("Y", 91)
    row = seq(For(j, const(13), Store(X, (vi, j), const(1.0))), For(k, const(13), Store(X, (vi, k), X[vi, const(12) - k] * 2.0)))
    assert messages(func(For(i, const(7), Block("X", (spatial(vi, 7, i),), row)), X)) == []
    tile = seq(
        For(j, const(13), Store(Y, (vi * 13 + j,), const(1.0))),
        For(k, const(13), Store(Y, (vi * 13 + k,), Y[vi * 13 + (const(12) - k)])),
    )
    assert messages(func(For(i, const(7), Block("Y", (spatial(vi, 7, i),), tile)), Y)) == []
    spill = For(j, const(14), If(vi * 13 + j < 91, Store(Y, (vi * 13 + j,), const(1.0))))
    assert messages(func(For(i, const(7), Block("Y", (spatial(vi, 7, i),), spill)), Y)) == [
        "error: the spatial axes of block `Y` are not: v_i=0 writes Y[13], and v_i=1 writes it too"
    ]


def test_reading_what_nobody_writes_is_no_dependence():
    """The first seven elements are written, the others are read, some of them by several iterations."""
    X = buffer("X", 13)
    block = Block("X", (spatial(vi, 7, i),), Store(X, (vi,), X[vi // 2 + 7] + X[vi % 3 + 7]))
    assert messages(func(For(i, const(7), block), X)) == []
    value = Select(vi >= 7, X[vi - 7], const(0.0), lazy=True)  # never read, since v_i < 7
    assert messages(func(For(i, const(7), Block("X", (spatial(vi, 7, i),), Store(X, (vi,), value))), X)) == []
    value = Select(vi < 7, const(0.0), X[vi - 7], lazy=True)
    assert messages(func(For(i, const(7), Block("X", (spatial(vi, 7, i),), Store(X, (vi,), value))), X)) == []
    value = Select(vi < 5, const(0.0), X[vi - 5], lazy=True)
    assert messages(func(For(i, const(7), Block("X", (spatial(vi, 7, i),), Store(X, (vi,), value))), X)) == [
        "error: the spatial axes of block `X` are not: v_i=0 writes X[0], and v_i=5 reads it too"
    ]


def test_unknown_writes_are_unproved():
    X, N = buffer("X", 7), buffer("N", 7, dtype="int32")
    block = Block("X", (spatial(vi, 7, i),), Store(X, (Select(N[vi] > 3, vi, const(0)),), const(1.0)))
    report = verify(func(For(i, const(7), block), X, N))
    assert report.ok
    assert any("cannot prove that iterations of block `X` that differ in `v_i` keep apart in `X`" in f.message for f in report)


def test_a_private_buffer_is_no_dependence():
    X, S = buffer("X", 7), buffer("S", 1)
    body = seq(Store(S, (const(0),), cast(vi, "float32")), Store(X, (vi,), S[0]))
    assert messages(func(For(i, const(7), Block("X", (spatial(vi, 7, i),), body, allocs=(S,))), X)) == []
    assert not verify(func(For(i, const(7), Block("X", (spatial(vi, 7, i),), body)), X, allocs=(S,))).ok


def test_a_reduction_that_overwrites():
    f = rewrite(matmul(), lambda n: n.with_(value=n.value.b) if isinstance(n, Store) and isinstance(n.value, Binary) else None)
    assert messages(f) == ["error: block `C` reduces over `v_k`, but overwrites `C` instead of updating it"]


def test_a_reduction_counted_twice():
    f = matmul()
    twice = rewrite(
        f, lambda n: n.with_(body=For(Var("again"), const(2), n.body)) if isinstance(n, For) and n.name == "k" else None
    )
    assert messages(twice) == [
        "error: block `C` counts an iteration of its reduction twice: v_i=0, v_j=0, v_k=1, once where k=1, again=0, "
        "and again where k=1, again=1"
    ]
    recomputed = func(For(Var("again"), const(2), f.body), *f.params)  # from the init: allowed
    assert messages(recomputed) == []
    o, p = Var("k_0"), Var("k_1")
    overlapping = rewrite(f, lambda n: nest([(o, 2), (p, 4)], n.body) if isinstance(n, For) and n.name == "k" else None)
    overlapping = rewrite(overlapping, lambda n: o + p if n == Var("k") else None)
    assert any("counts an iteration of its reduction twice" in m for m in messages(overlapping))


def test_axes_are_spatial_where_the_block_runs():
    f = parse(
        """
@T.prim_func
def main(A: T.Buffer((7,), "float32"), C: T.Buffer((21,), "float32")):
    for i, j, k in T.grid(3, 2, 4):
        with T.block("C"):
            v_i, v_j, v_k = T.axis.remap("SSS", [i, j, k])
            T.where(j * 4 + k < 7)
            C[v_i * 7 + v_j * 4 + v_k] = A[v_i + v_j]
"""
    )
    assert messages(f) == []
    everywhere = rewrite(f, lambda n: n.with_(predicate=j < 2) if isinstance(n, Block) else None)
    assert any("the spatial axes of block `C` are not" in m for m in messages(everywhere))


def test_opaque_axes_may_carry_anything():
    X = buffer("X", 13)
    block = Block("X", (Iter(vi, const(12), Axis.OPAQUE, i),), Store(X, (vi + 1,), X[vi] + 1.0))
    assert messages(func(For(i, const(12), block), X)) == []


def summed(binding: str, extent: str = "5", where: str = "") -> PrimFunc:
    return parse(
        f"""
@T.prim_func
def main(A: T.Buffer((7, 5), "float32"), C: T.Buffer((7,), "float32")):
    for i, k in T.grid(7, {extent}):
        with T.block("C"):
            v_i = T.axis.spatial(7, i)
            v_k = T.axis.reduce(5, {binding})
            {where}
            with T.init():
                C[v_i] = T.float32(0.0)
            C[v_i] = C[v_i] + A[v_i, v_k]
"""
    )


@pytest.mark.parametrize(("binding", "extent", "where", "at"), [
    ("k + 1", "4", "", "v_i=0, v_k=1 comes first, where i=0, k=0"),
    ("4 - k", "5", "", "v_i=0, v_k=4 comes first, where i=0, k=0"),
    ("(k + 1) % 5", "5", "", "v_i=0, v_k=1 comes first, where i=0, k=0"),
    ("k", "5", "T.where(k >= 1)", "v_i=0, v_k=1 comes first, where i=0, k=1"),
    ("k", "5", "T.where(i + k >= 3)", "v_i=0, v_k=3 comes first, where i=0, k=3"),
])  # fmt: skip
def test_a_reduction_that_begins_without_its_init(binding, extent, where, at):
    expected = f"error: block `C` begins its reduction without its init: {at}"
    assert messages(summed(binding, extent, where)) == [expected]


@pytest.mark.parametrize(
    ("binding", "extent", "where"),
    [("k", "5", "T.where(k < 3)"), ("k", "5", "T.where(i + k < 9)"), ("k", "5", "T.where(i >= 2)"), ("k * 3 % 5", "5", "")],
)
def test_a_reduction_that_begins_with_its_init(binding, extent, where):
    assert messages(summed(binding, extent, where)) == []


def test_a_reduction_may_begin_under_an_if():
    f = summed("k")
    guarded = rewrite(f, lambda n: If(i >= 2, n) if isinstance(n, Block) else None)
    assert messages(guarded) == []
    late = rewrite(f, lambda n: If(Var("k") >= 2, n) if isinstance(n, Block) else None)
    assert messages(late) == ["error: block `C` begins its reduction without its init: v_i=0, v_k=2 comes first, where i=0, k=2"]


def test_a_start_that_is_not_known():
    f = parse(
        """
@T.prim_func
def main(A: T.Buffer((7, 5), "float32"), C: T.Buffer((7,), "float32"), n: T.int32):
    for i, k in T.grid(7, 5):
        with T.block("C"):
            v_i = T.axis.spatial(7, i)
            v_k = T.axis.reduce(5, k)
            T.where(k >= n)
            with T.init():
                C[v_i] = T.float32(0.0)
            C[v_i] = C[v_i] + A[v_i, v_k]
"""
    )
    assert messages(f) == ["unproved: cannot prove that block `C` begins its reduction with its init"]


def test_an_axis_of_which_one_value_runs():
    f = parse(
        """
@T.prim_func
def main(A: T.Buffer((3,), "float32"), B: T.Buffer((3,), "float32")):
    for i in range(3):
        with T.block("B"):
            v = T.axis.spatial(3, i)
            for j in range(1):
                with T.block("inner"):
                    w = T.axis.spatial(2, j)
                    B[v] = A[v]
"""
    )
    assert messages(f) == []


def test_an_update_reads_the_element_that_it_writes():
    f = parse(
        """
@T.prim_func
def main(C: T.Buffer((8,), "float32")):
    for k in range(7):
        with T.block("C"):
            r = T.axis.reduce(7, k)
            C[0] = C[r + 1]
"""
    )
    assert messages(f) == ["error: block `C` reduces over `r`, but overwrites `C` instead of updating it"]


@pytest.mark.parametrize("rows", [4, 3])
def test_a_loop_in_which_a_reduction_starts_anew(rows):
    """All that is updated in an iteration is overwritten before in the same one, or not."""
    f = parse(
        f"""
@T.prim_func
def main(A: T.Buffer((4, 3), "float32"), C: T.Buffer((4,), "float32")):
    for k_0, again in T.grid(1, 2):
        for i in range({rows}):
            with T.block("C_init"):
                v_i = T.axis.spatial(4, i)
                C[v_i] = T.float32(0.0)
        for i, k in T.grid(4, 3):
            with T.block("C_update"):
                v_i = T.axis.spatial(4, i)
                v_k = T.axis.reduce(3, k_0 * 3 + k)
                C[v_i] = C[v_i] + A[v_i, v_k]
"""
    )
    where = "once where k_0=0, again=0, i_1=0, k=0, and again where k_0=0, again=1, i_1=0, k=0"
    twice = f"error: block `C_update` counts an iteration of its reduction twice: v_i=0, v_k=0, {where}"
    assert messages(f) == ([] if rows == 4 else [twice])


@pytest.mark.parametrize(
    ("first", "sound"), [("f % 5 < 2", True), ("f % 5 == 0", True), ("f == 0", False), ("f % 5 == 1", False)]
)
def test_a_reduction_that_another_block_starts_anew(first, sound):
    """A condition on a fused loop chooses which of two parts of a reduction runs; the one with the init comes first, or not."""
    f = parse(
        f"""
@T.prim_func
def main(A: T.Buffer((1, 5), "float32"), C: T.Buffer((1,), "float32")):
    for f in range(10):
        if not ({first}):
            with T.block("C"):
                v_i = T.axis.spatial(1, 0)
                v_k = T.axis.reduce(5, f % 5)
                C[v_i] = C[v_i] + A[v_i, v_k]
        else:
            with T.block("C_first"):
                v_i = T.axis.spatial(1, 0)
                v_k = T.axis.reduce(5, f % 5)
                with T.init():
                    C[v_i] = T.float32(0.0)
                C[v_i] = C[v_i] + A[v_i, v_k]
"""
    )
    assert (messages(f) == []) is sound
