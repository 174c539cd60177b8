"""The tiled loop nests of a sketch, for analytic cost models."""

from __future__ import annotations

from costmodel import TileAccess, TiledNest
from schedule.open_schedule import element_bits, extent, is_spatial
from schedule.open_trace import Role, Tile
from schedule.trace import Step
from tir import dtypes
from tir.arith.polynomial import coefficient, polynomial
from tir.ir import Block, Buffer, Expr, const_shape
from tir.traverse import blocks, loads, stored_names, stores

from ..space.sketch import Sketch


def nests(sketch: Sketch) -> tuple[TiledNest, ...]:
    """The tiled nests of a sketch, from the blocks of its function or of its rules; for a GPU the other reductions, too."""
    return tuple(by_block(sketch).values())


def by_block(sketch: Sketch) -> dict[str, TiledNest]:
    """The nests of `nests`, by the name of the block."""
    original = {b.name: b for b in (*blocks(sketch.func), *sketch.made)}
    names = dict.fromkeys(sketch.tiles_by_block)
    if any(isinstance(step, Step) and step.name == "bind" for step in sketch.steps):
        names |= dict.fromkeys(name for name, b in original.items() if b.is_reduction)
    return {name: _nest(original[name], sketch) for name in names if name in original}


def _nest(block: Block, sketch: Sketch) -> TiledNest:
    tiles = {t.axis: t for t in sketch.tiles_by_block.get(block.name, ())}
    axes = {it.var.name: n for n, it in enumerate(block.iters)}

    def access(buffer: Buffer, indices: tuple[Expr, ...], written: bool) -> TileAccess:
        dims = []
        for index in indices:
            p = polynomial(index)
            used = [(n, abs(coefficient(p, name) or 0)) for name, n in axes.items()]
            dims.append(tuple((n, c) for n, c in used if c))
        # A scalar is an array of one element.
        return TileAccess(tuple(dims) or ((),), const_shape(buffer) or (1,), dtypes.nbytes(buffer.dtype), written)

    written = stored_names(block.body)
    seen: dict[tuple, TileAccess] = {}
    for s in stores(block.body):
        seen[(s.buffer.name, s.indices)] = access(s.buffer, s.indices, True)
    for x in loads(block.body):
        if x.buffer.name not in written:
            seen[(x.buffer.name, x.indices)] = access(x.buffer, x.indices, False)
    own = [tiles.get(it.var.name, Tile(block.name, it.var.name, 1, False, ())) for it in block.iters]
    vector = next((axes[axis] for axis, t in tiles.items() if t.vector), None)
    return TiledNest(
        extents=tuple(map(extent, block.iters)),
        reduce=tuple(not is_spatial(it) for it in block.iters),
        columns=tuple(t.columns for t in own),
        accesses=tuple(seen.values()),
        vector=vector,
        element_bits=element_bits(block),
        roles=tuple(t.roles for t in own),
        units=tuple(t.unit for t in own),
        stages=sketch.column_of(block.name, Role.STAGES),
        widths=tuple(sketch.column_of(block.name, Role.COPY_WIDTH, buffer) for buffer, _ in seen),
    )
