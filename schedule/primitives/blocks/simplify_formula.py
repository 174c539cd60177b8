"""simplify_formula: a simpler formula of a block."""

from __future__ import annotations

from collections.abc import Callable
from math import frexp

from tir import dtypes
from tir.arith.bounds import ranges_of, without_units
from tir.arith.statements import simplify_tree
from tir.ir import Binary, Block, Call, Const, Expr, Node, PrimFunc, Select
from tir.traverse import rewrite, tree_size

from ...error import ScheduleError
from ...legality.dataflow import locate
from ...primitive import BlockName, primitive
from ...rewriting.edits import edited
from ..reductions.factor_out import Factor, constant_factor

Table = tuple[Callable[[Expr], Expr | None], ...]

MAX_EXPONENT = 14  # of a power of two that all floating types have


@primitive
def simplify_formula(func: PrimFunc, block: BlockName, factors: bool = False) -> tuple[PrimFunc, None]:
    """Replace expressions of a block by equal, simpler ones: values by a table of rules, indices and conditions by the domains of
    the axes. With `factors`, powers of two that multiply a value are combined, too.

    Rewrite   T.pow(x, 2) => x * x                             # rounded once, which `pow` need not do
              T.Select(x < y, y, x) => T.max(x, y)             # and all other ways to write max and min
              x * 1 => x
              x * 4.0 / 2.0 => x * 2.0                         # with `factors`
              T.if_then_else(i >= 0, x, 0) => x                # of i from 0 on
              A[i // 4 * 4 + i % 4] => A[i]
    Legal     always, if something changes. The values are equal, but for the last place of a power, and the maximum of a NaN and
              a number, which may be either. With `factors`, intermediate overflow and underflow may change, too.
    Example   powers: s.simplify_formula("B")
    """
    _, leaf = locate(func, block)
    new = simplified(leaf.block, factors)
    if new == leaf.block:
        raise ScheduleError(f"nothing in `{block}` can be simplified", (leaf.block, "the block"))
    return edited(func, [(leaf.block, new)]), None


def simplified(block: Block, factors: bool = False) -> Block:
    """A block with its simplified formula; the block itself if nothing changes."""
    ranges = without_units(ranges_of([block]))
    body: Node = block.body
    table = (*TABLE, _powers_of_two) if factors else TABLE
    while (new := simplify_tree(rewritten(body, table), ranges)) != body:
        body = new
    return block if body == block.body else block.with_(body=body, reads=None, writes=None)


def _power(e: Expr) -> Expr | None:
    match e:
        case Call("pow", (x, Const(2))):
            return Binary("*", x, x)
        case Call("pow", (x, Const(1))):
            return x
    return None


def _larger_or_smaller(e: Expr) -> Expr | None:
    """The `max` or `min` that equals a select. Of equal values it is the first; if one is a NaN, it may be either."""
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


def _powers_of_two(e: Expr) -> Expr | None:
    factor, rest = constant_factor(e) if dtypes.is_float(e.dtype) else (None, None)
    if factor is None or rest is None or any(abs(frexp(n)[0]) != 0.5 for n in (factor.above, factor.below)):
        return None
    value = factor.above / factor.below
    new = Factor(value, 1.0, e.dtype).times(rest)
    return new if abs(frexp(value)[1] - 1) <= MAX_EXPONENT and tree_size(new) < tree_size(e) else None


TABLE: Table = (_power, _larger_or_smaller, _times_one)


def rewritten(node: Node, table: Table = TABLE) -> Node:
    """A node rewritten by the rules of a table."""

    def visit(n: Node) -> Node | None:
        return next((new for row in table if isinstance(n, Expr) and (new := row(n)) is not None), None)

    return rewrite(node, visit)
