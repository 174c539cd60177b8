"""Windows: the values that the iteration variables of a block take in one iteration of its outer loops.

A binding such as `i_0 * 16 + i_1 * 4 + i_2` is a sum of terms, one for each loop (see `iter_map`). A window is the contiguous
values in an iteration of the outer loops. The inner loops have the smallest coefficients, and no value is skipped or repeated:
then the windows of all iterations tile the domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from tir.analysis.context import accesses
from tir.arith.bounds import ranges_of
from tir.arith.injectivity import counts_once
from tir.arith.intervals import Ranges
from tir.arith.mixed_radix import lower_factors, mixed_radix, split_variable
from tir.arith.polynomial import Polynomial, linear, names_in, polynomial, split_terms, to_expr
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.arith.symbolic import symbolic_min
from tir.assumptions import divides
from tir.ir import NOT_SPATIAL, NOTHING, Axis, Block, Const, Expr, For, Iter, Store, Var, all_zero, conjunction, conjuncts
from tir.traverse import axis_loops, loads, substatements, substitute, variables

from .iter_map import IterTerm, PredicateBound, Unproved, iter_map, need_one_role

Zeros = Mapping[str, Expr]  # the inner loops, each at its first iteration
DueBound = tuple[PredicateBound, int, int]


@dataclass(frozen=True, slots=True)
class AxisWindow:
    """The values `start + t`, t in range(extent), with `base + t // scale < bound` for each limit (base, scale, bound)."""

    start: Expr
    extent: Expr
    limits: tuple[tuple[Expr, int, int], ...] = ()

    def conditions(self, t: Expr) -> list[Expr]:
        """The conditions on an offset `t`."""
        return [base + (t if scale == 1 else t // scale) < Const(bound, t.dtype) for base, scale, bound in self.limits]


def windows(
    block: Block, outer: Sequence[For], inner: Sequence[For], facts: Sequence[Expr] | None = None
) -> dict[str, AxisWindow]:
    """The window of each spatial iteration variable in one iteration of `outer`; `inner` are the loops inside these.

    Theorem: the points at which the block runs in that iteration are the product of the windows. Each point of the spatial
    domain belongs to exactly one iteration of `outer`, in which all of its reduction is done. Raises Unproved.

    With `facts` about sizes, extents may be symbolic: then windows may reach beyond the domain, where the block does not run.
    A loop of symbolic extent made by `fuse` is split into its parts if the inner part is constant.
    """
    if facts is not None and (parts := _parts_of_symbolic_loops(block, (*outer, *inner), facts)):
        sums = {name: total for name, (_, total, _) in parts.items()}
        outer, inner = ([p for x in loops for p in (parts[x.name][0] if x.name in parts else [x])] for loops in (outer, inner))
        ranges = ranges_of((*outer, *inner))
        back = {name: e for *_, places in parts.values() for name, e in places.items()}
        placed = substitute(block.with_(body=NOTHING, init=None), sums)
        iters = tuple(it.with_(binding=simplify(it.binding, ranges)) for it in placed.iters)
        block = block.with_(iters=iters, predicate=simplify(placed.predicate, ranges))
        return {
            name: AxisWindow(
                simplify(substitute(w.start, back)),
                w.extent,
                tuple((simplify(substitute(base, back)), scale, bound) for base, scale, bound in w.limits),
            )
            for name, w in windows(block, outer, inner, facts).items()
        }
    result: dict[str, AxisWindow] = {}
    own = axes_with_own_loop(block, (*outer, *inner))
    for it in block.iters:
        # A loop that is the whole binding needs no constants.
        loop = own.get(it.var.name)
        if loop is not None and loop.extent == it.extent and loop.name not in variables(block.predicate):
            is_outer = any(loop is x for x in outer)
            one, zero = Const(1, it.extent.dtype), Const(0, it.extent.dtype)
            result[it.var.name] = AxisWindow(loop.var, one) if is_outer else AxisWindow(zero, it.extent)
    rest = [it for it in block.iters if it.var.name not in result]
    done = {own[name].name for name in result}
    for it in [it for it in rest if facts is not None and it.axis is Axis.SPATIAL and type(it.extent) is not Const]:
        found_window = _symbolic_window(block, it, outer, inner, facts or ())
        if found_window is not None:
            result[it.var.name], block = found_window
            rest.remove(it)
            done |= names_in(polynomial(it.binding))
    outer, inner = ([x for x in loops if x.name not in done] for loops in (outer, inner))
    found = iter_map(block, rest, outer, inner)
    ranges = ranges_of((*outer, *inner))
    zeros = all_zero(x.var for x in inner)
    for it in rest:
        if it.axis is Axis.SPATIAL:
            name = it.var.name
            if found.constants[name]:
                raise Unproved(f"`{name}` starts at {found.constants[name]}")
            result[name] = _window(it, found.terms[name], found.bounds[name], zeros, ranges)
    return result


def _parts_of_symbolic_loops(
    block: Block, loops: Sequence[For], facts: Sequence[Expr]
) -> dict[str, tuple[list[For], Expr, dict[str, Expr]]]:
    """The parts of each loop of symbolic extent under `//` and `%` by constants that divide it, as `fuse` makes.

    For each loop: loops over the parts, the highest first; their sum; and each part in terms of the loop."""
    result: dict[str, tuple[list[For], Expr, dict[str, Expr]]] = {}
    if all(type(x.extent) is Const for x in loops):
        return result
    for name, steps in lower_factors((*(it.binding for it in block.iters), *conjuncts(block.predicate))).items():
        loop = next((x for x in loops if x.name == name), None)
        edges = [1, *steps]
        if loop is None or type(loop.extent) is Const or any(b % a for a, b in pairwise(edges)):
            continue
        if not divides(edges[-1], loop.extent, facts):
            continue
        parts, total = split_variable(loop.var, edges, ":")  # loops of their own, not what `iter_map` calls parts
        dtype = loop.extent.dtype
        extents = [*(Const(b // a, dtype) for a, b in pairwise(edges)), simplify(loop.extent // edges[-1])]
        places = {p.name: simplify(loop.var // a % (b // a)) for p, (a, b) in zip(parts, pairwise(edges), strict=False)}
        places[parts[-1].name] = simplify(loop.var // edges[-1])
        result[name] = [For(p, e, NOTHING) for p, e in zip(parts, extents, strict=True)][::-1], total, places
    return result


def partial_windows(
    block: Block, outer: Sequence[For], inner: Sequence[For], facts: Sequence[Expr] | None = None
) -> dict[str, AxisWindow]:
    """The `windows` of the block, if need be without the conditions that its domain does not imply.

    In an iteration of `outer` it may then skip points of the window, but runs at them in no other. Raises Unproved."""
    try:
        return windows(block, outer, inner, facts)
    except Unproved as reason:
        domain = [c for it in block.iters for c in it.domain]
        kept = conjunction(*(c for c in conjuncts(block.predicate) if prove(c, {}, domain)))
        with suppress(Unproved):
            return windows(block.with_(predicate=kept), outer, inner, facts)
        raise reason from None


def _symbolic_window(
    block: Block, it: Iter, outer: Sequence[For], inner: Sequence[For], facts: Sequence[Expr]
) -> tuple[AxisWindow, Block] | None:
    """The window of an iteration variable of symbolic extent, and the block without the conditions on its loops.

    None unless its binding is in mixed radix, only the outermost loop symbolic, and its domain implies these conditions."""
    loops = {x.name: x.extent for x in (*outer, *inner)}
    mine = variables(it.binding)
    total = polynomial(it.binding)
    radix = mixed_radix(total, loops)
    if radix is None or any(mine & variables(other.binding) for other in block.iters if other is not it):
        return None
    _, count = radix
    domain = it.domain
    kept = [c for c in conjuncts(block.predicate) if not mine & variables(c)]
    if not prove(it.extent <= count, {}, facts) or not all(
        prove(c, {}, domain) for c in conjuncts(block.predicate) if mine & variables(c)
    ):
        return None
    moving, fixed = split_terms(total, {x.name for x in inner})
    part = mixed_radix(moving, loops)
    without = block.with_(predicate=conjunction(*kept))
    if not fixed:
        return AxisWindow(Const(0, it.extent.dtype), it.extent), without
    if part is None or type(part[1]) is not Const:
        return None
    start = substitute(it.binding, all_zero(x.var for x in inner))
    return AxisWindow(simplify(start, ranges_of((*outer, *inner))), part[1].with_(dtype=it.extent.dtype)), without


def _window(it: Iter, terms: Sequence[IterTerm], bounds: Sequence[PredicateBound], zeros: Zeros, ranges: Ranges) -> AxisWindow:
    """The window of one iteration variable: its inner terms give contiguous values, its outer terms the start."""
    name = it.var.name
    if type(it.extent) is not Const:
        raise Unproved(f"the extent of `{name}` is not a constant")
    inner = 0  # number of inner terms
    while inner < len(terms) and terms[inner].inner:
        inner += 1
    if any(d.inner for d in terms[inner:]):
        reason = f"`{name}` = `{it.binding}` takes values that are not contiguous in an iteration of the loop"
        raise Unproved(reason, hint=f"reorder first, so that the inner ones of the loops of `{name}` have the smallest steps")
    reach, extent = 1, 1
    limits = []
    for n, (term, due) in enumerate(_with_bounds(terms, bounds)):
        if term.coefficient != reach:
            word = "skips" if term.coefficient > reach else "repeats"
            raise Unproved(f"`{name}` = `{it.binding}` {word} values")
        reach *= term.extent
        for x, first, scale in sorted(due, key=lambda x: x[0].bound * terms[x[1]].coefficient):
            if not scale:
                raise Unproved(f"the condition `{x.loops} < {x.bound}` is not one on the leading part of `{name}`")
            if x.bound * scale < reach:
                reach = symbolic_min(reach, x.bound * scale)
                if n >= inner:  # a limit on outer terms alone: t // (the whole window) is 0
                    limits.append((simplify(substitute(x.loops, zeros), ranges), scale if first < inner else extent, x.bound))
        if n < inner:
            extent = reach
    if reach != it.extent.value:
        raise Unproved(f"`{name}` = `{it.binding}` takes {reach} values of {it.extent.value}")
    return AxisWindow(simplify(substitute(it.binding, zeros), ranges), Const(extent, it.extent.dtype), tuple(limits))


def _with_bounds(terms: Sequence[IterTerm], bounds: Sequence[PredicateBound]) -> Iterator[tuple[IterTerm, list[DueBound]]]:
    """The terms in order, each with the bounds whose highest term it is.

    A bound comes with the number of its first term, and that term's coefficient. The bounded sum times the coefficient is all
    terms from the first to this one; if it is not, the factor is 0.
    """
    left = list(bounds)
    for n, term in enumerate(terms):
        below = {d.name for d in terms[: n + 1]}
        due = []
        for x in [x for x in left if set(x.coefficients) <= below]:
            left.remove(x)
            first = next(k for k, d in enumerate(terms) if d.name in x.coefficients)
            scale = terms[first].coefficient
            leading = all(x.coefficients.get(d.name, 0) * scale == d.coefficient for d in terms[first : n + 1])
            due.append((x, first, scale if leading else 0))
        yield term, due


def need_distinct(block: Block, inner: Sequence[For]) -> None:
    """Prove that the loops `inner` visit each point of the domain at most once, for fixed other loops; raises Unproved."""
    need_one_role(block, inner, axis_loops(block, Axis.SPATIAL), axis_loops(block, *NOT_SPATIAL))
    if not counts_once(block, inner):
        raise Unproved("steps of the reduction may be counted more than once")
    if not counts_once(block, inner, Axis.SPATIAL):
        raise Unproved("values of the spatial axes may come more than once")


def axes_with_own_loop(block: Block, loops: Iterable[For]) -> dict[str, For]:
    """The spatial iteration variables whose binding is a loop that occurs in no other binding, with that loop."""
    by_name = {x.name: x for x in loops}
    result: dict[str, For] = {}
    for it in block.iters:
        loop = by_name.get(it.binding.name) if type(it.binding) is Var else None
        if loop is None or it.axis is not Axis.SPATIAL:
            continue
        if not any(loop.name in variables(other.binding) for other in block.iters if other is not it):
            result[it.var.name] = loop
    return result


@dataclass(frozen=True, slots=True)
class TiledIndex:
    """An index `axis * tile + t + offset`, or without an axis `t + offset`: loops inside of the block take t over range(tile).

    The offset uses variables from outside of the block, and no loads, whose values might differ at its use."""

    axis: str | None
    tile: int
    offset: Expr


def written_indices(block: Block, buffer: str) -> list[list[TiledIndex | None]]:
    """The index of each store of a block to a buffer, in each dimension; None for an index of another form."""
    axes = {it.var.name for it in block.spatial}
    others = {it.var.name for it in block.iters} - axes
    found = []
    for part in substatements(block):
        for n, around in accesses(part):
            if type(n) is Store and n.buffer.name == buffer:
                inner = {x.name: x.extent for x in around.loops}
                indices = [polynomial(simplify(around.closed(i), around.ranges({}))) for i in n.indices]
                driving = [names_in(p) & inner.keys() for p in indices]
                apart = len(set().union(*driving)) == sum(map(len, driving)) and not around.conditions
                found.append([_tiled(p, i.dtype, axes, others, inner, apart) for p, i in zip(indices, n.indices, strict=True)])
    return found


def _tiled(
    index: Polynomial, dtype: str, axes: set[str], others: set[str], inner: Mapping[str, Expr], apart: bool
) -> TiledIndex | None:
    here, there = split_terms(index, inner)
    mine, rest = split_terms(there, axes)
    tile = 1
    if here:
        radix = mixed_radix(here, inner) if apart else None
        if radix is None or type(radix[1]) is not Const:
            return None
        tile = int(radix[1].value)
    offset = to_expr(rest, dtype)
    if names_in(rest) & others or loads(offset):
        return None
    if not mine:
        return TiledIndex(None, tile, offset)
    match linear(mine):
        case (name, factor, 0) if factor == tile:
            return TiledIndex(name, tile, offset)
    return None


def in_elements(window: AxisWindow, index: TiledIndex) -> AxisWindow:
    """A window of axis values as a window of elements, by an index."""
    limits = tuple((base, scale * index.tile, bound) for base, scale, bound in window.limits)
    return AxisWindow(simplify(window.start * index.tile + index.offset), simplify(window.extent * index.tile), limits)
