"""The instances of a block: the points of its domain at which it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tir.arith.bounds import ranges_of
from tir.arith.intervals import Interval, Ranges, polynomial_bounds
from tir.arith.mixed_radix import mixed_radix
from tir.arith.polynomial import Polynomial, add, constant, linear, names_in, nonpositive, polynomial, split_terms, to_expr
from tir.arith.prove import nonnegative, prove
from tir.arith.simplify import simplify
from tir.ir import FALSE, NOT_SPATIAL, Axis, Block, Const, Expr, For, Iter, Load, Store, Var, conjunction, conjuncts
from tir.traverse import axis_loops, stores, substitute, variables, walk

from .axis_windows import AxisWindow
from .dataflow import BlockScope, Leaf, facts_of
from .iter_map import Unproved, limited_sums, need_one_role, split_fused_loops
from .requirements import conditions_on_axes


def instances(scope: BlockScope, leaf: Leaf) -> tuple[dict[str, AxisWindow], list[Expr], list[Expr]]:
    """The windows of axes whose loops skip values at an end, and the conditions of a block's instances over its axes and loops.

    Conditions over axes include the ends of windows. The others are conditions that only loops can express. If the loops skip
    values of an axis in another way, `axis == binding` is one of these.
    """
    block = leaf.block
    names = {x.name for x in leaf.loops}
    driving = variables(*(it.binding for it in block.iters))
    limits = [x.var < x.extent for x in leaf.loops if x.name in driving and variables(x.extent) & names]
    limits += [x.extent >= 1 for x in leaf.loops if x.name not in driving]
    guarded = block.with_(predicate=conjunction(block.predicate, *limits))
    kept, lost = conditions_on_axes(scope, replace(leaf, stmt=guarded))

    whole = ranges_of(leaf.loops, scope.ranges)
    part = narrowed(whole, [simplify(c, whole) for c in conjuncts(block.predicate)])
    facts = facts_of(scope, ())
    box: dict[str, AxisWindow] = {}
    windows = _windows(block.iters, leaf.loops, part)
    others = windows if None not in windows else _windows(block.iters, leaf.loops, whole)
    for it, window, other in zip(block.iters, windows, others, strict=True):
        found = window or other
        if found is None:
            lost.append(it.var.equal(it.binding))
            continue
        stop = simplify(found.start + found.extent, whole)
        above, below = prove(found.start <= 0, whole, facts), prove(it.extent <= stop, whole, facts)
        if not (above and below):
            box[it.var.name] = found
            kept += [c for c, holds in ((it.var >= found.start, above), (it.var < stop, below)) if not holds]
    return box, kept, lost


def writes_apart(scope: BlockScope, leaf: Leaf, other: Leaf) -> bool:
    """True where two blocks provably write different elements, each block using every buffer at a single index.

    Theorem: a block that writes `X[v, w]` at its axes writes an element only if its conditions hold there. If one of them, over
    the indices at which the other block writes, never holds where that runs, no element is written by both.
    """
    blocks = (leaf, other)
    if any(type(x.stmt) is not Block for x in blocks):
        return False
    return all(
        len({n.indices for n in walk(leaf.stmt) if isinstance(n, (Load, Store)) and n.buffer.name == name}) == 1
        and any(_never_meets(scope, a, b, name) for a, b in (blocks, blocks[::-1]))
        for name in leaf.writes & other.writes
    )


def _never_meets(scope: BlockScope, leaf: Leaf, other: Leaf, name: str) -> bool:
    """True where a condition of a block that writes a buffer at its axes never holds at the write indices of the other."""
    own, places = ({s.indices for s in stores(x.block) if s.buffer.name == name} for x in (leaf, other))
    axes, theirs = ({it.var.name for it in x.block.iters} for x in (leaf, other))
    if len(own) != 1 or any(not variables(*indices) <= theirs | scope.ranges.keys() for indices in places):
        return False
    (mine,) = own
    _, conditions, _ = instances(scope, leaf)
    _, facts, _ = instances(scope, other)
    ranges = ranges_of([other.block], scope.ranges)
    for indices in places:
        at: dict[str, Expr] = {v.name: i for v, i in zip(mine, indices, strict=True) if type(v) is Var and v.name in axes}
        fixed = [i.equal(v) for v, i in zip(mine, indices, strict=True) if type(v) is Const]
        here = [substitute(c, at) for c in conditions if variables(c) & axes <= at.keys()]
        if not any(_never_holds(simplify(c, ranges), ranges, facts) for c in (*here, *fixed)):
            return False
    return True


def _never_holds(condition: Expr, ranges: Ranges, facts: Iterable[Expr]) -> bool:
    """True where a condition is provably false for all values within `ranges` for which `facts` hold."""
    return condition == FALSE or any(prove(to_expr(p) <= -1, ranges, facts) for p in nonnegative(condition))


def covered_windows(block: Block, outer: Sequence[For], inner: Sequence[For]) -> dict[str, AxisWindow]:
    """The window of each spatial axis that a block visits completely, within its domain, in one iteration of `outer`.

    Unlike those of `windows`, these windows may overlap. Raises Unproved."""
    need_one_role(block, inner, axis_loops(block, Axis.SPATIAL), axis_loops(block, *NOT_SPATIAL))
    ranges = ranges_of((*outer, *inner))
    domain = [c for it in block.iters for c in it.domain]
    limits = [x.var < x.extent for x in inner if variables(x.extent) & ranges.keys()]
    conditions = [c for c in (*conjuncts(block.predicate), *limits) if not prove(c, ranges, domain)]
    extents: dict[str, Expr] = {x.name: x.extent for x in inner}
    bindings = [polynomial(simplify(it.binding, ranges)) for it in block.iters]
    places, limited, left = limited_sums(bindings, conditions, extents.keys())
    if left:
        raise Unproved(f"it is left out unless `{left[0]}`")
    loops = [*inner]
    for number, terms in limited:
        match _gapless_range(terms, extents, ranges), number.extent:
            case (_, Const(reach)), Const(limit):
                loops.append(number.with_(extent=Const(min(reach, limit))))
            case _:
                raise Unproved(f"`{to_expr(terms)}` skips values")
    axes = [it.with_(binding=to_expr(p, it.var.dtype)) for it, p in zip(block.iters, places, strict=True)]
    found = _windows(axes, loops, ranges_of((*outer, *loops)))
    result = {it.var.name: window for it, window in zip(axes, found, strict=True) if window is not None}
    for it in block.spatial:
        if it.var.name not in result:
            raise Unproved(f"`{it.var.name}` = `{it.binding}` skips values")
    return result


def _windows(axes: Sequence[Iter], inner: Sequence[For], loops: Ranges) -> list[AxisWindow | None]:
    """The window of each axis over the `inner` loops; None if its values have gaps or depend on those of the axes before.

    For a loop of symbolic extent, the extent is used in place of the range."""
    names = {x.name for x in inner}
    loops = {**loops, **{x.name: (0, None) for x in inner if type(x.extent) is not Const and not variables(x.extent) & names}}
    sizes = {x.var: high + 1 for x in inner if (high := loops[x.name][1]) is not None}
    bindings = [simplify(it.binding, loops) for it in axes]
    mapping, parts, ranges = split_fused_loops(bindings, sizes, loops)
    extents: dict[str, Expr] = {x.name: x.extent for x in inner}
    extents |= {x.name: Const(size) for x, size in sizes.items()} | {name: Const(size) for name, size in parts.items()}
    result: list[AxisWindow | None] = []
    seen: set[str] = set()
    for it, binding in zip(axes, bindings, strict=True):
        moving, fixed = split_terms(polynomial(simplify(substitute(binding, mapping), ranges)), extents)
        used = {name for name in names_in(moving) & extents.keys() if not extents[name].is_one}
        found = None if used & seen else _gapless_range(moving, extents, ranges)
        seen |= used
        if found is not None and type(found[1]) is Const:
            found = found[0], found[1].with_(dtype=it.extent.dtype)
        result.append(found and AxisWindow(to_expr(add(fixed, constant(found[0])), binding.dtype), found[1]))
    return result


def narrowed(ranges: Ranges, conditions: Iterable[Expr]) -> dict[str, Interval]:
    """The ranges of variables, narrowed by the conditions that bound a single variable."""
    found = dict(ranges)
    for c in conditions:
        match linear(nonpositive(c) or {}):
            case (v, 1, rest) if v in found:
                found[v] = found[v][0], min(x for x in (found[v][1], -rest) if x is not None)
            case (v, -1, rest) if v in found:
                found[v] = max(x for x in (found[v][0], rest) if x is not None), found[v][1]
    return found


def _gapless_range(p: Polynomial, extents: dict[str, Expr], ranges: Ranges) -> tuple[int, Expr] | None:
    """The least value of a sum of loops and the number of its values; None unless these are provably without gaps."""
    low, high = polynomial_bounds(p, ranges)
    if low is None:
        return None
    if high is None:
        radix = mixed_radix(p, extents)
        return None if radix is None else (low, radix[1])
    reach = 1
    for m, c in sorted(p.items(), key=lambda term: abs(term[1])):
        if len(m) != 1 or type(m[0]) is not Var or abs(c) > reach:
            return None
        first, last = ranges[m[0].name]
        assert first is not None and last is not None
        reach = reach + abs(c) * (last - first)
    return low, Const(reach)
