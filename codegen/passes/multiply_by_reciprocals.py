"""Quotients by a number that stays the same along a vectorised loop are products with its reciprocal."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tir import dtypes
from tir.elementwise import abs as magnitude
from tir.ir import Binary, Const, Expr, For, If, Kind, Let, Node, PrimFunc, Select, Stmt, annotation, conjunction
from tir.traverse import children, loads, map_statements, rewrite, stored_names, variables, walk_stmts

ANNOTATION = "allow_reciprocal"


def multiply_by_reciprocals(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for j in vectorized(n, {"allow_reciprocal": True}): B[j] = x(j) / y
              => if tiny <= abs(y) <= huge: for j in vectorized(n, ...): B[j] = x(j) * (1 / y)
                 else: for j in vectorized(n, ...): B[j] = x(j) * c * (1 / (y * c))

    where y is a float that does not depend on j, or on loops inside. The factor c is 1, or a power of two where y is so large or
    so small that its reciprocal would not be a normal number; so quotients of zeros, infinities and NaNs are those of a division.
    A divisor read only under a condition of the loop is not read before it: there the second form stands alone. The annotation is
    the schedule's leave to round three times where a division rounds once (LLVM's flag `arcp`).
    """

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, For) or s.kind is not Kind.VECTORIZED or not annotation(s.annotations, ANNOTATION):
            return map_statements(s, visit)
        written = stored_names(s.body)
        inside = {s.var.name, *(n.var.name for n in walk_stmts(s.body) if isinstance(n, For | Let))}
        certain = {*_certain(s.body)}
        divisors: dict[Expr, None] = {}

        def stays(e: Expr) -> bool:
            return not inside & variables(e) and not any(x.buffer.name in written for x in loads(e))

        def product(n: Node, scaled: bool) -> Expr | None:
            match n:
                case Binary("/", x, y) if (
                    dtypes.computed(y.dtype) == y.dtype and dtypes.is_float(y.dtype) and stays(y) and not stays(x)
                ):
                    if y in certain:
                        divisors[y] = None
                        if not scaled:
                            return x * (Const(1.0, y.dtype) / y)
                    c = scale(y)
                    return x * c * (Const(1.0, y.dtype) / (y * c))
            return None

        scaled, plain = (s.with_(body=rewrite(s.body, partial(product, scaled=how))) for how in (True, False))
        return If(conjunction(*map(_near_one, divisors)), plain, scaled) if divisors else scaled

    return func.with_(body=visit(func.body))


def _certain(n: Node) -> Iterator[Node]:
    """The nodes that are evaluated whatever conditions say."""
    yield n
    for part in (n.condition,) if isinstance(n, If) or (isinstance(n, Select) and n.lazy) else children(n):
        yield from _certain(part)


def scale(y: Expr) -> Expr:
    """The factor that makes y, a float, and its reciprocal normal: a power of two, 1 for most numbers."""
    far, near = _bounds(y)
    size = magnitude(y)
    return Select(size < near, far, Select(size > far, near, Const(1.0, y.dtype)))


def _near_one(y: Expr) -> Expr:
    """True where y and its reciprocal are normal as they are."""
    far, near = _bounds(y)
    return conjunction(near <= magnitude(y), magnitude(y) <= far)


def _bounds(y: Expr) -> tuple[Const, Const]:
    """A power of two and its reciprocal, far from the ends of the normal numbers."""
    far = dtypes.TABLE[y.dtype].tiny ** -0.5
    return Const(far, y.dtype), Const(1 / far, y.dtype)
