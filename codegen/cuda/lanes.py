"""Indices and conditions of vectorised loops, analysed for accesses that start at multiples of the number of lanes."""

from __future__ import annotations

from tir import dtypes
from tir.arith.intervals import Interval, polynomial_bounds
from tir.arith.polynomial import Polynomial, polynomial, to_expr
from tir.arith.simplify import simplify, wraps
from tir.ir import Binary, Const, Expr, Stmt, Unary, Var
from tir.traverse import rewrite, variables


def lane_outside_divisions(s: Stmt, lane: Var, ranges: dict[str, Interval]) -> Stmt:
    """`s` with divisions and remainders that contain the lane simplified, for 0 <= r < g:

    (g x + r) // (g c) = x // c   and   (g x + r) % (g c) = g (x % c) + r

    Of an index that starts at a multiple of the number of lanes, r is the lane.
    """

    def visit(e):
        match e:
            case Binary("//" | "%" as op, a, Const(c)) if (
                c > 0 and lane.name in variables(a) and dtypes.is_int(a.dtype) and not wraps(a)
            ):
                coarse, fine, g = _coarse_and_fine(polynomial(simplify(a, ranges)), int(c), ranges)
                if coarse is not None:
                    inner = Binary(op, to_expr(coarse, a.dtype), Const(c // g, a.dtype))
                    return inner if op == "//" else inner * g + to_expr(fine, a.dtype)
        return None

    return rewrite(s, visit)


def _coarse_and_fine(p: Polynomial, c: int, ranges: dict[str, Interval]) -> tuple[Polynomial | None, Polynomial, int]:
    """`coarse`, `fine` and g of p = g * coarse + fine, 0 <= fine < g, with the largest g > 1 that divides c.

    `coarse` is None if no g meets the conditions."""
    for g in sorted((d for d in range(2, c + 1) if c % d == 0), reverse=True):
        coarse = {m: k // g for m, k in p.items() if k % g == 0}
        fine = {m: k for m, k in p.items() if k % g}
        low, high = polynomial_bounds(fine, ranges)
        if coarse and fine and low is not None and high is not None and low >= 0 and high < g:
            return coarse, fine, g
    return None, {}, 1


def same_in_lanes(condition: Expr, lane: Var, n: int, ranges: dict[str, Interval]) -> bool:
    """True if a condition holds for all n lanes or for none. It does not depend on the lane, or compares n x + lane with n y."""
    if lane.name not in variables(condition):
        return True
    match condition:
        case Binary("and" | "or", a, b):
            return same_in_lanes(a, lane, n, ranges) and same_in_lanes(b, lane, n, ranges)
        case Unary("not", a):
            return same_in_lanes(a, lane, n, ranges)
        case Binary("<" | ">=", a, b) if dtypes.is_int(a.dtype) and not wraps(a) and not wraps(b):
            # n x + lane < n y exactly if x < y, for 0 <= lane < n
            p = polynomial(simplify(Binary("-", a, b), ranges))
            rest = {m: k for m, k in p.items() if m != (lane,)}
            return (
                p.get((lane,)) == 1
                and all(k % n == 0 for k in rest.values())
                and not any(lane.name in variables(atom) for m in rest for atom in m)
            )
        case _:
            return False
