"""What a statement reads of a buffer, it has written itself: in blocks, and in what these are lowered to."""

import pytest

from tir.analysis.write_before_read import writes_before_reads
from tir.ir import Address, Binary, Buffer, Const, For, Foreign, If, Select, Store, Var, opaque, seq
from tir.script import parse
from tir.traverse import loops

A, T = Buffer("A", (Const(13),)), Buffer("T", (Const(13),))
i, j, k = Var("i"), Var("j"), Var("k")
RANGES = {"i": (0, 6)}
FOREIGN = opaque(Foreign("call_extern", (Address(T),)), [T], lambda name: name)
ONLY_READS = opaque(Foreign("call_extern", (Address(T),)), [T], lambda name: name, {"T"})


def write(extent: int = 13, at=j):
    return For(j, Const(extent), Store(T, (at,), A[j]))


def read(extent: int = 13, at=k):
    return For(k, Const(extent), Store(A, (k,), T[at]))


@pytest.mark.parametrize(("body", "expected"), [
    (seq(write(), read()), True),
    (seq(write(), read(at=12 - k)), True),
    (seq(read(), write()), False),
    (seq(write(12), read()), False),
    (seq(write(12), read(12)), True),
    (seq(write(12, j + 1), read(12, k + 1)), True),
    (seq(write(12, j + 1), read(12)), False),
    (seq(For(j, Const(7), Store(T, (j * 2,), A[j])), read()), False),  # every other one
    (seq(For(j, Const(5), Store(T, (i + j,), A[j])), read(5, i + k)), True),
    (seq(For(j, Const(5), Store(T, (i + j,), A[j])), read(5, i + k + 1)), False),
    (seq(If(i < 3, write()), read()), False),
    (seq(For(j, Const(5), If(i + j < 13, Store(T, (i + j,), A[j]))), read(5, i + k)), True),  # no more than the buffer
    (seq(write(8), write(5, j + 8), read()), True),  # the pieces of a loop that was cut
    (seq(write(5, j + 8), write(8), read()), True),
    (seq(write(8), write(4, j + 9), read()), False),
    (seq(write(8), If(i < 3, write(5, j + 8)), read()), False),
    (seq(For(j, Const(8), If(j < 5, Store(T, (i + j,), A[j]))), read(5, i + k)), True),  # a loop that is cut short
    (seq(For(j, Const(8), If(j < 5, Store(T, (i + j,), A[j]))), read(6, i + k)), False),
    (seq(For(j, Const(8), If(j < i, Store(T, (j,), A[j]))), read(2)), False),
    (seq(write(8), For(j, Const(8), If(j < 5, Store(T, (j + 8,), A[j]))), read()), True),
    (seq(write(8), For(j, Const(8), If(j < 4, Store(T, (j + 8,), A[j]))), read()), False),
    (seq(write(12), For(k, Const(13), Store(A, (k,), Select(k < 12, T[k], A[k], lazy=True)))), True),
    (read(), False),
    (write(), True),
    (seq(write(), FOREIGN), True),
    (seq(write(12), FOREIGN), False),
    (seq(ONLY_READS, write()), False),
    (FOREIGN, False),
])  # fmt: skip
def test_statements(body, expected):
    assert writes_before_reads(body, T, RANGES) is expected


N = Var("n")
OPEN = Buffer("T", (N,))


def tiled(store, width=8, extent=None):
    """`store` of j * width + k for all of n places, in tiles whose last one is cut short."""
    at = j * width + k
    tiles = Binary("//", N + (width - 1), Const(width)) if extent is None else extent
    return For(j, tiles, For(k, Const(width), If(Binary("<", at, N), store(at))))


def put(at):
    return Store(OPEN, (at,), Const(1.0, "float32"))


def get(at):
    return Store(A, (Const(0),), OPEN[at])


@pytest.mark.parametrize(("body", "expected"), [
    (seq(For(j, N, put(j)), For(j, N, get(j))), True),
    (seq(For(j, N, put(j)), For(j, N, get(N - 1 - j))), True),
    (seq(For(j, N - 1, put(j)), For(j, N, get(j))), False),
    (seq(For(j, N - 1, put(j + 1)), For(j, N - 1, get(j))), False),
    (seq(For(j, N, put(Const(0))), For(j, N, get(Const(0)))), False),  # the first loop may not run
    (seq(For(j, N, For(k, Const(3), put(k))), get(Const(0))), False),
    (seq(tiled(put), tiled(get, 16)), True),
    (seq(tiled(put), For(j, N, get(j))), True),
    (seq(tiled(put, extent=Binary("//", N, Const(8))), For(j, N, get(j))), False),  # no last tile
    (seq(For(j, N, For(k, Const(4), put(j * 2 + k))), get(Const(3))), True),  # what is read is in bounds, so n is not 0
    (seq(For(j, N, put(j * 2)), For(j, N, get(j))), False),
    (seq(For(i, N, For(j, Var("i") + 1, put(j))), get(Const(0))), False),  # an extent of another loop
    (seq(For(j, A[Const(0)].astype("int32"), put(j)), For(j, A[Const(0)].astype("int32"), get(j))), False),  # of memory
])  # fmt: skip
def test_open_extents(body, expected):
    assert writes_before_reads(body, OPEN, {}) is expected


@pytest.mark.parametrize("step", [2, 4])
def test_there_may_be_no_tiles(step):
    """Tiles that overlap, or lie side by side, in a loop that may not run."""
    body = seq(For(j, N, For(k, Const(4), Store(T, (j * step + k,), A[k]))), Store(A, (Const(0),), T[Const(3)]))
    assert not writes_before_reads(body, T, {})
    assert writes_before_reads(body, T, {"n": (1, 3)})


@pytest.mark.parametrize(("stored", "loaded", "extents", "expected"), [
    ("j * 4 + k", "j * 4 + k", (16, 4), True),
    ("j * 16 + k", "j * 16 + k", (4, 4), True),  # a tile of 4 x 4 in rows of 16: with gaps
    ("j * 16 + k", "k * 16 + j", (4, 4), True),
    ("j * 16 + k", "j * 16 + k + 1", (4, 4), False),
    ("j * 16 + k", "j * 8 + k", (4, 4), False),
    ("j * 16 + k", "j * 16 + 48 - j * 32 + k", (4, 4), True),
    ("j * 16 + k * 2", "j * 16 + k", (4, 4), False),
    ("j * 3 + k", "j * 3 + k + 36", (16, 4), True),
    ("j * 3 + k", "j * 3 + k + 37", (16, 4), False),
    ("i * 4 + j", "i * 4 + k", (4, 4), True),
])  # fmt: skip
def test_several_dimensions_in_one(stored, loaded, extents, expected):
    """Rows and columns in one index, as lowered programs have them; and through the variable of a let."""
    for read in (f"A[j, k] = row[{loaded}]", f"at: T.int32 = {loaded}\n            A[j, k] = row[at]"):
        func = parse(
            f"""
@T.prim_func
def main(A: T.Buffer((16, 16), "float32")):
    row = T.alloc_buffer((66,))
    for i in range(7):
        for j, k in T.grid{extents}:
            row[{stored}] = T.float32(0.0)
        for j, k in T.grid(4, 4):
            {read}
"""
        )
        assert writes_before_reads(loops(func)[0].body, func.allocs[0], RANGES) is expected


@pytest.mark.parametrize(("stored", "extent", "expected"), [
    ("j // 4, j % 4", 12, True),
    ("2 - j // 4, j % 4", 12, False),  # unknown: it goes back
    ("j // 4, j % 4", 11, False),
    ("j // 3, j % 4", 12, False),  # not all pairs
    ("j // 4, j // 4", 12, False),
])  # fmt: skip
def test_quotient_and_remainder(stored, extent, expected):
    """A loop that walks two dimensions, as one of two that were fused does."""
    func = parse(
        f"""
@T.prim_func
def main(A: T.Buffer((3, 4), "float32")):
    row = T.alloc_buffer((4, 4))
    for i in range(7):
        for j in range({extent}):
            row[{stored}] = T.float32(0.0)
        for j, k in T.grid(3, 4):
            A[j, k] = row[j, k]
"""
    )
    assert writes_before_reads(loops(func)[0].body, func.allocs[0], RANGES) is expected


def in_blocks(where: str = "", extent: int = 13):
    func = parse(
        f"""
@T.prim_func
def main(A: T.Buffer((7, 13), "float32"), B: T.Buffer((7, 13), "float32")):
    row = T.alloc_buffer((13,))
    for i in range(7):
        for j, k in T.grid({extent}, 5):
            with T.block("row"):
                v_j = T.axis.spatial(13, j)
                v_k = T.axis.reduce(5, k)
                {where}
                with T.init():
                    row[v_j] = T.float32(0.0)
                row[v_j] = row[v_j] + A[i, v_j]
        for j_1 in range(13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j_1])
                B[v_i, v_j] = row[v_j]
"""
    )
    return loops(func)[0].body, func.allocs[0]


def test_blocks():
    body, row = in_blocks()
    assert writes_before_reads(body, row, RANGES)
    body, row = in_blocks(extent=12)
    assert not writes_before_reads(body, row, RANGES)
    body, row = in_blocks("T.where(j < 12)")
    assert not writes_before_reads(body, row, RANGES)
    body, row = in_blocks("T.where(j < 13)")
    assert writes_before_reads(body, row, RANGES)
    body, row = in_blocks("T.where(i + j >= 3)")
    assert not writes_before_reads(body, row, RANGES)


@pytest.mark.parametrize(("writing", "reading", "certain"), [
    ("a * 2 + b < 5", "a * 2 + b < 5", True),
    ("a * 2 + b < 5", "a * 2 + b < 4", True),
    ("a * 2 + b < 5", "a * 2 + b < 6", False),
    ("a * 2 + b < 5", "True", False),
    ("A[a, b] > T.float32(0)", "A[a, b] > T.float32(0)", False),  # which may be another number by then
])  # fmt: skip
def test_a_write_under_a_condition_that_holds_for_the_read(writing, reading, certain):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((3, 2), "float32"), B: T.Buffer((3, 2), "float32")):
    x = T.alloc_buffer((1,))
    for a, b in T.grid(3, 2):
        with T.block("x"):
            v, w = T.axis.remap("SS", [a, b])
            T.where({writing})
            x[0] = A[v, w]
        with T.block("B"):
            v, w = T.axis.remap("SS", [a, b])
            T.where({reading})
            B[v, w] = x[0]
""")
    assert writes_before_reads(func.body, func.allocs[0], {}) is certain


def test_a_write_in_another_iteration_whose_condition_holds_for_the_read():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3, 2), "float32"), B: T.Buffer((3, 2), "float32")):
    x = T.alloc_buffer((1,))
    for a in range(3):
        for b in range(2):
            with T.block("x"):
                v, w = T.axis.remap("SS", [a, b])
                T.where(a + b < 2)
                x[0] = A[v, w]
        for b in range(2):
            with T.block("B"):
                v, w = T.axis.remap("SS", [a, b])
                T.where(a + b < 2)
                B[v, w] = x[0]
""")
    assert not writes_before_reads(func.body, func.allocs[0], {})
