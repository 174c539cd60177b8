"""Bindings of a block as sums of loops: their terms, the conditions that bound them, and what is no such sum."""

from __future__ import annotations

import pytest

from schedule import ScheduleError
from schedule.legality.iter_map import (
    IterMap,
    IterTerm,
    PredicateBound,
    Unproved,
    iter_map,
    limited_sums,
    proving,
    split_fused_loops,
    upper_bound,
)
from tests.schedule.legality.nests import block, i, j, k, loops, n, opaque, reduce, spatial
from tir.arith.polynomial import polynomial, to_expr
from tir.ir import FALSE, NOTHING, Block, Const, Expr, For, Var


def mapped(b: Block, outer: list[For], inner: list[For]) -> IterMap:
    return iter_map(b, b.iters, outer, inner)


def refused(b: Block, outer: list[For], inner: list[For]) -> tuple[str, str | None]:
    """The reason and the hint."""
    with pytest.raises(Unproved) as caught:
        mapped(b, outer, inner)
    return str(caught.value), caught.value.hint


def test_terms_ascend_by_coefficient():
    found = mapped(block(spatial(40, j * 3 + i * 15 + k + 2)), loops(i=2, j=5), loops(k=3))
    assert found.terms == {"v0": [IterTerm("k", 1, 3, True), IterTerm("j", 3, 5, False), IterTerm("i", 15, 2, False)]}
    assert found.constants == {"v0": 2} and found.bounds == {"v0": []}
    found = mapped(block(spatial(7, j + i)), loops(i=3, j=5), [])  # then by extent
    assert [term.name for term in found.terms["v0"]] == ["i", "j"]


def test_each_axis_has_its_terms_and_bounds():
    found = mapped(block(spatial(5, j), reduce(3, k), spatial(7, i), where=(j < 4, i * 2 + 1 <= 9)), loops(i=7), loops(j=5, k=3))
    assert found.terms == {"v0": [IterTerm("j", 1, 5, True)], "v2": [IterTerm("i", 1, 7, False)]}
    assert found.constants == {"v0": 0, "v2": 0}
    assert found.bounds == {"v0": [PredicateBound(j, {"j": 1}, 4)], "v2": [PredicateBound(i * 2, {"i": 2}, 9)]}


def test_a_loop_of_one_iteration_has_no_term():
    found = mapped(block(spatial(7, i + j), where=(i + j < 6,)), loops(j=1), loops(i=7, k=1))
    assert found.terms == {"v0": [IterTerm("i", 1, 7, True)]}
    assert found.bounds == {"v0": [PredicateBound(i + j, {"i": 1}, 6)]}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_fused_loop_has_parts(dtype):
    f = Var("f", dtype)
    outer = [For(f, Const(35, dtype), NOTHING)]
    found = mapped(block(spatial(7, f // 5), spatial(5, f % 5), where=(f // 5 + 1 < 7,)), outer, [])
    assert found.terms == {"v0": [IterTerm("f.1", 1, 7, False)], "v1": [IterTerm("f.0", 1, 5, False)]}
    assert found.bounds == {"v0": [PredicateBound(f // 5, {"f.1": 1}, 6)], "v1": []}
    assert mapped(block(spatial(7, f // 5), spatial(5, f % 5)), [], outer).terms["v0"] == [IterTerm("f.1", 1, 7, True)]


@pytest.mark.parametrize("extent", [3, n])
@pytest.mark.parametrize("kind", [reduce, opaque])
def test_inner_loops_that_only_reduce_are_left_out(kind, extent):
    found = mapped(block(spatial(7, i), kind(3, k), where=(k < 2,)), loops(i=7), loops(k=extent))
    assert found.terms == {"v0": [IterTerm("i", 1, 7, False)]} and found.bounds == {"v0": []}


BEFORE_FUSE = "do this before the loops are fused"


@pytest.mark.parametrize(("axes", "reason", "hint"), [
    ([spatial(7, i), reduce(5, j)], "`j` is a loop of the reduction", "choose a place outside of `j`"),
    ([spatial(7, i), opaque(5, j)], "`j` is a loop of the reduction", "choose a place outside of `j`"),
    ([spatial(5, j), reduce(7, i + j)], "`i` is a loop of the reduction", "choose a place outside of `i`"),
    ([spatial(7, i), spatial(11, i + j)], "`v0` and `v1` move together", None),
    ([spatial(7, 6 - i), spatial(5, j)], "`v0` = `6 - i` is not a sum of loops", BEFORE_FUSE),
    ([spatial(25, i * j)], "`v0` = `i * j` is not a sum of loops", BEFORE_FUSE),
    ([spatial(7, (i * 5 + j) // 7)], "`v0` = `(i * 5 + j) // 7` is not a sum of loops", BEFORE_FUSE),
    ([spatial(9, i + j + k)], "`v0` = `i + j + k` is not a sum of loops", BEFORE_FUSE),
])  # fmt: skip
def test_bindings_that_are_refused(axes, reason, hint):
    assert refused(block(*axes), loops(i=7, j=5), []) == (reason, hint)


def test_inner_loops_have_one_role_and_constant_extents():
    b = block(spatial(7, i), spatial(5, j), reduce(9, k + j))
    assert refused(b, loops(i=7), loops(j=5, k=5)) == ("`j` is a loop of the reduction and of spatial axes as well", BEFORE_FUSE)
    for b in (block(spatial(n, i)), block(spatial(7, j), spatial(n, i), reduce(n, i))):
        assert refused(b, [], loops(i=n)) == ("the extent of `i` is not a constant", None)


@pytest.mark.parametrize(
    "binding", [i, i + j * 0, i + j - j, i + j // 5, i + j // 5 % 5, i + j % 1, i + j // 2, i + j % 2], ids=str
)
def test_a_loop_or_part_that_no_axis_needs_is_refused(binding):
    reason = "`j` repeats `B`"
    hint = "do this before `B` is moved under `j`, or choose a loop inside `j`"
    assert refused(block(spatial(9, binding)), loops(i=7, j=4), []) == (reason, hint)
    assert refused(block(spatial(9, binding)), loops(i=7), loops(j=4)) == (reason, hint)


@pytest.mark.parametrize(("condition", "reason", "hint"), [
    (i.not_equal(3), "the condition `i != 3` is not an upper bound", None),
    (FALSE, "the condition `T.bool(False)` is not an upper bound", None),
    (i >= 2, "the left of `i * -1 < -1` is not a sum of loops", BEFORE_FUSE),
    (i * j < 2, "the left of `i * j < 2` is not a sum of loops", BEFORE_FUSE),
    (i // 3 < 2, "the left of `i // 3 < 2` is not a sum of loops", BEFORE_FUSE),
    (i + j < 2, "the condition `i + j < 2` concerns several axes", None),
    (k + i < 5, "the condition `k + i < 5` concerns several axes", None),
    (k // 2 + i < 5, "the condition `k // 2 + i < 5` concerns several axes", None),
], ids=str)  # fmt: skip
def test_conditions_that_are_refused(condition, reason, hint):
    b = block(spatial(7, i), spatial(5, j), reduce(6, k), where=(condition,))
    assert refused(b, loops(i=7, j=5), loops(k=6)) == (reason, hint)


def test_a_proof_that_fails_is_a_refusal():
    with pytest.raises(ScheduleError) as caught, proving("that it is so", hint="the caller's"):
        raise Unproved("why")
    assert (caught.value.reason, caught.value.hint) == ("it cannot be shown that it is so: why", "the caller's")
    with pytest.raises(ScheduleError) as caught, proving("that it is so", hint="the caller's"):
        raise Unproved("why", "the proof's")
    assert caught.value.hint == "the proof's"


def limited(places: list[Expr], conditions: list[Expr], names: str) -> tuple[list[str], list[str], list[str]]:
    found, numbers, left = limited_sums([polynomial(p) for p in places], conditions, names)
    return [str(to_expr(p)) for p in found], [f"{to_expr(p)} < {x.extent}" for x, p in numbers], [str(c) for c in left]


def test_limited_sums_are_numbers():
    places, numbers, left = limited([i * 20 + j * 4 + k + 2, n], [j * 4 + k < 18, n + 1 <= 3], "jkn")
    assert places == ["i * 20 + limited.0 + 2", "limited.1"]
    assert numbers == ["j * 4 + k < 18", "n < 3"] and left == []
    assert limited([j + 1], [j < 3], "j") == (["limited.0 + 1"], ["j < 3"], [])
    assert limited([j, i + j], [j < 3], "j") == (["j", "i + j"], [], ["j < 3"])  # in two places


@pytest.mark.parametrize(("place", "condition"), [
    (i * 20 + j * 4 + k, i * 20 + j * 4 + k < 50),  # not of these loops alone
    (i * 20 + j * 4 + k, j + k < 5),  # another sum
    (j * 2 + j // 2, j * 2 < 5),  # `j` occurs elsewhere
    (j, k < 3),  # in no place
    (j, j >= 3),
    (j, j * j < 3),
    (j // 2, j // 2 < 3),
    (j, j.not_equal(3)),
    (j, Const(3) < 2),
], ids=str)  # fmt: skip
def test_conditions_that_limit_no_sum(place, condition):
    assert limited([place], [condition], "jk") == ([str(place)], [], [str(condition)])


def test_upper_bounds():
    conditions = (i * 4 + j < 7, i * 4 + j + 2 <= 7, i > j, i >= j)
    found = [f"{expr} < {bound}" for expr, bound in map(upper_bound, conditions)]
    assert found == ["i * 4 + j < 7", "i * 4 + j < 6", "j - i < 0", "j - i < 1"]
    assert upper_bound(i.equal(3)) is upper_bound(Var("x", "float32") < 3.0) is None


@pytest.mark.parametrize(("divided", "extent", "total", "extents"), [
    ([i // 5, i % 5], 35, "i.1 * 5 + i.0", [5, 7]),
    ([i // 12, i % 12 // 4], 24, "i.2 * 12 + (i.1 * 4 + i.0)", [4, 3, 2]),
    ([i // 12, i % 12 // 4], 12, "i.1 * 4 + i.0", [4, 3]),
    ([i // 5 // 2], 30, "i.2 * 10 + (i.1 * 5 + i.0)", [5, 2, 3]),
])  # fmt: skip
def test_parts_in_mixed_radix(divided, extent, total, extents):
    mapping, parts, ranges = split_fused_loops(divided, {i: extent, j: 7}, {"i": (0, extent - 1), "j": (0, 6)})
    assert {name: str(e) for name, e in mapping.items()} == {"i": total}
    names = [f"i.{number}" for number in range(len(extents))]
    assert parts == dict(zip(names, extents, strict=True))
    assert ranges == {"i": (0, extent - 1), "j": (0, 6), **{name: (0, e - 1) for name, e in parts.items()}}


@pytest.mark.parametrize("divided", [i % 12 + i // 8, i // 35, i // 40 % 2, n // 5, i, i // 3])
def test_loops_that_have_no_parts(divided):
    assert split_fused_loops([divided], {i: 35}, {"i": (0, 34)}) == ({}, {}, {"i": (0, 34)})
