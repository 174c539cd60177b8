"""fuse: a nest becomes one loop."""

from __future__ import annotations

from functools import reduce
from math import prod
from operator import mul

from tir.arith.bounds import ranges_of
from tir.arith.simplify import simplify
from tir.arith.symbolic import is_fixed
from tir.assumptions import assumptions
from tir.dtypes import limits, promote
from tir.ir import Const, Expr, For, PrimFunc, Var, all_zero, cast
from tir.traverse import blocks, loops_in, pure_reduction_loops, variables

from ...error import ScheduleError
from ...legality.requirements import need_iterations
from ...primitive import DEPENDENT_EXTENT_HINT, LoopName, find_loop, fresh_names, loop_at, need_serial, primitive, replace_path
from ...rewriting.loops import not_nested, substitute_loops


@primitive
def fuse(func: PrimFunc, *loops: LoopName, preserve_unit_iters: bool = True) -> tuple[PrimFunc, str]:
    """Make one serial loop of perfectly nested serial loops, given outermost first; returns its name.

    A single loop stays as it is. The fused one counts in int64 where int32 cannot. Without `preserve_unit_iters`, bindings have
    0 for the variable of a fused loop of extent 1.

    Rewrite   for i, j in T.grid(M, N): S(i, j)
           => for i_j_fused in range(M * N): S(i_j_fused // N, i_j_fused % N)
    Legal     if each loop is the whole body of the one before it, none is annotated, and the extent of none depends on another.
              The iterations and their order are unchanged. If only some of the loops drive just the reduction of a block, these
              provably have iterations: a reduction over nothing has its init.
    Example   matmul: s.fuse("i", "j")
    """
    if not loops:
        raise ScheduleError("at least one loop is needed", hint="fuse('i', 'j')")
    outermost, above = loop_at(func, loops[0])
    nest = [outermost]
    for name in loops[1:]:
        inner = find_loop(func, name)
        if nest[-1].body is not inner:
            raise not_nested(nest[-1], inner)
        for outer in nest:
            if outer.name in variables(inner.extent):
                raise ScheduleError(
                    f"the extent of `{name}` depends on `{outer.name}`",
                    (outer, "changes the extent"),
                    (inner, f"runs over {inner.extent}"),
                    hint=DEPENDENT_EXTENT_HINT,
                )
        nest.append(inner)
    for loop in nest:
        need_serial(loop, "fused")
    if len(nest) == 1:
        return func, nest[0].name
    for b in blocks(nest[-1].body):
        if b.init is not None and not all(x.name in pure_reduction_loops(b) for x in nest):
            need_iterations(b, nest, ranges_of(above[:-1]), assumptions(func))

    dtype = reduce(promote, (loop.var.dtype for loop in nest))
    known = [x.extent.value for x in nest if isinstance(x.extent, Const)]
    if all(map(is_fixed, known)) and prod(map(int, known)) > limits(dtype)[1]:  # others stand for smaller numbers
        dtype = "int64"
    extents = {loop.name: simplify(cast(loop.extent, dtype)) for loop in nest}
    total = simplify(reduce(mul, extents.values()))
    (name,) = fresh_names(func, "_".join(loops) + "_fused")
    fused = For(Var(name, dtype), total, nest[-1].body)
    around = loops_in(above[:-1])
    long = [loop for loop in nest if not loop.extent.is_one] or nest[:1]
    mapping = all_zero(loop.var for loop in nest)
    rest: Expr = fused.var
    for loop in reversed(long[1:]):
        mapping[loop.name] = rest % extents[loop.name]
        rest = rest // extents[loop.name]
    mapping[long[0].name] = rest
    if total.is_zero:  # any values do, as nothing runs; but the loop must drive the same axes
        mapping = {loop.name: fused.var for loop in nest}
    folded = () if preserve_unit_iters else (name,)
    body = substitute_loops(fused.body, mapping, [*around, fused], folded)
    return replace_path(func, above, fused.with_(body=body)), name
