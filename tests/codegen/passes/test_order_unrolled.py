"""The order in which the copies of a register tile are written."""

import itertools
from math import prod

import numpy as np
import pytest

import codegen
import tir
from codegen.passes.order_unrolled import live_loads, order_unrolled
from schedule import Schedule
from tests.codegen.harness import same
from tests.programs import matmul
from tir.ir import Buffer, Const, For, Kind, Load, PrimFunc, Seq, Stmt, Store, Var
from tir.traverse import loads, loops, substatements

FIXED = "llvm -num-cores 1 -mcpu x86-64-v4"


def tile(rows: int, vectors: int, rows_outside: bool, M: int = 0, lanes: int = 16) -> Schedule:
    """A register tile of `rows` by `vectors` of a product with M rows, two tiles of them if not given."""
    s = Schedule(matmul(M or 2 * rows, 13, 2 * vectors * lanes))
    i, j, k = s.get_loops("C")
    i0, i1 = s.split(i, [None, rows])
    j0, j1, j2 = s.split(j, [None, vectors, lanes])
    s.reorder(i0, j0, k, *((i1, j1) if rows_outside else (j1, i1)), j2)
    s.decompose_reduction("C", k)
    s.unroll(i1)
    s.unroll(j1)
    s.vectorize(j2)
    return s


@pytest.mark.parametrize("rows_outside", [True, False])
@pytest.mark.parametrize("rows, vectors", [(14, 2), (9, 3), (2, 12), (3, 9)])
def test_accumulators_stay_in_registers_whatever_the_order(rows, vectors, rows_outside):
    s = tile(rows, vectors, rows_outside)
    loop = tir.build(s.func, FIXED).report().loop("k")
    assert (loop.fma, loop.spills) == (rows * vectors, 0)
    same(s.func, reference=matmul(2 * rows, 13, 2 * vectors * 16))


def nests(func: PrimFunc, after: str) -> list[list[str]]:
    """The unrolled loops around each update of an accumulator."""
    found: list[list[str]] = []

    def visit(s: Stmt, around: list[str]) -> None:
        if isinstance(s, For) and s.kind is Kind.UNROLLED:
            around = [*around, s.name]
        if isinstance(s, Store) and any(x.buffer == s.buffer for x in loads(s.value)):
            found.append(around)
        for c in substatements(s):
            visit(c, around)

    visit(codegen.lower(func, codegen.Target(FIXED), after=after).body, [])
    return found


def test_whole_and_partial_tiles_change_alike():
    before = nests(tile(4, 2, False, M=11).func, "promote_registers")
    after = nests(tile(4, 2, False, M=11).func, "order_unrolled")
    assert len(before) == 2 and before[0] == before[1]  # the last tile has three rows of four
    assert after == [before[0][::-1]] * 2


@pytest.mark.parametrize("kind", [Kind.UNROLLED, Kind.SERIAL])
def test_only_unrolled_loops_change_places(kind):
    """Also where nothing is around them."""
    a, b, r = Buffer("a", (Const(4),)), Buffer("b", (Const(2),)), Buffer("r", (Const(4), Const(2)), scope="register")
    i, j = Var("i"), Var("j")
    update = Store(r, (i, j), Load(r, (i, j)) + Load(a, (i,)) * Load(b, (j,)))
    nest = For(j, Const(2), For(i, Const(4), update, Kind.UNROLLED), kind)
    body = order_unrolled(PrimFunc("main", (a, b), nest), codegen.Target(FIXED)).body
    assert isinstance(body, For) and (body.var, body is nest) == ((i, False) if kind is Kind.UNROLLED else (j, True))
    inside = For(Var("o"), Const(2), For(Var("s"), Const(3), nest), Kind.UNROLLED)
    assert loops(order_unrolled(PrimFunc("main", (a, b), inside), codegen.Target(FIXED)).body)[2].var == body.var


def test_what_is_best_already_stays():
    target = codegen.Target(FIXED)
    func = codegen.lower(tile(4, 2, True).func, target, after="promote_registers")
    assert order_unrolled(func, target).body is func.body


def test_an_unrolled_sum_keeps_its_place():
    """The sum is added up in the order of its loop: k1 stays outermost, the loops of the tile change places."""
    s = Schedule(matmul(4, 15, 16))
    i, j, k = s.get_loops("C")
    j0, j1 = s.split(j, [None, 8])
    k0, k1 = s.split(k, [None, 3])
    s.reorder(k0, j0, k1, i, j1)
    s.decompose_reduction("C", k0)
    for loop in (i, j0, k1):
        s.unroll(loop)
    s.vectorize(j1)
    assert nests(s.func, "promote_registers") == [[j0, k1, i]]
    assert nests(s.func, "order_unrolled") == [[i, k1, j0]]
    same(s.func, reference=matmul(4, 15, 16))


@pytest.mark.parametrize("seed", range(20))
def test_live_counts_what_waits_for_another_round(seed):
    """Against the nest written out: values are live from their first use to their last."""
    rng = np.random.default_rng(seed)
    extents = rng.integers(2, 5, size=int(rng.integers(2, 5))).tolist()
    variables = [Var(f"u{n}") for n in range(len(extents))]
    nest = [For(v, Const(n), Seq(()), Kind.UNROLLED) for v, n in zip(variables, extents, strict=True)]
    used = [n for n in range(len(extents)) if rng.random() < 0.5]
    value = Load(Buffer("A", tuple(Const(9) for _ in used)), tuple(variables[n] for n in used))
    spans: dict[tuple[int, ...], list[int]] = {}
    for at, point in enumerate(itertools.product(*map(range, extents))):
        spans.setdefault(tuple(point[n] for n in used), []).append(at)
    assert live_loads(nest, {value}) == max(sum(s[0] <= at <= s[-1] for s in spans.values()) for at in range(prod(extents)))
