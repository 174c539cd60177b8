"""What schedules of products for GPUs have in common: blocks in an order that shares caches, and tiles that all threads fetch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from schedule.primitive import find_block, loops_of
from schedule.schedule import Schedule
from tir import dtypes
from tir.ir import Const, Load
from tir.traverse import loads

from ..library.structure import iterations

PROCESSORS = 132  # of an H100 or H200: fewer blocks leave some idle
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
    while lanes > 1 and (width % lanes or total % (lanes * count) or _row(source) % lanes):
        lanes //= 2
    fused = s.fuse(*loops) if len(loops) > 1 else loops[0]
    parts = s.split(fused, [None, *(n for _, n in threads), *([lanes] if lanes > 1 else [])])
    if lanes > 1:
        s.vectorize(parts[-1])
    for (axis, _), loop in zip(threads, parts[1:], strict=False):
        s.bind(loop, axis)


def _row(source: Load | None) -> int:
    """The elements in a row of what is loaded, to see where rows begin."""
    if source is None or not source.buffer.shape or not isinstance(source.buffer.shape[-1], Const):
        return 1
    return int(source.buffer.shape[-1].value)


def inline_producers(s: Schedule, copy: str) -> None:
    """What makes a factor element by element, such as padding, is computed as it is loaded."""
    for name in s.get_producers(copy):
        b = find_block(s.func, name)
        if b.init is None and s.get_consumers(name) == [copy] and not any(x.thread for x in loops_of(s.func, name)):
            s.compute_inline(name)
