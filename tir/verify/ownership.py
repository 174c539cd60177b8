"""Conflicts between iterations: disproved by polynomials, or searched by enumeration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..analysis.context import Access
from ..arith.bounds import extent_range
from ..arith.enumeration import MAX_POINTS, distinct_rows, enumerate_points
from ..arith.injectivity import determined
from ..arith.intervals import Interval, polynomial_bounds
from ..arith.polynomial import Polynomial, add, constant, names_in, polynomial, split_terms
from ..arith.simplify import simplify
from ..ir import Buffer, Const, Var
from ..traverse import variables
from .accesses import Extents, IterationScope, constant_extents, grouped_by_buffer

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


@dataclass(frozen=True)
class Conflict:
    """Two iterations that touch one element, as text: the first writes it, the second makes `access`."""

    element: tuple[int, ...]
    first: str
    second: str
    access: Access

    def __str__(self) -> str:
        return f"{self.first} writes {self.access.at(self.element)}, and {self.second} {self.access.verb} it too"


@dataclass(frozen=True)
class _Disjoint:
    """The result of enumerating all iterations without a conflict."""


def first_conflict(accesses: Sequence[Access], owners: Extents, outer: Extents) -> Conflict | _Disjoint | None:
    """The result of enumeration, within each iteration of the `outer` loops; None if it is not certain."""
    shape = [d or 0 for d in constant_shape(accesses[0].buffer)]
    if 0 in shape:
        return None
    used = set().union(*(variables(i) for a in accesses for i in (*a.indices, *a.conditions)))
    fixed = {n: e for n, e in outer.items() if n in used}
    keys, owner_rows, stores, who = [], [], [], []
    whole = certain = True
    for n, a in enumerate(accesses):
        needed = {*owners, *fixed} | variables(*a.indices)
        loops = {**fixed, **owners, **constant_extents(a.loops)}
        points = enumerate_points(loops, needed, a.conditions, limit=max(MAX_POINTS // (2 * len(accesses)), 1))
        indices = None if points is None else points.evaluate(a.indices)
        if points is None or indices is None:
            return None
        element = np.zeros(len(points), np.int64)
        for i, extent in zip(indices, shape, strict=True):
            element = element * extent + i
        whole, certain = whole and points.whole, certain and points.certain
        keys.append(np.stack([*(points.values[f] for f in fixed), element], axis=1))
        owner_rows.append(np.stack([points.values[o] for o in owners], axis=1))
        stores.append(np.full(len(points), a.is_store))
        who.append(np.full(len(points), n))
    key, owner, store, access = (np.concatenate(x) for x in (keys, owner_rows, stores, who))
    if len(key) == 0:
        return _Disjoint() if whole else None
    (_, group), (_, rank) = distinct_rows(key), distinct_rows(owner)
    order = np.lexsort((~store, group))  # stores first within each element
    group, rank = group[order], rank[order]
    first = np.searchsorted(group, group)  # the first row of each group
    bad = store[order][first] & (rank != rank[first])
    if not np.any(bad):
        return _Disjoint() if whole else None
    if not certain:
        return None
    later = int(np.argmax(bad))
    x, y = int(order[first[later]]), int(order[later])
    place = np.unravel_index(int(key[x, -1]), shape) if shape else ()

    def text(n: int) -> str:
        return ", ".join(f"{name}={int(v)}" for name, v in zip(owners, owner[n], strict=True))

    return Conflict(tuple(map(int, place)), text(x), text(y), accesses[int(access[y])])


def constant_shape(b: Buffer) -> list[int | None]:
    return [d.value if isinstance(d, Const) else None for d in b.shape]  # type: ignore[misc]


def by_buffer(accesses: Iterable[Access]) -> dict[str, list[Access]]:
    """The accesses by buffer, of buffers with a write."""
    return {name: group for name, group in grouped_by_buffer(accesses).items() if any(a.is_store for a in group)}


def distinct_accesses(accesses: Sequence[Access]) -> list[Access]:
    """The accesses without duplicates: those of one kind to the same elements in the same iterations."""
    kept = {(a.indices, a.is_store, a.loops, a.conditions): a for a in reversed(accesses)}
    return list(reversed(kept.values()))
