"""stage_padding: an input that a block pads as it reads gets a padded copy."""

from __future__ import annotations

from tir.arith.bounds import bounds, ranges_of, without_units
from tir.arith.intervals import Ranges
from tir.arith.polynomial import Polynomial, add, constant, polynomial, scale, to_expr
from tir.arith.simplify import simplify
from tir.ir.blocks import Block
from tir.ir.buffers import Buffer, Load
from tir.ir.expressions import COMPARISONS, Binary, Cast, Const, Expr, Select, conjunction, conjuncts, const
from tir.ir.functions import PrimFunc
from tir.ir.statements import Store  # fmt: skip
from tir.traverse import loads, rewrite, variables, walk

from ...error import ScheduleError
from ...legality.dataflow import locate
from ...legality.reducer import accumulation
from ...legality.requirements import in_bounds, own_loops
from ...primitive import BlockName, BufferOfBlock, primitive
from ...rewriting.cache_stages import copy_axes, need_only_reads, place_to_copy
from ...rewriting.edits import Names, edited, unstated, with_buffer
from ...rewriting.layouts import buffer_argument
from ...rewriting.placement import nest_over_windows


@primitive
def stage_padding(func: PrimFunc, block: BlockName, buffer: BufferOfBlock) -> tuple[PrimFunc, str]:
    """Read a buffer through a copy with its padding; returns the name of the copying block.

    The block reads the buffer under conditions, and a constant elsewhere: the padding. The buffer is given as for `reindex`. The
    copy has all places from the first to the last that the block reads in each dimension, padding included.

    Rewrite   S(i, r): B[i] = B[i] + T.if_then_else(i + r >= 1, A[i + r - 1], 0)
           => for ax0: A_padded[ax0] = T.if_then_else(ax0 >= 1, A[ax0 - 1], 0)
              S(i, r): B[i] = B[i] + A_padded[i + r]
              If the term of a sum is a product, as in te.sum(..., where=...), its factor is padded:
              T.if_then_else(c, B[i] + A[x] * k, B[i]) => B[i] + T.if_then_else(c, A[x] * k, 0)
              T.if_then_else(c, A[x] * k, 0) => T.if_then_else(c, A[x], 0) * k    # equal for finite k
    Legal     if the loops around the block are its own, and it reads the buffer in such choices alone, all of them the same. Each
              condition compares an index of the buffer, plus or minus a constant, with a constant. The copy then reads only in
              bounds. A sum starts from 0, and its other factors are in bounds where the condition does not hold, too.
    Example   padded_sums: s.stage_padding("C", ("read", 0))
    """
    scope, leaf = locate(func, block)
    source = buffer_argument(leaf.block, buffer)
    need_only_reads(leaf, source.name)
    own_loops(leaf)
    ranges = ranges_of([leaf.block], scope.ranges)
    reader = _with_padded_factor(leaf.block, source, ranges)
    choice, read = _padded_read(reader, source)
    stand = place_to_copy(scope, [leaf], source.name)
    starts, extents = _read_box(reader, read, ranges)
    names = Names.of(func)
    copy = Buffer(names.buffer(f"{source.name}_padded"), tuple(map(Const, extents)), source.dtype, source.scope)
    iters = copy_axes(names, [(Const(n), "int32") for n in extents])
    inside = ranges_of([Block("", iters, reader.body)])
    places = [simplify(it.var + start) for it, start in zip(iters, starts, strict=True)]
    condition = conjunction(*(_condition_on_copy(c, reader, read, places, inside) for c in conjuncts(choice.condition)))
    value = Select(condition, Load(source, tuple(places)), choice.false_value, lazy=True)
    making = Block(names.block(copy.name), iters, Store(copy, tuple(it.var for it in iters), value))
    if not in_bounds(making, inside):  # if dimensions share an axis, or another statement guards the block
        raise ScheduleError(
            f"not all places of `{source.name}` between the first and the last that `{block}` asks for are inside of it",
            (reader, f"reads {source.name}"),
            hint="let conditions bound each index by itself",
        )
    indices = tuple(simplify(i - start, without_units(ranges)) for i, start in zip(read.indices, starts, strict=True))
    new = unstated(rewrite(reader, lambda n: Load(copy, indices) if n == choice else None), source.name)
    placed = nest_over_windows(making, {}, stand.ranges, names, preserve_unit_loops=True)
    return with_buffer(edited(func, [(leaf.block, new)], stand.insertion(placed)), scope.block, copy), making.name


def _with_padded_factor(block: Block, source: Buffer, ranges: Ranges) -> Block:
    """A block that sums products under a condition, with the condition moved to the factor from `source`, which is else 0.

    The block itself if it does something else, or if other factors would be read out of bounds."""
    body = block.body
    match body:
        case Store(buffer, at, Select(c, Binary("+", a, b), old)) if old == Load(buffer, at) and old in (a, b):
            term = Select(c, b if a == old else a, const(0, old.dtype), lazy=True)
            body = body.with_(value=Binary("+", old, term))
    found = accumulation(block.with_(body=body))
    if found is None or found.op != "+" or not found.start.is_zero:
        return block
    match found.added:
        case Select(c, Binary("*") as product, Const(0)) as term if (chosen := _chosen(c, product, source)) is not None:
            new = block.with_(body=rewrite(body, lambda n: chosen if n == term else None))
            return new if in_bounds(new, ranges) else block
    return block


def _chosen(condition: Expr, product: Expr, source: Buffer) -> Expr | None:
    """A product with its factor from `source` 0 where a condition does not hold; None unless it has one such factor."""
    match product:
        case Load(buffer) if buffer == source:
            return Select(condition, product, const(0, product.dtype), lazy=True)
        case Cast(_, a):
            found = _chosen(condition, a, source)
            return None if found is None else product.with_(value=found)
        case Binary("*", a, b):
            left, right = _chosen(condition, a, source), _chosen(condition, b, source)
            return None if left is right else product.with_(a=left) if left is not None else product.with_(b=right)
    return None


def _padded_read(block: Block, source: Buffer) -> tuple[Select, Load]:
    """The choice between an element of a buffer and a constant, and the load in it; refuses other reads of the buffer."""
    found = {
        n: n.true_value
        for n in walk(block.body)
        if isinstance(n, Select)
        and isinstance(n.true_value, Load)
        and n.true_value.buffer == source
        and isinstance(n.false_value, Const)
    }
    reads = [x for x in loads(block) if x.buffer == source]
    inside = [x for n in walk(block.body) if n in found for x in [n.true_value]]
    if len(found) != 1 or len(inside) != len(reads):
        raise ScheduleError(
            f"`{block.name}` does not read `{source.name}` under one condition, and a constant elsewhere",
            (block, f"reads {source.name}"),
            hint="it must read it in T.if_then_else(condition, A[...], constant) alone",
        )
    return next(iter(found.items()))


def _read_box(block: Block, read: Load, ranges: Ranges) -> tuple[list[int], list[int]]:
    """The first place in each dimension that a load reads, padding included, and the number of places."""
    starts, extents = [], []
    for i in read.indices:
        low, high = bounds(i, ranges)
        strange = not variables(i) <= {it.var.name for it in block.iters} or loads(i)
        if strange or not isinstance(low, int) or not isinstance(high, int):
            raise ScheduleError(
                f"`{block.name}` asks for places `{i}` of `{read.buffer.name}`, of which the first and the last are not known",
                (block, f"reads {read.buffer.name}"),
                hint="an index is made of axes of constant extents",
            )
        starts.append(low)
        extents.append(high - low + 1)
    return starts, extents


def _condition_on_copy(condition: Expr, block: Block, read: Load, places: list[Expr], ranges: Ranges) -> Expr:
    """A condition on an index of a load as a condition on the copy's axis for that dimension."""
    if isinstance(condition, Binary) and condition.op in COMPARISONS and condition.a.dtype in ("int32", "int64"):
        difference = add(polynomial(condition.a), polynomial(condition.b), -1)
        for i, place in zip(read.indices, places, strict=True):
            for sign in (1, -1):
                rest = add(difference, polynomial(i), -sign)
                if variables(i) and set(rest) <= {()}:
                    moved: Polynomial = add(scale(polynomial(place), sign), constant(rest.get((), 0)))
                    number, terms = moved.get((), 0), {m: c for m, c in moved.items() if m}  # the constant is on the right
                    return simplify(Binary(condition.op, to_expr(terms), Const(-number)), ranges)
    raise ScheduleError(
        f"`{condition}` is no condition on an index of `{read.buffer.name}` in `{block.name}`",
        (block, f"reads {read.buffer.name}"),
        hint="a condition compares an index with a number",
    )
