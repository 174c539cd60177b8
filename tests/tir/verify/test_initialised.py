"""What is read of a temporary is written before."""

from __future__ import annotations

import pytest

from tests.programs import matmul
from tests.tir.verify.functions import C, T, func, i, j, messages
from tir.ir import Allocate, Block, For, PrimFunc, Store, Var, const, nest, seq
from tir.script import parse
from tir.traverse import rewrite


def with_block(f: PrimFunc, **changes) -> PrimFunc:
    return rewrite(f, lambda n: n.with_(**changes) if isinstance(n, Block) else None)


def test_temporaries_are_written_before_they_are_read():
    read = For(i, const(7), For(j, const(13), Store(C, (i, j), T[i, j])))
    write = nest([(Var("p"), 7), (Var("q"), 13)], Store(T, (Var("p"), Var("q")), const(1.0)))
    part = nest([(Var("p"), 7), (Var("q"), 12)], Store(T, (Var("p"), Var("q")), const(1.0)))
    assert messages(func(seq(write, read), C, allocs=(T,))) == []
    assert messages(func(seq(read, write), C, allocs=(T,))) == ["error: `T` is read before anything is written to it"]
    assert messages(func(read, C, allocs=(T,))) == ["error: `T` is read, but never written"]
    assert messages(func(seq(part, read), C, allocs=(T,))) == ["error: `T[0, 12]` is read, but never written"]
    assert messages(func(Allocate(T, seq(part, read)), C)) == ["error: `T[0, 12]` is read, but never written"]
    assert messages(func(read, C, T)) == []


def test_a_reduction_without_init():
    f = matmul()
    bare = with_block(PrimFunc("main", f.params[:2], f.body, f.params[2:]), init=None)
    assert messages(bare) == ["error: `C` is read before anything is written to it"]


@pytest.mark.parametrize(("written", "index", "expected"), [
    (1024, "i, j", []),
    (512, "i, j", ["error: `X[768, 768]` is read, but never written"]),
    (1024, "i, j // 2 * 2 + j % 2", []),
    (1024, "i, j // 2 * 2", ["error: `X[768, 1023]` is read, but never written"]),
    (1024, "i, j * 3 % 1024", ["unproved: cannot prove that all is written that is read of `X`"]),
])  # fmt: skip
def test_a_temporary_that_is_too_large_to_try_all_of_it(written, index, expected):
    """It is proved, refuted, or said to be unproved."""
    f = parse(
        f"""
@T.prim_func
def f(A: T.Buffer((1024, 1024)), B: T.Buffer((1024, 1024))):
    X = T.alloc_buffer((1024, 1024))
    for i, j in T.grid({written}, {written}):
        X[{index}] = A[i, j]
    for i, j in T.grid(1024, 1024):
        B[i, j] = X[i, j]
"""
    )
    assert messages(f) == expected


@pytest.mark.parametrize(("write", "read", "expected"), [
    ("i * 4294967296", "i * 4294967296", ["unproved: cannot prove that all is written that is read of `X`"]),
    ("i * 4294967296", "i * 4294967296 + 1", ["error: `X[12884901889]` is read, but never written"]),
    ("i * 4294967296", "i * 4294967296 + 17179869184", ["error: `X[17179869184]` is read, but never written"]),
])  # fmt: skip
def test_few_elements_of_a_temporary_that_no_memory_holds(write, read, expected):
    """It is refuted or said to be unproved, without a mark for each of its elements."""
    f = parse(
        f"""
@T.prim_func
def f(A: T.Buffer((4,)), B: T.Buffer((4,))):
    X = T.alloc_buffer((34359738368,))
    for i in range(4):
        X[{write}] = A[i]
    for i in range(4):
        B[i] = X[{read}]
"""
    )
    assert messages(f) == expected


@pytest.mark.parametrize(("read", "expected"), [(5, []), (6, ["error: `D[5]` is read, but never written"])])
def test_a_copy_of_what_was_never_written(read, expected):
    """It counts as never written, too, and to make it is no fault."""
    f = parse(
        f"""
@T.prim_func
def f(A: T.Buffer((7,)), C: T.Buffer((7,))):
    B = T.alloc_buffer((7,))
    D = T.alloc_buffer((7,))
    for i in range(5):
        B[i] = A[i]
    for i in range(7):
        D[i] = B[i]
    for i in range(7):
        C[i] = T.if_then_else(i < {read}, D[i], T.float32(0.0))
"""
    )
    assert messages(f) == expected


def test_a_copy_of_what_was_never_written_into_a_parameter():
    f = parse(
        """
@T.prim_func
def f(A: T.Buffer((7,)), C: T.Buffer((7,))):
    B = T.alloc_buffer((7,))
    for i in range(5):
        B[i] = A[i]
    for i in range(7):
        C[i] = B[i]
"""
    )
    assert messages(f) == ["error: `B[5]` is read, but never written"]


def test_an_element_that_is_copied_to_its_neighbour():
    f = parse(
        """
@T.prim_func
def f(C: T.Buffer((7,))):
    B = T.alloc_buffer((7,))
    B[0] = T.float32(1.0)
    for i in range(3):
        B[i + 1] = B[i + 2]
    for i in range(1):
        C[i] = B[i]
"""
    )
    assert messages(f) == ["error: `B[4]` is read, but never written"]


def test_a_temporary_without_elements_need_not_be_written():
    """Whatever seems to read it is under a condition that never holds."""
    f = parse("""
@T.prim_func
def main(C: T.Buffer((7,), "float32")):
    X = T.alloc_buffer((7, 0))
    for i in range(7):
        C[i] = T.if_then_else(T.bool(False), X[i, 0], T.float32(1.0))
""")
    assert messages(f) == []
