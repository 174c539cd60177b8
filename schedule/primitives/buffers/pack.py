"""pack: a block reads a copy of a buffer in the order of its loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tir.arith.mixed_radix import mixed_radix
from tir.arith.polynomial import polynomial
from tir.arith.simplify import simplify
from tir.arith.symbolic import is_one
from tir.ir import Binary, Block, Buffer, Const, Expr, For, PrimFunc, Var
from tir.traverse import loads, variables

from ...error import ScheduleError
from ...legality.dataflow import buffer_of, locate
from ...legality.requirements import single_store
from ...primitive import BlockName, BufferPlace, find_block, primitive
from ...rewriting.index_map import IndexMap
from ...rewriting.layouts import transformed_layout
from ..blocks.transform_block_layout import transform_block_layout
from .cache_read import cache_read
from .reindex import reindex_cache_read


@primitive
def pack(
    func: PrimFunc,
    block: BlockName,
    read_buffer_index: BufferPlace,
    storage_scope: str = "global",
    preserve_unit_loops: bool = False,
) -> tuple[PrimFunc, str]:
    """Read a buffer through a copy in the order in which the loops around `block` walk it; returns the copying block.

    The copy has one dimension for each loop that moves along the buffer, outermost first, so that the block reads it from front
    to back. Loops of extent 1 have one only with `preserve_unit_loops`. The copying block runs in this order, too, unless it
    shares loops with others. If a tile does not divide a dimension, the last one is filled up with zeros. It is `cache_read` for
    this block alone, with its arguments and names, then `transform_layout` of the copy. If the block reads a dimension at a
    constant only, it begins with `reindex_cache_read`.

    Rewrite   for j_0: for k: for j_1 in range(16): S(B[k, j_0 * 16 + j_1])
           => for j_0, k, j_1: P[j_0, k, j_1] = B[k, j_0 * 16 + j_1] if j_0 * 16 + j_1 < N else 0
              for j_0: for k: for j_1 in range(16): S(P[j_0, k, j_1])
    Legal     if `cache_read` is legal, and the block reads the buffer at one place. Each index there is a constant, an axis v, or
              c - v for a constant c; no axis occurs twice. For c - v the copy is read backwards, too. v is a sum of loops, each
              times the product of the extents (constants) of those with smaller steps, no loop in two axes.
    Example   matmul: s.split("j", [None, 4]); s.pack("C", 1)
    """
    _, leaf = locate(func, block)
    source = buffer_of(leaf.block, read_buffer_index, written=False)
    index_map = _walk_order(leaf.block, source, leaf.loops, preserve_unit_loops)
    if _is_part(leaf.block, source):
        func, copying = reindex_cache_read(func, block, source.name, storage_scope, _map_to_used_axes(leaf.block, source))
        _, leaf = locate(func, block)
        part = buffer_of(find_block(func, copying), 0, written=True)
        index_map = _walk_order(leaf.block, part, leaf.loops, preserve_unit_loops)
    else:
        func, copying = cache_read(func, block, source.name, storage_scope, [block])
    func = transformed_layout(func, buffer_of(find_block(func, copying), 0, written=True), index_map, 0)
    _, copy = locate(func, copying)
    in_order = all(type(i) is Var for i in single_store(copy.block).indices)
    if copy.loops and copy.exclusive_loops == copy.loops and not in_order:
        func, _ = transform_block_layout(func, copying, index_map)
    return func, copying


def _is_part(block: Block, source: Buffer) -> bool:
    """True where a block reads a dimension of extent above 1 at a constant, so that a part of the buffer is enough."""
    return any(
        isinstance(i, Const) and not n.is_one
        for load in loads(block) if load.buffer.name == source.name
        for i, n in zip(load.indices, source.shape, strict=True)
    )  # fmt: skip


def _map_to_used_axes(block: Block, source: Buffer) -> IndexMap:
    """The index map from all axes of a block to those in its indices of a buffer."""
    used = {v for load in loads(block) if load.buffer.name == source.name for i in load.indices for v in variables(i)}
    axes = tuple(it.var for it in block.iters)
    return IndexMap(axes, tuple(v for v in axes if v.name in used))


def _walk_order(block: Block, source: Buffer, loops: Sequence[For], units: bool) -> IndexMap:
    """The index map from a buffer to the order of the loops; with `units`, loops of extent 1 have a dimension, too."""
    places = {n.indices for n in loads(block) if n.buffer.name == source.name}
    if len(places) > 1:
        raise ScheduleError(
            f"`{block.name}` reads `{source.name}` at {len(places)} places",
            (block, f"reads {source.name}"),
            hint=f"cache_read({block.name!r}, {source.name!r}, ...) copies it as it is",
        )
    iters = {it.var.name: it for it in block.iters}
    single = {x.name for x in loops if x.extent.is_one}
    found: dict[str, tuple[int, Any, Any]] = {}  # by loop: the dimension, the step, and the step of the next slower loop
    whole: list[int] = []
    seen: set[str] = set()
    for dim, index in enumerate(places.pop()):
        if type(index) is Const:
            whole.append(dim)
            continue
        axis = _index_axis(index)
        if axis not in iters or axis in seen:
            raise ScheduleError(
                f"`{block.name}` reads `{source.name}` at `{index}`, no axis of its own",
                (block, f"reads {source.name}"),
                hint=f"reindex({block.name!r}, {source.name!r}) makes a copy indexed by the axes",
            )
        seen.add(axis)
        binding = simplify(iters[axis].binding)
        digits = mixed_radix(polynomial(binding), {x.name: x.extent for x in loops})
        if digits is None or any(name in found or not isinstance(step, int) for name, step in digits[0]):
            raise ScheduleError(
                f"`{axis}` = `{binding}` is not counted by the loops around `{block.name}`, one after the other",
                (block, "the block"),
                hint="pack after split and reorder, before fuse",
            )
        steps = [(name, step) for name, step in digits[0] if units or name not in single]
        found |= {
            name: (dim, step, above) for (name, step), above in zip(steps, [*(s for _, s in steps[1:]), None], strict=False)
        }
        if not steps:
            whole.append(dim)
    inputs = tuple(Var(f"d{n}") for n in range(len(source.shape)))
    outputs: list[Expr] = [inputs[dim] for dim in whole]
    for loop in loops:
        if loop.name in found:
            dim, step, above = found[loop.name]
            part: Expr = inputs[dim] if is_one(step) else inputs[dim] // step
            outputs.append(part if above is None else part % (above // step))
    return IndexMap(inputs, tuple(outputs))


def _index_axis(index: Expr) -> str | None:
    """The name of the axis v of an index v or c - v; None for any other index."""
    match index:
        case Var(name) | Binary("-", Const(), Var(name)):
            return name
        case _:
            return None
