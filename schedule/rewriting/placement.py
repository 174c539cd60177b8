"""Bound inference: the windows of a block's axes that its consumers need, and the block's loop nest over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tir.analysis.context import accesses
from tir.analysis.regions import Regions, hull
from tir.arith.bounds import bounds, extent_range, ranges_of
from tir.arith.intervals import Interval, Ranges, polynomial_bounds
from tir.arith.polynomial import linear, plus_constant, polynomial, split_terms
from tir.arith.prove import constant_difference, prove
from tir.arith.simplify import simplify
from tir.arith.symbolic import is_fixed, symbolic_less, symbolic_min
from tir.ir import Binary, Block, Const, Expr, Iter, Range, Stmt, Store, Var, conjunction, nest
from tir.traverse import loads, substatements

from ..legality.axis_windows import AxisWindow
from .edits import Names
from .loops import UNFOLDED_UNIT_RANGE

ROOT, INLINE = "root", "inline"  # places other than loops: in loops of its own, and as a formula in its consumers


def nest_over_windows(
    block: Block,
    windows: Mapping[str, AxisWindow],
    ranges: Ranges,
    names: Names,
    preserve_unit_loops: bool = False,
    exact: bool = False,
    facts: Sequence[Expr] = (),
) -> Stmt:
    """The block in loops `ax0`, `ax1`, ... over its windows; `ranges` and `facts` hold in the loops around.

    An iteration variable without a window runs over its whole domain. The part of a window outside of the domain is cut off: at
    once if its place is constant, else by the block's predicate. A window as large as the domain becomes the domain, unless
    `exact`. Loops of extent 1 are left out unless preserved.
    """
    names.add(block)  # it may have been taken out of the function that `names` was made of
    inside: dict[str, Interval] = dict(ranges)
    loops: list[tuple[Var, Expr]] = []
    iters: list[Iter] = []
    conditions: list[Expr] = []
    for it in block.iters:
        window = windows.get(it.var.name)
        window = _clipped_window(window, it.extent, ranges, exact) if window else AxisWindow(Const(0, it.extent.dtype), it.extent)
        if window.extent.is_one and not preserve_unit_loops:
            offset: Expr = Const(0, it.var.dtype)
        else:
            offset = Var(names.loop(f"ax{len(loops)}"), it.var.dtype)
            loops.append((offset, window.extent))
            inside[offset.name] = extent_range(window.extent, ranges)
            if inside[offset.name] == (0, 0):
                inside[offset.name] = UNFOLDED_UNIT_RANGE
        binding = simplify(window.start + offset, inside)
        iters.append(it.with_(binding=binding))
        proving = {**inside, offset.name: extent_range(window.extent, ranges)} if type(offset) is Var else inside
        within: tuple[Expr, ...] = (binding >= 0, binding < it.extent)
        if window.start.is_zero and constant_difference(window.extent, it.extent) == 0:
            within = ()
        conditions += [simplify(c, inside) for c in within if not prove(c, proving, facts)]
        conditions += [simplify(c, inside) for c in window.conditions(offset) if not prove(c, proving, (*facts, *within))]
    return nest(loops, block.with_(iters=tuple(iters), predicate=conjunction(*conditions)))


def _clipped_window(window: AxisWindow, extent: Expr, ranges: Ranges, exact: bool) -> AxisWindow:
    """The window without its part outside of range(extent), as far as no condition is needed."""
    size, _ = bounds(extent, ranges)
    reach, _ = bounds(window.extent, ranges)
    low, high = bounds(window.start, ranges)
    if size is None or reach is None:
        return window
    dtype = extent.dtype
    if size == 0 and type(extent) is Const:
        return AxisWindow(Const(0, dtype), extent)
    if type(window.extent) is Const and type(extent) is Const and not is_fixed(reach):
        # A window that covers the domain starts at 0. One with limits is partial, and covers it only if it is the only window.
        part = exact or bool(window.limits)
        from_0 = window.start if part else simplify(window.start * Const(symbolic_less(reach, size), dtype), ranges)
        return AxisWindow(from_0, Const(symbolic_min(reach, size), dtype), window.limits)
    if window.limits:
        return window
    if low is not None and low == high:
        start, stop = min(max(low, 0), size - 1), symbolic_min(low + reach, size)
        if stop > start or not exact:
            return AxisWindow(Const(start, dtype), Const(max(stop - start, 1), dtype))
    if reach >= size and not exact:
        return AxisWindow(Const(0, dtype), Const(symbolic_min(reach, size), dtype) if type(extent) is Const else extent)
    return window


def required_windows(block: Block, regions: Regions, ranges: Ranges, written: Collection[str]) -> dict[str, AxisWindow]:
    """Windows of the block's spatial iteration variables that cover the `regions` of its outputs.

    Sound for any block: an element is written only by the instances for which each index has the element's coordinate. An index
    a v + c + t, or v // c, bounds v; others do not. t is the sum of the terms of loops inside of the block. Windows whose bounds
    load from `written` buffers, or perhaps out of bounds, are not used.
    """
    spatial = [it.var.name for it in block.spatial]
    own = ranges_of([block], ranges)
    result: dict[str, AxisWindow] | None = None
    for part in substatements(block):
        for s, around in accesses(part):
            region = regions.get(s.buffer.name) if type(s) is Store else None
            if region is None:
                continue
            found: dict[str, AxisWindow] = {}
            inside = around.ranges(own)
            for index, r in zip(s.indices, region.ranges, strict=True):
                solved = _window_of_index(around.closed(index), r, spatial, ranges, inside)
                if solved is not None and _readable(solved[1], ranges, written):
                    found.setdefault(solved[0], solved[1])
            if result is not None:
                found = {v: w for v in result if v in found and (w := _hull(result[v], found[v])) is not None}
            result = found
    return result or {}


def _readable(window: AxisWindow, ranges: Ranges, written: Collection[str]) -> bool:
    """True where the bounds of a window load only in bounds, and from no buffer in `written`."""
    read = [x for bound in (window.start, window.extent) for x in loads(bound)]
    indices = [place for x in read for place in zip(x.indices, x.buffer.shape, strict=True)]
    kept = not any(x.buffer.name in written for x in read)
    return kept and all(prove(i >= 0, ranges) and prove(i < dim, ranges) for i, dim in indices)


def _window_of_index(index: Expr, r: Range, spatial: list[str], ranges: Ranges, inside: Ranges) -> tuple[str, AxisWindow] | None:
    """An iteration variable and the window of its values for which an index, over it and inner loops, is within a range."""
    match index:
        case Binary("//", Var(v), Const(c)) if v in spatial and c > 0:
            return v, AxisWindow(simplify(r.min * c, ranges), simplify(r.extent * c, ranges))
    moving, rest = split_terms(polynomial(simplify(index, inside) if inside else index), inside.keys())
    low, high = polynomial_bounds(moving, inside)
    if low is None or high is None:
        return None
    match linear(rest):
        case (v, 1, offset) if v in spatial and not moving:
            return v, AxisWindow(simplify(plus_constant(r.min, -offset), ranges), r.extent)
        case (v, a, offset) if v in spatial:
            # The multiples a v are among `count` integers from `first` on.
            first = r.min - (offset + high) if a > 0 else (offset + low + 1) - r.min - r.extent
            count, step = r.extent + (high - low), abs(a)
            start, last = simplify((first + (step - 1)) // step, ranges), simplify((first + count - 1) // step, ranges)
            exact = constant_difference(last, start)
            number = simplify((count + (step - 1)) // step, ranges) if exact is None else Const(max(exact + 1, 1), r.extent.dtype)
            return v, AxisWindow(start, number)
    return None


def _hull(a: AxisWindow, b: AxisWindow) -> AxisWindow | None:
    """The smallest window around both; None where their distance is unknown."""
    both = hull(Range(a.start, a.extent), Range(b.start, b.extent))
    if a == b or both is None:
        return a if a == b else None
    return AxisWindow(simplify(both.min), both.extent)
