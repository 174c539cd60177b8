"""Iterations of a loop whose values are all -inf by a condition, as those behind a causal mask."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence, Set
from functools import partial, reduce
from typing import Any

from tir import dtypes
from tir.analysis.program_points import negated
from tir.arith.bounds import ranges_of, upper_limit
from tir.arith.intervals import Ranges
from tir.arith.simplify import simplify
from tir.ir import TRUE, Binary, Block, Cast, Const, Expr, For, Load, PrimFunc, Select, Store, Var, conjuncts
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
    writers = Counter(x for b in blocks(func) for x in stored_names(b))
    whole = {x for b in inside if _is_whole(b, ranges) for x in stored_names(b) if writers[x] == 1}
    longest = dict[Expr, None]()
    for block, value in values:
        (at,) = (n for n, x in enumerate(inside) if x.name == block)
        found = [simplify(_bound(c, inside[at]), ranges) for c in _conditions(value, inside[:at], whole, loop)]
        limits = [x for c in found if variables(c) <= known and (x := upper_limit(c, loop.name, names, ranges)) is not None]
        if not limits:
            return loop.extent
        longest[reduce(partial(Binary, "min"), limits)] = None
    one: Expr = Const(1, loop.extent.dtype)
    return simplify(Binary("min", loop.extent, reduce(partial(Binary, "max"), longest, one)), ranges)


def _bound(e: Expr, block: Block) -> Expr:
    """An expression over the axes of a block in terms of the loops around it."""
    return substitute(e, {it.var: it.binding for it in block.iters})


def _is_whole(block: Block, ranges: Ranges) -> bool:
    """True where a block stores all elements of its domain: its conditions are ends of its axes, or hold where sums begin."""
    ends = [Binary("<", it.binding, it.extent) for it in block.iters]
    summed = {x for it in block.reduction for x in variables(it.binding)}
    first = {x: Const(0, "int32") for x in summed - {x for it in block.spatial for x in variables(it.binding)}}
    return all(c in ends or simplify(substitute(c, first), ranges) == TRUE for c in conjuncts(block.predicate))


def _conditions(e: Expr, earlier: Sequence[Block], whole: Set[str], loop: For) -> list[Expr]:
    """Conditions of which each, where false, makes a value -inf: those by which it is chosen, or what it reads was, by blocks
    that come `earlier` in the same loop and store all of a buffer, one of the `whole`."""
    match e:
        case Select(c, a, Const(value)) if value == -math.inf:
            return [*conjuncts(c), *_conditions(a, earlier, whole, loop)]
        case Select(c, Const(value), a) if value == -math.inf:
            return [*conjuncts(negated(c)), *_conditions(a, earlier, whole, loop)]
        case Cast(dtype, a) if dtypes.is_float(dtype) and dtypes.nbytes(dtype) > 1:
            return _conditions(a, earlier, whole, loop)
        case Load(buffer, indices):
            at = next((n for n, b in enumerate(earlier) if buffer.name in stored_names(b)), len(earlier))
            if at == len(earlier) or buffer.name not in whole:
                return []
            store = earlier[at].body
            if type(store) is not Store or not all(type(i) is Var for i in store.indices) or len({*store.indices}) < len(indices):
                return []
            b, found = earlier[at], accumulation(earlier[at])
            if b.init is not None and (found is None or found.op != "max" or found.start != Const(-math.inf, e.dtype)):
                return []
            axes: dict[Any, Expr] = dict(zip(store.indices, indices, strict=True))
            summed = {it.var: it.binding for it in b.iters if it.var not in axes}
            if any(loop.name in variables(x) for x in summed.values()):
                return []  # it has values of other iterations, too
            value = store.value if found is None else found.added
            return [substitute(c, {**axes, **summed}) for c in _conditions(value, earlier[:at], whole, loop)]
    return []
