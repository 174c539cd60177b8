"""simplify_formula: a block computes the same by a simpler formula."""

from __future__ import annotations

from collections.abc import Callable

from tir import dtypes
from tir.arith.bounds import ranges_of, without_units
from tir.arith.statements import simplify_tree
from tir.ir import Binary, Block, Call, Const, Expr, Node, PrimFunc, Select
from tir.traverse import rewrite

from ...error import ScheduleError
from ...legality.dataflow import locate
from ...primitive import primitive
from ...rewriting.edits import edited


@primitive
def simplify_formula(func: PrimFunc, block: str) -> tuple[PrimFunc, None]:
    """Replace what is in a block by what is equal to it and simpler: values by the rows of a table, indices and conditions by
    what they are in the domains of the axes.

    Rewrite   T.pow(x, 2) => x * x                             # rounded once, which `pow` need not do
              T.Select(x < y, y, x) => T.max(x, y)             # and all other ways to write max and min
              x * 1 => x
              T.if_then_else(i >= 0, x, 0) => x                # of i from 0 on
              A[i // 4 * 4 + i % 4] => A[i]
    Legal     always, if something changes: the values are equal, but for the last place of a power, and a maximum of a NaN and a
              number, which may be either.
    Example   powers: s.simplify_formula("B")
    """
    _, leaf = locate(func, block)
    new = simplified(leaf.block)
    if new == leaf.block:
        raise ScheduleError(f"nothing in `{block}` can be simplified", (leaf.block, "the block"))
    return edited(func, [(leaf.block, new)]), None


def simplified(block: Block) -> Block:
    """A block with its simplest formula; the block itself where it has that."""
    ranges = without_units(ranges_of([block]))
    body: Node = block.body
    while (new := simplify_tree(rewritten(body), ranges)) != body:
        body = new
    return block if body == block.body else block.with_(body=body, reads=None, writes=None)


def rewritten(node: Node) -> Node:
    """A node with the rows of the table applied."""

    def visit(n: Node) -> Node | None:
        return next((new for row in TABLE if isinstance(n, Expr) and (new := row(n)) is not None), None)

    return rewrite(node, visit)


def _power(e: Expr) -> Expr | None:
    match e:
        case Call("pow", (x, Const(2))):
            return Binary("*", x, x)
        case Call("pow", (x, Const(1))):
            return x
    return None


def _larger_or_smaller(e: Expr) -> Expr | None:
    """Where both are equal, `max` and `min` are the first; where one is a NaN, they may be either."""
    match e:
        case Select(Binary("<" | "<=" | ">" | ">=" as op, a, b), t, f) if a != b and (t, f) in ((a, b), (b, a)):
            larger = (op[0] == ">") == (t == a)
            first, second = (t, f) if op[1:] else (f, t)
            return Binary("max" if larger else "min", first, second)
    return None


def _times_one(e: Expr) -> Expr | None:
    match e:
        case Binary("*", a, Const(1, dtype)) | Binary("*", Const(1, dtype), a) if dtypes.is_float(dtype):
            return a
        case Binary("/", a, Const(1)):
            return a
    return None


TABLE: tuple[Callable[[Expr], Expr | None], ...] = (_power, _larger_or_smaller, _times_one)
