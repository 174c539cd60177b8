"""Temporaries with disjoint live ranges share memory, in programs with very many."""

from __future__ import annotations

from typing import Any

from tir.ir import Buffer, For, PrimFunc, Seq, annotation
from tir.traverse import accessed_names, replace_buffers, walk_stmts

from .lower_blocks import ALIGNED

MIN_TEMPORARIES = 64  # least temporaries of a function that shares memory: each allocation is one more level of nesting


def share_temporaries(func: PrimFunc) -> PrimFunc:
    """Give temporaries of one type with disjoint live ranges one buffer, by linear scan as in register allocation."""
    if len(func.allocs) < MIN_TEMPORARIES or not isinstance(func.body, Seq):
        return func
    kept = _annotated_names(func)
    spans: dict[str, list[int]] = {b.name: [] for b in func.allocs if b.name not in kept and b.has_const_shape}
    for n, s in enumerate(func.body.stmts):
        for name in accessed_names(s) & spans.keys():
            spans[name].append(n)
    starts: dict[int, list[Buffer]] = {}
    for b in func.allocs:
        if len(spans.get(b.name, ())) > 1:  # one that a single statement uses is allocated in that
            starts.setdefault(spans[b.name][0], []).append(b)
    free: dict[tuple, list[Buffer]] = {}
    ends: dict[int, list[Buffer]] = {}
    shared: dict[str, Buffer] = {}
    for n in range(len(func.body.stmts)):
        for b in starts.get(n, ()):
            pool = free.get((b.shape, b.dtype, b.scope))
            place = pool.pop() if pool else b
            shared[b.name] = place
            ends.setdefault(spans[b.name][-1], []).append(place)
        for place in ends.get(n, ()):  # statement n still reads it: temporaries that start there need other buffers
            free.setdefault((place.shape, place.dtype, place.scope), []).append(place)
    moved = {name: place for name, place in shared.items() if place.name != name}
    stmts = tuple(replace_buffers(s, {x: moved[x] for x in accessed_names(s) & moved.keys()}) for s in func.body.stmts)
    return func.with_(body=Seq(stmts), allocs=tuple(b for b in func.allocs if b.name not in moved))


def _annotated_names(func: PrimFunc) -> set[str]:
    """The names in annotations; buffers of these names are not shared."""
    values: list[Any] = [v for s in walk_stmts(func.body) if isinstance(s, For) for _, v in s.annotations]
    found = set(annotation(func.attrs, ALIGNED, {}))
    while values:
        match values.pop():
            case str() as text:
                found.add(text)
            case list() | tuple() as items:
                values += items
            case dict() as items:
                values += [*items, *items.values()]
    return found
