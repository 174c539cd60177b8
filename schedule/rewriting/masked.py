"""Iterations of a loop whose values are all -inf by a condition, as those behind a causal mask."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from functools import partial, reduce
from typing import Any

from tir.analysis.program_points import negated
from tir.arith.bounds import ranges_of, upper_limit
from tir.arith.simplify import simplify
from tir.ir import Binary, Block, Cast, Const, Expr, For, Load, PrimFunc, Select, Store, Var, conjuncts
from tir.traverse import accessed_names, blocks, loops, loops_in, stored_names, substitute, variables

from ..legality.reducer import accumulation
from ..primitive import blocks_below, loop_at


def iterations_above(func: PrimFunc, name: str, values: Sequence[tuple[str, Expr]], kept: Set[str]) -> Expr:
    """The extent of a loop without the iterations at its end in which all `values` are -inf; one iteration stays.

    A value belongs to a block of the loop and has its axes. The extent is the whole one where the loop stores anything that is
    read outside of it, other than the buffers `kept`.
    """
    loop, path = loop_at(func, name)
    inside = blocks_below(loop.body)
    made = stored_names(loop.body) - kept
    outside = {x for b in blocks(func) if b not in inside for x in accessed_names(b)} if made else set()
    if made & outside or made & {b.name for b in func.buffers}:
        return loop.extent
    inner, around = loops(loop.body), loops_in(path[:-1])
    ranges, names = ranges_of((*around, loop, *inner)), {x.name for x in inner}
    known = {loop.name, *names, *(x.name for x in around)}
    longest = dict[Expr, None]()
    for block, value in values:
        (b,) = (x for x in inside if x.name == block)
        found = [simplify(_bound(c, b), ranges) for c in _conditions(value, inside, loop)]
        limits = [x for c in found if variables(c) <= known and (x := upper_limit(c, loop.name, names, ranges)) is not None]
        if not limits:
            return loop.extent
        longest[reduce(partial(Binary, "min"), limits)] = None
    one: Expr = Const(1, loop.extent.dtype)
    return simplify(Binary("min", loop.extent, reduce(partial(Binary, "max"), longest, one)), ranges)


def _bound(e: Expr, block: Block) -> Expr:
    """An expression over the axes of a block in terms of the loops around it."""
    return substitute(e, {it.var: it.binding for it in block.iters})


def _conditions(e: Expr, inside: Sequence[Block], loop: For) -> list[Expr]:
    """Conditions without any of which a value is -inf: those by which it is chosen, or what it reads was, in the same loop."""
    match e:
        case Select(c, a, Const(value)) if value == -math.inf:
            return [*conjuncts(c), *_conditions(a, inside, loop)]
        case Select(c, Const(value), a) if value == -math.inf:
            return [*conjuncts(negated(c)), *_conditions(a, inside, loop)]
        case Cast(_, a):
            return _conditions(a, inside, loop)
        case Load(buffer, indices):
            makers = [b for b in inside if buffer.name in stored_names(b)]
            store = makers[0].body if len(makers) == 1 else None
            if type(store) is not Store or not all(type(i) is Var for i in store.indices) or len({*store.indices}) < len(indices):
                return []
            b, found = makers[0], accumulation(makers[0])
            if b.init is not None and (found is None or found.op != "max" or found.start != Const(-math.inf, e.dtype)):
                return []
            axes: dict[Any, Expr] = dict(zip(store.indices, indices, strict=True))
            summed = {it.var: it.binding for it in b.iters if it.var not in axes}
            if any(loop.name in variables(x) for x in summed.values()):
                return []  # it has values of other iterations, too
            value = store.value if found is None else found.added
            return [substitute(c, {**axes, **summed}) for c in _conditions(value, inside, loop)]
    return []
