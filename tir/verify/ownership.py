"""Ownership: whether iterations touch each other's elements, by proof from affine forms, else by trying points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..affine import Interval, Polynomial, add, constant, names_in, polynomial, split_terms
from ..affine import bounds as polynomial_bounds
from ..analysis.digits import determined
from ..ir import Buffer, Const, Var
from ..points import POINTS, points_of
from ..simplify import extent_range, simplify
from ..traverse import variables
from .accesses import Access, constant_extents, grouped

_REST = "<rest>"  # the part of an index that belongs to no axis under question; not an identifier, so it names no variable


def touches_own(accesses: Sequence[Access], owners: set[str], fixed: set[str], ranges: Mapping[str, Interval]) -> bool:
    """Whether iterations that differ in `owners` provably touch different elements; `fixed` variables are the same in both."""
    ranges = dict(ranges)
    indices = []
    for a in accesses:
        for name, extent in a.loops:
            ranges[name] = extent_range(extent, ranges)
        indices.append([polynomial(simplify(i, ranges)) for i in a.indices])
    if all(i == indices[0] for i in indices):
        return owners <= determined(indices[0], set(fixed), ranges)
    equations: list[Polynomial] = []
    for dim in range(len(indices[0])):
        parts = [_split(i[dim], owners | fixed, ranges) for i in indices]
        own = parts[0][0]
        if any(p[0] != own for p in parts):
            continue
        lows, highs = [p[1] for p in parts], [p[2] for p in parts]
        low = None if None in lows else min(lows)  # type: ignore[type-var]
        high = None if None in highs else max(highs)  # type: ignore[type-var]
        rest = Var(f"{_REST}{dim}")
        ranges[rest.name] = (low, high)
        equations.append(add(own, {(rest,): 1}))
    return owners <= determined(equations, set(fixed), ranges)


def _split(p: Polynomial, own: set[str], ranges: Mapping[str, Interval]) -> tuple[Polynomial, int | None, int | None]:
    """The terms over the variables `own` alone, and the bounds of all others, constants included."""
    other, mine = split_terms(p, names_in(p) - own)
    offset = mine.pop((), 0)
    low, high = polynomial_bounds(add(other, constant(offset)), ranges)
    return mine, low, high


@dataclass(frozen=True)
class Conflict:
    """Two iterations that touch one element, of which one writes; as text."""

    buffer: str
    element: str
    first: str
    second: str
    access: Access

    def text(self, verb: str) -> str:
        return f"{self.first} writes {self.buffer}[{self.element}], and {self.second} {verb} it too"


@dataclass(frozen=True)
class _Disjoint:
    """All iterations were tried, and none touches what another writes."""


def first_conflict(
    accesses: Sequence[Access], owners: Mapping[str, int | None], fixed: Mapping[str, int | None]
) -> Conflict | _Disjoint | None:
    """What trying the iterations shows; None if that is nothing certain."""
    if any(d is None for d in constant_shape(accesses[0].buffer)):
        return None
    shape = [d or 0 for d in constant_shape(accesses[0].buffer)]
    keys, owner_rows, stores, who = [], [], [], []
    whole = certain = True
    for n, a in enumerate(accesses):
        needed = {*owners, *fixed}.union(*(variables(i) for i in a.indices))
        loops = {**fixed, **owners, **constant_extents(a.loops)}
        points = points_of(loops, needed, a.conditions, limit=max(POINTS // (2 * len(accesses)), 1))
        if points is None:
            return None
        indices = points.evaluate(a.indices)
        if indices is None:
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
    group = np.unique(key, axis=0, return_inverse=True)[1].reshape(-1)
    rank = np.unique(owner, axis=0, return_inverse=True)[1].reshape(-1)
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

    element_text = ", ".join(str(int(v)) for v in place) or "()"
    return Conflict(accesses[0].buffer.name, element_text, text(x), text(y), accesses[int(access[y])])


def constant_shape(b: Buffer) -> list[int | None]:
    return [d.value if isinstance(d, Const) else None for d in b.shape]  # type: ignore[misc]


def by_buffer(accesses: Iterable[Access]) -> dict[str, list[Access]]:
    """The accesses of each buffer that one of them writes."""
    return {name: group for name, group in grouped(accesses).items() if any(a.is_store for a in group)}


def distinct_accesses(accesses: Sequence[Access]) -> list[Access]:
    """Without those that touch the same elements in the same iterations in the same way."""
    kept = {(a.indices, a.is_store, a.loops, a.conditions): a for a in reversed(accesses)}
    return list(reversed(kept.values()))
