"""Substitution of loop variables, and the ranges that loops give them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tir.affine import Interval, Ranges
from tir.ir import TRUE, Axis, Binary, Block, Const, Expr, For, Node, Seq, Stmt, Var, conjunction, conjuncts
from tir.simplify import extent_range, prove, ranges_of, simplify
from tir.traverse import map_children, substitute, variables, walk, walk_stmts

from .error import ScheduleError

UNIT: Interval = (0, 0)
KEPT: Interval = (0, 1)  # given for a loop of extent 1 whose variable should stay: sound, and does not fold to 0


def nest_at(stmt: Stmt) -> tuple[list[For], Stmt]:
    """The loops that a statement begins with, each the whole body of the one before, and what is in the last."""
    found: list[For] = []
    while type(stmt) is For:
        found.append(stmt)
        stmt = stmt.body
    return found, stmt


def driving(block: Block, *axes: Axis) -> set[str]:
    """The loops that drive the axes of a block of the given kinds."""
    return {name for it in block.iters if it.axis in axes for name in variables(it.binding)}


def not_nested(outer: For, inner: Stmt) -> ScheduleError:
    """The refusal of two loops that are not one directly within the other."""
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


def substitute_loops(stmt: Stmt, mapping: Mapping[str, Expr], around: Iterable[For], folded: Collection[str] = ()) -> Stmt:
    """Replace loop variables in `stmt`, simplifying the bindings of blocks and dropping the conditions that are proved.

    `around` are the loops around `stmt` afterwards. Variables of loops of extent 1 stay in the bindings, but for those
    named in `folded`, which become 0.
    """
    outer = ranges_of(around)
    return _Substitution(mapping, outer, folded).visit(stmt, outer)


class _Substitution:
    """Replaces loop variables by `mapping` in the statements visited.

    Most expressions of a program differ only in the names of variables that stay. These are numbered, so that each form is
    simplified once, and get their names back in the result; but for those that the mapping brings in as well.
    """

    def __init__(self, mapping: Mapping[str, Expr], outer: Ranges, folded: Collection[str]):
        self.mapping, self.outer, self.folded = mapping, outer, folded
        self.named = mapping.keys() | {name for value in mapping.values() for name in variables(value)}
        self.results: dict[tuple, Expr] = {}

    def visit(self, s: Any, ranges: dict[str, Interval]) -> Any:
        match s:
            case Block():
                return self.block(s, ranges)
            case For():
                extent = self.replaced(simplify, s.extent, ranges)
                body = self.visit(s.body, {**ranges, s.name: extent_range(extent, ranges)})
                return s if body is s.body and extent is s.extent else s.with_(body=body, extent=extent)
            case Stmt():
                return map_children(s, lambda c: self.visit(c, ranges))
            case Expr():
                return self.replaced(self.simplified, s, ranges)
            case _:
                return s

    def block(self, b: Block, ranges: dict[str, Interval]) -> Block:
        changes: dict[str, Any] = {}
        bindings = [self.replaced(self.simplified, it.binding, ranges) for it in b.iters]
        if any(new is not it.binding for new, it in zip(bindings, b.iters, strict=True)):
            changes["iters"] = tuple(it.with_(binding=new) for new, it in zip(bindings, b.iters, strict=True))
        predicate = conjunction(*(self.replaced(self.unproved, c, ranges) for c in conjuncts(b.predicate)))
        if predicate != b.predicate:
            changes["predicate"] = predicate
        for name in ("init", "body"):
            part = getattr(b, name)
            if part is not None and variables(part) & self.mapping.keys():
                changes[name] = substitute(part, self.mapping)
        return b.with_(**changes) if changes else b

    def replaced(self, finish: Callable[[Expr, Ranges], Expr], expr: Expr, ranges: Ranges) -> Expr:
        """`finish` of the expression with its variables replaced; the expression itself where it has none of them."""
        if not variables(expr) & self.mapping.keys():
            return expr
        form, names = self.numbered(expr)
        key = (finish, form, *[ranges.get(v.name) for v in names.values()])
        if key not in self.results:
            known = {number: ranges[v.name] for number, v in names.items() if v.name in ranges}
            self.results[key] = finish(substitute(form, self.mapping), {**self.outer, **known})
        return self.results[key] if form is expr else substitute(self.results[key], names)

    def numbered(self, expr: Expr) -> tuple[Expr, dict[str, Var]]:
        """The expression with numbers for the names of the variables that stay, and these variables by number.

        Names decide the order of the factors of a product, so where variables are multiplied all keep theirs; and so they do in
        what is more than arithmetic.
        """
        stay = list({n: None for n in walk(expr) if type(n) is Var and n.name not in self.named})
        if not all(map(_without_products, walk(expr))):
            return expr, {v.name: v for v in stay}
        form = substitute(expr, {v.name: Var(str(number), v.dtype) for number, v in enumerate(stay)})
        return form, {str(number): v for number, v in enumerate(stay)}

    def simplified(self, expr: Expr, ranges: Ranges) -> Expr:
        """The expression in normal form. Variables of loops of extent 1 stay, unless they are to be folded."""
        return simplify(expr, {name: KEPT if r == UNIT and name not in self.folded else r for name, r in ranges.items()})

    def unproved(self, condition: Expr, ranges: Ranges) -> Expr:
        """The condition in normal form; TRUE where it always holds."""
        return TRUE if UNIT in ranges.values() and prove(condition, ranges) else self.simplified(condition, ranges)


def _without_products(n: Node) -> bool:
    """Whether this is a variable, a constant, or an operation on two numbers other than a product of variables."""
    match n:
        case Binary(op, a, b):
            return op != "*" or Const in (type(a), type(b))
        case _:
            return isinstance(n, (Var, Const))
