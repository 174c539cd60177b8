"""Axes: spatial ones are data parallel, reductions count each step once and begin with their init."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..affine import Interval, polynomial
from ..analysis.digits import determined
from ..ir import Axis, Block, Const, Expr, For, PrimFunc, Store, Var, conjuncts
from ..points import points_of
from ..simplify import prove, simplify
from ..traverse import substitute, variables, walk
from .accesses import Access, Extents, accesses_in, constant_extents, scopes
from .ownership import Conflict, by_buffer, distinct_accesses, first_conflict, touches_own
from .report import Finding


def check_axes(func: PrimFunc) -> Iterator[Finding]:
    """Iterations of a block that differ in a spatial axis touch nothing that one of them writes; reductions update."""
    for s in scopes(func):
        if isinstance(s.stmt, Block):
            yield from _block_axes(s.stmt, s.ranges, s.outer, s.own)


def _block_axes(b: Block, ranges: dict[str, Interval], outer: Extents, own: Extents) -> Iterator[Finding]:
    spatial = [it.var.name for it in b.iters if it.axis is Axis.SPATIAL and own[it.var.name] != 1]
    private = {a.name for a in b.allocs}
    first = tuple(it.var.equal(0) for it in b.iters if it.axis is Axis.REDUCE)
    bound = {it.binding.name: it.var for it in b.iters if isinstance(it.binding, Var)}
    runs = [substitute(c, bound) for c in conjuncts(b.predicate) if variables(c) <= bound.keys()]
    accesses = ([] if b.init is None else accesses_in(b.init, *first, *runs)) + accesses_in(b.body, *runs)
    for name, group in by_buffer(a for a in accesses if a.buffer.name not in private).items():
        group = distinct_accesses(group)
        others = {n: e for n, e in own.items() if n not in spatial}
        if spatial and not touches_own(group, set(spatial), set(outer), ranges):
            inner = [_with_loops(a, [(n, Const(e)) for n, e in others.items() if e is not None]) for a in group]
            fixed = {n: e for n, e in outer.items() if any(n in variables(i) for a in group for i in (*a.indices, *a.conditions))}
            match first_conflict(inner, {n: own[n] for n in spatial}, fixed) if None not in own.values() else None:
                case Conflict() as c:
                    yield Finding(
                        "error", f"the spatial axes of block `{b.name}` are not: {c.text(access_verb(c.access))}", c.access.stmt
                    )
                case None:
                    names = ", ".join(f"`{n}`" for n in spatial)
                    yield Finding(
                        "unproved",
                        f"cannot prove that iterations of block `{b.name}` that differ in {names} keep apart in `{name}`",
                        b,
                    )
        yield from _reduction(b, group, ranges, outer)


def access_verb(a: Access) -> str:
    return "writes" if a.is_store else "reads"


def _with_loops(a: Access, loops: Sequence[tuple[str, Expr]]) -> Access:
    return Access(a.stmt, a.buffer, a.indices, a.is_store, (*loops, *a.loops), a.conditions, a.guarded)


def _reduction(
    b: Block, group: Sequence[Access], ranges: dict[str, Interval], outer: Mapping[str, int | None]
) -> Iterator[Finding]:
    """A store that several reduction iterations make to one element must combine with what is there."""
    reduce = {it.var.name for it in b.iters if it.axis is Axis.REDUCE and it.extent != Const(1, it.extent.dtype)}
    if not reduce:
        return
    loaded = {a.indices for a in group if not a.is_store}
    for a in group:
        if not a.is_store or not isinstance(a.stmt, Store) or (b.init is not None and any(n is a.stmt for n in walk(b.init))):
            continue
        used = variables(a.stmt.value) & reduce
        spatial = {it.var.name for it in b.iters if it.axis is not Axis.REDUCE}
        if (
            used
            and a.indices not in loaded
            and not reduce & determined([polynomial(i) for i in a.indices], set(outer) | spatial, ranges)
        ):
            names = ", ".join(f"`{n}`" for n in sorted(used))
            yield Finding(
                "error", f"block `{b.name}` reduces over {names}, but overwrites `{a.buffer.name}` instead of updating it", a.stmt
            )


def _restarts(b: Block, values: Sequence[np.ndarray], around: Sequence[np.ndarray]) -> np.ndarray:
    """How often the init of a reduction has run, in each of its iterations in order, for the element that it is at."""
    spatial = [v for it, v in zip(b.iters, values, strict=True) if it.axis is not Axis.REDUCE]
    starts = np.all([v == 0 for it, v in zip(b.iters, values, strict=True) if it.axis is Axis.REDUCE], axis=0)
    count = np.cumsum(starts)
    if spatial or around:
        _, group = np.unique(np.stack([*spatial, *around], axis=1), axis=0, return_inverse=True)
        order = np.argsort(group.reshape(-1), kind="stable")
        count[order] = np.cumsum(starts[order])
    return count


def check_repeated(func: PrimFunc) -> Iterator[Finding]:
    """A reduction counts each of its iterations once: from its outermost loop inwards, iterations differ in some binding."""
    for s in scopes(func):
        if isinstance(s.stmt, Block):
            yield from _repeated(s.stmt, s.loops, s.conditions, s.ranges)


def _repeated(b: Block, loops: Sequence[For], conditions: Sequence[Expr], ranges: dict[str, Interval]) -> Iterator[Finding]:
    """Where a block counts an iteration of its reduction twice, or may do so."""
    reduced = set().union(*(variables(it.binding) for it in b.iters if it.axis is Axis.REDUCE))
    start = next((n for n, loop in enumerate(loops) if loop.name in reduced), len(loops))
    inner = {loop.name for loop in loops[start:] if loop.extent != Const(1, loop.extent.dtype)}
    if not inner:
        return
    bindings = [polynomial(simplify(it.binding, ranges)) for it in b.iters]
    missing = inner - determined(bindings, set(ranges) - inner, ranges)
    if not missing:
        return
    twice = _counted_twice(b, loops, start, conditions)
    if isinstance(twice, Finding):
        yield twice
    elif twice is None:
        over = ", ".join(f"`{loop.name}`" for loop in loops if loop.name in missing)
        yield Finding(
            "unproved", f"cannot prove that block `{b.name}` counts each iteration of its reduction once, over {over}", b
        )


def _counted_twice(b: Block, loops: Sequence[For], start: int, conditions: Sequence[Expr]) -> Finding | bool | None:
    """By enumeration, an iteration that the loops from number `start` on count twice; False if there is none, None if unknown."""
    names = [loop.name for loop in loops]
    points = points_of(constant_extents((x.name, x.extent) for x in loops), set(names), conditions)
    values = points.evaluate(it.binding for it in b.iters) if points else None
    if not points or values is None:
        return None
    around = [points.values[n] for n in names[:start]]
    if b.init is not None and points.whole:
        around.append(_restarts(b, values, around))
    key = np.stack([*values, *around], axis=1)
    _, first, group = np.unique(key, axis=0, return_index=True, return_inverse=True)
    earlier = first[group.reshape(-1)]
    twice = earlier != np.arange(len(points))
    if not np.any(twice):
        return False if points.whole else None
    if not points.certain:
        return None
    n = int(np.argmax(twice))
    at = f"once where {points.at(int(earlier[n]), names[start:])}, and again where {points.at(n, names[start:])}"
    what = ", ".join(f"{it.var.name}={int(v[n])}" for it, v in zip(b.iters, values, strict=True))
    return Finding("error", f"block `{b.name}` counts an iteration of its reduction twice: {what}, {at}", b)


def check_started(func: PrimFunc) -> Iterator[Finding]:
    """A reduction with an init begins with it: the first of its iterations, for each element, has every reduce axis at 0."""
    for s in scopes(func):
        if isinstance(s.stmt, Block) and s.stmt.init is not None:
            yield from _start(s.stmt, s.loops, s.conditions, s.ranges)


def _start(b: Block, loops: Sequence[For], conditions: Sequence[Expr], ranges: dict[str, Interval]) -> Iterator[Finding]:
    """Where the reduction of a block begins without its init."""
    reducing = [it for it in b.iters if it.axis is Axis.REDUCE]
    others = [it for it in b.iters if it.axis is not Axis.REDUCE]
    driving = set().union(*(variables(it.binding) for it in reducing))
    mine = [x for x in loops if x.name in driving]
    zero = {x.name: Const(0, x.var.dtype) for x in mine}
    if not any(driving & variables(it.binding) for it in others):
        # If an iteration runs, that with these loops at 0, which comes first, does too, and has all reduce axes at 0.
        first = [simplify(substitute(it.binding, zero), ranges) for it in reducing]
        runs = all(prove(substitute(c, zero), ranges, (c,)) for c in conditions)
        if runs and all(e == Const(0, e.dtype) for e in first):
            return
    names = [x.name for x in loops]
    points = points_of(constant_extents((x.name, x.extent) for x in loops), set(names), conditions)
    if points is not None and points.whole and points.certain:
        if not len(points):
            return
        found = points.evaluate(it.binding for it in b.iters)
        if found:
            values = {it.var.name: v for it, v in zip(b.iters, found, strict=True)}
            outer = next((n for n, x in enumerate(loops) if x.name in driving), len(loops))
            key = [values[it.var.name] for it in others] + [points.values[n] for n in names[:outer]]
            begin = np.zeros(1, np.int64) if not key else np.unique(np.stack(key, axis=1), axis=0, return_index=True)[1]
            wrong = [n for n in sorted(begin) if any(values[it.var.name][n] for it in reducing)]
            if wrong:
                at = ", ".join(f"{name}={int(v[wrong[0]])}" for name, v in values.items())
                text = f"block `{b.name}` begins its reduction without its init: {at} comes first"
                yield Finding("error", f"{text}, where {points.at(wrong[0], names)}" if names else text, b)
            return
    text = f"cannot prove that block `{b.name}` begins its reduction with its init"
    yield Finding("unproved", text, b)
