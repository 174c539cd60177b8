"""Reordering of loops, and substitution of loop variables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import is_
from typing import Any

from tir.arith.bounds import extent_range, ranges_of
from tir.arith.intervals import Interval, Ranges
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.ir import TRUE, Block, Expr, For, Foreign, PrimFunc, Seq, Stmt, conjunction, conjuncts
from tir.traverse import map_children, map_statements, substitute, variables, walk_stmts

from ..error import ScheduleError
from ..primitive import loop_at

UNIT_RANGE: Interval = (0, 0)
UNFOLDED_UNIT_RANGE: Interval = (0, 1)  # sound for a loop of extent 1, and keeps its variable from folding to 0


def not_nested(outer: For, inner: Stmt) -> ScheduleError:
    """The refusal of two loops that are not directly nested."""
    assert isinstance(inner, For)
    if any(s is inner for s in walk_stmts(outer)):
        between = outer.body
        if isinstance(between, For):
            hint = f"name the loops in between too, or reorder first: `{between.name}` comes next"
            return ScheduleError(
                f"`{inner.name}` is not directly inside `{outer.name}`", (outer, "outer loop"), (between, "in between"), hint=hint
            )
        only = "move what else it holds out of it: decompose_reduction for an init, compute_at another loop for a producer"
        return ScheduleError(
            f"`{inner.name}` is not the only statement of `{outer.name}`",
            (outer, "outer loop"),
            (inner, "must be its whole body"),
            hint=only if isinstance(between, Seq) else None,
        )
    if any(s is outer for s in walk_stmts(inner)):
        return ScheduleError(
            f"`{inner.name}` is outside `{outer.name}`", (inner, "outer"), (outer, "inner"), hint="give the loops outermost first"
        )
    return ScheduleError(
        f"`{inner.name}` is not inside `{outer.name}`",
        (outer, "one nest"),
        (inner, "another"),
        hint="loops of one nest are needed; merge joins two nests",
    )


def reordered(func: PrimFunc, names: Sequence[str]) -> tuple[list[Stmt], list[For], list[For]]:
    """The path to the outermost of some loops, their nest, and it in the given order. Refuses any but one perfect nest."""
    found = sorted((loop_at(func, n) for n in names), key=lambda x: len(x[1]))
    (_, above), (innermost, deepest) = found[0], found[-1]
    for loop, _ in found:
        if not any(s is loop for s in deepest):
            raise not_nested(loop, innermost)
    chain: list[For] = []
    for s in deepest[len(above) - 1 :]:
        if not isinstance(s, For):
            below = next(x for x in deepest[len(above) + len(chain) :] if isinstance(x, For))
            raise not_nested(chain[-1], below)
        chain.append(s)
    by_name = {loop.name: loop for loop in chain}
    listed = iter(names)
    return above, chain, [by_name[next(listed)] if loop.name in names else loop for loop in chain]


def substitute_loops(stmt: Stmt, mapping: Mapping[str, Expr], around: Iterable[For], folded: Collection[str] = ()) -> Stmt:
    """`stmt` with loop variables replaced, block bindings simplified, and proved conditions dropped.

    `around` are the new loops around `stmt`. Variables of loops of extent 1 stay in the bindings, except that `folded` ones
    become 0.
    """

    def simplified(e: Expr, ranges: Ranges) -> Expr:
        return simplify(
            e, {name: UNFOLDED_UNIT_RANGE if r == UNIT_RANGE and name not in folded else r for name, r in ranges.items()}
        )

    def unproved(condition: Expr, ranges: Ranges) -> Expr:
        return TRUE if UNIT_RANGE in ranges.values() and prove(condition, ranges) else simplified(condition, ranges)

    def replaced(e: Expr, ranges: Ranges, finish: Callable[[Expr, Ranges], Expr] = simplified) -> Expr:
        return finish(substitute(e, mapping), ranges) if variables(e) & mapping.keys() else e

    def block(b: Block, ranges: Ranges) -> Block:
        bindings = [replaced(it.binding, ranges) for it in b.iters]
        iters = tuple(it.with_(binding=e) for it, e in zip(b.iters, bindings, strict=True))
        predicate = conjunction(*(replaced(c, ranges, unproved) for c in conjuncts(b.predicate)))
        b = b if all(map(is_, iters, b.iters)) and predicate == b.predicate else b.with_(iters=iters, predicate=predicate)
        return map_statements(b, lambda part: substitute(part, mapping))

    def visit(s: Any, ranges: dict[str, Interval]) -> Any:
        match s:
            case Block():
                return block(s, ranges)
            case For():
                extent = replaced(s.extent, ranges, simplify)
                body = visit(s.body, {**ranges, s.name: extent_range(extent, ranges)})
                return s.with_(body=body, extent=extent)
            case Stmt():
                return map_children(s, lambda c: visit(c, ranges))
            case Expr():
                return replaced(s, ranges)
            case Foreign():
                return substitute(s, mapping)
            case _:
                return s

    return visit(stmt, ranges_of(around))
