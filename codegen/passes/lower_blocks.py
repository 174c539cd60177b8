"""Blocks become plain loops, guards and stores; the init of a reduction moves before the reduction loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from schedule.legality.dataflow import used_buffers
from tir.arith.bounds import bounds, ranges_of
from tir.arith.injectivity import counts_once
from tir.arith.simplify import simplify
from tir.empty import inits_of_empty_reductions
from tir.ir.blocks import Axis, Block
from tir.ir.buffers import Buffer, Load
from tir.ir.expressions import Binary, Const, Expr, as_int, conjunction, conjuncts
from tir.ir.functions import PrimFunc
from tir.ir.nodes import Node, annotated, annotation
from tir.ir.statements import Allocate, For, Kind, Let, Seq, Stmt, Store, guarded, nest, seq
from tir.traverse import (
    accessed_names,
    axis_loops,
    fresh,
    loads,
    loops,
    map_statements,
    names,
    perfect_nest,
    replace_buffers,
    rewrite,
    rewrite_statements,
    stored_names,
    substitute,
    variables,
    walk,
    walk_stmts,
)

from .memory_hints import NON_TEMPORAL, streamed_buffers

MAX_CASES = 64  # iterations, usually lanes (a register has up to 64), over which the maximum of an extent is written out
ALIGNED = "storage_align"  # the attribute with the strides of buffers


def lower_blocks(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for k: with block C(v = e) [where p]: init: I(v); S(v)
              => I(e) for the spatial loops inside k;  for k: if p: S(e)

    The init stands directly before the outermost loop that drives a reduction axis, if the block is perfectly nested in it. Else
    it stays inside, under the condition that every reduction axis is at its first value. Where the open extent of a reduction
    loop is 0 at run time, the inits alone run, before it. Buffers of a block are allocated in its place, or outside of a
    vectorised loop with an element for each lane. Attributes of the result keep the strides of `storage_align`, {buffer: [[axis,
    factor, offset], ...]}, and the buffers of `non_temporal`. Scope "register" becomes local: only buffers that
    `promote_registers` makes have constant indices. Raises ValueError for invalid annotations about memory.
    """
    bypassing = streamed_buffers(func)
    placed = {n.name: n.with_(scope="local") for n in walk(func) if type(n) is Buffer and n.scope == "register"}
    if placed:
        func = replace_buffers(func, placed)
    lowering = _Lowering(func)
    body = rewrite_statements(lowering.stmt(func.body), _lanes_apart)
    attrs = annotated(func.attrs, ALIGNED, lowering.aligned) if lowering.aligned else func.attrs
    attrs = annotated(attrs, NON_TEMPORAL, list(bypassing)) if bypassing else attrs
    return func.with_(body=body, attrs=attrs)


class _Lowering:
    """Lowers statements; `aligned` collects the rules of `storage_align` by buffer."""

    def __init__(self, func: PrimFunc):
        self.taken = names(func)
        self.aligned: dict[str, list[list[int]]] = {}

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case For():
                loops = perfect_nest(s)[0]
                block = loops[-1].body if isinstance(loops[-1].body, Block) else None
                reducing = set() if block is None else axis_loops(block, Axis.REDUCE)
                if block is not None and s.name in reducing and _starts_once(block, loops, reducing):
                    found = self.init_nest(loops, block, reducing), nest(loops, _with_allocs(_own(block), self.flat(block)))
                    always = not any(variables(c) & reducing for c in conjuncts(block.predicate))
                    return seq(*(() if always else self.of_nothing(s)), *found)
                return seq(*self.of_nothing(s), s.with_(body=self.stmt(s.body)))
            case Block():
                first = () if s.init is None else (guarded(conjunction(s.predicate, *s.first_step), self.init(s)),)
                return _with_allocs(_own(s), seq(*first, self.flat(s)))
            case Seq(stmts):
                return seq(*(self.stmt(x) for x in stmts))
            case _:
                return map_statements(s, self.stmt)

    def of_nothing(self, loop: For) -> list[Stmt]:
        """The inits of reductions over a loop for the case that its open extent is 0; empty for a constant extent."""
        left = None if type(loop.extent) is Const else inits_of_empty_reductions(loop.with_(extent=Const(0, loop.extent.dtype)))
        if left is None:
            return []
        fresh_vars = {x.name: x.var.with_(name=fresh(self.taken, f"{x.name}_init")) for x in loops(left)}
        renamed = rewrite_statements(left, lambda s: s.with_(var=fresh_vars[s.name]) if isinstance(s, For) else s)
        return [guarded(loop.extent <= 0, self.stmt(substitute(renamed, fresh_vars)))]

    def flat(self, block: Block) -> Stmt:
        """The block's body under its predicate, without init and allocations."""
        written = list(used_buffers(block, written=True))  # as `storage_align` numbers them
        for entry in annotation(block.annotations, "buffer_dim_align", ()):
            match entry:
                case [int(number), *rule] if 0 <= number < len(written):
                    self.aligned.setdefault(written[number], []).append(rule)
        body = substitute(self.stmt(block.body), {it.var: it.binding for it in block.iters})
        return guarded(block.predicate, body)

    def init(self, block: Block) -> Stmt:
        return substitute(self.stmt(block.init), {it.var: it.binding for it in block.iters})  # type: ignore[arg-type]

    def init_nest(self, loops: list[For], block: Block, reducing: set[str]) -> Stmt:
        """The init in copies of the spatial loops, with reduction loops at 0."""
        zero: dict[str, Expr] = {}
        kept: list[For] = []
        for loop in loops:
            if loop.name in reducing:
                zero[loop.name] = Const(0, loop.var.dtype)
            else:
                new = loop.var.with_(name=fresh(self.taken, f"{loop.name}_init"))
                zero[loop.name] = new
                # Nothing stays in registers between the init and the reduction, so unrolling would only be more code.
                kind = Kind.SERIAL if loop.kind is Kind.UNROLLED else loop.kind
                kept.append(loop.with_(var=new, kind=kind))
        # The predicate and the condition on the reduction axes, in the first iteration of the reduction loops here. Reduction
        # loops further out, with other statements between, stay in the condition.
        condition = conjunction(*(simplify(substitute(c, zero)) for c in (*conjuncts(block.predicate), *block.first_step)))
        return nest(kept, guarded(condition, substitute(_with_allocs(_own(block), self.init(block)), zero)))


def _starts_once(block: Block, loops: list[For], reducing: set[str]) -> bool:
    """True where a reduction starts once for each iteration of the loops that do not drive it.

    It starts again in each iteration of a loop that drives no axis, and where iterations return to the first step or an element.
    An init that writes a temporary of the block is for the first step alone.
    """
    if block.init is None or stored_names(block.init) & {b.name for b in block.allocs}:
        return False
    placing = axis_loops(block, Axis.SPATIAL, Axis.OPAQUE)
    repeated = any(x.name not in reducing | placing and not x.extent.is_one for x in loops)
    once = all(counts_once(block, loops, axis) for axis in (Axis.REDUCE, Axis.SPATIAL))
    return not reducing & placing and not repeated and once


def _own(block: Block) -> list[Buffer]:
    """The temporaries of a block, its axes replaced by their bindings."""
    return [substitute(b, {it.var: it.binding for it in block.iters}) for b in block.allocs]


def _with_allocs(buffers: Sequence[Buffer], s: Stmt) -> Stmt:
    """`s` inside allocations of those buffers that it uses."""
    used = accessed_names(s)
    for b in reversed(buffers):
        s = Allocate(b, s) if b.name in used else s
    return s


def _lanes_apart(s: Stmt) -> Stmt:
    return expand_per_iteration(s, lambda buffer: True) if isinstance(s, For) and s.kind is Kind.VECTORIZED else s


def expand_per_iteration(loop: For, chosen: Callable[[Buffer], bool]) -> Stmt:
    """A loop with the chosen buffers of its body allocated outside, each with the iterations as last dimension. Raises ValueError
    where no bound on an extent is known."""
    inside = [x.buffer for x in walk_stmts(loop.body) if isinstance(x, Allocate) and chosen(x.buffer)]
    wide = {b.name: b.with_(shape=(*(_most(d, loop, b) for d in b.shape), loop.extent)) for b in inside}

    def visit(n: Node) -> Node | None:
        match n:
            case Allocate(buffer, body) if buffer.name in wide:
                return body
            case Load(buffer, indices) | Store(buffer, indices) if buffer.name in wide:
                return n.with_(buffer=wide[buffer.name], indices=(*indices, loop.var))
        return None

    return _with_allocs([*wide.values()], loop.with_(body=rewrite(loop.body, visit)) if wide else loop)


def _most(extent: Expr, loop: For, buffer: Buffer) -> Expr:
    """The maximum of an extent over all iterations of a loop and the loops inside. Raises ValueError where no bound is known."""
    inside = [loop, *loops(loop.body)]
    bound = {x.name for x in inside} | {x.var.name for x in walk_stmts(loop.body) if isinstance(x, Let)}
    if not variables(extent) & bound and not loads(extent):
        return extent
    _, most = bounds(extent, ranges_of(inside))
    if most is not None:
        return Const(most, extent.dtype)
    count = as_int(loop.extent)
    if count is None or count > MAX_CASES or variables(extent) & bound != {loop.name} or loads(extent):
        raise ValueError(
            f"`{buffer.name}` has an extent of {extent} in loop `{loop.name}`, whose iterations run at once: it is not known how "
            f"much memory they need together; give `{buffer.name}` a shape that does not depend on the loop"
        )
    return reduce(lambda a, b: simplify(Binary("max", a, b)), (substitute(extent, {loop.name: Const(n)}) for n in range(count)))
