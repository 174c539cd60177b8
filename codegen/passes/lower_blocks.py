"""Blocks become plain loops, guards and stores; a reduction's init goes in front of the loops that reduce."""

from __future__ import annotations

from tir.arith.injectivity import counts_once
from tir.arith.simplify import simplify
from tir.ir import (
    Allocate,
    Axis,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Kind,
    Load,
    Node,
    PrimFunc,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    annotated,
    annotation,
    conjunction,
    conjuncts,
    guarded,
    nest,
    seq,
)
from tir.traverse import (
    driving,
    fresh,
    map_children,
    names,
    perfect_nest,
    replace_buffers,
    rewrite,
    stores,
    substitute,
    walk,
    walk_stmts,
)

from .memory_hints import NON_TEMPORAL, check_prefetches, streamed

ALIGNED = "storage_align"  # the attribute with the strides that buffers must have


def lower_blocks(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for k: with block C(v = e) [where p]: init: I(v); S(v)
              => I(e) for the spatial loops inside k;  for k: if p: S(e)

    The init stands directly before the outermost loop that drives a reduce axis, if nothing but loops is between that loop and
    the block; else it stays inside, under the condition that every reduce axis is at its first value. Buffers allocated by
    blocks become the function's, and so does what `storage_align` asks for: {buffer: [[axis, factor, offset], ...]}; and the
    buffers that `non_temporal` names. Those in scope "register" become local: only what `promote_registers` puts there has places
    that are constants. Raises ValueError for annotations about memory that cannot be meant.
    """
    bypassing = streamed(func)
    check_prefetches(func)
    placed = {n.name: n.with_(scope="local") for n in walk(func) if type(n) is Buffer and n.scope == "register"}
    if placed:
        func = replace_buffers(func, placed)
    lowering = _Lowering(func)
    body = lowering.stmt(func.body)
    attrs = annotated(func.attrs, ALIGNED, lowering.aligned) if lowering.aligned else func.attrs
    attrs = annotated(attrs, NON_TEMPORAL, list(bypassing)) if bypassing else attrs
    return func.with_(body=body, allocs=tuple(lowering.allocs), attrs=attrs)


class _Lowering:
    """Lowers statements; `allocs` and `aligned` are what the function then allocates, and how."""

    def __init__(self, func: PrimFunc):
        self.taken = names(func)
        self.allocs: list[Buffer] = list(func.allocs)
        self.aligned: dict[str, list[list[int]]] = {}

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case For(kind=Kind.VECTORIZED) if any(isinstance(x, Allocate) for x in walk_stmts(s)):
                return self.stmt(_lanes_apart(s))
            case For():
                loops = perfect_nest(s)
                block = loops[-1].body if isinstance(loops[-1].body, Block) else None
                reducing = set() if block is None else driving(block, Axis.REDUCE)
                if block is not None and s.name in reducing and _starts_once(block, loops, reducing):
                    return seq(self.init_nest(loops, block, reducing), nest(loops, self.flat(block)))
                return s.with_(body=self.stmt(s.body))
            case Block():
                if s.init is None:
                    return self.flat(s)
                return seq(guarded(conjunction(s.predicate, *s.first_step), self.init(s)), self.flat(s))
            case Seq(stmts):
                return seq(*(self.stmt(x) for x in stmts))
            case _:
                return map_children(s, lambda c: self.stmt(c) if isinstance(c, Stmt) else c)

    def flat(self, block: Block) -> Stmt:
        """The block without its init."""
        self.allocs.extend(block.allocs)
        written = _written(block)
        for entry in annotation(block.annotations, "buffer_dim_align", ()):
            match entry:
                case [int(number), *rule] if 0 <= number < len(written):
                    self.aligned.setdefault(written[number], []).append(rule)
        body = substitute(self.stmt(block.body), {it.var: it.binding for it in block.iters})
        return guarded(block.predicate, body)

    def init(self, block: Block) -> Stmt:
        return substitute(self.stmt(block.init), {it.var: it.binding for it in block.iters})  # type: ignore[arg-type]

    def init_nest(self, loops: list[For], block: Block, reducing: set[str]) -> Stmt:
        """The spatial ones of some loops around the init; those that only reduce are at 0."""
        zero: dict[str, Expr] = {}
        kept: list[For] = []
        for loop in loops:
            if loop.name in reducing:
                zero[loop.name] = Const(0, loop.var.dtype)
            else:
                new = loop.var.with_(name=fresh(self.taken, f"{loop.name}_init"))
                zero[loop.name] = new
                # Nothing stays in registers between the init and the reduction, so copies of it would only be more code.
                kind = Kind.SERIAL if loop.kind is Kind.UNROLLED else loop.kind
                kept.append(loop.with_(var=new, kind=kind))
        # The predicate and the condition on the reduce axes, in the first iteration of the loops that reduce here. Reducing loops
        # further out, with something else between, stay in the condition.
        condition = conjunction(*(simplify(substitute(c, zero)) for c in (*conjuncts(block.predicate), *block.first_step)))
        return nest(kept, guarded(condition, substitute(self.init(block), zero)))


def _starts_once(block: Block, loops: list[For], reducing: set[str]) -> bool:
    """Whether a reduction starts once for each iteration of the loops that do not drive it.

    A loop that drives no axis starts it again in each of its iterations. So does one that drives an axis, where it comes back to
    the first step; and so do iterations that come back to the same place.
    """
    placing = driving(block, Axis.SPATIAL, Axis.OPAQUE)
    repeated = any(x.name not in reducing | placing and not x.extent.is_one for x in loops)
    once = all(counts_once(block, loops, axis) for axis in (Axis.REDUCE, Axis.SPATIAL))
    return block.init is not None and not reducing & placing and not repeated and once


def _lanes_apart(loop: For) -> Stmt:
    """A vectorised loop with what is allocated inside of it allocated outside, with an element for each lane in every place."""
    inside = [x.buffer for x in walk_stmts(loop) if isinstance(x, Allocate)]
    wide = {b.name: b.with_(shape=(*b.shape, loop.extent)) for b in inside}

    def visit(n: Node) -> Node | None:
        match n:
            case Allocate(buffer, body) if buffer.name in wide:
                return body
            case Load(buffer, indices) | Store(buffer, indices) if buffer.name in wide:
                return n.with_(buffer=wide[buffer.name], indices=(*indices, loop.var))
            case Region(buffer, ranges) if buffer.name in wide:
                return n.with_(buffer=wide[buffer.name], ranges=(*ranges, Range(loop.var, Const(1, loop.var.dtype))))
        return None

    result: Stmt = loop.with_(body=rewrite(loop.body, visit))
    for b in wide.values():
        result = Allocate(b, result)
    return result


def _written(block: Block) -> list[str]:
    """The buffers that a block writes, in order."""
    if block.writes is not None:
        return [r.buffer.name for r in block.writes]
    return list(dict.fromkeys(s.buffer.name for part in (block.init, block.body) if part is not None for s in stores(part)))
