"""Where blocks run: windows and conditions over their axes, also by enumeration of all iterations."""

from __future__ import annotations

from itertools import product

import pytest

from schedule.legality.axis_windows import AxisWindow
from schedule.legality.instances import covered_windows, instances, narrowed, writes_apart
from schedule.legality.iter_map import Unproved
from tests.schedule.legality.nests import block, i, iterations, j, k, loops, n, points, reduce, spatial, stored, t, v0
from tests.schedule.legality.programs import X, Y, located
from tir.arith.enumeration import evaluate
from tir.ir import FALSE, Block, Buffer, Const, Expr, For, Let, Load, Stmt, Store, Var, nest, seq

Z = Buffer("Z", (Const(9), Const(9)))


def found(b: Block, around: list[For], **sizes: int) -> tuple[dict, list[str], list[str]]:
    """Windows and conditions as text; enumeration says that the block runs where they say, and nowhere else if no condition on
    loops is among them."""
    box, kept, lost = instances(*located("B", nest(around, b)))
    domain = [range(int(evaluate(it.extent, sizes))) for it in b.iters]
    for size in sizes.values() or [0]:
        said = set()
        for place in product(*domain):
            at = {"n": size, **{it.var.name: value for it, value in zip(b.iters, place, strict=True)}}
            inside = all(0 <= at[v] - evaluate(w.start, at) < evaluate(w.extent, at) for v, w in box.items())
            if inside and all(evaluate(c, at) for c in kept):
                said.add(tuple(at[it.var.name] for it in b.spatial))
        runs = points(b, around, {"n": size})
        assert runs <= said if lost else runs == said
    return {v: (str(w.start), str(w.extent)) for v, w in box.items()}, [str(c) for c in kept], [str(c) for c in lost]


@pytest.mark.parametrize(("b", "extents"), [
    (block(spatial(7, i)), {"i": 7}),
    (block(spatial(7, 6 - i)), {"i": 7}),
    (block(spatial(13, i * 4 + j), where=(i * 4 + j < 13,)), {"i": 4, "j": 4}),
    (block(spatial(7, i // 5), spatial(5, i % 5)), {"i": 35}),
    (block(spatial(7, i), reduce(5, k)), {"i": 7, "k": 5, "j": 3}),
    (block(spatial(7, i + j)), {"j": 1, "i": 7}),
    (block(spatial(7, i + j), spatial(1, j)), {"j": 1, "i": 7}),
    (block(spatial(9, i + j)), {"j": 3, "i": 7}),
    (block(spatial(n, i)), {"i": n}),
])  # fmt: skip
def test_blocks_that_run_everywhere(b, extents):
    assert found(b, loops(**extents), n=6) == ({}, [], [])


@pytest.mark.parametrize(("b", "extents", "window", "conditions"), [
    (block(spatial(7, i)), {"i": 4}, ("0", "4"), ["v0 < 4"]),
    (block(spatial(7, i + 3)), {"i": 4}, ("3", "4"), ["v0 >= 3"]),
    (block(spatial(7, 6 - i)), {"i": 5}, ("2", "5"), ["v0 >= 2"]),
    (block(spatial(7, i + 2)), {"i": 4}, ("2", "4"), ["v0 >= 2", "v0 < 6"]),
    (block(spatial(7, i), where=(i >= 2,)), {"i": 7}, ("2", "5"), ["v0 >= 2", "v0 >= 2"]),
    (block(spatial(7, i), where=(i < 5,)), {"i": 7}, ("0", "5"), ["v0 < 5", "v0 < 5"]),
    (block(spatial(n + 3, i)), {"i": n}, ("0", "n"), ["v0 < n"]),
    (block(spatial(n + 3, i + 2)), {"i": n}, ("2", "n"), ["v0 >= 2", "v0 < n + 2"]),
    (block(spatial(n + 3, i), where=(i >= 2,)), {"i": n}, ("0", "n"), ["v0 >= 2", "v0 < n"]),
    (block(spatial(n + 3, i), where=(i <= 2,)), {"i": n}, ("0", "n"), ["v0 <= 2", "v0 < n"]),
    (block(spatial(7, i)), {"i": (n + 3) // 4}, ("0", "(n + 3) // 4"), ["v0 < (n + 3) // 4"]),
])  # fmt: skip
def test_ends_that_loops_leave_out(b, extents, window, conditions):
    assert found(b, loops(**extents), n=6) == ({"v0": window}, conditions, [])


@pytest.mark.parametrize(("b", "extents", "kept", "lost"), [
    (block(spatial(7, i), spatial(7, j)), {"i": 7, "j": i + 1}, ["v1 < v0 + 1"], []),
    (block(spatial(7, i)), {"i": 7, "j": i}, ["v0 >= 1"], []),
    (block(spatial(7, i), where=(FALSE,)), {"i": 7}, ["T.bool(False)"], []),
    (block(spatial(7, i)), {"i": 7, "j": 0}, ["T.bool(False)"], []),
    (block(spatial(7, i)), {"i": 7, "j": n}, [], ["n >= 1"]),
    (block(spatial(7, i * 2)), {"i": 4}, [], ["v0 == i * 2"]),
    (block(spatial(25, i * j)), {"i": 5, "j": 5}, [], ["v0 == i * j"]),
    (block(spatial(n, n - 1 - i)), {"i": n}, [], ["v0 == n - 1 - i"]),
    (block(spatial(7, i), spatial(7, i)), {"i": 7}, [], ["v1 == i"]),
    (block(spatial(16, i * 4 + j), where=(j < 3,)), {"i": 4, "j": 4}, [], ["j < 3"]),
    (block(spatial(7, i // 5), spatial(5, i % 5), where=(i < 33,)), {"i": 35}, [], ["i < 33"]),
])  # fmt: skip
def test_conditions_without_windows(b, extents, kept, lost):
    assert found(b, loops(**extents), n=6) == ({}, kept, lost)


def apart(first: Store, second: Stmt, where: tuple[Expr, ...] = (), other: tuple[Expr, ...] = ()) -> bool:
    """The answer for the blocks `B` and `C` over `i`, the first under some conditions, the second under `other` ones."""
    b = block(spatial(9, i), body=first, where=where)
    c = block(spatial(9, i), body=second, where=other, name="C")
    scope, leaf = located("B", nest([(i, 9)], b), nest([(i, 9)], c))
    return writes_apart(scope, leaf, scope.leaves[1])


@pytest.mark.parametrize(("first", "second", "where", "other"), [
    (stored(X, v0), stored(X, v0), (i < 5,), (i >= 5,)),
    (stored(X, v0), stored(X, v0 + 5), (i < 5,), ()),
    (stored(X, v0), stored(X, v0 + 3), (i < 5,), (i >= 2,)),
    (stored(X, v0 + 5), stored(X, v0), (), (i <= 4,)),
    (stored(Z, 0, v0), stored(Z, 1, v0), (), ()),
    (stored(Z, v0, 0), stored(Z, v0 + 5, v0), (i < 5,), ()),
    (stored(Z, v0, 1), stored(Z, v0, v0 + 2), (), ()),
    (stored(X, v0), stored(Y, v0), (), ()),
    (stored(X, v0), stored(X, v0), (FALSE,), ()),
])  # fmt: skip
def test_writes_that_are_apart(first, second, where, other):
    assert apart(first, second, where, other)


@pytest.mark.parametrize(("first", "second", "where", "other"), [
    (stored(X, v0), stored(X, v0), (), ()),
    (stored(X, v0), stored(X, v0), (i < 5,), (i >= 4,)),
    (stored(X, v0), stored(X, v0 + 4), (i < 5,), ()),
    (stored(X, v0 + 1), stored(X, v0), (i < 5,), (i >= 5,)),
    (stored(Z, v0, 1), stored(Z, v0, v0 + 1), (), ()),
    (stored(X, v0), Let(t, v0, stored(X, t)), (i < 5,), (i >= 5,)),
    (stored(X, v0), seq(stored(X, v0 + 5), stored(X, v0 + 4)), (i < 5,), ()),
    (stored(X, v0, value=Load(X, (v0 + 1,))), stored(X, v0 + 5), (i < 5,), ()),
    (stored(X, v0), seq(stored(X, v0), stored(Y, v0)), (i < 5,), ()),
])  # fmt: skip
def test_writes_that_may_meet(first, second, where, other):
    assert not apart(first, second, where, other)


def test_statements_outside_of_blocks_may_meet_any():
    scope, leaf = located("B", nest([(i, 9)], block(spatial(9, i), body=stored(X, v0), where=(i < 5,))), stored(X, 7))
    assert not writes_apart(scope, leaf, scope.leaves[1])


def covered(b: Block, outer: list[For], inner: list[For], **sizes: int) -> list[tuple[str, str]]:
    """The windows as text; enumeration says that the block runs at all their points that are in its domain."""
    windows = covered_windows(b, outer, inner)
    whole = set(product(*(range(int(evaluate(it.extent, sizes))) for it in b.spatial)))
    for at in iterations(outer, sizes):
        edges = [(int(evaluate(w.start, at)), int(evaluate(w.extent, at))) for it in b.spatial for w in [windows[it.var.name]]]
        assert set(product(*(range(start, start + extent) for start, extent in edges))) & whole == points(b, inner, at) & whole
    return [(str(windows[it.var.name].start), str(windows[it.var.name].extent)) for it in b.spatial]


@pytest.mark.parametrize(("b", "inner", "expected"), [
    (block(spatial(9, i + j)), {"j": 3}, [("i", "3")]),
    (block(spatial(16, i * 2 + j)), {"j": 3}, [("i * 2", "3")]),
    (block(spatial(8, i + j), where=(i + j < 8,)), {"j": 3}, [("i", "3")]),
    (block(spatial(12, i + j * 4 + k), where=(j * 4 + k < 6,)), {"j": 2, "k": 4}, [("i", "6")]),
    (block(spatial(14, i + j * 4 + k), where=(j * 4 + k < 60,)), {"j": 2, "k": 4}, [("i", "8")]),
    (block(spatial(7, i), spatial(5, j), reduce(3, k)), {"j": 5, "k": 3}, [("i", "1"), ("0", "5")]),
    (block(spatial(n, j), spatial(10, i + k)), {"j": n, "k": 4}, [("0", "n"), ("i", "4")]),
])  # fmt: skip
def test_windows_that_may_overlap(b, inner, expected):
    assert covered(b, loops(i=7), loops(**inner), n=5) == expected


@pytest.mark.parametrize(("b", "inner", "reason"), [
    (block(spatial(15, i + j * 2)), {"j": 5}, "`v0` = `i + j * 2` skips values"),
    (block(spatial(9, i), spatial(5, j), spatial(5, j)), {"j": 5}, "`v2` = `j` skips values"),
    (block(spatial(9, i)), {"j": 5}, "`j` repeats `B`"),
    (block(spatial(11, i + j), reduce(5, j)), {"j": 5}, "`j` is a loop of the reduction and of spatial axes as well"),
    (block(spatial(16, i + j * 4 + k), where=(j * 4 + k < 6,)), {"j": 2, "k": 3}, "`j * 4 + k` skips values"),
    (block(spatial(11, i + j), where=(j < 3,)), {"j": n}, "`j` skips values"),
    (block(spatial(11, i + j), where=(j <= i,)), {"j": 5}, "it is left out unless `j <= i`"),
    (block(spatial(11, i + j), where=(j <= i, j > 1)), {"j": 5}, "it is left out unless `j <= i`"),
    (block(spatial(7, i), reduce(5, k)), {"k": i + 1}, "it is left out unless `k < i + 1`"),
    (block(spatial(14, i + j), reduce(5, k)), {"j": 3, "k": j + 1}, "it is left out unless `k < j + 1`"),
])  # fmt: skip
def test_windows_with_gaps(b, inner, reason):
    with pytest.raises(Unproved) as caught:
        covered_windows(b, loops(i=7), loops(**inner))
    assert str(caught.value) == reason


def test_windows_are_as_wide_as_their_axes():
    f = Var("f", "int64")
    b = block(spatial(Const(9, "int64"), f + 2))
    assert covered_windows(b, [], loops(f=Const(4, "int64")))["v0"] == AxisWindow(Const(2, "int64"), Const(4, "int64"))


def test_ranges_are_narrowed():
    ranges = {"i": (0, 6), "j": (0, None), "k": (None, None)}
    assert narrowed(ranges, [i < 5, i >= 2, j < 3, k > 4]) == {"i": (2, 4), "j": (0, 2), "k": (5, None)}
    assert narrowed(ranges, [i < 9, i > -2, i * 2 < 5, i + j < 3, n < 3, -n < 3, i.not_equal(0), i.equal(0)]) == ranges
