"""make_unsigned: a sum of products reads an int8 factor as uint8, and its result is corrected."""

from __future__ import annotations

from tir.ir import TRUE, Axis, Binary, Block, Buffer, Cast, Const, Expr, Iter, Load, PrimFunc, Store, Var
from tir.traverse import replace_buffers, substitute

from ...error import ScheduleError
from ...legality.dataflow import locate
from ...legality.reducer import accumulation
from ...primitive import BlockName, BufferName, find_block, primitive
from ...rewriting.edits import Insertion, Names, edited, with_buffer
from ...rewriting.placement import nest_over_windows
from ..buffers.cache_read import cache_read
from ..buffers.cache_write import cache_write

OFFSET = 128  # from int8 to uint8


@primitive
def make_unsigned(func: PrimFunc, block: BlockName, buffer: BufferName) -> tuple[PrimFunc, tuple[str, str, str]]:
    """Shift an int8 factor of a sum of products by 128 to uint8, and correct the result; returns the names of three new blocks.

    The blocks add 128 to the factor, sum the other factor, and subtract 128 times these sums. Processors without dot products of
    two int8 may have those of uint8 by int8 (VNNI). Integers wrap to the same results.

    Rewrite   for i: for j: for k: C[i, j] = C[i, j] + int32(A[i, k]) * int32(B[k, j])               # from 0
           => for i: for k: A_global[i, k] = uint8(int32(A[i, k]) + 128)
              for j: for k: B_sum[j] = B_sum[j] + int32(B[k, j])                                      # from 0
              for i: for j: for k: C_global[i, j] = C_global[i, j] + int32(A_global[i, k]) * int32(B[k, j])  # from 0
              for i: for j: C[i, j] = C_global[i, j] - B_sum[j] * 128
    Legal     if the block, alone in its nest and without conditions, is a sum from 0, written at its axes. Its terms are products
              of an int8 element of the buffer and an element of another buffer, both converted to int32. The indices of the
              other buffer are constants and axes of the block, all reduction axes and a spatial one among them. `cache_read`
              of the buffer and `cache_write` of the result are legal.
    Example   bytes_product: s.make_unsigned("C", "A")
    """
    scope, leaf = locate(func, block)
    target, chain = leaf.block, leaf.exclusive_loops
    other, result = _other_factor(target, buffer)
    if len(chain) < len(leaf.loops) or not chain or target.predicate != TRUE:
        raise ScheduleError(
            f"`{block}` is not alone in its loops, over its whole domain",
            (target, "the block"),
            hint="do this before its loops are merged, or split by what does not divide them",
        )
    func, shifting = cache_read(func, block, buffer, "global", [block])
    func, correcting = cache_write(func, block, 0, "global")

    copy, last = find_block(func, shifting), find_block(func, correcting)
    assert type(copy.body) is Store and type(last.body) is Store
    shifted = Binary("+", Cast("int32", copy.body.value), Const(OFFSET, "int32"))
    unsigned = copy.body.buffer.with_(dtype="uint8")
    changed = copy.with_(body=copy.body.with_(value=Cast("uint8", shifted)), reads=None, writes=None)
    func = replace_buffers(edited(func, [(copy, changed)]), {unsigned.name: unsigned})

    names = Names.of(func)
    summing, sums = _sums(target, other, names)
    at = {i.name: v for i, v in zip(result.indices, last.body.indices, strict=True) if type(i) is Var}
    summed = Load(sums, tuple(at[i.name] for i in other.indices if type(i) is Var and i.name in at))
    corrected = Binary("-", last.body.value, Binary("*", summed, Const(OFFSET, "int32")))
    last, (_, moved) = find_block(func, correcting), locate(func, block)
    assert type(last.body) is Store
    changes = [(last, last.with_(body=last.body.with_(value=corrected), reads=None, writes=None))]
    nest = nest_over_windows(summing, {}, {}, names, preserve_unit_loops=True)
    func = edited(func, changes, Insertion(moved.exclusive_loops[0], 0, nest))
    return with_buffer(func, scope.block, sums), (shifting, summing.name, correcting)


def _other_factor(block: Block, buffer: str) -> tuple[Load, Store]:
    """The load of the other factor in a sum of products with `buffer`, and the store; refuses any other block."""
    found = accumulation(block)
    if found is not None and found.op == "+" and found.start == Const(0, "int32"):
        match found.added:
            case Binary("*", Cast("int32", Load() as x), Cast("int32", Load() as y)):
                if y.buffer.name == buffer:
                    x, y = y, x
                axes = [i.name for i in y.indices if type(i) is Var]
                reducing = {it.var.name for it in block.reduction}
                own = all(type(i) is Var for i in found.store.indices) and len(axes) == len(set(axes))
                own = own and all(type(i) in (Var, Const) for i in y.indices)
                names = (x.buffer.name, x.buffer.dtype, y.buffer.name != buffer)
                if names == (buffer, "int8", True) and own and reducing < set(axes):
                    return y, found.store
    raise ScheduleError(
        f"`{block.name}` is no sum of int8 elements of `{buffer}`, as int32, times elements of another buffer at its axes",
        (block, "the block"),
        hint="it must be C[...] = C[...] + int32(A[...]) * int32(B[...]), with T.init() storing 0",
    )


def _sums(block: Block, other: Load, names: Names) -> tuple[Block, Buffer]:
    """The block that sums the other factor over the reduction axes, and its output."""
    new: dict[str, Expr] = {}
    iters: list[Iter] = []
    for i in (i for i in other.indices if type(i) is Var):
        old = next(it for it in block.iters if it.var == i)
        v = Var(names.axis(f"v{len(iters)}"), old.var.dtype)
        new[old.var.name] = v
        iters.append(Iter(v, old.extent, old.axis, v))
    place = tuple(it.var for it in iters if it.axis is Axis.SPATIAL)
    sums = Buffer(names.buffer(f"{other.buffer.name}_sum"), tuple(it.extent for it in iters if it.axis is Axis.SPATIAL), "int32")
    added = Binary("+", Load(sums, place), Cast("int32", substitute(other, new)))
    return Block(names.block(sums.name), tuple(iters), Store(sums, place, added), Store(sums, place, Const(0, "int32"))), sums
