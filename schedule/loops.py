"""Substitution of loop variables, and the ranges that loops give them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tir.affine import Interval
from tir.analysis.regions import extent_range
from tir.ir import TRUE, Block, Const, Expr, For, Stmt, Var, conjunction, conjuncts
from tir.simplify import prove, simplify
from tir.traverse import map_children, substitute, variables

UNIT: Interval = (0, 0)
KEPT: Interval = (0, 1)  # given for a loop of extent 1 whose variable should stay: sound, and does not fold to 0


def ranges_of(loops: Iterable[For]) -> dict[str, Interval]:
    """The inclusive ranges of loop variables, the loops given outermost first."""
    ranges: dict[str, Interval] = {}
    for loop in loops:
        extent = loop.extent
        ranges[loop.name] = (0, extent.value - 1) if type(extent) is Const else extent_range(extent, ranges)
    return ranges


def substitute_loops(stmt: Stmt, mapping: Mapping[str, Expr], around: Iterable[For], folded: Collection[str] = ()) -> Stmt:
    """Replace loop variables in `stmt`, simplifying the bindings of blocks and dropping the conditions that are proved.

    `around` are the loops around `stmt` afterwards. Variables of loops of extent 1 stay in the bindings, but for those
    named in `folded`, which become 0.
    """
    outer = ranges_of(around)
    wanted = set(mapping)

    # Many blocks have the same bindings and conditions: each is replaced, simplified and proved once for the same ranges.
    memo: dict[Expr, tuple[Expr, list[str]] | None] = {}
    results: dict[tuple, Any] = {}

    def replaced(expr: Expr) -> Expr:
        return substitute(expr, mapping) if variables(expr) & wanted else expr

    def replaced_once(expr: Expr) -> tuple[Expr, list[str]] | None:
        """The expression with its variables replaced, and those it has now; None where that changes nothing."""
        if type(expr) is Var and expr.name not in wanted:
            return None
        if expr not in memo:
            memo[expr] = (new := substitute(expr, mapping), sorted(variables(new))) if variables(expr) & wanted else None
        return memo[expr]

    def once(what: Callable[..., Any], new: tuple[Expr, list[str]], ranges: dict[str, Interval]) -> Any:
        key = (what, new[0], *[ranges.get(name) for name in new[1]])
        if key not in results:
            results[key] = what(new[0], ranges)
        return results[key]

    def visit(s, ranges: dict[str, Interval]):
        if type(s) is Block:
            return block(s, ranges)
        if type(s) is For:
            extent = replaced(s.extent)
            extent = extent if extent is s.extent else simplify(extent, ranges)
            inner = {**ranges, s.name: (0, extent.value - 1) if type(extent) is Const else extent_range(extent, ranges)}
            body = visit(s.body, inner)
            return s if body is s.body and extent is s.extent else s.with_(body=body, extent=extent)
        if isinstance(s, Stmt):
            return map_children(s, lambda c: visit(c, ranges))
        if isinstance(s, Expr):
            new = replaced(s)
            return s if new is s else simplify(new, keeping(ranges))
        return s

    def keeping(ranges: dict[str, Interval]) -> dict[str, Interval]:
        if UNIT not in ranges.values():
            return ranges
        return {name: KEPT if r == UNIT and name not in folded else r for name, r in ranges.items()}

    def block(b: Block, ranges: dict[str, Interval]) -> Block:
        kept = keeping(ranges)
        iters = []
        for it in b.iters:
            binding = replaced_once(it.binding)
            iters.append(it if binding is None else it.with_(binding=once(simplify, binding, kept)))
        predicate = b.predicate
        if predicate is not TRUE:
            parts: list[Expr] = []
            for part in conjuncts(predicate):
                new = replaced_once(part)
                fitting = part if new is None else once(simplify, new, kept)
                if new is None or not (fitting == TRUE or (kept is not ranges and once(prove, new, ranges))):
                    parts.append(fitting)
            predicate = conjunction(*parts)
        inside = {}
        for name in ("init", "body"):
            part = getattr(b, name)
            if part is not None and variables(part) & wanted:
                inside[name] = substitute(part, mapping)
        if not inside and predicate == b.predicate and all(x is y for x, y in zip(iters, b.iters, strict=True)):
            return b
        return b.with_(iters=tuple(iters), predicate=predicate, **inside)

    return visit(stmt, outer)
