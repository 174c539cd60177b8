"""Check that spatial axes are data parallel, and that reductions run each step once, the init first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ..analysis.axis_conditions import axis_conditions
from ..analysis.conflicts import Conflict, distinct_accesses, first_conflict, provably_disjoint, with_a_store
from ..analysis.context import Access
from ..analysis.program_points import IterationScope, accesses_in, first_iteration, grouped_by_buffer, iteration_scopes
from ..analysis.write_before_read import writes_before_reads
from ..arith.bounds import bounds
from ..arith.enumeration import Points, as_rows, distinct_rows
from ..arith.injectivity import determined
from ..arith.intervals import Interval
from ..arith.polynomial import polynomial
from ..arith.prove import prove
from ..arith.simplify import simplify
from ..ir import Axis, Block, Buffer, Const, Expr, For, Load, PrimFunc, Seq, Stmt, Store, all_zero
from ..traverse import axis_loops, rewrite, stores, substitute, variables, walk
from .report import Finding


def check_axes(func: PrimFunc, only: str | None = None) -> Iterator[Finding]:
    """Findings on the axes of all blocks, or `only` of one: conflicts, and reductions that overwrite, repeat or lack an init."""
    blocks = [(s.stmt, s) for s in iteration_scopes(func) if isinstance(s.stmt, Block)]
    for findings in (_block_axes, partial(_repeated_steps, blocks), _started):
        for block, scope in blocks:
            if only in (None, block.name):
                yield from findings(block, scope)


def _block_axes(b: Block, scope: IterationScope) -> Iterator[Finding]:
    own = scope.own
    varying = [it for it in b.iters if own[it.var.name] != 1 and not _is_fixed(bounds(it.binding, scope.ranges))]
    spatial = [it.var.name for it in varying if it.axis is Axis.SPATIAL]
    private = {a.name for a in b.allocs}
    runs = axis_conditions(b, scope.ranges, scope.outer.keys() - {x.name for x in scope.loops})
    accesses = ([] if b.init is None else accesses_in(b.init, *first_iteration(b), *runs)) + accesses_in(b.body, *runs)
    for name, group in with_a_store(grouped_by_buffer(a for a in accesses if a.buffer.name not in private)).items():
        group = distinct_accesses(group)
        if spatial and not provably_disjoint(group, set(spatial), scope):
            others = tuple((n, Const(e)) for n, e in own.items() if n not in spatial and e is not None)
            inner = [replace(a, loops=(*others, *a.loops)) for a in group]
            match first_conflict(inner, {n: own[n] for n in spatial}, scope.outer) if None not in own.values() else None:
                case Conflict(access=access) as conflict:
                    yield Finding("error", f"the spatial axes of block `{b.name}` are not: {conflict}", access.stmt)
                case None:
                    names = ", ".join(f"`{n}`" for n in spatial)
                    text = f"cannot prove that iterations of block `{b.name}` that differ in {names} keep apart in `{name}`"
                    yield Finding("unproved", text, b)
        yield from _reduction(b, group, scope)


def _is_fixed(interval: Interval) -> bool:
    return interval[0] is not None and interval[0] == interval[1]


def _reduction(b: Block, group: Sequence[Access], scope: IterationScope) -> Iterator[Finding]:
    """Findings where iterations of a reduction overwrite one element instead of updating it."""
    reduce = {it.var.name for it in b.reduction if not it.extent.is_one}
    if not reduce:
        return
    loaded = {a.indices for a in group if not a.is_store}
    own = {x.buffer for x in stores(b)}  # loads of the block's other outputs may carry the previous value
    for a in group:
        if not a.is_store or not isinstance(a.stmt, Store) or (b.init is not None and any(n is a.stmt for n in walk(b.init))):
            continue
        used = variables(_with_zero_loads(a.stmt.value, own - {a.stmt.buffer})) & reduce
        spatial = {it.var.name for it in b.iters if it.axis is not Axis.REDUCE}
        if (
            used
            and a.indices not in loaded
            and not reduce & determined([polynomial(i) for i in a.indices], set(scope.outer) | spatial, scope.ranges)
        ):
            names = ", ".join(f"`{n}`" for n in sorted(used))
            yield Finding(
                "error", f"block `{b.name}` reduces over {names}, but overwrites `{a.buffer.name}` instead of updating it", a.stmt
            )


def _with_zero_loads(value: Expr, buffers: Collection[Buffer]) -> Expr:
    """A value with 0 for loads from some buffers."""
    return rewrite(value, lambda n: Const(0, n.dtype) if type(n) is Load and n.buffer in buffers else None)


def _restarts(b: Block, values: Sequence[np.ndarray], around: Sequence[np.ndarray]) -> np.ndarray:
    """For each iteration of a reduction, in order, the number of init runs so far for its element."""
    spatial = [v for it, v in zip(b.iters, values, strict=True) if it.axis is not Axis.REDUCE]
    starts = np.all([v == 0 for it, v in zip(b.iters, values, strict=True) if it.axis is Axis.REDUCE], axis=0)
    count = np.cumsum(starts)
    if spatial or around:
        _, group = distinct_rows(np.stack([*spatial, *around], axis=1))
        order = np.argsort(group, kind="stable")
        count[order] = np.cumsum(starts[order])
    return count


def _restarts_elsewhere(
    b: Block, scope: IterationScope, points: Points, blocks: Sequence[tuple[Block, IterationScope]]
) -> np.ndarray:
    """For each iteration of a reduction, in order, the number of earlier inits of its elements by other blocks in its loops. Such
    blocks are the other parts of a reduction that a condition splits."""
    count = np.zeros(len(points), np.int64)
    position = next(n for n, (x, _) in enumerate(blocks) if x is b)
    for n, (other, around) in enumerate(blocks):
        shared = [x.name for x, y in zip(scope.loops, around.loops, strict=False) if x is y]
        if other is b or other.init is None or not shared:
            continue
        found, updated, begun = around.points(), _stored_elements(b.body, b), _stored_elements(other.init, other)
        if found is None or not found.certain or not updated or not updated.keys() <= begun.keys():
            continue
        steps = found.evaluate(it.binding for it in other.reduction)
        begins, mine = (at.evaluate(e for x in updated for e in of[x]) for at, of in ((found, begun), (points, updated)))
        if steps is None or begins is None or mine is None:
            continue
        # By element, then by time: the iterations of shared loops, then program order.
        events = np.stack([*begins, *(found.values[x] for x in shared), np.full(len(found), n)], axis=1)
        events = events[np.all([np.ones(len(found), bool), *(v == 0 for v in steps)], axis=0)]
        rows = np.stack([*mine, *(points.values[x] for x in shared), np.full(len(points), position)], axis=1)
        place = np.lexsort(np.concatenate([events, rows]).T[::-1])
        so_far = np.empty(len(place), np.int64)
        so_far[place] = np.cumsum(place < len(events))
        count += so_far[len(events) :]
    return count


def _stored_elements(s: Stmt, block: Block) -> dict[str, tuple[Expr, ...]]:
    """The element, over the loops, of each buffer that a part of a block stores to; empty unless it only stores, once each."""
    parts = s.stmts if isinstance(s, Seq) else (s,)
    bindings = {it.var: it.binding for it in block.iters}
    found = {x.buffer.name: tuple(substitute(i, bindings) for i in x.indices) for x in parts if isinstance(x, Store)}
    return found if len(found) == len(parts) else {}


def _first_equal(columns: Sequence[np.ndarray], count: int) -> np.ndarray:
    """For each of `count` rows of some columns, the number of the first equal row."""
    _, group = distinct_rows(as_rows(columns, count))
    _, first = np.unique(group, return_index=True)
    return first[group]


def _repeated_steps(blocks: Sequence[tuple[Block, IterationScope]], b: Block, scope: IterationScope) -> Iterator[Finding]:
    """Findings where a block runs an iteration of its reduction twice, or may do so."""
    reduced = axis_loops(b, Axis.REDUCE)
    start = next((n for n, loop in enumerate(scope.loops) if loop.name in reduced), len(scope.loops))
    inner = {loop.name for loop in scope.loops[start:] if not loop.extent.is_one}
    if not inner:
        return
    bindings = [polynomial(simplify(it.binding, scope.ranges)) for it in b.iters]
    missing = inner - determined(bindings, set(scope.ranges) - inner, scope.ranges)
    anew = {loop.name for loop in scope.loops if loop.name in missing and _starts_anew(b, loop, scope)}
    missing = inner - anew - determined(bindings, set(scope.ranges) - inner | anew, scope.ranges)
    if not missing:
        return
    twice = _counted_twice(b, scope, start, anew, blocks)
    if isinstance(twice, Finding):
        yield twice
    elif twice is None:
        over = ", ".join(f"`{loop.name}`" for loop in scope.loops if loop.name in missing)
        yield Finding(
            "unproved", f"cannot prove that block `{b.name}` counts each iteration of its reduction once, over {over}", b
        )


def _starts_anew(b: Block, loop: For, scope: IterationScope) -> bool:
    """True if each iteration of a loop overwrites the block's outputs before it updates them, so that only the last counts."""
    buffers = {s.buffer for s in stores(b)} - {*b.allocs}
    return all(writes_before_reads(loop.body, buffer, scope.ranges) for buffer in buffers)


def _counted_twice(
    b: Block, scope: IterationScope, start: int, anew: set[str], blocks: Sequence[tuple[Block, IterationScope]]
) -> Finding | bool | None:
    """A finding: an iteration that the loops from `start` on, without `anew`, run twice. False if none does, None if unknown."""
    points, names = scope.points(), [loop.name for loop in scope.loops]
    values = points.evaluate(it.binding for it in b.iters) if points else None
    if not points or values is None:
        return None
    around = [points.values[name] for n, name in enumerate(names) if n < start or name in anew]
    if b.init is not None and points.whole:
        around.append(_restarts(b, values, around))
    if points.whole:
        around.append(_restarts_elsewhere(b, scope, points, blocks))
    earlier = _first_equal([*values, *around], len(points))
    twice = earlier != np.arange(len(points))
    if not np.any(twice):
        return False if points.whole else None
    if not points.certain:
        return None
    n = int(np.argmax(twice))
    at = f"once where {points.at(int(earlier[n]), names[start:])}, and again where {points.at(n, names[start:])}"
    what = ", ".join(f"{it.var.name}={int(v[n])}" for it, v in zip(b.iters, values, strict=True))
    return Finding("error", f"block `{b.name}` counts an iteration of its reduction twice: {what}, {at}", b)


def _started(b: Block, scope: IterationScope) -> Iterator[Finding]:
    """Findings where the reduction of a block starts without its init."""
    if b.init is None:
        return
    reducing = b.reduction
    others = [it for it in b.iters if it.axis is not Axis.REDUCE]
    stepping = axis_loops(b, Axis.REDUCE)
    mine = [x for x in scope.loops if x.name in stepping]
    zero = all_zero(x.var for x in mine)
    if not any(stepping & variables(it.binding) for it in others):
        # If an iteration runs, so does the first one, with these loops and all reduce axes at 0.
        first = [simplify(substitute(it.binding, zero), scope.ranges) for it in reducing]
        runs = all(prove(substitute(c, zero), scope.ranges, (c,)) for c in scope.conditions)
        if runs and all(e.is_zero for e in first):
            return
    points, names = scope.points(), [x.name for x in scope.loops]
    if points is not None and points.whole and points.certain:
        if not len(points):
            return
        found = points.evaluate(it.binding for it in b.iters)
        if found:
            values = {it.var.name: v for it, v in zip(b.iters, found, strict=True)}
            outer = next((n for n, x in enumerate(scope.loops) if x.name in stepping), len(scope.loops))
            key = [values[it.var.name] for it in others] + [points.values[n] for n in names[:outer]]
            begins = _first_equal(key, len(points)) == np.arange(len(points))
            wrong = begins & np.any([values[it.var.name] != 0 for it in reducing], axis=0)
            if np.any(wrong):
                n = int(np.argmax(wrong))
                at = ", ".join(f"{name}={int(v[n])}" for name, v in values.items())
                text = f"block `{b.name}` begins its reduction without its init: {at} comes first"
                yield Finding("error", f"{text}, where {points.at(n, names)}" if names else text, b)
            return
    text = f"cannot prove that block `{b.name}` begins its reduction with its init"
    yield Finding("unproved", text, b)
