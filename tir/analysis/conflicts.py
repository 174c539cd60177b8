"""Iterations that touch one element: disproved by polynomials, or found by enumeration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arith.bounds import extent_range, ranges_of
from ..arith.enumeration import MAX_POINTS, Points, as_rows, distinct_rows, enumerate_points
from ..arith.injectivity import determined
from ..arith.intervals import Interval, polynomial_bounds
from ..arith.polynomial import Polynomial, add, constant, names_in, polynomial, split_terms
from ..arith.simplify import simplify
from ..ir import Const, For, Var
from ..traverse import variables
from .context import Access
from .program_points import Extents, IterationScope, constant_extents

_REST = "<rest>"  # stands for the terms of an index without owners; not an identifier, so it names no variable


def provably_disjoint(accesses: Sequence[Access], owners: set[str], scope: IterationScope) -> bool:
    """True if iterations that differ in `owners` provably touch different elements, within one iteration of the outer loops."""
    ranges, fixed = dict(scope.ranges), set(scope.outer)
    indices = []
    for a in accesses:
        for name, extent in a.loops:
            ranges[name] = extent_range(extent, ranges)
        indices.append([polynomial(simplify(i, ranges)) for i in a.indices])
    if all(i == indices[0] for i in indices):
        return owners <= determined(indices[0], fixed, ranges)
    equations: list[Polynomial] = []
    for dim in range(len(indices[0])):
        parts = [_own_terms(i[dim], owners | fixed, ranges) for i in indices]
        own = parts[0][0]
        if any(p[0] != own for p in parts):
            continue
        lows, highs = [p[1] for p in parts], [p[2] for p in parts]
        low = None if None in lows else min(lows)  # type: ignore[type-var]
        high = None if None in highs else max(highs)  # type: ignore[type-var]
        rest = Var(f"{_REST}{dim}")
        ranges[rest.name] = (low, high)
        equations.append(add(own, {(rest,): 1}))
    return owners <= determined(equations, fixed, ranges)


def _own_terms(p: Polynomial, own: set[str], ranges: Mapping[str, Interval]) -> tuple[Polynomial, int | None, int | None]:
    """The terms in which only variables of `own` occur, and the bounds of the sum of all others, the constant included."""
    other, mine = split_terms(p, names_in(p) - own)
    offset = mine.pop((), 0)
    low, high = polynomial_bounds(add(other, constant(offset)), ranges)
    return mine, low, high


Elements = list[np.ndarray]  # by dimension, the index at each of some points


def touched_elements(access: Access, moving: Extents, limit: int = MAX_POINTS) -> tuple[Points, Elements] | None:
    """Iterations of the loops `moving` and of those of an access, and the elements that it touches; above `limit` only the first
    and the last iterations. None where they are unknown before the program runs."""
    extents = {**moving, **constant_extents(access.loops)}
    points = enumerate_points(extents, {*moving} | variables(*access.indices), access.conditions, limit)
    elements = None if points is None else points.evaluate(access.indices)
    return None if points is None or elements is None else (points, elements)


def within(access: Access, loops: Sequence[For], around: Iterable[For]) -> Access:
    """An access in `loops`, those inside of the loops `around` it; ends of loops that are not constant become conditions."""
    ranges = ranges_of((*around, *loops))
    highs = {x.name: ranges[x.name][1] for x in loops}
    extents = tuple((x.name, x.extent if (high := highs[x.name]) is None else Const(int(high) + 1)) for x in loops)
    conditions = (*access.conditions, *(x.var < x.extent for x in loops if type(x.extent) is not Const))
    return replace(access, loops=extents, conditions=conditions)


@dataclass(frozen=True)
class Conflict:
    """Two iterations, by variable, in which two accesses touch one element; the first of them writes it."""

    element: tuple[int, ...]
    first: dict[str, int]
    second: dict[str, int]
    access: Access  # that of the second iteration

    def __str__(self) -> str:
        first, second = (", ".join(f"{name}={v}" for name, v in at.items()) for at in (self.first, self.second))
        return f"{first} writes {self.access.at(self.element)}, and {second} {self.access.verb} it too"


@dataclass(frozen=True)
class Disjoint:
    """The result of enumerating all iterations without a conflict."""


def first_conflict(accesses: Sequence[Access], owners: Extents, outer: Extents) -> Conflict | Disjoint | None:
    """The first iterations that differ in `owners` and touch one element, one of them writing; None if that is not certain."""
    used = set().union(*(variables(i) for a in accesses for i in (*a.indices, *a.conditions)))
    fixed = {n: e for n, e in outer.items() if n in used}
    limit = max(MAX_POINTS // (2 * len(accesses)), 1)
    found = [touched_elements(a, {**fixed, **owners}, limit) for a in accesses]
    if any(x is None for x in found):
        return None
    touched = [x for x in found if x is not None]
    whole, certain = (all(x) for x in zip(*((p.whole, p.certain) for p, _ in touched), strict=True))
    key = np.concatenate([as_rows([*(p.values[f] for f in fixed), *elements], len(p)) for p, elements in touched])
    owner = np.concatenate([as_rows([p.values[o] for o in owners], len(p)) for p, _ in touched])
    access = np.repeat(np.arange(len(accesses)), [len(p) for p, _ in touched])
    store = np.array([a.is_store for a in accesses])[access]
    if len(key) == 0:
        return Disjoint() if whole else None
    (_, group), (_, rank) = distinct_rows(key), distinct_rows(owner)
    order = np.lexsort((~store, group))  # stores first within each element
    group, rank = group[order], rank[order]
    first = np.searchsorted(group, group)  # the first row of each group
    bad = np.flatnonzero(store[order][first] & (rank != rank[first]))
    if not len(bad):
        return Disjoint() if whole else None
    if not certain:
        return None
    later = bad[np.argmin(np.maximum(rank, rank[first])[bad])]  # early iterations are read most easily
    one, other = ({name: int(v) for name, v in zip(owners, owner[n], strict=True)} for n in (order[first[later]], order[later]))
    element = tuple(map(int, key[order[later], len(fixed) :]))
    return Conflict(element, one, other, accesses[int(access[order[later]])])


def with_a_store(groups: Mapping[str, list[Access]]) -> dict[str, list[Access]]:
    """The accesses by buffer, of buffers that one of them writes."""
    return {name: group for name, group in groups.items() if any(a.is_store for a in group)}


def distinct_accesses(accesses: Sequence[Access]) -> list[Access]:
    """The accesses without duplicates: those of one kind to the same elements in the same iterations."""
    kept = {(a.indices, a.is_store, a.loops, a.conditions): a for a in reversed(accesses)}
    return list(reversed(kept.values()))
