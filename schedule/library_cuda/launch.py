"""What schedules of products for GPUs have in common: blocks in an order that shares caches, and tiles that all threads fetch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from schedule.primitive import find_block, loops_of
from schedule.schedule import Schedule
from tir import dtypes
from tir.ir import Binary, Block, Const, Expr, Load, Var
from tir.traverse import loads, stores

from ..templates.structure import Contraction, extent, iterations

LANES = 16  # bytes that a thread loads at once
GROUP = 8  # rows of blocks that run together


def rasterise(s: Schedule, by: str, bx: str) -> str:
    """Order the blocks of a grid so that those that run together share what they read; returns the loop to bind.

    by, bx   =>   by // g, bx, by % g fused: g rows of blocks go through the columns together, so that a wave of blocks reads g
    tiles of rows and few of columns, which the second-level cache then holds.
    """
    rows = iterations(s, by) or 1
    group = max(g for g in range(1, GROUP + 1) if rows % g == 0)
    if group > 1:
        outer, inner = s.split(by, [None, group])
        s.reorder(outer, bx, inner)
        return s.fuse(outer, bx, inner)
    return s.fuse(by, bx)


def fetch(s: Schedule, copy: str, rank: int, threads: Sequence[tuple[str, int]]) -> None:
    """All threads load a tile together: neighbours in a warp load neighbours in memory, several elements each where they fit.

    `threads` are the axes and their extents, the fastest last.
    """
    loops = [x.name for x in loops_of(s.func, copy)][-rank:]
    sizes: list[int] = [iterations(s, x) or 1 for x in loops]
    total, width = prod(sizes), sizes[-1]
    source = next(iter(loads(find_block(s.func, copy).body)), None)
    count = prod(n for _, n in threads)
    lanes = LANES // dtypes.nbytes(source.dtype) if source is not None else 1
    while lanes > 1 and (width % lanes or total % (lanes * count) or not _aligned(source, lanes)):
        lanes //= 2
    fused = s.fuse(*loops)
    parts = s.split(fused, [None, *(n for _, n in threads), *([lanes] if lanes > 1 else [])])
    if lanes > 1:
        s.vectorize(parts[-1])
    for (axis, _), loop in zip(threads, parts[1:], strict=False):
        s.bind(loop, axis)


def stage(s: Schedule, c: Contraction, after: str | None, scope: str, tile: Mapping[str, int]) -> tuple[list[str], str]:
    """Read the factors of a product through shared memory and accumulate it in `scope`; returns the blocks that copy the factors
    and the one that writes the result: `after`, where there is one. Axes are padded to multiples of `tile`, by name."""
    copies = [s.cache_read(c.block, x.buffer.name, "shared") for x in (c.left, c.right)]
    if after is None:
        after = s.cache_write(c.block, 0, scope)
    else:
        s.set_scope(c.block, 0, scope)
    for copy in copies:
        inline_producers(s, copy)
    axes = find_block(s.func, c.block).iters
    multiples = [tile.get(it.var.name, 1) for it in axes]
    if any(extent(it) % n for it, n in zip(axes, multiples, strict=True)):
        s.pad_einsum(c.block, multiples)
    return copies, after


def _aligned(source: Load | None, lanes: int) -> bool:
    """Whether what is loaded lies in groups of `lanes` elements, which start where vectors may."""
    if source is None or not source.indices or not isinstance(source.buffer.shape[-1], Const):
        return False
    return int(source.buffer.shape[-1].value) % lanes == 0 and _steady(source.indices[-1], lanes)


def _steady(index: Expr, lanes: int) -> bool:
    """Whether an index follows one axis through whole groups of `lanes`."""
    match index:
        case Var():
            return True
        case Binary("%", a, Const(c)) | Binary("+" | "-", a, Const(c)):
            return c % lanes == 0 and _steady(a, lanes)
        case _:
            return False


def follower(s: Schedule, block: str) -> str | None:
    """The only consumer of a block with one result, if it reduces nothing and each of its iterations reads the one element that
    its axes name."""
    consumers, made = s.get_consumers(block), stores(find_block(s.func, block).body)
    if len(consumers) != 1 or len(made) != 1 or block in s.get_output_blocks():
        return None
    consumer = find_block(s.func, consumers[0])
    read = [x for x in loads(consumer.body) if x.buffer.name == made[0].buffer.name]
    return consumer.name if consumer.init is None and all(_own(x, consumer) for x in read) else None


def _own(x: Load, b: Block) -> bool:
    """Whether an element is at the axes of a block, in order; 0 stands for an axis with one value."""
    return len(x.indices) == len(b.iters) and all(
        i == it.var or (i == Const(0) and it.extent == Const(1)) for i, it in zip(x.indices, b.iters, strict=True)
    )


def inline_producers(s: Schedule, copy: str) -> None:
    """What makes a factor element by element, such as padding, is computed as it is loaded."""
    for name in s.get_producers(copy):
        b = find_block(s.func, name)
        if b.init is None and s.get_consumers(name) == [copy] and not any(x.thread for x in loops_of(s.func, name)):
            s.compute_inline(name)
            inline_producers(s, copy)
