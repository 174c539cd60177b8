"""Iter maps: bindings of a block as sums of loops, each times a constant, such as `i_0 * 16 + i_1 * 4 + i_2`.

Such a sum is a number in mixed radix if each coefficient is the product of the extents of the terms below it. A loop under `//`
and `%` by constants, such as `fuse` makes, is first split into parts in mixed radix. The parts of a fused loop `f` are named
`f.0`, `f.1`, ..., the lowest first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from tir.arith.bounds import ranges_of
from tir.arith.intervals import Interval, Ranges
from tir.arith.mixed_radix import lower_factors, split_variable
from tir.arith.polynomial import Polynomial, add, names_in, nonpositive, polynomial, to_expr
from tir.arith.simplify import simplify
from tir.arith.symbolic import is_one
from tir.ir import NOTHING, Axis, Binary, Block, Const, Expr, For, Iter, Var, conjuncts
from tir.traverse import substitute, variables

from ..error import Mark, ScheduleError


class Unproved(Exception):
    """A failed proof about the iterations of a block, with the reason and a hint."""

    def __init__(self, reason: str, hint: str | None = None):
        super().__init__(reason)
        self.hint = hint


@contextmanager
def proving(what: str, *marks: Mark, hint: str | None = None) -> Iterator[None]:
    """Turn `Unproved` into a refusal; `what` is the clause to be proved, `hint` the default hint."""
    try:
        yield
    except Unproved as reason:
        raise ScheduleError(f"it cannot be shown {what}: {reason}", *marks, hint=reason.hint or hint) from None


@dataclass(frozen=True, slots=True)
class IterTerm:
    """A term of a binding: a loop, or a part of a fused loop, times a coefficient. `inner` marks inner loops."""

    name: str
    coefficient: int
    extent: int
    inner: bool


@dataclass(frozen=True, slots=True)
class PredicateBound:
    """A condition `loops < bound` of a predicate; `coefficients` are by term."""

    loops: Expr
    coefficients: dict[str, int]
    bound: int


@dataclass(frozen=True, slots=True)
class IterMap:
    """By spatial axis of a block: the terms of its binding by ascending coefficient, the constant, and bounding conditions."""

    terms: dict[str, list[IterTerm]]
    constants: dict[str, int]
    bounds: dict[str, list[PredicateBound]]


def iter_map(block: Block, iters: Sequence[Iter], outer: Sequence[For], inner: Sequence[For]) -> IterMap:
    """The iter map of the spatial variables among `iters`; raises Unproved if a binding is not a sum of loops."""
    spatial = [it for it in iters if it.axis is Axis.SPATIAL]
    loops = (*outer, *inner)
    ranges = ranges_of(loops)
    bindings = {it.var.name: simplify(it.binding, ranges) for it in spatial}
    placing = variables(*bindings.values())
    reducing = variables(*(it.binding for it in iters if it.axis is not Axis.SPATIAL))
    counting = {x.name for x in inner if x.name in reducing - placing}  # of any extent, also symbolic
    _need_roles(block, loops, placing, reducing, counting, {x.name for x in inner})

    extents = {x.var: x.extent.value for x in loops if type(x.extent) is Const}
    conditions = _upper_bounds(block, reducing - placing)
    fused, parts, all_ranges = split_fused_loops((*bindings.values(), *(e for e, _ in conditions)), extents, ranges)
    sizes = {**{x.name: e for x, e in extents.items() if x.name not in fused}, **parts}
    loop_of = {name: name for name in sizes} | {part: name for name, total in fused.items() for part in variables(total)}
    inside = {n for n in sizes if loop_of[n] in {x.name for x in inner}}
    reader = _BindingReader(fused, all_ranges, sizes, inside, {})

    terms: dict[str, list[IterTerm]] = {}
    constants: dict[str, int] = {}
    for it in spatial:
        name = it.var.name
        found, constants[name] = reader.coefficients(bindings[name], f"`{name}` = `{it.binding}`")
        terms[name] = reader.terms(name, found)
    for d, size in parts.items():
        if not is_one(size) and loop_of[d] in placing and d not in reader.owner:
            raise _repeated(loop_of[d], block)
    bounds: dict[str, list[PredicateBound]] = {name: [] for name in terms}
    for expr, bound in conditions:
        owner, found_bound = reader.bound(expr, bound)
        bounds[owner].append(found_bound)
    return IterMap(terms, constants, bounds)


_BEFORE_FUSE_HINT = "do this before the loops are fused"


def _repeated(loop: str, block: Block) -> Unproved:
    reason = f"`{loop}` repeats `{block.name}`"
    return Unproved(reason, f"do this before `{block.name}` is moved under `{loop}`, or choose a loop inside `{loop}`")


def _need_roles(
    block: Block, loops: Sequence[For], placing: set[str], reducing: set[str], counting: set[str], inside: set[str]
) -> None:
    """Require that each loop has a constant extent and drives spatial axes, or is an inner loop that drives the reduction."""
    for x in loops:
        if type(x.extent) is not Const and x.name not in counting:
            raise Unproved(f"the extent of `{x.name}` is not a constant")
    for x in loops:
        if type(x.extent) is Const and is_one(x.extent.value):
            continue
        if x.name in reducing and x.name not in inside:
            raise Unproved(f"`{x.name}` is a loop of the reduction", f"choose a place outside of `{x.name}`")
    need_one_role(block, loops, placing, reducing)


def need_one_role(block: Block, loops: Sequence[For], placing: set[str], reducing: set[str]) -> None:
    """Refuse a loop of extent above 1 that drives both reduction and spatial axes, or no axis."""
    for x in loops:
        if type(x.extent) is Const and is_one(x.extent.value):
            continue
        if x.name in reducing and x.name in placing:
            raise Unproved(f"`{x.name}` is a loop of the reduction and of spatial axes as well", _BEFORE_FUSE_HINT)
        if x.name not in reducing and x.name not in placing:
            raise _repeated(x.name, block)


def _upper_bounds(block: Block, ignored: set[str]) -> list[tuple[Expr, int]]:
    """The predicate as upper bounds, without conditions on `ignored` loops alone."""
    found = []
    for c in conjuncts(block.predicate):
        if set() < variables(c) <= ignored:
            continue
        upper = upper_bound(c)
        if upper is None:
            raise Unproved(f"the condition `{c}` is not an upper bound")
        found.append(upper)
    return found


@dataclass(frozen=True, slots=True)
class _BindingReader:
    """Reader of expressions over loops as sums of terms; each term belongs to one iteration variable, its owner."""

    fused: Mapping[str, Expr]
    ranges: Mapping[str, Interval]
    sizes: Mapping[str, int]
    inside: set[str]
    owner: dict[str, str]

    def coefficients(self, expr: Expr, what: str) -> tuple[dict[str, int], int]:
        """The coefficients of a sum by term, and its constant."""
        found: dict[str, int] = {}
        offset = 0
        for m, c in polynomial(simplify(substitute(expr, self.fused), self.ranges)).items():
            if m == ():
                offset = c
            elif len(m) == 1 and type(m[0]) is Var and m[0].name in self.sizes and c > 0:
                found[m[0].name] = c
            else:
                raise Unproved(f"{what} is not a sum of loops", _BEFORE_FUSE_HINT)
        return found, offset

    def terms(self, name: str, found: Mapping[str, int]) -> list[IterTerm]:
        """The terms of an iteration variable by ascending coefficient; the variable becomes their owner."""
        result = []
        for d, factor in sorted(found.items(), key=lambda item: (item[1], self.sizes[item[0]])):
            if is_one(self.sizes[d]):
                continue
            if self.owner.setdefault(d, name) != name:
                raise Unproved(f"`{self.owner[d]}` and `{name}` move together")
            result.append(IterTerm(d, factor, self.sizes[d], d in self.inside))
        return result

    def bound(self, expr: Expr, bound: int) -> tuple[str, PredicateBound]:
        """The iteration variable that `expr < bound` bounds, and the condition."""
        found, offset = self.coefficients(expr, f"the left of `{expr} < {bound}`")
        found = {d: c for d, c in found.items() if not is_one(self.sizes[d])}
        owners = {self.owner.get(d) for d in found}
        owner = owners.pop() if len(owners) == 1 else None
        if owner is None:
            raise Unproved(f"the condition `{expr} < {bound}` concerns several axes")
        return owner, PredicateBound(expr, found, bound - offset)


def limited_sums(
    places: Iterable[Polynomial], conditions: Iterable[Expr], loops: Collection[str]
) -> tuple[list[Polynomial], list[tuple[For, Polynomial]], list[Expr]]:
    """Places with each sum of `loops` that a condition limits replaced by one loop that ends at the limit.

    Such sums occur in tiles that their parts do not fill. Returns the places; the new loops, each with the terms of its sum; and
    the remaining conditions.
    """
    places = list(places)
    limited: list[tuple[For, Polynomial]] = []
    left: list[Expr] = []
    for condition in conditions:
        limit = nonpositive(condition) or {}
        terms = {m: c for m, c in limit.items() if m}
        mine = names_in(terms)
        plain = all(c > 0 and len(m) == 1 and type(m[0]) is Var for m, c in terms.items())  # counts from 0
        of = [n for n, p in enumerate(places) if mine & names_in(p)]
        if len(of) == 1 and mine <= set(loops) and plain and not mine & names_in(rest := add(places[of[0]], terms, -1)):
            number = For(Var(f"limited.{len(limited)}"), Const(1 - limit.get((), 0)), NOTHING)
            limited.append((number, terms))
            places[of[0]] = add(rest, {(number.var,): 1})
        else:
            left.append(condition)
    return places, limited, left


def upper_bound(condition: Expr) -> tuple[Expr, int] | None:
    """An integer comparison as `expression < bound`, the expression without a constant term; None for other conditions."""
    p = nonpositive(condition)
    if p is None:
        return None
    assert isinstance(condition, Binary)
    offset = p.pop((), 0)
    return to_expr(p, condition.a.dtype), 1 - offset


def split_fused_loops(
    exprs: Iterable[Expr], extents: Mapping[Var, int], ranges: Ranges
) -> tuple[dict[str, Expr], dict[str, int], dict[str, Interval]]:
    """Loops under `//` and `%` by constants in mixed radix: substitution, extents of the parts, and all ranges."""
    mapping: dict[str, Expr] = {}
    names: dict[str, int] = {}
    all_ranges = dict(ranges)
    factors = lower_factors(exprs)
    for loop, extent in extents.items():
        edges = [1, *(f for f in factors.get(loop.name, ()) if f < extent), extent]
        if len(edges) == 2 or any(b % a for a, b in pairwise(edges)):
            continue
        parts, mapping[loop.name] = split_variable(loop, edges[:-1])
        for part, (low, high) in zip(parts, pairwise(edges), strict=True):
            names[part.name] = high // low
            all_ranges[part.name] = (0, high // low - 1)
    return mapping, names, all_ranges
