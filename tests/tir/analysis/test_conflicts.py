"""Searches for two iterations that touch one element."""

from __future__ import annotations

import pytest

from tir.analysis.conflicts import Conflict, Disjoint, first_conflict, touched_elements, within
from tir.analysis.context import Access
from tir.ir import NOTHING as body
from tir.ir import Buffer, Const, Expr, For, Var

n, i, j = Var("n"), Var("i"), Var("j")


def access(index: Expr, is_store: bool = True, size: Expr | int = 13, **fields) -> Access:
    return Access(Buffer("B", (size if isinstance(size, Expr) else Const(size),)), (index,), is_store, **fields)


def loop(var: Var, extent: Expr | int) -> For:
    return For(var, extent if isinstance(extent, Expr) else Const(extent), body)


@pytest.mark.parametrize("size", [13, n])
def test_the_first_conflict_is_that_of_the_earliest_iterations(size):
    """Also of a buffer whose size is open."""
    found = first_conflict([access(i // 3, size=size), access(12 - i, False, size)], {"i": 13}, {})
    assert isinstance(found, Conflict)
    assert (found.element, found.first, found.second, found.access.is_store) == ((0,), {"i": 0}, {"i": 1}, True)
    assert str(found) == "i=0 writes B[0], and i=1 writes it too"


def test_a_read_is_a_conflict_with_a_write_alone():
    assert first_conflict([access(i // 3, False)], {"i": 13}, {}) == Disjoint()
    found = first_conflict([access(i), access(i + 1, False)], {"i": 7}, {})
    assert str(found) == "i=1 writes B[1], and i=0 reads it too"


def test_iterations_of_other_outer_loops_are_apart():
    assert first_conflict([access(i + j)], {"i": 7}, {"j": 13}) == Disjoint()
    assert isinstance(first_conflict([access(i + j)], {"j": 13, "i": 7}, {}), Conflict)


def test_what_is_not_certain_is_not_found():
    loaded = Buffer("A", (Const(7),))[i]
    assert first_conflict([access(i % 2, conditions=(loaded > 0.0,))], {"i": 7}, {}) is None
    assert first_conflict([access(i % 2)], {"i": None}, {}) is None


def test_no_iterations_are_no_conflict():
    assert first_conflict([access(Const(0))], {"i": 0}, {}) == Disjoint()
    assert isinstance(first_conflict([access(Const(0), size=1)], {"i": 2}, {}), Conflict)


def test_a_loop_whose_end_is_another_loop():
    """A triangle: j runs below i + 1, seven iterations of i."""
    placed = within(access(i * 7 + j, size=49), [loop(i, 7), loop(j, i + 1)], [])
    points, (elements,) = touched_elements(placed, {})
    assert points.whole and points.certain and elements.tolist() == [7 * a + b for a in range(7) for b in range(a + 1)]
