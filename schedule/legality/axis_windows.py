"""Which values the iteration variables of a block take while some of the loops around it run.

A binding such as `i_0 * 16 + i_1 * 4 + i_2` is a number whose digits are the loops (see `digits`). Where the digits that belong
to inner loops are the lowest ones, and nothing is skipped or repeated, the values taken in one iteration of the outer loops
form a window, and the windows of all iterations tile the domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tir.arith.affine import Ranges, add, as_constant, constant, linear, polynomial, to_expr
from tir.arith.digits import counts_once
from tir.arith.simplify import prove, ranges_of, simplify
from tir.arith.size import lesser
from tir.ir import Axis, Block, Const, Expr, For, Iter, Var, conjuncts
from tir.traverse import stores, substitute, variables

from .iter_map import IterTerm, PredicateBound, Unproved, iter_map, upper_bound


@dataclass(frozen=True, slots=True)
class Window:
    """The values `start + t` for t in range(extent), where for each limit (base, scale, bound): base + t // scale < bound."""

    start: Expr
    extent: Expr
    limits: tuple[tuple[Expr, int, int], ...] = ()

    def conditions(self, t: Expr) -> list[Expr]:
        """The conditions on an offset `t`."""
        return [base + (t if scale == 1 else t // scale) < Const(bound, t.dtype) for base, scale, bound in self.limits]


def windows(block: Block, outer: Sequence[For], inner: Sequence[For]) -> dict[str, Window]:
    """For each spatial iteration variable its window in an iteration of `outer`, while the loops `inner` run.

    Theorem: the points at which the block runs in that iteration are the product of the windows; each point of the spatial
    domain belongs to exactly one iteration of `outer`, in which all of its reduction is done. Raises Unproved.
    """
    result: dict[str, Window] = {}
    plain = axes_with_own_loop(block, (*outer, *inner))
    for it in block.iters:
        # A loop that is the whole binding needs no constants.
        loop = plain.get(it.var.name)
        if loop is not None and loop.extent == it.extent and loop.name not in variables(block.predicate):
            is_outer = any(loop is x for x in outer)
            one, zero = Const(1, it.extent.dtype), Const(0, it.extent.dtype)
            result[it.var.name] = Window(loop.var, one) if is_outer else Window(zero, it.extent)
    rest = [it for it in block.iters if it.var.name not in result]
    done = {plain[name].name for name in result}
    outer, inner = ([x for x in loops if x.name not in done] for loops in (outer, inner))
    found = iter_map(block, rest, outer, inner)
    ranges = ranges_of((*outer, *inner))
    zeros = {x.name: Const(0, x.var.dtype) for x in inner}
    for it in rest:
        if it.axis is Axis.SPATIAL:
            name = it.var.name
            if found.constants[name]:
                raise Unproved(f"`{name}` starts at {found.constants[name]}")
            result[name] = _window(it, found.digits[name], found.limits[name], zeros, ranges)
    return result


def _window(
    it: Iter, digits: Sequence[IterTerm], limits: Sequence[PredicateBound], zeros: Mapping[str, Expr], ranges: Ranges
) -> Window:
    """The window of one iteration variable: its inner digits, which are contiguous, from where the outer ones put it."""
    name = it.var.name
    if type(it.extent) is not Const:
        raise Unproved(f"the extent of `{name}` is not a constant")
    lowest = 0
    while lowest < len(digits) and digits[lowest].inner:
        lowest += 1
    strided = next((d for d in digits[lowest:] if d.inner), None)
    if strided is not None:
        raise Unproved(
            f"`{name}` = `{it.binding}` takes values that are not contiguous in an iteration of the loop",
            hint=f"reorder first, so that the inner ones of the loops of `{name}` have the smallest steps",
        )
    reach, extent = 1, 1
    cuts = []
    for n, (digit, due) in enumerate(_with_bounds(digits, limits)):
        if digit.coefficient != reach:
            word = "skips" if digit.coefficient > reach else "repeats"
            raise Unproved(f"`{name}` = `{it.binding}` {word} values")
        reach *= digit.extent
        for limit, first, scale in sorted(due, key=lambda x: x[0].bound * digits[x[1]].coefficient):
            if not scale:
                raise Unproved(f"the condition `{limit.loops} < {limit.bound}` is not one on the leading part of `{name}`")
            if limit.bound * scale < reach:
                reach = lesser(reach, limit.bound * scale)
                if n >= lowest:
                    base = simplify(substitute(limit.loops, zeros), ranges)  # type: ignore[arg-type]
                    cuts.append((base, scale if first < lowest else 0, limit.bound))
        if n < lowest:
            extent = reach
    if reach != it.extent.value:
        raise Unproved(f"`{name}` = `{it.binding}` takes {reach} values of {it.extent.value}")
    # A limit on outer digits alone says whether the iteration does anything: t // (something beyond the window) is 0.
    dtype = it.extent.dtype
    limits_of = tuple((base, scale or extent, bound) for base, scale, bound in cuts)
    return Window(simplify(substitute(it.binding, zeros), ranges), Const(extent, dtype), limits_of)  # type: ignore[arg-type]


def _with_bounds(
    digits: Sequence[IterTerm], limits: Sequence[PredicateBound]
) -> Iterator[tuple[IterTerm, list[tuple[PredicateBound, int, int]]]]:
    """The digits, lowest first, each with the conditions on it and those below it: each condition with the number of the lowest
    digit that it is about, and with what times the sum that it bounds is all digits from there on, 0 if nothing is."""
    left = list(limits)
    for n, digit in enumerate(digits):
        below = {d.name for d in digits[: n + 1]}
        due = []
        for limit in [x for x in left if set(x.digits) <= below]:
            left.remove(limit)
            first = next(k for k, d in enumerate(digits) if d.name in limit.digits)
            scale = digits[first].coefficient // (1 if first else limit.digits[digits[0].name])
            leading = all(limit.digits.get(d.name, 0) * scale == d.coefficient for d in digits[first : n + 1])
            due.append((limit, first, scale if leading else 0))
        yield digit, due


def covered_windows(block: Block, outer: Sequence[For], inner: Sequence[For]) -> dict[str, Window]:
    """For each spatial iteration variable a window, in an iteration of `outer`, all of which the block visits while `inner` run.

    What of a window is outside of the domain is not visited. Unlike the parts that `windows` finds, these may overlap.
    Raises Unproved.
    """
    found = iter_map(block, block.iters, outer, inner, distinct=True)
    ranges = ranges_of((*outer, *inner))
    zeros = {x.name: Const(0, x.var.dtype) for x in inner}
    used: list[Expr] = []
    result: dict[str, Window] = {}
    for it in block.iters:
        if it.axis is not Axis.SPATIAL:
            continue
        reach = 1
        mine = [d for d in found.digits[it.var.name] if d.inner]
        for digit, due in _with_bounds(mine, found.limits[it.var.name]):
            if digit.coefficient != reach:
                raise Unproved(f"`{it.var.name}` = `{it.binding}` skips values")
            reach *= digit.extent
            for limit, _, scale in due:
                if scale:
                    reach = lesser(reach, limit.bound * scale)
                    used.append(limit.loops)
        start_at = simplify(substitute(it.binding, zeros), ranges)  # type: ignore[arg-type]
        result[it.var.name] = Window(start_at, Const(reach, it.extent.dtype))  # type: ignore[arg-type]
    facts = [f for it in block.iters for f in (it.binding >= 0, it.binding < it.extent)]
    for c in conjuncts(block.predicate):
        upper = upper_bound(c)
        if not (upper is not None and upper[0] in used) and not prove(c, ranges, facts):
            raise Unproved(f"it is left out unless `{c}`")
    return result


def need_distinct(block: Block, inner: Sequence[For], outer: Sequence[For]) -> None:
    """Show that `inner` visit each point at most once while `outer` stand still, spatial and reduce axes; raises Unproved."""
    if not counts_once(block, inner):
        raise Unproved("steps of the reduction may be counted more than once")
    plain = axes_with_own_loop(block, inner)
    rest = [it for it in block.iters if it.var.name not in plain]
    done = {x.name for x in plain.values()}
    found = iter_map(block, rest, outer, [x for x in inner if x.name not in done], distinct=True)
    for it in rest:
        if it.axis is not Axis.SPATIAL:
            continue
        reach = 1
        mine = [d for d in found.digits[it.var.name] if d.inner]
        for digit, due in _with_bounds(mine, found.limits[it.var.name]):
            if digit.coefficient < reach:
                raise Unproved(f"`{it.var.name}` = `{it.binding}` repeats values")
            reach = (reach - 1) + digit.coefficient * (digit.extent - 1) + 1
            for limit, first, scale in due:
                if scale and first == 0:
                    reach = lesser(reach, (limit.bound - 1) * scale + 1)


def axes_with_own_loop(block: Block, loops: Iterable[For]) -> dict[str, For]:
    """The spatial iteration variables that are bound to a loop which no other one uses, with that loop."""
    by_name = {x.name: x for x in loops}
    result: dict[str, For] = {}
    for it in block.iters:
        loop = by_name.get(it.binding.name) if type(it.binding) is Var else None
        alone = loop is not None and not any(loop.name in variables(o.binding) for o in block.iters if o is not it)
        if loop is not None and alone and it.axis is Axis.SPATIAL:
            result[it.var.name] = loop
    return result


def affine_index(index: Expr, names: Iterable[str]) -> tuple[str, int] | None:
    """(v, c) where an index is the iteration variable v of `names` plus the constant c; None otherwise."""
    match linear(polynomial(index)):
        case (name, 1, offset) if name in set(names):
            return name, offset
    return None


def written_axes(block: Block, buffer: str) -> list[list[tuple[str, int] | None]]:
    """For each store of a block to a buffer, and each dimension, the spatial axis that indexes it, with its offset."""
    axes = [it.var.name for it in block.iters if it.axis is Axis.SPATIAL]
    return [[affine_index(i, axes) for i in s.indices] for s in stores(block) if s.buffer.name == buffer]


def difference(a: Expr, b: Expr) -> int | None:
    """a - b where that is a constant."""
    return as_constant(add(polynomial(simplify(a)), polynomial(simplify(b)), -1))


def shifted(e: Expr, by: int) -> Expr:
    """`e` plus a constant, folded."""
    return e if by == 0 else to_expr(add(polynomial(e), constant(by)), e.dtype)
