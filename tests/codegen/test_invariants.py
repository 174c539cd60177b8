"""Loads that give the same in every iteration of a loop stand in front of it; where they might not, or may not be there, inside."""

from __future__ import annotations

import pytest

import codegen
from schedule import Schedule
from tests.arrays import integers
from tests.codegen.harness import ONE, same
from tests.programs import matmul
from tir.ir import Binary, Buffer, Call, Const, Expr, For, If, Kind, Load, PrimFunc, Stmt, Store, Var, seq

A, C = Buffer("A", (Const(13),)), Buffer("C", (Const(13), Const(16)))
N = Buffer("N", (Const(13),), "int32")
i, j, n = Var("i"), Var("j"), Var("n")


def inside(func: PrimFunc, loop: str, buffer: str) -> int:
    """How many loads from the parameter `buffer` stand in the body of the serial loop `loop`, or deeper."""
    text = codegen.build(func, f"{ONE} -mcpu x86-64-v4").llvm_ir().splitlines()
    start = next(x for x, line in enumerate(text) if f"%{loop}." in line and "phi" in line)
    index = text[start].split()[0]
    end = next(x for x, line in enumerate(text) if f"add nuw nsw i64 {index}, 1" in line)
    pointers = {f"%{buffer}."}
    count = 0
    for at, line in enumerate(text):
        if "getelementptr" in line and any(p in line.split("=")[1] + "," for p in pointers):
            pointers.add(line.split()[0] + ",")
        count += start < at < end and " load " in line and any(p in line + "," for p in pointers)
    return count


def nest(body: Stmt, extent: Expr, *params: Buffer | Var) -> PrimFunc:
    return PrimFunc("main", (A, C, *params), For(i, Const(13), For(j, extent, body)))


def test_in_front_of_the_loop():
    func = nest(Store(C, (i, j), Load(A, (i,)) + 1.0), Const(16))
    assert (inside(func, "j", "A"), inside(func, "i", "A")) == (0, 1)
    same(func, fences=True)


def test_out_of_two_loops():
    k = Var("k")
    B = Buffer("B", (Const(3), Const(13), Const(16)))
    func = PrimFunc("main", (A, B), For(k, Const(3), For(i, Const(13), For(j, Const(16), Store(B, (k, i, j), Load(A, (k,)))))))
    assert (inside(func, "i", "A"), inside(func, "k", "A")) == (0, 1)
    same(func, fences=True)


def test_the_loop_writes_it():
    func = nest(seq(Store(C, (i, j), Load(A, (i,))), Store(A, (j % 13,), Load(A, (j % 13,)) + 1.0)), Const(16))
    assert inside(func, "j", "A") >= 1
    same(func, fences=True)


def test_a_loop_around_writes_it():
    """In front of j it is read anew for each i, and not in front of i."""
    func = PrimFunc(
        "main",
        (A, C),
        For(i, Const(13), seq(Store(A, (i,), Load(A, (i,)) + 1.0), For(j, Const(16), Store(C, (i, j), Load(A, (Const(4),)))))),
    )
    assert (inside(func, "j", "A"), inside(func, "i", "A")) == (0, 2)
    same(func, fences=True)


@pytest.mark.parametrize("extent", [n, Binary("min", Const(16), n), Const(0)])
def test_a_loop_that_may_not_run(extent):
    """There may be nothing to load in front of it: what is loaded on the way in is loaded if the loop runs."""
    params = (n,) if extent != Const(0) else ()
    body = Store(C, (i, j), Load(A, (i * 100 + 13,)) if extent == Const(0) else Load(A, (i,)))
    func = nest(body, extent, *params)
    if params:
        assert (inside(func, "j", "A"), inside(func, "i", "A")) == (0, 1)
        for value in (0, 1, 16):
            same(func, integers(func, 0, {"n": value}), fences=True)
    else:
        same(func, fences=True)


def test_under_a_condition():
    """The condition may be what keeps it inside the buffer."""
    func = nest(If(i < 7, Store(C, (i, j), Load(A, (i + 6,)))), Const(16))
    assert inside(func, "j", "A") <= 1
    guarded = nest(If(Load(N, (j % 13,)) < 2, Store(C, (i, j), Load(A, (i,)))), Const(16), N)
    assert inside(guarded, "j", "A") == 1
    same(func, fences=True)
    same(guarded, fences=True)


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("value", [Call("exp", (Load(A, (i,)),), "float32"), Binary("/", Const(1.0, "float32"), Load(A, (i,)))])
def test_functions_of_what_stays(changed, value):
    """They stand in front of the loop, unless it writes what they are of."""
    write = Store(A, (i,), Load(A, (i,)) * 0.5) if changed else None
    func = nest(seq(Store(C, (i, j), value * Load(C, (i, j))), write), Const(16))
    text = codegen.build(func, f"{ONE} -mcpu x86-64-v4").llvm_ir()
    main = text[text.index("@tir_main") :]
    call = "fdiv" if isinstance(value, Binary) else "= call float @"
    assert main.count(call) == 1 and (main.index(call) > main.index("%j.")) == changed
    same(func, tolerance=lambda p, x: 1e-6 * abs(x))


def test_operands_of_an_unrolled_reduction():
    """Four scalars of A serve all vectors of the row."""
    s = Schedule(matmul(7, 24, 64))
    i, j, k = s.get_loops("C")
    k0, k1 = s.split(k, [None, 4])
    j0, j1 = s.split(j, [None, 16])
    s.reorder(i, k0, j0, k1, j1)
    s.decompose_reduction("C", k0)
    s.unroll(k1)
    s.vectorize(j1)
    assert (inside(s.func, "j_0", "A"), inside(s.func, "k_0", "A")) == (0, 4)
    loop = codegen.build(s.func, f"{ONE} -mcpu x86-64-v4").report().loop("j_0")
    assert (loop.fma, loop.broadcasts, loop.stores) == (4, 0, 1)
    same(s.func, fences=True)


def test_no_more_than_registers_are_free():
    """40 values that stay the same cannot all be in registers; those that are left are loaded where they are used."""
    wide, out = Buffer("W", (Const(40),)), Buffer("O", (Const(13), Const(16)))
    total = Load(wide, (Const(0),))
    for at in range(1, 40):
        total = Binary("max", total, Load(wide, (Const(at),)) * Load(C, (i, j)))
    func = PrimFunc("main", (wide, C, out), For(i, Const(13), For(j, Const(16), Store(out, (i, j), total), Kind.SERIAL)))
    assert 1 <= inside(func, "j", "W") < 40
    same(func, fences=True)
