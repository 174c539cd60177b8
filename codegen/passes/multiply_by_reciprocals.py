"""Division by a loop-invariant number becomes multiplication by its reciprocal in vectorised loops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tir import dtypes
from tir.ir import Binary, Const, Expr, For, If, Kind, Let, Node, PrimFunc, Select, Stmt, annotation, conjunction
from tir.te.elementwise import abs as magnitude
from tir.traverse import children, loads, map_statements, rewrite, stored_names, variables, walk_stmts

ANNOTATION = "allow_reciprocal"


def multiply_by_reciprocals(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for j in vectorized(n, {"allow_reciprocal": True}): B[j] = x(j) / y
              => if tiny <= abs(y) <= huge: for j in vectorized(n, ...): B[j] = x(j) * (1 / y)
                 else: for j in vectorized(n, ...): B[j] = x(j) * c * (1 / (y * c))

    where y is a loop-invariant float. The factor c is 1, or a power of two where 1 / y would not be a normal number; so quotients
    of zeros, infinities and NaNs are those of a division. A divisor evaluated only under a condition is not tested before the
    loop: the second form stands alone. The annotation permits three roundings where a division has one (LLVM's flag `arcp`).
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
                    c = normal_scale(y)
                    return x * c * (Const(1.0, y.dtype) / (y * c))
            return None

        scaled, plain = (s.with_(body=rewrite(s.body, partial(product, scaled=how))) for how in (True, False))
        return If(conjunction(*map(_near_one, divisors)), plain, scaled) if divisors else scaled

    return func.with_(body=visit(func.body))


def _certain(n: Node) -> Iterator[Node]:
    """Nodes evaluated under no condition."""
    yield n
    for part in (n.condition,) if isinstance(n, If) or (isinstance(n, Select) and n.lazy) else children(n):
        yield from _certain(part)


def normal_scale(y: Expr) -> Expr:
    """A power of two by which the float y and its reciprocal become normal numbers; 1 for most y."""
    far, near = _extreme_scales(y)
    size = magnitude(y)
    return Select(size < near, far, Select(size > far, near, Const(1.0, y.dtype)))


def _near_one(y: Expr) -> Expr:
    """True where y and 1 / y are normal numbers without scaling."""
    far, near = _extreme_scales(y)
    return conjunction(near <= magnitude(y), magnitude(y) <= far)


def _extreme_scales(y: Expr) -> tuple[Const, Const]:
    """A large power of two and its reciprocal, both far from the limits of normal numbers."""
    far = dtypes.TABLE[y.dtype].tiny ** -0.5
    return Const(far, y.dtype), Const(1 / far, y.dtype)
