"""Every claim that two accesses never meet is tried on all pairs of iterations."""

from itertools import product

import numpy as np
import pytest

from tir.analysis.dependence import Instances, _never_zero, conflicts, units
from tir.arith.enumeration import evaluate
from tir.ir import Const, Evaluate, Expr, For, Var
from tir.script import parse


def loop(name: str, extent: int) -> For:
    return For(Var(name), Const(extent), Evaluate(Const(0)))


def random_index(rng: np.random.Generator, names: list[str]) -> Expr:
    result: Expr = Const(int(rng.integers(0, 3)))
    for name in names:
        if rng.random() < 0.7:
            term: Expr = Var(name)
            kind = rng.integers(0, 4)
            if kind == 1:
                term = term // int(rng.integers(2, 5))
            elif kind == 2:
                term = term % int(rng.integers(2, 5))
            elif kind == 3:
                term = term // 2 % int(rng.integers(2, 4))
            result = result + term * int(rng.integers(1, 6))
    return result


@pytest.mark.parametrize("seed", range(60))
def test_distinct_is_sound(seed):
    rng = np.random.default_rng(seed)
    names = ["a", "b", "c"]
    extents = {n: int(rng.integers(1, 7)) for n in names}
    loops = {n: loop(n, extents[n]) for n in names}
    first = tuple(random_index(rng, names) for _ in range(2))
    second = first if rng.random() < 0.5 else tuple(random_index(rng, names) for _ in range(2))
    instances = Instances([], [loops["a"], loops["b"]], [loops["c"]], [first, second])
    points = [dict(zip(names, p, strict=True)) for p in product(*(range(extents[n]) for n in names))]
    places = [[tuple(evaluate(e, p) for e in ix) for p in points] for ix in (first, second)]
    holds = {"<": int.__lt__, ">": int.__gt__, "=": int.__eq__, "*": lambda x, y: True}
    for ra, rb in product("<>=*", repeat=2):
        if instances.distinct(first, second, {"a": ra, "b": rb}):
            for p, x in zip(points, places[0], strict=True):
                for q, y in zip(points, places[1], strict=True):
                    related = holds[ra](p["a"], q["a"]) and holds[rb](p["b"], q["b"])
                    assert not (related and x == y), f"{list(map(str, first))} at {p} meets {list(map(str, second))} at {q}"


def test_mixed_radix_is_seen():
    a, b, c = Var("a"), Var("b"), Var("c")
    nest = [loop("a", 5), loop("b", 4)]
    inner = [loop("c", 3)]
    for place in [
        (a * 12 + b * 3 + c,),
        (b * 15 + a * 3 + c,),
        (c * 20 + a * 4 + b,),
        ((a * 4 + b) // 3, (a * 4 + b) % 3, c),
        ((a * 4 + b) // 6 * 2 + c % 2, (a * 4 + b) % 6),
        ((a * 4 + b) // 15, (a * 4 + b) // 5 % 3, (a * 4 + b) % 5 * 3 + c),
    ]:
        instances = Instances([], nest, inner, [place])
        for relation in ({"a": "<", "b": "*"}, {"a": "=", "b": ">"}, {"a": "<", "b": ">"}):
            assert instances.distinct(place, place, relation), list(map(str, place))


def test_fused_loop_is_split_into_parts():
    f, c = Var("f"), Var("c")
    place, other = (f // 6 * 3 + c, f % 6), (f // 6 * 3 + 2, f % 6)
    instances = Instances([], [loop("f", 30)], [loop("c", 3)], [place, other])
    for relation in "<>":
        assert instances.distinct(place, place, {"f": relation})
        assert instances.distinct(place, other, {"f": relation})


@pytest.mark.parametrize("seed", range(200))
def test_never_zero_is_sound(seed):
    rng = np.random.default_rng(seed)
    const = int(rng.integers(-8, 9))
    coefficients = sorted(int(c) for c in rng.integers(1, 9, rng.integers(1, 4)))
    ranges = [(lo, lo + int(rng.integers(0, 4))) for lo in map(int, rng.integers(-3, 4, len(coefficients)))]
    terms = [(c, c * lo, c * hi) for c, (lo, hi) in zip(coefficients, ranges, strict=True)]
    if _never_zero(const, terms):
        for values in product(*(range(lo, hi + 1) for lo, hi in ranges)):
            assert const + sum(c * v for c, v in zip(coefficients, values, strict=True)) != 0


def test_conflicts_need_a_write_and_a_buffer_of_both():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((7,), "float32"), B: T.Buffer((7,), "float32"), C: T.Buffer((7,), "float32")):
    for i in range(7):
        with T.block("B"):
            v_i = T.axis.spatial(7, i)
            B[v_i] = A[v_i]
        with T.block("C"):
            v_i = T.axis.spatial(7, i)
            C[v_i] = A[v_i] + B[v_i]
        C[i] = C[i] + A[i]
""")
    parts = units(func.body)

    def found(*given):
        return [(n, m, [(x.verb, y.verb, x.buffer.name) for x, y in pairs]) for n, m, pairs in conflicts(*given)]

    itself = [("reads", "writes", "C"), ("writes", "reads", "C"), ("writes", "writes", "C")]
    again = [("writes", "reads", "C"), ("writes", "writes", "C")]
    assert found(set(), parts) == [(0, 1, [("writes", "reads", "B")]), (1, 2, again), (2, 2, itself)]
    assert found({"C"}, parts) == [(0, 1, [("writes", "reads", "B")])]
    assert found(set(), parts[1:2], parts) == [(0, 0, [("reads", "writes", "B")]), (0, 1, again[1:]), (0, 2, again)]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices_of_a_dtype(dtype):
    tile = For(Var("tile", dtype), Var("n", dtype), Evaluate(Const(0)))
    first, second = (For(Var(name, dtype), Const(4, dtype), Evaluate(Const(0))) for name in ("row", "other"))
    written, read = ((tile.var * 4 + row.var,) for row in (first, second))
    instances = Instances([], [tile], [first, second], [written, read])
    assert instances.distinct(written, read, {"tile": "<"}) and instances.distinct(written, read, {"tile": ">"})
