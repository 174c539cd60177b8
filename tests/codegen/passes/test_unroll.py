"""Which loops the backend writes out."""

import re
from functools import reduce

import pytest

import codegen
import tir
from codegen.passes.unroll import size
from schedule import Schedule
from tests.codegen.harness import after, same
from tests.programs import matmul
from tir import te
from tir.ir import Binary, Buffer, Const, For, Kind, Load, PrimFunc, Select, Store, Var, conjunction
from tir.traverse import loops


def test_the_limit_counts_what_serial_loops_would_make():
    """16 statements: the reduction of 5 is written out, the loop around it (13 inits, 65 updates) is not."""
    s = Schedule(matmul(7, 5, 13))
    s.annotate("i", "pragma_auto_unroll_max_step", 16)
    after(s.func, "unroll").becomes("""
        for i in T.serial(7, annotations={"pragma_auto_unroll_max_step": 16}):
            for j in range(13):
                C[i, j] = T.float32(0.0)
                for k in T.unroll(5):
                    C[i, j] = C[i, j] + A[i, k] * B[k, j]
    """)


@pytest.mark.parametrize(("limit", "loop"), [(4, "range"), (5, "T.unroll")])
def test_the_least_limit(limit, loop):
    s = Schedule(matmul(7, 5, 13))
    s.annotate("i", "pragma_auto_unroll_max_step", limit)
    after(s.func, "unroll").becomes(f"""
        for i in T.serial(7, annotations={{"pragma_auto_unroll_max_step": {limit}}}):
            for j in range(13):
                C[i, j] = T.float32(0.0)
                for k in {loop}(5):
                    C[i, j] = C[i, j] + A[i, k] * B[k, j]
    """)


def test_what_is_asked_for_is_unrolled_whatever_the_limit():
    s = Schedule(matmul(7, 5, 13))
    s.unroll("j")
    s.annotate("i", "pragma_auto_unroll_max_step", 4)
    after(s.func, "unroll").becomes("""
        for i in T.serial(7, annotations={"pragma_auto_unroll_max_step": 4}):
            for j in T.unroll(13):
                C[i, j] = T.float32(0.0)
                for k in range(5):
                    C[i, j] = C[i, j] + A[i, k] * B[k, j]
    """)


def test_too_large_a_body_stays_a_loop():
    """70 x 70 x 2 statements are more than a compiler should read; the inner loop alone is not."""
    s = Schedule(matmul(70, 2, 70))
    s.unroll("i")
    s.unroll("j")
    after(s.func, "unroll", numbers=False).becomes("""
        for i in range(70):
            for j in T.unroll(70):
                C[i, j] = T.float32(0.0)
                for k in range(2):
                    C[i, j] = C[i, j] + A[i, k] * B[k, j]
    """)


def test_a_symbolic_extent_is_a_loop():
    n, i = Var("n"), Var("i")
    a, b = Buffer("A", (n,)), Buffer("B", (n,))
    func = PrimFunc("main", (a, b, n), For(i, n, Store(b, (i,), Load(a, (i,))), Kind.UNROLLED))
    after(func, "unroll", numbers=False).becomes("for i in range(n):\n    B[i] = A[i]")


def test_copies_of_lets_and_temporaries_do_not_mix():
    from tests.codegen.llvm.test_emit import lets_and_temporaries

    same(lets_and_temporaries(Kind.UNROLLED), reference=lets_and_temporaries(Kind.SERIAL))


def test_a_large_constant_extent_inside_is_multiplied_in():
    i, j = Var("i"), Var("j")
    b = Buffer("B", (Const(190), Const(60)))
    store = Store(b, (i, j), Const(1.0, "float32"))
    func = PrimFunc("main", (b,), For(i, Const(190), For(j, Const(60), store, Kind.UNROLLED), Kind.UNROLLED))
    after(func, "unroll").becomes("for i in range(190):\n    for j in T.unroll(60):\n        B[i, j] = T.float32(1.0)")


@pytest.mark.parametrize("how", ["asked for", "below a limit"])
def test_long_statements_count_for_more(how):
    """400 copies of a chain of 30 additions are 400 statements, but 12800 operations: 8 iterations are written out, not all."""
    A = te.placeholder((400,), name="A")
    value = A[te.const(0)]
    s = Schedule(te.create_prim_func([A, te.compute((400,), lambda i: sum((A[i] for _ in range(30)), value), name="B")]))
    (i,) = s.get_loops("B")
    outer, inner = s.split(i, [None, 8])
    if how == "asked for":
        s.unroll(outer)
        s.unroll(inner)
    else:
        s.annotate(outer, "pragma_auto_unroll_max_step", 1000)
    kinds = {x.name: x.kind for x in loops(codegen.lower(s.func, codegen.Target("llvm -num-cores 1"), after="unroll").body)}
    assert kinds == {outer: Kind.SERIAL, inner: Kind.UNROLLED}


def test_a_comparison_of_indices_is_one_operation():
    """400 copies of a load between two edges are 2000 operations, however long the indices that these are compared with."""
    i, a, b = Var("i"), Buffer("A", (Const(400),)), Buffer("B", (Const(400),))
    far = reduce(lambda e, n: Binary("+", e, Const(n)), range(40), i)
    inside = conjunction(Binary(">=", far, Const(0)), Binary("<", far, Const(400)))
    store = Store(b, (i,), Select(inside, Load(a, (i,)), Const(0.0, "float32")))
    assert size(For(i, Const(400), store, Kind.UNROLLED)) == (400, 400 * 6)


@pytest.mark.parametrize("value", [1.5, "many", -1, True])
def test_a_pragma_that_is_no_count_is_refused(value):
    i, b = Var("i"), Buffer("B", (Const(7),))
    loop = For(i, Const(7), Store(b, (i,), Const(1.0, "float32")), annotations=(("pragma_auto_unroll_max_step", value),))
    message = f"loop `i`: the annotation pragma_auto_unroll_max_step must be an integer from 0 to 2147483647, got {value!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        tir.build(PrimFunc("main", (b,), loop), "llvm -num-cores 1")
