"""factor_out: a constant factor moves from the terms of a sum to its result."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tir import dtypes
from tir.ir import Binary, Const, Expr, PrimFunc, Store, Unary
from tir.traverse import loaded_names

from ...error import ScheduleError
from ...legality.dataflow import locate
from ...legality.reducer import accumulation
from ...primitive import BlockName, find_block, primitive
from ...rewriting.edits import edited
from ..buffers.cache_write import cache_write


@primitive
def factor_out(func: PrimFunc, block: BlockName) -> tuple[PrimFunc, str]:
    """Take the constant factors out of the terms of a sum; returns the name of the block that multiplies the result by them.

    Integers wrap to the same results. Floating results differ by rounding: the factor rounds once, not in each term. 1, -1 and
    powers of two do not round.

    Rewrite   for i: for k: C[i] = C[i] + f(i, k) * 3
           => for i: for k: C_global[i] = C_global[i] + f(i, k)
              for i: C[i] = C_global[i] * 3
    Legal     if the block is a sum from 0, and `cache_write` of its output is legal. Its terms are products, quotients or
              negatives with a finite constant other than 0. A sum of 0 may become -0.
    Example   scaled_sum: s.factor_out("C")
    """
    _, leaf = locate(func, block)
    target = leaf.block
    found = accumulation(target)
    if found is None or found.op != "+" or not found.start.is_zero or found.store.buffer.name in loaded_names(found.added):
        raise ScheduleError(
            f"`{block}` is no sum from 0",
            (target, "the block"),
            hint="it must be C[...] = C[...] + f, with T.init() storing 0; do this before decompose_reduction",
        )
    factor, rest = constant_factor(found.added)
    if factor is None or rest is None:
        raise ScheduleError(
            f"`{found.added}`, which `{block}` adds up, has no constant factor to take out",
            (target, "the block"),
            hint="a factor is a number other than 0 in a product, a quotient or a negative",
        )
    func, last = cache_write(func, block, 0, "global")
    reduction, scaling = find_block(func, block), find_block(func, last)
    body, copy = reduction.body, scaling.body
    assert type(body) is Store and type(body.value) is Binary and type(copy) is Store
    value = body.value
    added = value.with_(a=rest) if value.a == found.added else value.with_(b=rest)
    summing = reduction.with_(body=body.with_(value=added))
    return edited(func, [(reduction, summing), (scaling, scaling.with_(body=copy.with_(value=factor.times(copy.value))))]), last


@dataclass(frozen=True, slots=True)
class Factor:
    """A number, `above` divided by `below`, of a dtype; integers are divided by 1 alone."""

    above: int | float
    below: int | float
    dtype: str

    def product(self, other: Factor) -> Factor | None:
        """The product of two factors; None if it is 0 or not finite in the dtype."""
        found = Factor(self.above * other.above, self.below * other.below, self.dtype)
        low, high = dtypes.limits(self.dtype)
        fits = all(n != 0 and math.isfinite(n) and low <= n <= high for n in (found.above, found.below))
        return found if fits else None

    def times(self, e: Expr) -> Expr:
        if self.above == -1:
            e = Unary("neg", e)
        elif self.above != 1:
            e = Binary("*", e, Const(self.above, self.dtype))
        return e if self.below == 1 else Binary("/", e, Const(self.below, self.dtype))


def constant_factor(e: Expr) -> tuple[Factor | None, Expr | None]:
    """The constant factor of an expression, None without one, and the other factor, None for a constant expression."""
    one: int | float = 1.0 if dtypes.is_float(e.dtype) else 1
    match e:
        case Const(value, dtype) if dtype != "bool" and value != 0 and math.isfinite(value):
            return Factor(value, one, dtype), None
        case Unary("neg", a):
            factor, rest = constant_factor(a)
            negated = (factor or Factor(one, one, e.dtype)).product(Factor(-one, one, e.dtype))
            return (None, e) if negated is None else (negated, rest)
        case Binary("/", a, Const(value, dtype)) if value != 0 and math.isfinite(value):
            factor, rest = constant_factor(a)
            divided = (factor or Factor(one, one, dtype)).product(Factor(one, value, dtype))
            return (None, e) if divided is None else (divided, rest)
        case Binary("*", a, b):
            (first, left), (second, right) = constant_factor(a), constant_factor(b)
            product = first.product(second) if first and second else first or second
            if product is None:
                return None, e
            return product, right if left is None else left if right is None else Binary("*", left, right)
    return None, e
