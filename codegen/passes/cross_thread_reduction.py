"""Reductions across threads: each thread reduces its share, then the threads combine their partial results.

A loop bound to threadIdx may drive reduction axes of one block below it. Lanes of a warp exchange partial results by shuffles
where the loop has all threads of threadIdx.x and they fill warps or divide one. Warps, and threads that are not aligned to
warps, exchange theirs through shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from schedule.legality.reducer import updated
from tir.ir.blocks import Axis, Block
from tir.ir.buffers import Buffer, Load
from tir.ir.expressions import Binary, Call, Const, Expr, Select, Var, conjunction, conjuncts
from tir.ir.functions import PrimFunc
from tir.ir.statements import For, If, Kind, Stmt, Store, guarded, nest, seq
from tir.memory import WARP
from tir.traverse import (
    axis_loops,
    fresh,
    map_statements,
    names,
    perfect_nest,
    rewrite,
    stores,
    substitute,
    variables,
    walk_stmts,
)

from .gpu_kernels import GPUError, is_thread, threads_in

SHUFFLE = "shuffle_xor"  # a call: the value, the distance in lanes, the mask of lanes that take part


def lower_cross_thread_reduction(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for t in threads(n): for k: C[i] = C[i] + f(t, k)                     # from 0
              => for t in threads(n): P = 0;  for k: P = P + f(t, k);  P = sum of P over t;  if t == 0: C[i] = P

    If C is in local memory, every thread stores its own copy.
    """
    if not any(_reducing(s) for s in walk_stmts(func.body)):
        return func
    work = _CrossThreadLowering(names(func))
    body = work.visit(func.body, (), None)
    return func.with_(body=body, allocs=(*func.allocs, *work.allocs))


def _reducing(s: Stmt) -> bool:
    """True where `s` is a thread loop that drives a reduce axis of a block below."""
    return is_thread(s, "threadIdx") and any(isinstance(x, Block) and s.name in axis_loops(x, Axis.REDUCE) for x in walk_stmts(s))


class _CrossThreadLowering:
    def __init__(self, taken: set[str]):
        self.taken = taken
        self.allocs: list[Buffer] = []

    def visit(self, s: Stmt, around: tuple[For, ...], kernel: Stmt | None) -> Stmt:
        if isinstance(s, For) and s.kind is Kind.THREAD:
            kernel = kernel or s
            if _reducing(s):
                return self.reduce(s, around, kernel)
        inside = (*around, s) if isinstance(s, For) else around
        return map_statements(s, lambda c: self.visit(c, inside, kernel))

    def buffer(self, name: str, shape: tuple[Expr, ...], dtype: str, scope: str) -> Buffer:
        result = Buffer(fresh(self.taken, name), shape, dtype, scope)
        self.allocs.append(result)
        return result

    def reduce(self, loop: For, around: tuple[For, ...], kernel: Stmt) -> Stmt:
        chain, block = _nest(loop)
        bound = {it.var: it.binding for it in block.iters}
        reducing = axis_loops(block, Axis.REDUCE)
        _need_shareable(loop, chain, block, around, reducing)
        place, combine, identity = _operation(block)
        place, identity = substitute(place, bound), substitute(identity, bound)
        spatial = [x for x in chain if x.name not in reducing]
        # Loops count the results of a thread: the indices of these may mix block and thread, or lie beyond the last result.
        own = [*(x for x in around if is_thread(x, "vthread")), *spatial]
        partial = self.buffer(f"{place.buffer.name}_partial", tuple(x.extent for x in own), place.dtype, "local")
        mine = Load(partial, tuple(x.var for x in own))
        value = rewrite(substitute(stores(block.body)[0].value, bound), lambda x: mine if x == place else None)
        update = guarded(block.predicate, Store(partial, mine.indices, value))
        share = seq(self.again(spatial, Store(partial, mine.indices, identity)), nest(chain[1:], update))
        condition = conjunction(*(c for c in conjuncts(block.predicate) if not variables(c) & reducing))
        r = _Shared(loop, spatial, share, place, mine, combine, guarded(condition, Store(place.buffer, place.indices, mine)))
        n = int(loop.extent.value)  # type: ignore[attr-defined]
        warps, mask = _lanes(loop, n, threads_in(kernel))
        if mask and n <= WARP:
            ends = seq(*_butterfly(mine, combine, n, mask), r.stored_by(loop.var))
            return loop.with_(body=seq(share, self.again(spatial, ends)))
        return self.meet(r, around, kernel, n, warps if mask else 0, mask)

    def again(self, spatial: list[For], body: Stmt) -> Stmt:
        """`body` under copies of the loops that do not reduce."""
        mapping: dict[str, Expr] = {}
        for x in reversed(spatial):
            var = x.var.with_(name=fresh(self.taken, x.name))
            mapping[x.name] = var
            body = x.with_(var=var, body=body)
        return substitute(body, mapping)

    def meet(self, r: _Shared, around: tuple[For, ...], kernel: Stmt, n: int, warps: int, mask: int) -> Stmt:
        """The reduction with its partial results combined in shared memory: one per warp, or one per thread if `warps` is 0."""
        loop, mine, combine = r.loop, r.mine, r.combine
        others = [x for x in around if is_thread(x, "threadIdx") and x.thread != loop.thread]
        shape = (*(x.extent for x in others), *mine.buffer.shape, Const(warps or n))
        meeting = self.buffer(f"{r.place.buffer.name}_meeting", shape, mine.dtype, "shared")

        def at(t: Expr) -> Load:
            return Load(meeting, (*(x.var for x in others), *mine.indices, t))

        def threads(make: Callable[[Var], Stmt]) -> Stmt:
            var = loop.var.with_(name=fresh(self.taken, loop.name))
            return self.again(r.spatial, loop.with_(var=var, body=make(var)))

        tree = []
        if warps:
            put = If((loop.var % WARP).equal(Const(0)), Store(meeting, at(loop.var // WARP).indices, mine))
            partial = seq(*_butterfly(mine, combine, WARP, mask), put)
        else:
            partial = Store(meeting, at(loop.var).indices, mine)
            half = 1 << (n - 1).bit_length() >> 1
            while half >= 1:

                def step(t: Var, half: int = half) -> Stmt:
                    return If(conjunction(t < half, t + half < n), Store(meeting, at(t).indices, combine(at(t), at(t + half))))

                tree.append(step)
                half //= 2
        start = loop.with_(body=seq(r.share, self.again(r.spatial, partial)))

        def end(t: Var) -> Stmt:
            total: Stmt = Store(mine.buffer, mine.indices, at(Const(0)))
            if warps:
                w = Var(fresh(self.taken, "warp"))
                more = Store(mine.buffer, mine.indices, combine(mine, at(w + 1)))
                total = seq(total, For(w, Const(warps - 1), more))
            return r.stored_by(t, total)

        steps = seq(start, *map(threads, tree), threads(end))
        if kernel is not loop:
            return steps
        return For(Var(fresh(self.taken, "block")), Const(1), steps, Kind.THREAD, thread="blockIdx.x")  # they stay one kernel


@dataclass(frozen=True)
class _Shared:
    """A reduction that the threads of a loop share."""

    loop: For
    spatial: list[For]  # the loops below that do not reduce
    share: Stmt  # the partial results of one thread
    place: Load  # the element of the result
    mine: Load  # the thread's element for its partial result, and finally for the whole result
    combine: Callable[[Expr, Expr], Expr]
    final: Stmt  # the store of the result

    def stored_by(self, thread: Var, *before: Stmt) -> Stmt:
        """The store of the result by one thread; in local memory, by every thread to its own copy."""
        whole = seq(*before, self.final)
        return whole if self.place.buffer.scope == "local" else If(thread.equal(Const(0)), whole)


def _nest(loop: For) -> tuple[list[For], Block]:
    """The perfectly nested loops from `loop` inward, and their block; refuses other bodies."""
    chain = perfect_nest(loop)[0]
    block = chain[-1].body
    if not isinstance(block, Block) or block.init is None:
        raise GPUError(
            f"`{loop.name}` is bound to {loop.thread} and reduces; it must hold nothing but loops and one block with its init"
        )
    return chain, block


def _need_shareable(loop: For, chain: list[For], block: Block, around: tuple[For, ...], reducing: set[str]) -> None:
    """Refuse a reduction, driven by the loops `reducing`, that threads cannot compute in independent shares."""
    if any(x.kind is Kind.THREAD and x.name in reducing for x in chain[1:]):
        raise GPUError(f"`{block.name}` is reduced over two thread loops one inside the other; fuse them before binding")
    placing = axis_loops(block, Axis.SPATIAL, Axis.OPAQUE)
    if reducing & placing & {x.name for x in chain}:
        raise GPUError(f"`{block.name}` is reduced across threads by loops that drive its other axes, too; split before fusing")
    outer = next((x for x in around if x.name in reducing and not x.extent.is_one), None)
    if outer is not None:
        raise GPUError(f"`{outer.name}` around the threads of `{loop.name}` drives the same reduction; reorder it inside of them")
    spatial = {x.name for x in chain if x.name not in reducing}
    mixed = next((c for c in conjuncts(block.predicate) if variables(c) & reducing and variables(c) & spatial), None)
    if mixed is not None:
        raise GPUError(
            f"`{block.name}`: the condition {mixed} mixes loops that reduce with others, which threads cannot share; "
            "choose factors that divide the extents"
        )
    if not isinstance(loop.extent, Const) or loop.extent.value == 0:
        raise GPUError(f"the extent of `{loop.name}`, bound to {loop.thread}, must be a constant; split it by one before bind")


def _operation(block: Block) -> tuple[Load, Callable[[Expr, Expr], Expr], Expr]:
    """The accumulator of a block, the function that combines two partial results, and the initial value."""
    written = stores(block.body)
    begun = stores(block.init) if block.init is not None else []
    if len(written) == 1 and len(begun) == 1 and isinstance(block.body, Store):
        s = block.body
        place = Load(s.buffer, s.indices)
        if isinstance(s.value, Select) and s.value.false_value == place:
            s = s.with_(value=s.value.true_value)
        if (found := updated(s)) is not None:
            op, _ = found
            return place, lambda x, y: Binary(op, x, y), begun[0].value
    raise GPUError(
        f"`{block.name}` is reduced across threads, but is not C[...] = C[...] op f with op one of +, *, min, max, and, or"
    )


def _lanes(loop: For, n: int, block: dict[str, int]) -> tuple[int, int]:
    """The number of warps of the loop, and the mask of the active lanes of one; (0, 0) where shuffles do not apply."""
    total = prod(block.values())
    fills = n % WARP == 0 or WARP % n == 0
    if loop.thread != "threadIdx.x" or n != block["threadIdx.x"] or n == 1 or not fills or (total > WARP and total % WARP):
        return 0, 0
    return max(1, n // WARP), (1 << min(total, WARP)) - 1


def _butterfly(mine: Load, combine: Callable[[Expr, Expr], Expr], n: int, mask: int) -> list[Stmt]:
    """Steps after which each of n lanes, a power of two, has the result of all."""
    return [
        Store(mine.buffer, mine.indices, combine(mine, Call(SHUFFLE, (mine, Const(n >> k), Const(mask, "int64")), mine.dtype)))
        for k in range(1, n.bit_length())
    ]
