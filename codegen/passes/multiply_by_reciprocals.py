"""Division by a loop-invariant number becomes multiplication by its reciprocal in annotated loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tir import dtypes
from tir.ir.expressions import Binary, Call, Const, Expr, Select, Var, conjunction
from tir.ir.functions import PrimFunc
from tir.ir.nodes import Node, annotation
from tir.ir.statements import For, If, Kind, Let, Stmt
from tir.te.elementwise import abs as magnitude
from tir.traverse import children, fresh, loads, map_statements, names, rewrite, stored_names, variables, walk_stmts

ANNOTATION = "allow_reciprocal"
INVERSE = "normal_inverse"  # a call: 1 / its argument, if neither is subnormal


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
        shared, certain = _shared_divisors(s), {*_certain(s.body)}
        divisors: dict[Expr, None] = {}

        def product(n: Node, scaled: bool) -> Expr | None:
            match n:
                case Binary("/", x, y) if shared(n):
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


def share_reciprocals(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for j in range(n, {"allow_reciprocal": True}): B[j] = x(j) / y
              => c = a power of two; r = normal_inverse(y * c)
                 for j in range(n, ...): B[j] = x(j) * c * r

    with c and the conditions of `multiply_by_reciprocals`, for compilers that move no division out of an unrolled loop. A divisor
    evaluated only under a condition remains one, unless its element exists in any case.
    """
    taken = names(func)

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, For) or not annotation(s.annotations, ANNOTATION):
            return map_statements(s, visit)
        shared, certain = _shared_divisors(s), {*_certain(s.body)}
        found: dict[Expr, tuple[Var, Var]] = {}

        def product(n: Node) -> Expr | None:
            match n:
                case Binary("/", x, y) if shared(n) and (y in certain or not any(variables(*z.indices) for z in loads(y))):
                    if y not in found:
                        found[y] = Var(fresh(taken, "scale"), y.dtype), Var(fresh(taken, "reciprocal"), y.dtype)
                    scale, reciprocal = found[y]
                    return x * scale * reciprocal
            return None

        body = rewrite(s.body, product)
        result: Stmt = s.with_(body=visit(body))
        for y, (c, r) in found.items():
            result = Let(c, normal_scale(y), Let(r, Call(INVERSE, (y * c,), y.dtype), result))
        return result

    return func.with_(body=visit(func.body))


def _shared_divisors(s: For) -> Callable[[Binary], bool]:
    """A test for quotients in a loop by a float that is the same in all iterations, of values that are not."""
    written = stored_names(s.body)
    inside = {s.var.name, *(n.var.name for n in walk_stmts(s.body) if isinstance(n, For | Let))}

    def stays(e: Expr) -> bool:
        return not inside & variables(e) and not any(x.buffer.name in written for x in loads(e))

    return lambda e: dtypes.computed(e.dtype) == e.dtype and dtypes.is_float(e.dtype) and stays(e.b) and not stays(e.a)


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
