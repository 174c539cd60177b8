"""Quotients by a number that stays the same along a vectorised loop are products with its reciprocal."""

from __future__ import annotations

from tir import dtypes
from tir.elementwise import abs as magnitude
from tir.ir import Binary, Const, Expr, For, Kind, Node, PrimFunc, Select, Stmt, annotation
from tir.traverse import loads, map_statements, rewrite, stores, variables

ANNOTATION = "allow_reciprocal"


def multiply_by_reciprocals(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for j in vectorized(n, {"allow_reciprocal": True}): B[j] = x(j) / y
              => for j in vectorized(n, ...): B[j] = x(j) * c * (1 / (y * c))

    where y is a float that does not depend on j. The factor c is 1, or a power of two where y is so large or so small that its
    reciprocal would not be a normal number; so quotients of zeros, infinities and NaNs are those of a division. The annotation
    is the schedule's leave to round three times where a division rounds once (LLVM's flag `arcp`).
    """

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, For) or s.kind is not Kind.VECTORIZED or not annotation(s.annotations, ANNOTATION):
            return map_statements(s, visit)
        written = {x.buffer.name for x in stores(s.body)}

        def stays(e: Expr) -> bool:
            return s.var.name not in variables(e) and not any(x.buffer.name in written for x in loads(e))

        def product(n: Node) -> Expr | None:
            match n:
                case Binary("/", x, y) if (
                    dtypes.computed(y.dtype) == y.dtype and dtypes.is_float(y.dtype) and stays(y) and not stays(x)
                ):
                    c = scale(y)
                    return x * c * (Const(1.0, y.dtype) / (y * c))
            return None

        return s.with_(body=rewrite(s.body, product))

    return func.with_(body=visit(func.body))


def scale(y: Expr) -> Expr:
    """What y, a float, is multiplied by so that it and its reciprocal are normal: a power of two, 1 for most numbers."""
    far = dtypes.TABLE[y.dtype].tiny ** -0.5

    def constant(value: float) -> Const:
        return Const(value, y.dtype)

    size = magnitude(y)
    return Select(size < constant(1 / far), constant(far), Select(size > constant(far), constant(1 / far), constant(1.0)))
