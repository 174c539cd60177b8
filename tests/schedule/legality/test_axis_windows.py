"""Windows: which values of its axes a block takes in an iteration of its outer loops, also by enumeration of all of them."""

from __future__ import annotations

from itertools import product

import pytest

from schedule.legality.axis_windows import (
    AxisWindow,
    TiledIndex,
    axes_with_own_loop,
    in_elements,
    need_distinct,
    partial_windows,
    windows,
    written_indices,
)
from schedule.legality.iter_map import Unproved
from tests.schedule.legality.nests import block, i, iterations, j, k, loops, n, opaque, points, reduce, spatial, stored, v0, v1
from tir.arith.enumeration import evaluate
from tir.ir import Block, Buffer, Const, For, If, Let, Load, Stmt, Store, Var, seq

X, t, u = Buffer("X", (Const(40), Const(40))), Var("t"), Var("u")


def plain(window: AxisWindow) -> tuple:
    """A window as text, followed by its limits."""
    return str(window.start), str(window.extent), *((str(base), scale, bound) for base, scale, bound in window.limits)


def values(window: AxisWindow, at: dict[str, int]) -> set[int]:
    """The values of a window in an iteration of the loops around."""
    start, extent = (int(evaluate(e, at)) for e in (window.start, window.extent))
    return {start + t for t in range(extent) if all(evaluate(c, at) for c in window.conditions(Const(t)))}


def tiling(b: Block, outer: list[For], inner: list[For], facts=None, **sizes: int) -> list[tuple]:
    """The windows of a block, of which enumeration says that they are where it runs, and that each point has one iteration."""
    found = windows(b, outer, inner, facts)
    whole = set(product(*(range(int(evaluate(it.extent, sizes))) for it in b.spatial)))
    seen = set()
    for at in iterations(outer, sizes):
        here = points(b, inner, at)
        assert here == set(product(*(values(found[it.var.name], at) for it in b.spatial))) & whole
        assert not here & seen
        seen |= here
    assert seen == whole
    return [plain(found[it.var.name]) for it in b.spatial]


def refused(b: Block, outer: list[For], inner: list[For], facts=None) -> str:
    with pytest.raises(Unproved) as caught:
        windows(b, outer, inner, facts)
    return str(caught.value)


ROWS = block(spatial(30, i * 15 + j * 5 + k))


def test_a_window_is_what_the_inner_loops_add():
    nest = loops(i=2, j=3, k=5)
    expected = [("0", "30"), ("i * 15", "15"), ("i * 15 + j * 5", "5"), ("i * 15 + j * 5 + k", "1")]
    assert [tiling(ROWS, nest[:level], nest[level:]) for level in range(4)] == [[window] for window in expected]
    assert tiling(ROWS, nest[1::-1], nest[2:]) == expected[2:3]  # the order of the loops does not matter


def test_the_inner_loops_have_the_smallest_steps():
    with pytest.raises(Unproved) as caught:
        windows(ROWS, loops(k=5), loops(i=2, j=3))
    assert str(caught.value) == "`v0` = `i * 15 + j * 5 + k` takes values that are not contiguous in an iteration of the loop"
    assert caught.value.hint == "reorder first, so that the inner ones of the loops of `v0` have the smallest steps"


@pytest.mark.parametrize("extent", [13, n])
def test_loops_of_their_own_need_no_constants(extent):
    b = block(spatial(extent, i), spatial(5, j), reduce(3, k))
    assert tiling(b, loops(i=extent), loops(j=5, k=3), n=7) == [("i", "1"), ("0", "5")]
    assert tiling(b, [], loops(i=extent, j=5, k=n), n=7) == [("0", str(extent)), ("0", "5")]


def test_axes_of_a_fused_loop():
    b = block(spatial(7, i // 5), spatial(5, i % 5), spatial(3, j))
    assert tiling(b, loops(i=35), loops(j=3)) == [("i // 5", "1"), ("i % 5", "1"), ("0", "3")]
    assert tiling(b, loops(j=3), loops(i=35)) == [("0", "7"), ("0", "5"), ("j", "1")]


@pytest.mark.parametrize(("extent", "where", "expected"), [
    (24, (), ("i * 8", "8")),
    (24, (i * 8 + j * 4 + k < 24,), ("i * 8", "8")),  # always
    (23, (i * 8 + j * 4 + k < 23,), ("i * 8", "8", ("i * 8", 1, 23))),
    (23, (i * 8 + j * 4 + k <= 22, i * 2 + j < 6), ("i * 8", "8", ("i * 8", 1, 23))),
    (20, (i * 2 + j < 5,), ("i * 8", "8", ("i * 2", 4, 5))),
    (19, (i * 2 + j < 5, i * 8 + j * 4 + k < 19), ("i * 8", "8", ("i * 8", 1, 19))),
    (20, (i * 2 + j < 5, i * 8 + j * 4 + k < 23), ("i * 8", "8", ("i * 2", 4, 5))),
    (16, (i < 2,), ("i * 8", "8", ("i", 8, 2))),
])  # fmt: skip
def test_a_condition_that_cuts_the_last_window(extent, where, expected):
    assert tiling(block(spatial(extent, i * 8 + j * 4 + k), where=where), loops(i=3), loops(j=2, k=4)) == [expected]


@pytest.mark.parametrize(
    ("b", "outer", "inner", "expected"),
    [
        (block(spatial(9, i * 3 + j), where=(j < 3,)), {"i": 3}, {"j": 4}, ("i * 3", "3")),
        (block(spatial(8, i * 3 + j), where=(j < 3, i * 3 + j < 8)), {"i": 3}, {"j": 4}, ("i * 3", "3", ("i * 3", 1, 8))),
        (block(spatial(9, i * 3 + j), where=(j < 3,)), {"i": 3, "j": 4}, {}, ("i * 3 + j", "1", ("j", 1, 3))),
        (block(spatial(16, i * 6 + j * 2 + k), where=(i * 3 + j < 8,)), {"i": 3, "j": 3}, {"k": 2}, ("i * 6 + j * 2", "2", ("i * 3 + j", 2, 8))),
        (block(spatial(12, i * 6 + j * 2 + k), where=(i < 2,)), {"i": 3, "j": 3}, {"k": 2}, ("i * 6 + j * 2", "2", ("i", 2, 2))),
    ],
)  # fmt: skip
def test_a_condition_that_cuts_each_window_or_whole_ones(b, outer, inner, expected):
    assert tiling(b, loops(**outer), loops(**inner)) == [expected]


@pytest.mark.parametrize(
    ("b", "reason"),
    [
        (block(spatial(17, i * 4 + j + 2)), "`v0` starts at 2"),
        (block(spatial(n, i * 4 + j)), "the extent of `v0` is not a constant"),
        (block(spatial(23, i * 5 + j)), "`v0` = `i * 5 + j` skips values"),
        (block(spatial(13, i * 3 + j)), "`v0` = `i * 3 + j` repeats values"),
        (block(spatial(19, i * 4 + j)), "`v0` = `i * 4 + j` takes 20 values of 19"),
        (block(spatial(20, i * 4 + j), where=(i < 3,)), "`v0` = `i * 4 + j` takes 12 values of 20"),
        (block(spatial(20, i * 4 + j), where=(i * 2 < 9,)), "the condition `i * 2 < 9` is not one on the leading part of `v0`"),
        (block(spatial(20, i * 4 + j), where=(i + j < 5,)), "the condition `i + j < 5` is not one on the leading part of `v0`"),
        (block(spatial(5, i), spatial(4, j), where=(j < 3,)), "`v1` = `j` takes 3 values of 4"),
        (block(spatial(5, i), spatial(7, j)), "`v1` = `j` takes 4 values of 7"),
        (block(spatial(5, i), spatial(4, j * 0)), "`j` repeats `B`"),
    ],
)  # fmt: skip
def test_what_are_no_windows(b, reason):
    assert refused(b, loops(i=5), loops(j=4)) == reason


MULTIPLE = (n % 4).equal(0)
LAST = (n + 3) // 4  # iterations, the last of which may be cut


@pytest.mark.parametrize(("b", "outer", "inner", "facts", "expected"), [
    (block(spatial(n, i * 4 + j)), {"i": n // 4}, {"j": 4}, [MULTIPLE], ("i * 4", "4")),
    (block(spatial(n, i * 4 + j), where=(i * 4 + j < n,)), {"i": LAST}, {"j": 4}, [], ("i * 4", "4")),
    (block(spatial(n, i * 4 + j), where=(i * 4 + j < n,)), {}, {"i": LAST, "j": 4}, [], ("0", "n")),
    (block(spatial(n, i * 4 + j), where=(i * 4 + j < n,)), {"i": LAST, "j": 4}, {}, [], ("i * 4 + j", "1")),
    (block(spatial(n, i), where=(i < n,)), {"i": 20}, {}, [n <= 20], ("i", "1")),
])  # fmt: skip
def test_windows_of_symbolic_extent(b, outer, inner, facts, expected):
    for size in (8,) if MULTIPLE in facts else (1, 7, 8):
        assert tiling(b, loops(**outer), loops(**inner), facts, n=size) == [expected]


def test_other_axes_and_loops_beside_those_of_symbolic_extent():
    b = block(reduce(3, k), spatial(n, i * 4 + j), spatial(5, u), where=(i * 4 + j < n, u < 5))
    assert tiling(b, loops(i=LAST, u=7), loops(j=4, k=3), [], n=7) == [("i * 4", "4"), ("u", "1", ("u", 1, 5))]
    assert refused(block(spatial(n, i + j * 0)), loops(i=n, j=4), [], []) == "`j` repeats `B`"


FUSED = loops(i=n * 12)


@pytest.mark.parametrize(("b", "outer", "inner", "facts"), [
    (block(spatial(n, i * 4 + j)), loops(i=n // 4), loops(j=4), []),  # 4 may not divide n
    (block(spatial(n, i * 4 + j)), loops(i=n // 4), loops(j=4), None),
    (block(spatial(n, i * 4 + j)), loops(j=4), loops(i=n // 4), [MULTIPLE]),  # not contiguous
    (block(spatial(n, i * 4 + j), where=(i * 4 + j < n - 1,)), loops(i=LAST), loops(j=4), []),
    (block(spatial(n, i * 5 + j), where=(i * 5 + j < n,)), loops(i=LAST), loops(j=4), []),
    (block(spatial(n, i * 4 + j), spatial(4, j), where=(i * 4 + j < n,)), loops(i=LAST), loops(j=4), []),
    (block(spatial(n * 3, j * n + i)), loops(j=3), loops(i=n), []),
    (block(spatial(n * 3, i // 4), spatial(4, i % 4)), FUSED, [], None),
    (block(spatial(n // 4, i // 4), spatial(4, i % 4)), loops(i=n), [], []),
    (block(spatial(n * 3, i // 4), spatial(12, i % 6)), FUSED, [], []),
])  # fmt: skip
def test_what_are_no_windows_of_symbolic_extent(b, outer, inner, facts):
    assert refused(b, outer, inner, facts) == "the extent of `i` is not a constant"


def test_a_fused_loop_of_symbolic_extent():
    b = block(spatial(n, i // 15), spatial(3, i // 5 % 3), spatial(5, i % 5), spatial(2, j))
    rows = loops(i=n * 15)
    assert tiling(b, rows, loops(j=2), [], n=2) == [("i // 15", "1"), ("i // 5 % 3", "1"), ("i % 5", "1"), ("0", "2")]
    assert tiling(b, loops(j=2), rows, [], n=2) == [("0", "n"), ("0", "3"), ("0", "5"), ("j", "1")]
    cut = block(spatial(n, i // 5), spatial(4, i % 5), where=(i % 5 < 4,))
    assert tiling(cut, loops(i=n * 5), [], [], n=3) == [("i // 5", "1"), ("i % 5", "1", ("i % 5", 1, 4))]
    divided = block(spatial(n // 4, i // 4), spatial(4, i % 4))
    assert tiling(divided, loops(i=n), [], [MULTIPLE], n=12) == [("i // 4", "1"), ("i % 4", "1")]


def test_windows_under_conditions_that_leave_out_points():
    b = block(spatial(13, i * 4 + j), where=(i * 4 + j < 13, i.not_equal(j)))
    found = partial_windows(b, loops(i=4), loops(j=4))
    assert plain(found["v0"]) == ("i * 4", "4", ("i * 4", 1, 13))
    whole = block(spatial(16, i * 4 + j))
    assert partial_windows(whole, loops(i=4), loops(j=4)) == windows(whole, loops(i=4), loops(j=4))
    with pytest.raises(Unproved) as caught:
        partial_windows(block(spatial(7, i * 4 + j), where=(i.not_equal(j),)), loops(i=4), loops(j=4))
    assert str(caught.value) == "the condition `i != j` is not an upper bound"


@pytest.mark.parametrize(("axes", "reason"), [
    ([spatial(7, i), reduce(9, k)], "`j` repeats `B`"),
    ([spatial(7, i), spatial(5, j), reduce(9, k + j)], "`j` is a loop of the reduction and of spatial axes as well"),
    ([spatial(7, i), reduce(9, k * 2 + j)], "steps of the reduction may be counted more than once"),
    ([spatial(7, i), reduce(9, j * 0), opaque(3, k)], "steps of the reduction may be counted more than once"),
    ([spatial(12, i + j), reduce(3, k)], "values of the spatial axes may come more than once"),
])  # fmt: skip
def test_points_that_are_visited_twice(axes, reason):
    with pytest.raises(Unproved) as caught:
        need_distinct(block(*axes), loops(i=7, j=5, k=3))
    assert str(caught.value) == reason
    need_distinct(block(spatial(35, i * 5 + j), reduce(3, k)), loops(i=7, j=5, k=3))
    need_distinct(block(spatial(12, i + j), reduce(3, k)), loops(j=5, k=3))  # `i` is fixed


def test_axes_with_a_loop_of_their_own():
    b = block(spatial(7, i), spatial(5, j), reduce(3, k), spatial(9, j * 2), spatial(4, u), spatial(4, 3 - t))
    own = axes_with_own_loop(b, loops(i=7, j=5, k=3, t=4))
    assert {name: loop.name for name, loop in own.items()} == {"v0": "i"}


def written(body: Stmt) -> list[list[TiledIndex | None]]:
    return written_indices(block(spatial(7, i), spatial(5, j), reduce(3, k), body=body), "X")


ZERO = Const(0)


@pytest.mark.parametrize(("index", "expected"), [
    (v0, TiledIndex("v0", 1, ZERO)),
    (v1 + 3, TiledIndex("v1", 1, Const(3))),
    (v1 + i * 4, TiledIndex("v1", 1, i * 4)),
    (Const(5), TiledIndex(None, 1, Const(5))),
    (t + 2, TiledIndex(None, 4, Const(2))),
    (v0 * 4 + t, TiledIndex("v0", 4, ZERO)),
    (v0 * 8 + u * 4 + t + n, TiledIndex("v0", 8, n)),
    (v0 * 4, None),  # with gaps
    (v0 * 5 + t, None),
    (v0 * 8 + u + t, None),
    (v0 + v1, None),
    (v0 * v1, None),
    (v0 + Var("v2"), None),  # an axis of the reduction
    (v0 + Buffer("Y", (Const(7),), "int32")[0], None),
], ids=str)  # fmt: skip
def test_written_indices(index, expected):
    found = written(For(u, Const(2), For(t, Const(4), stored(X, index, Const(0)))))
    assert found == [[expected, TiledIndex(None, 1, ZERO)]]


def test_stores_whose_tiles_have_gaps():
    row, tile = TiledIndex("v0", 1, ZERO), TiledIndex(None, 4, ZERO)
    for body, found in (
        (stored(X, v0, t), [row, tile]),
        (stored(X, t, t), [None, None]),
        (If(t < 3, stored(X, v0, t)), [row, None]),
    ):
        assert written(For(t, Const(4), body)) == [found]
    assert written(For(t, n, stored(X, v0, t))) == [[row, None]]


def test_every_store_to_the_buffer():
    other = Store(Buffer("Y", (Const(7),)), (v1,), Load(X, (v1, v1)))
    b = block(spatial(7, i), spatial(5, j), body=seq(stored(X, v0, v1), other, Let(t, v0 + 1, stored(X, t, v0))))
    row, column, next_row = TiledIndex("v0", 1, ZERO), TiledIndex("v1", 1, ZERO), TiledIndex("v0", 1, Const(1))
    assert written_indices(b.with_(init=stored(X, v1, v0)), "X") == [[column, row], [row, column], [next_row, row]]


def test_windows_in_elements():
    window = AxisWindow(i * 4, Const(4), ((i * 4, 1, 13),))
    assert in_elements(window, TiledIndex("v0", 1, ZERO)) == window
    assert plain(in_elements(window, TiledIndex("v0", 1, Const(-1)))) == ("i * 4 - 1", "4", ("i * 4", 1, 13))
    assert plain(in_elements(window, TiledIndex("v0", 8, j))) == ("i * 32 + j", "32", ("i * 4", 8, 13))
